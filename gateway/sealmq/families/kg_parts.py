"""Loads the parts of families that only the key generator's process may hold.

The mediator must not import this (import-linter; a test as well): a KG part may see roots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from .registry import NAME, UnknownFamily


def load(order: Sequence[str]) -> dict[str, ModuleType]:
    """name -> module `sealmq.families.NAME.kg_part`, for the families that have one.

    Each offers `snapshot_extra(config) -> mapping` (api.KgPart).
    """
    parts = {}
    for name in order:
        if NAME.fullmatch(name) is None:
            raise UnknownFamily(name)
        module = f"{__package__}.{name}.kg_part"
        try:
            parts[name] = import_module(module)
        except ModuleNotFoundError as error:
            if error.name == f"{__package__}.{name}":
                raise UnknownFamily(name) from None
            if error.name != module:
                raise
    return parts


def snapshot_extra(order: Sequence[str], config: Any) -> dict[str, Mapping[str, Any]]:
    """What the KG adds to its snapshot, by family; JSON-ready."""
    return {name: part.snapshot_extra(config) for name, part in load(order).items()}
