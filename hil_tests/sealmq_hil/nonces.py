"""The book of nonces: who sealed what under which, and whether one came twice with other content.

Two looks at the same boards. On their path to the mediator: every nonce of the link (SPEC.md 4.1,
4.2, 4.4, 5, 7.2), sent or sent again, and the mediator's of what comes down. At the broker: those
of records, m3's of the topic key, and inside it m1's, the board's own, which no broker could see
and the rig can, since it holds a reader's keys.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# What a nonce is for: the first field of a Key, and the layer of a Pair.
PUBLISH, CONTROL, PROOF, TOKEN, REQUEST = "m2", "up", "proof", "token", "request"
INNER, OUTER, DOWN, RECORD = "m1", "m3", "down", "record"
OF_LINK = (PUBLISH, CONTROL, PROOF, TOKEN, REQUEST, DOWN)
OF_SITE = (OUTER, RECORD)
# Behind the salt, before the counter (SPEC.md 3 and 4).
_BYTE = {INNER: 0, PUBLISH: 1, CONTROL: 2, PROOF: 3, TOKEN: 4}

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


@dataclass(frozen=True, slots=True)
class Pair:
    """A (key, nonce) as others may collect it: shared_spec/nonce.schema.json.

    key: the key's name, of public fields alone. client: whose packet it is, 0 for no single one's.
    """

    at_ms: int
    layer: str
    key: str
    nonce: str
    digest: str
    client: int


def named(tag: str, **fields: int | str) -> str:
    """A key by the tag of its derivation and what goes into that (SPEC.md 2)."""
    return " ".join((tag, *(f"{name}={value}" for name, value in fields.items())))


class Book:
    """Thread-safe. Content is kept as a digest.

    site, mediator: whose keys they are; for the names of keys. on_pair: told of every packet.
    """

    def __init__(self) -> None:
        self.site, self.mediator = "0" * 8, 0
        self.on_pair: Callable[[Pair], None] = lambda pair: None
        self._held: dict[Key, bytes] = {}
        self._lock = threading.Lock()
        self.twice: list[Key] = []
        self.seen: list[Seen] = []
        # What no tap could make sense of: nonces that were not judged.
        self.unread: list[str] = []

    def add(
        self, key: Key, content: bytes, under: str, nonce: bytes, seen: Seen | None = None
    ) -> bool:
        """False: this nonce was there with other content. `content`: all that it sealed.

        key: what may not come again, which can be less than the key's name `under` and the nonce.
        """
        digest = hashlib.sha256(content).digest()
        client = 0 if key[0] in OF_SITE else int(key[1])
        at_ms = time.time_ns() // 1_000_000
        self.on_pair(Pair(at_ms, key[0], under, nonce.hex(), digest[:16].hex(), client))
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
        *,
        under: str,
        epoch: int = 0,
    ) -> bool:
        """An envelope of a client. gen: of the link's key; 0 where it is none of the link's."""
        key = (use, str(client), str(gen), str(boot), salt.hex(), str(ctr))
        seen = Seen(time.monotonic(), use, client, boot, salt.hex(), ctr, epoch)
        nonce = salt + bytes((_BYTE[use],)) + ctr.to_bytes(3, "big")
        return self.add(key, content, under, nonce, seen)

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
