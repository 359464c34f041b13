"""The book of nonces: who sealed what under which, and whether one came twice with other content.

Two looks at the same boards. On their path to the mediator: every nonce of the link (SPEC.md 4.1,
4.2, 4.4, 5, 7.2), sent or sent again. At the broker: m3's nonce of the topic key, and inside it
m1's, the board's own, which no broker could see and the rig can, since it holds a reader's keys.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass

# What a nonce is for; the second field of a key.
PUBLISH, CONTROL, PROOF, TOKEN, REQUEST = "m2", "up", "proof", "token", "request"
INNER, OUTER = "m1", "m3"
OF_LINK = (PUBLISH, CONTROL, PROOF, TOKEN, REQUEST)

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One envelope as it came by: when (monotonic seconds), by which client, in which boot.

    epoch: of the label's key, 0 where it is none of a label's.
    """

    at: float
    use: str
    client: int
    boot: int
    salt: str
    ctr: int
    epoch: int = 0


class Book:
    """Thread-safe. Content is kept as a digest."""

    def __init__(self) -> None:
        self._held: dict[Key, bytes] = {}
        self._lock = threading.Lock()
        self.twice: list[Key] = []
        self.seen: list[Seen] = []
        # What no tap could make sense of: nonces that were not judged.
        self.unread: list[str] = []

    def add(self, key: Key, content: bytes, seen: Seen | None = None) -> bool:
        """False: this nonce was there with other content. `content`: all that it sealed."""
        digest = hashlib.sha256(content).digest()
        with self._lock:
            if seen is not None:
                self.seen.append(seen)
            if self._held.setdefault(key, digest) == digest:
                return True
            self.twice.append(key)
            return False

    def sealed(
        self,
        use: str,
        client: int,
        gen: int,
        boot: int,
        salt: bytes,
        ctr: int,
        content: bytes,
        epoch: int = 0,
    ) -> bool:
        """An envelope of a client. gen: of the link's key; 0 where it is none of the link's."""
        key = (use, str(client), str(gen), str(boot), salt.hex(), str(ctr))
        seen = Seen(time.monotonic(), use, client, boot, salt.hex(), ctr, epoch)
        return self.add(key, content, seen)

    def missed(self, why: str) -> None:
        """Something that nobody could read."""
        with self._lock:
            self.unread.append(why)

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def since(self, at: float, use: str, client: int) -> list[Seen]:
        """What a client sealed for one use, from a moment on."""
        with self._lock:
            found = []
            for seen in reversed(self.seen):
                if seen.at < at:
                    break
                if seen.use == use and seen.client == client:
                    found.append(seen)
        return found[::-1]

    def salts(self, client: int) -> set[str]:
        """Boot sessions of a client that have proved themselves so far."""
        with self._lock:
            return {seen.salt for seen in self.seen if seen.client == client and seen.use == PROOF}

    def keys(self) -> list[Key]:
        """Every nonce so far: its use, then whose it is."""
        with self._lock:
            return list(self._held)

    def counts(self) -> dict[str, int]:
        """Different nonces by use."""
        counted: dict[str, int] = {}
        with self._lock:
            for key in self._held:
                counted[key[0]] = counted.get(key[0], 0) + 1
        return counted
