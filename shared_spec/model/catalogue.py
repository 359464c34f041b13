"""All worlds, and all defences that can be taken out of them."""

from __future__ import annotations

from collections.abc import Iterator

from .clock import Clock
from .connecting import Connecting
from .handing import Handing
from .provisioning import Provisioning
from .publishing import Publishing
from .reading import Reading
from .records import Records
from .rekeying import Rekeying
from .search import Outcome, World, search
from .secrecy import Secrecy
from .siblings import Siblings
from .tokens import Tokens

WORLDS: tuple[type[World], ...] = (
    Rekeying, Secrecy, Provisioning, Connecting, Publishing,
    Siblings, Tokens, Clock, Reading, Records, Handing,
)  # fmt: skip
PADS = "paper", "epoch-only", "ours"
DEFENCES = {name: world for world in WORLDS for name in world.DEFENCES}
ASSUMED = {name: world for world in WORLDS for name in world.ASSUMED}


def check(
    without: frozenset[str] = frozenset(), pad: str = "ours", full: bool = False
) -> Iterator[Outcome]:
    """Searches one world after the other, up to the first attack.

    A defence or another pad changes one world; the rest is as it always is, so only that one is
    searched.
    """
    names = DEFENCES | ASSUMED
    touched = {names[name] for name in without} | ({Rekeying} if pad != "ours" else set())
    for world in WORLDS:
        if touched and world not in touched:
            continue
        made = Rekeying(without, full, pad) if world is Rekeying else world(without, full)
        outcome = search(made)
        yield outcome
        if outcome.broken:
            return
