# Replay rules that publisher's mediator and reader share (SPEC.md 6): a 64-wide sliding window,
# ages, lives.
from struct import pack_into, unpack_from

from .const import LIFE_FOREVER, WINDOW_S
from .errors import Stale

WIDTH = 64
NEW = 0
SEEN = 1
OLD = 2


# top: highest ctr accepted (0: none). Bit i of mask: ctr top - i has been accepted.
class Window:
    def __init__(self, top: int = 0, mask: int = 0):
        self.top = top
        self.mask = mask

    def look(self, ctr: int) -> int:
        back = self.top - ctr
        if back < 0:
            return NEW
        if back >= WIDTH:
            return OLD
        return SEEN if self.mask >> back & 1 else NEW

    # Only after a verified tag. ctr must have been NEW.
    def mark(self, ctr: int) -> None:
        ahead = ctr - self.top
        if ahead > 0:
            self.mask = ((self.mask << ahead) | 1) & 0xFFFFFFFFFFFFFFFF if ahead < WIDTH else 1
            self.top = ctr
        else:
            self.mask |= 1 << -ahead


# The same in the first 12 bytes of a bytearray (top, then mask, little-endian), for readers: a
# device allocates for numbers of more than 30 or 62 bits.
def look(w: bytearray, ctr: int) -> int:
    back = (w[0] | w[1] << 8 | w[2] << 16 | w[3] << 24) - ctr
    if back < 0:
        return NEW
    if back >= WIDTH:
        return OLD
    return SEEN if w[4 + (back >> 3)] >> (back & 7) & 1 else NEW


# Only after a verified tag. ctr must have been NEW.
def mark(w: bytearray, ctr: int) -> None:
    top, low, high = unpack_from("<III", w)
    ahead = ctr - top
    if ahead <= 0:
        w[4 + (-ahead >> 3)] |= 1 << (-ahead & 7)
        return
    if ahead < 32:
        high = (high << ahead | low >> 32 - ahead) & 0xFFFFFFFF
        low = (low << ahead | 1) & 0xFFFFFFFF
    else:
        high = low << ahead - 32 & 0xFFFFFFFF if ahead < WIDTH else 0
        low = 1
    pack_into("<III", w, 0, ctr, low, high)


# Seconds for which a message may be underway; None: without limit.
def life_s(life: int) -> "int | None":
    if life == LIFE_FOREVER:
        return None
    return max(WINDOW_S, 1 << life) if life else WINDOW_S


def check_fresh(what: str, age: int, allowed: "int | None" = WINDOW_S) -> None:
    if age < -WINDOW_S:
        raise Stale("%s lies %d s ahead, at most %d are allowed" % (what, -age, WINDOW_S))
    if allowed is not None and age > allowed:
        raise Stale("%s is %d s old, at most %d are allowed" % (what, age, allowed))
