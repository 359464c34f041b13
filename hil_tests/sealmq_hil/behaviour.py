"""What a behaviour is, and which there are: one a file in behaviours/, found by its name, and one
for each policy family that has a `rig.toml`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import USAGE, RigError
from .families import FAMILIES
from .strategy import State

if TYPE_CHECKING:
    from .bench import Bench

# In the order in which a whole run goes through them: the last ones leave a board changed.
NAMES = (
    "flash",
    "publish",
    *FAMILIES,
    "broker-loss",
    "mediator-loss",
    "wifi-loss",
    "power-loss",
    "cut-counter",
    "cut-provisioning",
    "rekey-awake",
    "rekey-asleep",
    "rotate",
    "disable",
    "update",
    "provision",
    "nonces",
)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """text: one line for `list`. begins: the state that the board is brought to before, or None.
    needs: means of board.py without which it is skipped. leaves: the state behind a pass.
    """

    name: str
    text: str
    run: Callable[[Bench], None]
    begins: State | None = State.PUBLISHING
    leaves: State | None = State.PUBLISHING
    needs: frozenset[str] = field(default_factory=frozenset)


def find(name: str) -> Behaviour:
    """RigError for one that there is not."""
    if name not in NAMES:
        raise RigError(f"no behaviour {name!r}", f"there are {', '.join(NAMES)}", USAGE)
    if name in FAMILIES:
        from .under_family import behaviour  # which needs this module

        return behaviour(FAMILIES[name])
    module = importlib.import_module(f"{__package__}.behaviours.{name.replace('-', '_')}")
    found: Behaviour = module.BEHAVIOUR
    return found


def plan(names: Sequence[str]) -> list[Behaviour]:
    """Those named, in the order of NAMES; all of them when none is."""
    for name in names:
        find(name)
    return [find(name) for name in NAMES if not names or name in names]
