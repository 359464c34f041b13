"""What is fuzzed: a function of bytes that may raise nothing, and inputs to begin with.

A target takes the errors that its surface is meant to raise; whatever else comes out is a finding.
It also looks for what no exception shows: tables that grow, two answers to one question.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeVar

from sealmq.families import registry

Choice = TypeVar("Choice")

# One target a module; its class is called Fuzz.
_MODULES = (
    "mqtt_codec",
    "mqtt_five",
    "packets",
    "reader",
    "session",
    "device",
    "mediator",
    "toml",
    "kg_socket",
    "attributes",
)
# Of policy families, by their manifests.
_FAMILIES = {each.name: each for each in registry.manifests() if each.fuzz}
NAMES = (*_MODULES, *_FAMILIES)


class Finding(AssertionError):
    """Something that must not be, seen by a target itself."""


class Target:
    """`one` is called with each input."""

    # Longest input that is tried, in bytes.
    longest: ClassVar[int] = 4096
    # Words of the format, for the dictionary.
    words: ClassVar[Sequence[bytes]] = ()

    def one(self, data: bytes) -> None:
        """Any exception from here is a finding."""
        raise NotImplementedError

    def seeds(self) -> Iterator[bytes]:
        """Inputs that already reach far."""
        yield b""

    def close(self) -> None:
        """Gives back what it holds on disk."""


class Draw:
    """Choices out of an input's bytes; a used-up input gives zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        """Whether bytes are left."""
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """At most so many bytes."""
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data))

    def number(self, size: int = 1) -> int:
        """Big-endian, of `size` bytes."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big")

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """One of them."""
        return choices[self.number() % len(choices)]

    def chunk(self) -> bytes:
        """A length in one byte, and that many bytes."""
        return self.take(self.number())


def load(name: str) -> Target:
    """A target by its name, or MODULE:CLASS for one from elsewhere."""
    family = _FAMILIES.get(name)
    if family is not None and family.fuzz is not None:
        made = family.load(family.fuzz)()
    else:
        module, _, kind = name.partition(":")
        found = importlib.import_module(f"fuzz.{name}" if name in _MODULES else module)
        made = getattr(found, kind or "Fuzz")()
    if not isinstance(made, Target):
        raise TypeError(f"{name} is no Target")
    return made
