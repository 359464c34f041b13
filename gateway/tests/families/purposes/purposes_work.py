"""What something costs, counted instead of timed: the same on every machine, however busy."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def work(call: Callable[[], object]) -> int:
    """How many calls it makes, of functions and of methods of dicts and lists: no clock."""
    calls = 0

    def saw(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    # What the garbage collector calls (hypothesis measures it) would be counted, too.
    gc.disable()
    sys.setprofile(saw)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls
