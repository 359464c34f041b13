# Replay rules that publisher's mediator and reader share (SPEC.md 6): a 64-wide sliding window,
# ages, lives.
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

    # Only behind a verified tag. ctr must have been NEW.
    def mark(self, ctr: int) -> None:
        ahead = ctr - self.top
        if ahead > 0:
            self.mask = ((self.mask << ahead) | 1) & 0xFFFFFFFFFFFFFFFF if ahead < WIDTH else 1
            self.top = ctr
        else:
            self.mask |= 1 << -ahead


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
