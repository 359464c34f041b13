"""Values that the engine makes for each answer: dataclasses that cost little to make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(made: type[T]) -> type[T]:
    """A dataclass with slots to which nobody assigns once it is made: mypy holds that. To have it
    held at run time as well (frozen) would make making one five times as dear.
    """
    return dataclass(slots=True)(made)
