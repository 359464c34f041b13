"""From the names in `[policy] order` to families: `sealmq.families.NAME`, attribute FAMILY.

A new family is one folder here and its name in the order; nothing else knows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module

from .api import Family, FamilyError, check_family

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class UnknownFamily(FamilyError):
    """The order names a family that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            f"[policy] order names {name!r}; there is no such policy family",
            'the families are folders of sealmq/families; order = ["labels"] is the default',
        )


def load(order: Sequence[str]) -> list[Family]:
    """A fresh instance of each family, in this order. UnknownFamily, UnfitFamily."""
    return [_family(name)() for name in order]


def _family(name: str) -> type[Family]:
    if NAME.fullmatch(name) is None:
        raise UnknownFamily(name)
    module = f"{__package__}.{name}"
    try:
        found = getattr(import_module(module), "FAMILY", None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UnknownFamily(name) from None
    if not (isinstance(found, type) and issubclass(found, Family) and found.name == name):
        raise UnknownFamily(name)
    check_family(found)
    return found
