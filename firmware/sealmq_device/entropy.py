# Salts, nonces and a clock that never wraps. A salt needs a random source that is really random:
# an ESP32 has one only while Wi-Fi is active, so salts are drawn at connect and not before.
import os
import time
from hashlib import sha256

_ticks_ms = time.ticks_ms  # type: ignore[attr-defined]
_ticks_diff = time.ticks_diff  # type: ignore[attr-defined]


def _hardware_id() -> bytes:
    try:
        from machine import unique_id
    except ImportError:
        return b""
    return bytes(unique_id())


def nonce() -> bytes:
    return os.urandom(16)


# The salt of a boot session, 8 bytes (SPEC.md 5.1). kg_nonce: the last one seen, or empty. Whatever
# one source lacks, another has: a cloned board differs in its id, a restored flash in its ticks.
def salt(boot: int, kg_nonce: bytes = b"") -> bytes:
    ticks = _ticks_ms().to_bytes(4, "big")
    raw = os.urandom(16) + _hardware_id() + boot.to_bytes(3, "big") + ticks + kg_nonce
    return sha256(raw).digest()[:8]


# Milliseconds since the first call, rising for ever though ticks wrap (after 12 days on 32 bits).
# Somebody must ask at least once in half a wrap, 6 days; a longer silence makes the clock late, and
# the next welcome corrects that.
class Mono:
    def __init__(self) -> None:
        self._last = _ticks_ms()
        self._ms = 0

    def __call__(self) -> int:
        now = _ticks_ms()
        self._ms += _ticks_diff(now, self._last)
        self._last = now
        return self._ms
