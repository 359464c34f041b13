"""Grants of policy families (SPEC.md 3.3, ref 2; GATEWAY.md G7): their numbers, epochs, keys.

Which grants there are, and who holds them, a family's part says out of the policy (families/
manifest.py, KgPart). When somebody holds a grant no more, it gets a new epoch with a new G in that
transaction; who joins is told the G that there is. A number is given once: a grant that nobody
wants any more is deleted, and gets another number if it comes back. Where no client held it, its G
is kept for mediators alone: messages may lie at the broker under it, which are still to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from sqlalchemy import Connection

from sealmq.families import registry
from sealmq.families.faults import of_family
from sealmq.site.canary import is_canary
from sealmq.site.model import Config
from sealmq_spec.const import CCM, U24

from . import limits, rows
from .errors import Bad
from .rows import GrantRow
from .seal import Vault
from .store import counter, set_counter

SUITE = CCM
"""Of every grant. Each client has it, since the records of bottom and top need it."""
_NAME = 64
_SHOWN = 5

Key = tuple[str, str]
"""A grant's family and name."""


def wanted(tx: Connection, vault: Vault, config: Config) -> dict[Key, frozenset[str]]:
    """The grants that the families in force want, and the names of those who are to hold each.
    Bad: a family wants what cannot be.
    """
    found: dict[Key, frozenset[str]] = {}
    for family in config.policy.order:
        manifest = registry.manifest(family)
        try:
            if manifest.kg_part is not None:
                wants = manifest.load(manifest.kg_part).grants(config)
            elif manifest.kg_keeps is not None:
                kept = rows.kept(tx, vault, family)
                wants = manifest.load(manifest.kg_keeps).grants(config, kept)
            else:
                continue
        except Exception as error:
            fault = of_family(error, "grants")
            if fault is None:
                raise
            raise Bad(str(fault), fault.hint) from error
        for name, clients in wants.items():
            unknown = [client for client in clients if client not in config.clients]
            if unknown or not 0 < len(name) <= _NAME:
                what = f"for {unknown[0]!r}, who is no client" if unknown else "with such a name"
                raise Bad(
                    f"the policy family {family} wants a grant {name[:_NAME]!r} {what}",
                    "a defect of the family: take it out of [policy] order until it is mended",
                )
            found[family, name] = frozenset(clients)
    if len(found) > limits.GRANTS:
        raise Bad(
            f"policy families want {len(found)} grants, and {limits.GRANTS} are the most",
            "one grant for several clients takes the place of many",
        )
    return found


def converge(
    tx: Connection,
    vault: Vault,
    want: Mapping[Key, frozenset[str]],
    clients: Mapping[str, int],
    rotated: Set[int],
) -> tuple[bool, list[str]]:
    """Make the grants be as wanted. Whether something changed, and what the operator should know.

    clients: numbers of those that are in, by name. rotated: numbers of those with a new secret:
    whoever had the old one may have been told each G that they held.
    """
    have, holders = rows.grants(tx), rows.holders(tx)
    names = {row.number: name for name, row in rows.clients(tx).items()}
    gone = [row for key, row in have.items() if key not in want]
    end(tx, gone)
    changed, notes = bool(gone), []
    for key, who in want.items():
        row = have.get(key)
        after = {clients[name] for name in who if name in clients}
        before = set() if row is None else holders.get(row.number, set())
        left = (before - after) | (before & rotated)
        if row is None:
            rows.new_g(tx, vault, row := GrantRow(_number(tx), *key, 1))
        elif not all(is_canary(names[number]) for number in left):
            row = _next(tx, row)
            rows.new_g(tx, vault, row)
            notes.append(
                f"{key[0]}: {key[1]} has a new key, since {_some(names, left)} must not have it"
            )
            if row.number != have[key].number:
                before = set()
        elif before == after:
            continue
        rows.drop_holders(tx, row.number, before - after)
        rows.add_holders(tx, row.number, sorted(after - before))
        changed = True
    return changed, notes


def end(tx: Connection, gone: Iterable[GrantRow]) -> None:
    """These grants are over."""
    holders, gone = rows.holders(tx), list(gone)
    for row in gone:
        if not holders.get(row.number):
            rows.keep_g(tx, row, limits.OLDER_GRANTS)
    rows.drop_grants(tx, gone)


def _next(tx: Connection, row: GrantRow) -> GrantRow:
    if row.epoch < U24:
        return replace(row, epoch=row.epoch + 1)
    rows.drop_grants(tx, [row])
    return replace(row, number=_number(tx), epoch=1)


def _number(tx: Connection) -> int:
    number = counter(tx, "grant") + 1
    if number > U24:
        raise Bad("all numbers of grants are used up", "make a new site")
    set_counter(tx, "grant", number)
    return number


def _some(names: Mapping[int, str], numbers: Iterable[int]) -> str:
    found = sorted(names[number] for number in numbers)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
