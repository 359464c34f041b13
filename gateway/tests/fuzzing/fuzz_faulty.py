"""A target for each kind of defect that fuzzing is for."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fuzz.target import Target

KEPT: list[bytearray] = []


class Crash(Target):
    """Raises what nobody promised."""

    def one(self, data: bytes) -> None:
        if data[:1] == b"!":
            raise ValueError("an error that nobody promised")

    def seeds(self) -> Iterator[bytes]:
        yield b"!"


class Hang(Crash):
    """Does not come back."""

    def one(self, data: bytes) -> None:
        if data[:1] == b"!":
            time.sleep(600)


class Growth(Crash):
    """Keeps something of every input."""

    def one(self, data: bytes) -> None:
        KEPT.append(bytearray(b"x") * 5_000_000)
        time.sleep(0.01)
