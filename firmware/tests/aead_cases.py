"""Calls of an AEAD that real MicroPython makes, and what CPython's `cryptography` says to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305

from real_micropython import micropython

CCM, CHACHA = 1, 2
# Added to a suite: the backend for interpreters without viper.
PLAIN = 10


@dataclass(frozen=True)
class Case:
    """One call. `buf` is all that the device is given: what lies around the message included."""

    op: str
    suite: int
    key: bytes
    nonce: bytes
    aad: bytes
    buf: bytes
    start: int
    n: int

    def line(self) -> str:
        parts = (part.hex() or "-" for part in (self.key, self.nonce, self.aad, self.buf))
        return " ".join((self.op, str(self.suite), *parts, f"{self.start} {self.n}"))


def oracle(case: Case) -> bytes:
    """The ciphertext and tag of the plaintext that `case` seals, by `cryptography`."""
    plaintext = case.buf[case.start : case.start + case.n]
    if case.suite % PLAIN == CCM:
        return AESCCM(case.key, tag_length=16).encrypt(case.nonce, plaintext, case.aad)
    return ChaCha20Poly1305(case.key).encrypt(case.nonce, plaintext, case.aad)


def sealed(case: Case) -> Case:
    """The call that opens what `case` seals."""
    end = case.start + case.n + 16
    return replace(case, op="open", buf=case.buf[: case.start] + oracle(case) + case.buf[end:])


def run(bits: int, cases: list[Case], folder: Path) -> list[tuple[str, bytes]]:
    """What each call returned or raised, and its buffer afterwards."""
    file = folder / "cases"
    file.write_text("".join(case.line() + "\n" for case in cases))
    lines = micropython(bits, "aead_device.py", file, heap="32M").splitlines()
    assert len(lines) == len(cases)
    answers = (line.split() for line in lines)
    return [(got, bytes.fromhex("" if buf == "-" else buf)) for got, buf in answers]
