# The newest retained message of each (topic, sender), by (time, boot, ctr): readers and mediators
# refuse an older one (SPEC.md 6.1 step 4, 6.2 step 7). Bounded, the oldest go first (on
# MicroPython, whose dicts have no order, any).
from .errors import Stale

_TYPING = False
if _TYPING:
    Key = tuple[bytes, int]
    Order = tuple[int, int, int]

_NOTHING = (0, 0, 0)


class Newest:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.of: "dict[Key, Order]" = {}

    # Stale when an older one comes back. Changes nothing.
    def look(self, key: "Key", order: "Order") -> None:
        if order < self.of.get(key, _NOTHING):
            raise Stale("an older retained message came back")

    # What has passed; an older one changes nothing.
    def mark(self, key: "Key", order: "Order") -> None:
        of = self.of
        if order <= of.get(key, _NOTHING):
            return
        if key in of:
            del of[key]
        elif len(of) >= self.limit:
            for oldest in of:
                del of[oldest]
                break
        of[key] = order
