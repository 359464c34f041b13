"""What a change of keys needs from the process that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from .seal import Vault


@dataclass(frozen=True, slots=True)
class Tools:
    """order: the key generator's next 12 bytes; rise: the next kseq; now_s: Unix time."""

    vault: Vault
    order: Callable[[], bytes]
    rise: Callable[[Connection], int]
    now_s: int
