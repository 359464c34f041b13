"""What Python's garbage collector looks at, and when: nobody is served while it does.

What is there at the start (code, keys, policy, up to a million reservations) stays: it is set aside
once, and never looked at again. Of what comes later the youngest are looked at often and quickly. A
look at all of it takes tens of milliseconds for each thousand sessions, and hardly anything waits
for that: a session that has ended is freed at once (Session.let_go). So it is very seldom.
"""

from __future__ import annotations

import gc

# More objects than before until the youngest are looked at; looks at them until those that they
# left are; looks at these until everything is. A session has some hundred objects.
THRESHOLDS = 10_000, 10, 50


def starting() -> None:
    """Nothing is garbage while a process loads what it will keep."""
    gc.disable()


def started() -> None:
    """All is there that stays for good."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
