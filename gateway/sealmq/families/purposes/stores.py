"""The stores by the names that `[families.purposes] store` knows them under."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .cache import Cache
from .flat import Flat
from .store import Store
from .tree import Tree

STORES: Mapping[str, Callable[[], Store]] = {
    "cache": lambda: Cache(Tree()),
    "tree": Tree,
    "flat": Flat,
}

DEFAULT = "cache"
