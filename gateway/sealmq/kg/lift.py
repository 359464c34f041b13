"""Where a restored store has to begin so that it issues nothing a second time (GATEWAY.md G7).

What was issued since the backup nobody knows any more, but how much it can have been: so much a day
(limits.py holds the epochs to it; the others are far above what a site can use). From each source
that is left we reckon where it can have come to by now, and begin above the highest.

Two restores of one backup on one day, of which the second finds nothing of the first, would begin
at the same place. So epochs and kseq, of which clients refuse lower ones, begin higher with every
minute and second, and the others get a stretch of random length on top. What cannot be seen then is
a restore of another backup in between; hence a new backup is due after each restore.
Secrecy does not rest on any of this: roots, kids and link roots are random.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Column, Connection, func, select

from sealmq_spec.const import LABEL_FIRST, U24

from . import limits, schema
from .errors import Bad, StoreBroken
from .store import counter

randbelow = secrets.randbelow

U32 = 0xFFFF_FFFF
# No single restore takes more than an eighth of the numbers, however old the backup.
_MOST = 1 << 21
_RANDOM = 1 << 16
# 2024-01-01 and minutes: good for 32 years.
_EPOCH_S, _STEP_S = 1_704_067_200, 60
_CLOCK_S = 300


@dataclass(frozen=True, slots=True)
class Issued:
    """The highest numbers that were given away, of all clients and all labels. at_s: Unix time."""

    at_s: int
    inst: int
    kseq: int
    gen: int
    epoch: int
    label: int
    client: int
    # 0: of before there were grants.
    grant: int = 0


_AT_RANDOM = ("inst", "gen", "label", "client", "grant")
_A_DAY = {
    "inst": 4096,
    "gen": 2048,
    "epoch": limits.EPOCHS_A_DAY,
    "label": 1024,
    "client": 1024,
    "grant": limits.GRANTS,
}


def look(tx: Connection, at_s: int) -> Issued:
    """What a store has issued."""

    def highest(column: Column[int]) -> int:
        return int(tx.execute(select(func.max(column))).scalar_one() or 0)

    return Issued(
        at_s,
        counter(tx, "inst"),
        counter(tx, "kseq"),
        highest(schema.clients.c.gen),
        highest(schema.epochs.c.epoch),
        max(counter(tx, "label"), highest(schema.labels.c.number), LABEL_FIRST - 1),
        max(counter(tx, "client"), highest(schema.clients.c.number)),
        max(counter(tx, "grant"), highest(schema.grants.c.number)),
    )


def above(present: Issued | None, earlier: Iterable[Issued], now_s: int) -> Issued:
    """Numbers above all that can have been issued by now.

    present: of the store that is replaced, if it can be read. StoreBroken: the clock is wrong.
    """
    out = {} if present is None else asdict(present)
    for source in earlier:
        for name, reached in _reached(source, now_s).items():
            out[name] = max(out.get(name, 0), reached)
    out["epoch"] = max(out["epoch"], (now_s - _EPOCH_S) // _STEP_S)
    # kseq follows the clock, second by second; changes that come in bursts let it run ahead.
    out["kseq"] = max(out["kseq"], now_s + limits.DAY_S)
    for name in (*_A_DAY, "kseq"):
        out[name] += 1 + (randbelow(_RANDOM) if name in _AT_RANDOM else 0)
        if out[name] >= (U32 if name == "kseq" else U24):
            raise Bad(f"there are no numbers left above those in use ({name})", "make a new site")
    return Issued(**out | {"at_s": now_s})


def _reached(source: Issued, now_s: int) -> dict[str, int]:
    if source.at_s > now_s + _CLOCK_S:
        raise StoreBroken(
            f"this machine's clock is {source.at_s - now_s} s behind the time of the backup",
            "set the clock; numbers that were issued since are reckoned by it",
        )
    since_s = max(now_s - source.at_s, 0)
    days = limits.day_of(now_s) - limits.day_of(now_s - since_s) + 1
    out = {name: getattr(source, name) + min(n * days, _MOST) for name, n in _A_DAY.items()}
    out["epoch"] += since_s // _STEP_S
    return out | {"kseq": source.kseq + since_s + limits.DAY_S}


def from_json(data: object) -> Issued | None:
    """From a parsed file; None when it is not one of ours."""
    if not isinstance(data, dict) or not all(type(value) is int for value in data.values()):
        return None
    try:
        return Issued(**data)
    except TypeError:
        return None
