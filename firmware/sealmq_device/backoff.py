# When to try again (SPEC.md 7.4): a random time between 0 and a limit, which is one second at first
# and doubles with each failure. No clock, no random source of its own.
from micropython import const

_TYPING = False
if _TYPING:
    from collections.abc import Callable

_FIRST_MS = const(1000)
# A connection that ends sooner counts as one more failure: else a peer that welcomes and hangs up
# would be tried without end, once in half a second.
_STABLE_MS = const(10000)


# draw: a function that gives 16 random bits. most: the highest limit, in ms.
class Backoff:
    def __init__(self, draw: "Callable[[], int]", most: int = 60000) -> None:
        self._draw = draw
        self.most = most
        self.limit = _FIRST_MS
        self._since = 0

    # Milliseconds to wait before the next attempt.
    def next(self) -> int:
        limit = self.limit
        self.limit = min(2 * limit, self.most)
        return limit * self._draw() >> 16

    def up(self, now: int) -> None:
        self._since = now

    # What was up is lost.
    def down(self, now: int) -> None:
        if now - self._since >= _STABLE_MS:
            self.limit = _FIRST_MS
