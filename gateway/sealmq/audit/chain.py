"""Seals each line of an audit log, so that nobody who comes later can rewrite what stands there.

Every key is used once and forgotten: key_i+1 = HMAC(key_i, "next"), a line's seal is
HMAC-SHA256(key_i, "line" and the line), cut to 16 bytes (Schneier and Kelsey, "Secure Audit Logs to
Support Computer Forensics", 1999, section 3; RFC 2104). So whoever takes a process over can go on
with its log, and change nothing from before. Three such sequences stand in one another:

    site's audit key, role and run -> a start of a process -> a chain (its log, or a worker's)
    -> a segment, by its name -> a line, by its number

The keys do not depend on what is written, so that after a line that was changed the next ones can
still be checked, and a missing segment takes none of the others with it.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import MutableMapping
from typing import Any

MAC_BYTES = 16
_KEY_BYTES = 32
_RUN_BYTES = 16


class NoChain(ValueError):
    """What was handed over is no chain; the text holds no secret."""


class Ratchet:
    """A key, what it makes, and then the next one. 32 bytes."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "Ratchet(...)"

    def make(self, word: bytes) -> bytes:
        """32 bytes for this purpose, which no other key of the sequence makes."""
        return hmac.digest(self._key, word, "sha256")

    def step(self) -> None:
        """The present key is gone."""
        self._key = hmac.digest(self._key, b"next", "sha256")

    def copy(self) -> Ratchet:
        """To be taken back if what it was used for fails."""
        return Ratchet(self._key)


class SegmentSeal(Ratchet):
    """The lines of one segment, one after another; `lines` are sealed."""

    __slots__ = ("lines",)

    def __init__(self, key: bytes, lines: int = 0) -> None:
        super().__init__(key)
        self.lines = lines

    def of(self, body: bytes) -> str:
        """The next line's, in hex. body: the line as JSON, without its seal and its end."""
        found = self.look(body)
        self.skip()
        return found

    def look(self, body: bytes) -> str:
        """The same, and the key stays as it is."""
        return self.make(b"line " + body)[:MAC_BYTES].hex()

    def skip(self) -> None:
        """A line that has not come."""
        self.step()
        self.lines += 1

    def copy(self) -> SegmentSeal:
        """As Ratchet.copy."""
        return SegmentSeal(self._key, self.lines)


class Chain:
    """One process's log. `name` tells from which key it comes: RUN.NUMBER."""

    def __init__(self, name: str, key: bytes | Ratchet) -> None:
        self.name = name
        self._segments = key if isinstance(key, Ratchet) else Ratchet(key)
        self._number = 1

    def segment(self, name: str, number: int) -> SegmentSeal:
        """Of the segment with this number, from 1, and name; those before have no key any more.
        NoChain: so has this one.
        """
        if number < self._number:
            raise NoChain(f"segment {number} comes after segment {self._number - 1}")
        while self._number < number:
            self._step()
        found = SegmentSeal(self._segments.make(b"segment " + name.encode()))
        self._step()
        return found

    def _step(self) -> None:
        self._segments.step()
        self._number += 1


class Chains:
    """The chains of one start of a process: its own, then one for each worker that it starts."""

    def __init__(self, run: str, key: bytes) -> None:
        self._run, self._number, self._chains = run, 0, Ratchet(key)

    def next(self) -> tuple[str, bytes]:
        """Name and key of the next chain, which nobody here can make again."""
        found = f"{self._run}.{self._number}", self._chains.make(b"chain")
        self._number += 1
        self._chains.step()
        return found


def draw(audit_key: bytes, role: str) -> dict[str, str]:
    """What a start of the role's process is handed over. audit_key: the site's, 32 bytes."""
    run = os.urandom(_RUN_BYTES).hex()
    return {"run": run, "key": run_key(audit_key, role, run).hex()}


def run_key(audit_key: bytes, role: str, run: str) -> bytes:
    """What such a start began with."""
    return hmac.digest(audit_key, f"run {role} {run}".encode(), "sha256")


def handed(name: str, key: bytes) -> dict[str, str]:
    """A chain, to be handed to a worker."""
    return {"chain": name, "key": key.hex()}


def chains(secrets: MutableMapping[str, Any]) -> Chains | None:
    """What `draw` handed over, which is taken out; None: nothing, and the log gets no seals. Raises
    NoChain.
    """
    found = _two(secrets, "run")
    return None if found is None else Chains(*found)


def chain(secrets: MutableMapping[str, Any]) -> Chain | None:
    """Likewise, what `handed` did."""
    found = _two(secrets, "chain")
    return None if found is None else Chain(*found)


def first(secrets: MutableMapping[str, Any]) -> Chain | None:
    """The one chain of a process that starts no workers, out of what `draw` handed over."""
    found = chains(secrets)
    return None if found is None else Chain(*found.next())


def _two(secrets: MutableMapping[str, Any], what: str) -> tuple[str, bytes] | None:
    # Whoever reads this process's memory later must not find what its log began with.
    told = secrets.pop("audit", None)
    if told is None:
        return None
    try:
        name, key = told[what], bytes.fromhex(told["key"])
    except (KeyError, TypeError, ValueError):
        name, key = "", b""
    if not name or len(key) != _KEY_BYTES:
        raise NoChain(f"the hand-over holds no {what} of the audit log, with a key of 32 bytes")
    return name, key
