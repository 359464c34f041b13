"""When to try again (SPEC.md 7.4): a random time from 0 to a limit, which is a second at first and
doubles with each failure up to a minute. Neither clock nor sleep: the caller has them.
"""

from __future__ import annotations

import secrets

_FIRST_S, _MOST_S = 1.0, 60.0
# A connection that ends sooner after its welcome counts as one more failure: else a peer that
# welcomes and hangs up would be tried without end.
_STABLE_MS = 10_000


def draw() -> float:
    """From 0 to 1: a crowd that lost the same mediator does not come back in one instant."""
    return secrets.randbelow(1 << 16) / (1 << 16)


class Backoff:
    """The waits of one client."""

    def __init__(self) -> None:
        self.limit = _FIRST_S

    def lasted(self, ms: int) -> None:
        """A connection has ended that lasted so long after its welcome."""
        if ms >= _STABLE_MS:
            self.limit = _FIRST_S

    def next(self) -> float:
        """Seconds to wait before the next try."""
        limit = self.limit
        self.limit = min(2 * limit, _MOST_S)
        return limit * draw()
