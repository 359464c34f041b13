"""What a behaviour is, and which there are: one a file in behaviours/, found by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import USAGE, RigError
from .strategy import State

if TYPE_CHECKING:
    from .bench import Bench

# In the order in which a whole run goes through them: the last ones leave a board changed.
NAMES = (
    "flash",
    "publish",
    "purposes",
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


Table = tuple[str, Sequence[str]]
"""A table of sealmq.toml that `sealmq init` has written, and lines that are put into it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a policy family of the site needs, so that the rig's readers read. tables: as soon as
    there is a sealmq.toml; named: once there are the clients that they name. reader: the name of
    one more at the rig's label, with its filters, and what `sealmq sub` is told besides.
    """

    tables: Sequence[Table]
    named: Sequence[Table]
    reader: str
    filters: Sequence[str]
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """text: one line for `list`. begins: the state that the board is brought to before, or None.
    needs: means of board.py without which it is skipped. leaves: the state behind a pass.
    policy: what is put into every site of the rig, whether this is run or not.
    """

    name: str
    text: str
    run: Callable[[Bench], None]
    begins: State | None = State.PUBLISHING
    leaves: State | None = State.PUBLISHING
    needs: frozenset[str] = field(default_factory=frozenset)
    policy: Policy | None = None


def find(name: str) -> Behaviour:
    """RigError for one that there is not."""
    if name not in NAMES:
        raise RigError(f"no behaviour {name!r}", f"there are {', '.join(NAMES)}", USAGE)
    module = importlib.import_module(f"{__package__}.behaviours.{name.replace('-', '_')}")
    found: Behaviour = module.BEHAVIOUR
    return found


def policies() -> list[Policy]:
    """Of all behaviours that have one."""
    return [policy for name in NAMES if (policy := find(name).policy)]


def plan(names: Sequence[str]) -> list[Behaviour]:
    """Those named, in the order of NAMES; all of them when none is."""
    for name in names:
        find(name)
    return [find(name) for name in NAMES if not names or name in names]
