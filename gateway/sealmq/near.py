"""What somebody probably meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 12
_LONGEST = 128
"""Characters of the name that are compared: it may be a client's, and the time is quadratic."""


def near(name: str, names: Iterable[str]) -> str:
    """The one that was probably meant, or what there is."""
    known = sorted(names)
    close = difflib.get_close_matches(name[:_LONGEST], known, 1)
    if close:
        return f"did you mean {close[0]}?"
    if not known:
        return "none is defined yet"
    return "there is: " + ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
