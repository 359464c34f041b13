"""What the scripted peer knows: one client's secrets, its label, one label below, and ciphers.

It plays the key generator of SPEC.md 7 and 8 with the portable package and `cryptography`.
"""

from __future__ import annotations

import os
import time
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305

from sealmq_spec import const, provision
from sealmq_spec.records import Roots, make_record


class Aead:
    """The cipher port of sealmq_spec over `cryptography`."""

    def __init__(self, suite: int, key: bytes) -> None:
        self._cipher: AESCCM | ChaCha20Poly1305
        self._cipher = AESCCM(key, 16) if suite == const.CCM else ChaCha20Poly1305(key)

    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        data = bytes(buf[start : start + n])
        buf[start : start + n + 16] = self._cipher.encrypt(nonce, data, aad)

    def open_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bool:
        data = bytes(buf[start : start + n + 16])
        try:
            buf[start : start + n] = self._cipher.decrypt(nonce, data, aad)
        except InvalidTag:
            buf[start : start + n] = bytes(n)
            return False
        return True


def make(suite: int, key: bytes) -> Aead:
    """The backend's `make(suite, key)`."""
    return Aead(suite, key)


class Site:
    """What the key generator knows of one client and its label, and of one label below it."""

    def __init__(self, suite: int = const.CCM) -> None:
        self.id = os.urandom(4)
        self.client = 7
        self.mediator = 1
        self.ps = os.urandom(32)
        self.suite = suite
        self.gen = 0
        self.km: dict[int, bytes] = {}
        self.kseq = 1
        self.inst = 5
        self.seq = 0
        self.epochs: dict[int, Roots] = {}
        self.new_epoch()
        self.lower = Roots(17, 1, suite, os.urandom(32), os.urandom(32))
        self.answer_status = provision.OK
        self.clock_error_ms = 0

    @property
    def own(self) -> Roots:
        """The client's label in its current epoch."""
        return self.epochs[max(self.epochs)]

    def new_epoch(self) -> None:
        epoch = len(self.epochs) + 1
        self.kseq += 1
        self.epochs[epoch] = Roots(20, epoch, self.suite, os.urandom(32), os.urandom(32))

    def now_ms(self) -> int:
        return int(time.time() * 1000) + self.clock_error_ms

    def order(self) -> bytes:
        self.seq += 1
        time_and_seq = (self.now_ms() << 24 | self.seq).to_bytes(9, "big")
        return self.inst.to_bytes(3, "big") + time_and_seq

    def record(self) -> bytes:
        """The derivation record from the client's label to the lower one."""
        kids = os.urandom(8), os.urandom(8)
        return make_record(make, self.id, self.own, self.lower, *kids, self.kseq, 0, self.order())

    def answer(self, packet: bytes) -> bytes:
        """The answer to a provisioning request: always a new generation."""
        provision.check_ask(make, self.id, self.ps, packet, self.mediator)
        suite, client, _, _, nonce = provision.get_ask(packet)
        plain = b""
        if self.answer_status == provision.OK:
            self.gen += 1
            self.km[self.gen] = os.urandom(32)
            o = self.own
            plain = provision.body(
                self.gen, o.label, o.epoch, o.suite, self.suite, self.mediator, self.kseq,
                self.now_ms(), o.r, o.r_bar, self.km[self.gen], b"\x00",
            )  # fmt: skip
        status = self.answer_status
        return provision.answer(
            make, self.id, self.ps, suite, status, client, nonce, self.order(), plain
        )

    def enrolment(self, port: int) -> dict[str, Any]:
        at = {"number": self.mediator, "host": "127.0.0.1", "port": port}
        return {
            "sealmq": 1, "site": self.id.hex(), "client": self.client, "name": "c7",
            "ps": self.ps.hex(), "suite": self.suite, "mediator": at,
        }  # fmt: skip
