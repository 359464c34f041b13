"""Who leaves a label, and which labels get a new epoch for it (GATEWAY.md G7). Pure.

Whoever was at a label holds the roots of that label and of all below it. So these get a new epoch
in the transaction that ends the client's link roots; what the order was until then stands in the
derivation records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from sealmq.site.canary import is_canary

from .rows import ClientRow

Pair = tuple[int, int]


def why(old: ClientRow, new: ClientRow, dominates: Callable[[int, int], bool]) -> str | None:
    """Why the client leaves its label, in words; None when it stays, joins or moves upwards.

    dominates(a, b): whether label a is at or above b in the new order.
    """
    if old.disabled or not old.label:
        return None  # it left before
    if is_canary(old.name):
        return None  # nobody but the operator's own command ever had its keys
    if new.removed:
        return "removed"
    if new.disabled:
        return "disabled"
    if new.rotation != old.rotation:
        return "rotated"
    if not dominates(new.label, old.label):
        return "relabelled"
    return None


def at_and_below(label: int, pairs: Iterable[Pair]) -> set[int]:
    """A label and all below it. pairs: every strict (high, low)."""
    return {label} | {low for high, low in pairs if high == label}


def lost(before: Set[Pair], after: Set[Pair], there: Set[int]) -> set[int]:
    """Labels that one above them does not dominate any more. there: labels that still exist.

    A label that is gone has no clients any more: they have left, and are counted as such.
    """
    return {low for high, low in before - after if high in there and low in there}
