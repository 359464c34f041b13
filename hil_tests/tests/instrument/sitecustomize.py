"""Loaded by every Python that a test starts with this folder on PYTHONPATH, gateway processes too.

SEALMQ_RECORD: a folder. Each process keeps there what it sealed, a line each: a digest of key and
nonce, and one of what was sealed. Neither tells a key. SEALMQ_CLOCK: a file with the milliseconds
that are added to the wall clock and to time.monotonic_ns, read anew each time, so that a test sets
the clock of a running site, or lets time go by. SEALMQ_FAMILIES: a folder of policy families that
are installed, besides those of the gateway.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from typing import Any


def _record(folder: str) -> None:
    from cryptography.hazmat.primitives.ciphers import aead

    def recording(real: Any) -> Any:
        class Recording:
            def __init__(self, key: bytes, *args: Any, **kw: Any) -> None:
                self._key = sha256(bytes(key)).digest()
                self._cipher = real(key, *args, **kw)
                self.decrypt = self._cipher.decrypt

            def encrypt(self, nonce: bytes, data: Any, aad: Any) -> bytes:
                sealed: bytes = self._cipher.encrypt(nonce, data, aad)
                keep(self._key + nonce, sealed + (aad or b""))
                return sealed

        return Recording

    files: dict[int, int] = {}

    def keep(which: bytes, what: bytes) -> None:
        pid = os.getpid()
        if pid not in files:
            name = os.path.join(folder, f"{pid}-{time.monotonic_ns()}")
            files[pid] = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        line = f"{sha256(which).hexdigest()} {sha256(what).hexdigest()}\n"
        os.write(files[pid], line.encode())

    for name in ("AESCCM", "ChaCha20Poly1305"):
        setattr(aead, name, recording(getattr(aead, name)))


def _install(folder: str) -> None:
    import sealmq.families  # noqa: TID251 - this runs in the gateway's processes

    sealmq.families.__path__.append(folder)


def _shift_clock(path: str) -> None:
    wall, mono = time.time_ns, time.monotonic_ns

    def ahead_ns(at: int) -> int:
        with open(path) as file:
            return int(file.read().split()[at]) * 1_000_000

    time.time_ns = lambda: wall() + ahead_ns(0)
    time.time = lambda: time.time_ns() / 1e9
    time.monotonic_ns = lambda: mono() + ahead_ns(1)


if os.environ.get("SEALMQ_RECORD"):
    _record(os.environ["SEALMQ_RECORD"])
if os.environ.get("SEALMQ_CLOCK"):
    _shift_clock(os.environ["SEALMQ_CLOCK"])
if os.environ.get("SEALMQ_FAMILIES"):
    _install(os.environ["SEALMQ_FAMILIES"])
