"""New epochs for labels: new roots R and R̄, and how long the old ones serve (SPEC.md 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from sealmq.near import near
from sealmq.site.model import NONE, Config

from . import limits, rows
from .errors import Bad, Unknown
from .rows import EpochRow, LabelRow
from .tools import Tools


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operator, or a peer, has asked for: numbers of labels, and when their old epochs end.

    given: of labels that a peer exports the roots of the next epoch, R and R̄ in one, and when the
    one before ends.
    """

    labels: frozenset[int]
    until: int
    given: Mapping[int, tuple[bytes, int]] = field(default_factory=dict, repr=False)


def picked(config: Config, names: Iterable[str], below: bool) -> list[str]:
    """The labels that are meant, sorted. Unknown, or Bad for `none`, which has no keys."""
    out: set[str] = set()
    for name in names:
        if name == NONE:
            raise Bad("label none has no keys", "it stands for clients that are out already")
        if name not in config.below:
            raise Unknown(f"there is no label {name}", near(name, config.below))
        out.add(name)
        if below:
            out |= config.below[name]
    return sorted(out)


def draw(
    tx: Connection,
    tools: Tools,
    label: LabelRow,
    last: EpochRow,
    until: int,
    kseq: int,
    most: int,
    given: bytes | None = None,
) -> EpochRow:
    """The next epoch of a label; what is older than limits.KEPT epochs goes. given: its roots."""
    rows.put_label(tx, limits.one_more(label, tools.now_s, most))
    fresh = EpochRow(label.number, last.epoch + 1, until, kseq)
    rows.new_epoch(tx, tools.vault, label, fresh, given)
    rows.prune_epochs(tx, label.number, limits.KEPT)
    return fresh
