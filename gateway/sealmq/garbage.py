"""When Python's garbage collector runs in a process that carries messages, and on what: nobody is
served while it does. And what the process keeps of the memory that messages took.

What is there at the start (code, keys, policy, up to a million reservations) stays: it is frozen
once and never scanned again. Of later objects the youngest are scanned often, which is quick. A
scan of all of them takes tens of milliseconds for each thousand sessions, and would find hardly
anything: a session that has ended is freed at once (Session.let_go). So it is very rare.
"""

from __future__ import annotations

import gc

# New objects until the youngest generation is scanned (more than a full load has under way, so that
# most are freed before), scans of it until the second one is, and scans of that until all objects
# are. A session has some hundred objects.
THRESHOLDS = 50_000, 1, 35
# What 56 messages of 16 KiB take on their way is less than twice this.
_LARGEST = 4 << 20


def starting() -> None:
    """A process begins to load what it keeps: no scans meanwhile."""
    gc.disable()


def started() -> None:
    """What stays for good is loaded: it is frozen, and scans begin."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
    _keep_heap()


def _keep_heap() -> None:
    """glibc gives the free end of its heap back once that is twice as large as the largest block
    that it has unmapped, at first 128 KiB: then each page of the next large messages is a fault.
    """
    bytes(_LARGEST)  # nothing of it is touched
