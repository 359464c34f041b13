"""The families that are installed: folders of `sealmq.families` with a MANIFEST.

A new family is one folder here, and to judge its name in `[policy] order`; nothing else knows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module

import sealmq.families
from sealmq_spec.errors import Malformed

from .api import Family, FamilyError, SealToGrant, UnfitFamily, check_family
from .faults import BrokenFamily
from .manifest import Encode, Manifest
from .manifest_types import check_manifest
from .records import FamilyRecord

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
FIELD = re.compile(r"[a-z][a-z_]{0,31}")
FIELD_BOUND = 1024
FIELDS_BOUND = 8 * FIELD_BOUND


class UnknownFamily(FamilyError):
    """The order names a family that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            f"[policy] order names {name!r}; there is no such policy family",
            'the families are folders of sealmq/families; order = ["labels"] is the default',
        )


class WrongOrder(FamilyError):
    """A family lacks one that it stands on, or has it after itself."""

    def __init__(self, name: str, needed: str, order: Sequence[str]) -> None:
        where = "comes after it" if needed in order else "is not there"
        right = [other for other in order if other != needed]
        right.insert(right.index(name), needed)
        words = ", ".join(f'"{other}"' for other in right)
        super().__init__(
            name,
            f"{name} stands on {needed}, which {where}",
            f"[policy] order = [{words}]",
        )


class TakenField(UnfitFamily):
    """A family declares an audit field that somebody else has."""

    def __init__(self, name: str, field: str, owner: str) -> None:
        super().__init__(
            name,
            f"the policy family {name!r} declares the audit field {field!r}, which {owner} has",
            f"give it another name in the manifest of {name!r}",
        )


def load(order: Sequence[str]) -> list[Family]:
    """A fresh instance of each family, in this order. UnknownFamily, WrongOrder, UnfitFamily,
    BrokenFamily.
    """
    found = [manifest(name) for name in order]
    for at, each in enumerate(found):
        for needed in each.stands_on:
            if needed not in order[:at]:
                raise WrongOrder(each.name, needed, order)
    _check_audit(found)
    return [_made(each) for each in found]


def _check_audit(families: Sequence[Manifest]) -> None:
    # Whether the log itself has a field of that name: sealmq.audit.events.of_families.
    taken: set[str] = set()
    much = 0
    for each in families:
        for field in each.audit:
            if field.name in taken:
                raise TakenField(each.name, field.name, "another family of the order")
            if not (FIELD.fullmatch(field.name) and 1 <= field.bound <= FIELD_BOUND):
                raise UnfitFamily(
                    each.name,
                    f"the policy family {each.name!r} declares the audit field {field.name!r} of "
                    f"{field.bound} characters",
                    f"a name is of a-z and _, and its text of 1 to {FIELD_BOUND} characters",
                )
            taken.add(field.name)
            much += field.bound
            if much > FIELDS_BOUND:
                raise UnfitFamily(
                    each.name,
                    f"with the policy family {each.name!r} a record of the audit log has {much} "
                    "characters of families' fields",
                    f"{FIELDS_BOUND} at most in one order: lower `bound` in its manifest",
                )


def encodings(said: Mapping[str, str | None]) -> list[Callable[[str], str]]:
    """What puts into a filter what a client says with it, by option: to be applied one after the
    other. None says nothing. Malformed: no family has such an option.

    They go by the families' names, the last one first, whatever the order of `said`. A mediator's
    families take it out again the other way round (judge.py), whatever its [policy] order, which a
    client does not know.
    """
    there = {m.says.option: (m, m.says) for m in manifests() if m.says}
    for option in said:
        if option not in there:
            names = ", ".join(there) or "nothing"
            raise Malformed(f"{option!r} cannot be said with a subscription; there is: {names}")
    return [
        _saying(each.load(says.encode), value)
        for option, (each, says) in reversed(there.items())
        if (value := said.get(option)) is not None
    ]


def items(put: Mapping[str, Sequence[str]]) -> dict[int, bytes]:
    """What a client puts into a message for policy families, by option, as the items of m2.
    Malformed: no family has such an option, takes that, or two of them put the same type.
    """
    there = {m.puts.option: (m, m.puts) for m in manifests() if m.puts}
    found: dict[int, bytes] = {}
    for option, values in put.items():
        if option not in there:
            names = ", ".join(there) or "nothing"
            raise Malformed(f"{option!r} cannot be put into a message; there is: {names}")
        each, puts = there[option]
        more = each.load(puts.items)(values)
        if twice := {kind & 0x7F for kind in found} & {kind & 0x7F for kind in more}:
            raise Malformed(f"TLV {min(twice)} is put twice, the second time by {each.name}")
        found.update(more)
    return found


