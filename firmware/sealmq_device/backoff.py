# When to try again (SPEC.md 7.4): a random time between 0 and a limit, which is one second at first
# and doubles with each failure. Whoever succeeds sets the limit back.
import os

from micropython import const

FIRST_MS = const(1000)


# 16 random bits.
def draw() -> int:
    return int.from_bytes(os.urandom(2), "big")


# most: the highest limit, in ms.
class Backoff:
    def __init__(self, most: int = 60000) -> None:
        self.draw = draw
        self.most = most
        self.limit = FIRST_MS

    # Milliseconds to wait before the next attempt.
    def next(self) -> int:
        limit = self.limit
        self.limit = min(2 * limit, self.most)
        return limit * self.draw() >> 16
