"""Where a host's salts and nonces come from (SPEC.md 5, point 1), and its clock that only rises."""

from __future__ import annotations

import os
import socket
import time
from hashlib import sha256
from pathlib import Path

from sealmq_spec.keys import u24

# Goes on while the machine sleeps, so that a laptop's messages do not lie in the past afterwards.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def mono_ms() -> int:
    """Milliseconds that only rise."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def new_nonce() -> bytes:
    """N_c: 16 fresh random bytes."""
    return os.urandom(16)


def new_salt(boot: int, kg_nonce: bytes) -> bytes:
    """8 bytes, anew for each boot session. kg_nonce: the last one seen, b"" if none."""
    tick = time.monotonic_ns().to_bytes(8, "big")
    return sha256(os.urandom(32) + _machine() + u24(boot) + tick + kg_nonce).digest()[:8]


def _machine() -> bytes:
    try:
        return Path("/etc/machine-id").read_bytes()
    except OSError:
        return socket.gethostname().encode()
