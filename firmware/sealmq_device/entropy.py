# Salts, nonces and a clock that never wraps. A salt needs a random source that is really random:
# an ESP32 has one only while Wi-Fi is active, so salts are drawn at connect and not before.
import time
from hashlib import sha256
from os import urandom

_TYPING = False
if _TYPING:
    from collections.abc import Callable

_ticks_ms = time.ticks_ms  # type: ignore[attr-defined]
_PERIOD: int = time.ticks_add(0, -1) + 1  # type: ignore[attr-defined]

try:
    from machine import unique_id

    _HARDWARE = bytes(unique_id())
except ImportError:
    _HARDWARE = b""


# Of what the last nonce was cut from, the part that nobody was shown.
_last = b""


# 16 bytes for a request (N_c of SPEC.md 7.2), whose key has no other part that changes. With the
# session's salt and what came before in it, they differ even if the random source repeats itself.
def nonce(salt: bytes) -> bytes:
    global _last
    made = sha256(b"".join((urandom(16), salt, _last))).digest()
    _last = made[16:]
    return made[:16]


# The salt of a boot session, 8 bytes (SPEC.md 5.1). kg_nonce: the last one seen, or empty. Whatever
# one source lacks, another has: a cloned board differs in its id, a restored flash in its ticks.
def salt(boot: int, kg_nonce: bytes = b"") -> bytes:
    numbers = (boot << 32 | _ticks_ms() & 0x3FFFFFFF).to_bytes(7, "big")
    return sha256(b"".join((urandom(16), _HARDWARE, numbers, kg_nonce))).digest()[:8]


# A function that gives the milliseconds since it was made, rising for ever though ticks wrap (after
# 12 days on 32 bits). Somebody must ask at least once in a wrap; a longer silence makes the clock
# late, and the next welcome corrects that.
def monotonic() -> "Callable[[], int]":
    ticks_ms: "Callable[[], int]" = _ticks_ms
    last = ticks_ms()
    base = -last

    def ms() -> int:
        nonlocal last, base
        now = ticks_ms()
        if now < last:
            base += _PERIOD
        last = now
        return base + now

    return ms
