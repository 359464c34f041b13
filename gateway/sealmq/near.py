"""The name that the user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 12
_LONGEST = 128
"""Characters of the name that are compared: it may be a client's, and the time is quadratic."""


def closest(name: str, names: Iterable[str]) -> str:
    """The one that was probably meant, or ""."""
    return next(iter(difflib.get_close_matches(name[:_LONGEST], names, 1)), "")


def near(name: str, names: Iterable[str]) -> str:
    """A hint: the one that was probably meant, or what there is."""
    known = sorted(names)
    meant = closest(name, known)
    if meant:
        return f"did you mean {meant}?"
    if not known:
        return "none is defined yet"
    return "there is: " + ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