def put_back(held: Callable[[str], Iterable[FamilyRecord]], now_ms: int) -> list[FamilyRecord]:
    """What changes of all families' rows, in force or not, in a store that a backup has put back or
    that is not the one that was known. `held`: the rows of a family."""
    return [
        row
        for each in manifests()
        if each.lost and each.lost.put_back
        for row in each.load(each.lost.put_back)(held(each.name), now_ms)
    ]


def _saying(encode: Encode, value: str) -> Callable[[str], str]:
    return lambda filt: encode(filt, value)


def manifests() -> list[Manifest]:
    """Of every family that is installed, by name; not of those that are `broken`."""
    return [found for found in _installed() if isinstance(found, Manifest)]


def broken() -> list[FamilyError]:
    """Why folders of families cannot be used; they stop nothing while no order names them."""
    return [found for found in _installed() if isinstance(found, FamilyError)]


def _installed() -> list[Manifest | FamilyError | None]:
    # The mediator needs but those of its order, as long as its store is the one that is known.
    from pkgutil import iter_modules

    names = sorted(found.name for found in iter_modules(sealmq.families.__path__) if found.ispkg)
    return [_manifest_or_why(name) for name in names]


def _manifest_or_why(name: str) -> Manifest | FamilyError | None:
    try:
        return _manifest(name)
    except FamilyError as error:
        return error


def manifest(name: str) -> Manifest:
    """A family's manifest. UnknownFamily, UnfitFamily, BrokenFamily."""
    found = _manifest(name)
    if found is None:
        raise UnknownFamily(name)
    return found


def has_kg_part(order: Sequence[str]) -> bool:
    """Whether keys and policy go together: a family of the order has a part of the key generator's.
    UnknownFamily."""
    return any(
        (m := manifest(name)).kg_part is not None or m.kg_keeps is not None for name in order
    )


def _manifest(name: str) -> Manifest | None:
    if NAME.fullmatch(name) is None:
        return None
    module = f"{__package__}.{name}"
    try:
        folder = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise BrokenFamily(name, "its import", error) from error
        return None
    except (Exception, SystemExit) as error:
        raise BrokenFamily(name, "its import", error) from error
    if not hasattr(folder, "__path__"):  # a module of the engine's
        return None
    return check_manifest(name, getattr(folder, "MANIFEST", None))


def _made(of: Manifest) -> Family:
    try:
        return _family(of)()
    except FamilyError:
        raise
    except Exception as error:
        raise BrokenFamily(of.name, "the load of its class", error) from error


def _family(of: Manifest) -> type[Family]:
    found: object = of.load(of.family)
    if not (isinstance(found, type) and issubclass(found, Family) and found.name == of.name):
        raise UnfitFamily(
            of.name,
            f"the manifest of {of.name!r} names no policy family of that name",
            "mend its folder in sealmq/families, or take it out",
        )
    if found.audited != {field.name for field in of.audit}:
        raise UnfitFamily(
            of.name,
            f"`audited` of {of.name!r} is not what its manifest declares in `audit`",
            "take the names from the manifest: frozenset(f.name for f in MANIFEST.audit)",
        )
    for rule in found.rules:
        if not rule.startswith(f"{of.name}."):
            raise UnfitFamily(
                of.name,
                f"the policy family {of.name!r} has the rule {rule!r}",
                f"its rules begin with its name: '{of.name}.…'",
            )
    for rule in of.hints:
        if rule not in found.rules:
            raise UnfitFamily(
                of.name,
                f"the manifest of {of.name!r} has a hint for {rule!r}, which is no rule of it",
                "hints are by rules that stand in `rules` of its class",
            )
    check_family(found)
    has_grants = of.kg_part is not None or of.kg_keeps is not None
    if not has_grants and any(SealToGrant in duties for duties in found.duties.values()):
        raise UnfitFamily(
            of.name,
            f"the policy family {of.name!r} asks for SealToGrant and says of no grant who holds it",
            "give its manifest a `kg_part`, a module with `grants`",
        )
    return found
