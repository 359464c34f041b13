"""What follows from secrets that someone holds and from everything public: every sum that a value z
allows, by our formula and by the paper's, checked against what it would open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305
from sealmq_spec.const import MANIFEST, RECORD, TAG
from sealmq_spec.envelope import tail_m3
from sealmq_spec.keys import outer_key, pad, record_key, topic_key, xor32
from sealmq_spec.records import get_manifest, get_record

_ROUNDS = 4

# (label, epoch); and (suite, where, packet, where its nonce stands) of something tagged.
Place = tuple[int, int]
Tagged = tuple[int, Place, bytes, int]


class Public:
    """Records and manifests, and messages as the broker has them."""

    def __init__(self, site: bytes, published: Iterable[tuple[bytes, bytes]]) -> None:
        self.site = site
        self.records: set[bytes] = set()
        self.manifests: set[bytes] = set()
        self.messages: set[tuple[bytes, bytes]] = set()
        self._samples: dict[Place, tuple[tuple[bytes, bytes] | None, Tagged | None]] = {}
        for topic, payload in published:
            if payload[:1] == bytes((RECORD,)):
                self.records.add(payload)
            elif payload[:1] == bytes((MANIFEST,)):
                self.manifests.add(payload)
            elif payload[:1] == b"\x13":
                self.messages.add((topic, payload))

    def follow(self, known: set[bytes]) -> set[bytes]:
        """All that follows and is a key of anything, what was known included."""
        known = set(known)
        for _ in range(_ROUNDS):
            guesses = {(g, at) for g, at in self._guesses(known) if g not in known}
            fresh = {guess for guess, at in guesses if self.is_key(guess, at)}
            if not fresh:
                break
            known |= fresh
        return known

    # With the (label, epoch) whose key it would be.
    def _guesses(self, known: set[bytes]) -> Iterator[tuple[bytes, Place]]:
        by_pair: dict[tuple[int, int], list[bytes]] = {}
        for record in self.records:
            _, _, n, e_n, top, e_top, _, _ = get_record(record)
            by_pair.setdefault((top, n), []).append(record)
            for h, kid, at in ((0, record[14:22], 30), (1, record[22:30], 62)):
                z = record[at : at + 32]
                for secret in known:
                    yield xor32(z, pad(self.site, h, n, e_n, kid, secret)), (n, e_n)
                    # As if the pad were the upper root itself.
                    yield xor32(z, secret), (n, e_n)
                    yield xor32(z, secret), (top, e_top)
        # The paper's pads stay: old and new value of a pair differ as the old and the new key do.
        for a, b in (pair for same in by_pair.values() for pair in permutations(same, 2)):
            _, _, n, e_n, _, _, _, _ = get_record(b)
            for i in (30, 62):
                both = xor32(a[i : i + 32], b[i : i + 32])
                for secret in known:
                    yield xor32(both, secret), (n, e_n)

    def is_key(self, secret: bytes, at: Place) -> bool:
        """Whether it is root R or R-bar, topic key or outer key of this label and epoch."""
        if at not in self._samples:
            self._samples[at] = self._sample(at)
        message, tagged = self._samples[at]
        if message is not None and self.opens(secret, *message):
            return True
        return tagged is not None and self._tagged(secret, *tagged)

    # Something sealed under the label's R, and something tagged under its R-bar.
    def _sample(self, at: Place) -> tuple[tuple[bytes, bytes] | None, Tagged | None]:
        message = next((m for m in self.messages if _place(m[1]) == at), None)
        for manifest in self.manifests:
            suite, label, epoch, _, _ = get_manifest(manifest)
            if (label, epoch) == at:
                return message, (suite, at, manifest, 16)
        for record in self.records:
            suite, _, _, _, label, epoch, _, _ = get_record(record)
            if (label, epoch) == at:
                return message, (suite, at, record, 102)
        return message, None

    def opens(self, secret: bytes, topic: bytes, m3: bytes) -> bool:
        """Whether a message's outer envelope opens: with R, with EK, with O."""
        suite, place = m3[1] >> 5, _place(m3)
        ek = topic_key(self.site, suite, *place, secret)
        outer = [outer_key(self.site, suite, *place, _u24(m3, 8), k) for k in (ek, secret)]
        aad = m3[:20] + tail_m3(self.site, topic)
        return any(_verifies(suite, key, m3[8:20], m3[20:], aad) for key in (*outer, secret))

    def opened(self, known: set[bytes]) -> set[tuple[bytes, bytes]]:
        """The messages that any of these opens."""
        return {m for m in self.messages if any(self.opens(secret, *m) for secret in known)}

    def _tagged(self, secret: bytes, suite: int, at: Place, packet: bytes, order: int) -> bool:
        key = record_key(self.site, suite, *at, secret)
        aad = packet[:-TAG] + self.site
        return _verifies(suite, key, packet[order : order + 12], packet[-TAG:], aad)


def _place(m3: bytes) -> Place:
    return _u24(m3, 2), _u24(m3, 5)


def _verifies(suite: int, key: bytes, nonce: bytes, sealed: bytes, aad: bytes) -> bool:
    cipher = AESCCM(key, TAG) if suite == 1 else ChaCha20Poly1305(key)
    try:
        cipher.decrypt(nonce, sealed, aad)
    except InvalidTag:
        return False
    return True


def _u24(packet: bytes, at: int) -> int:
    return int.from_bytes(packet[at : at + 3], "big")
