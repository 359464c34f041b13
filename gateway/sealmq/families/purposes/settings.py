"""[families.purposes] of sealmq.toml, checked: one wrong word, and none of it is taken over.

mode = "hybrid"         fos, fop or hybrid (the paper, V-C)
strict = true           what nobody has reserved is for nobody
store = "cache"         or tree, flat (V-D)
published = false       whether the form of HivePBAC's clients is read, too
stewards = ["dpo"]
[families.purposes.tree]             parent = ["child", ...]
[families.purposes.reserve]          "filter" = { aip = [...], pip = [...] }
[families.purposes.presubscribe]     CLIENT = { "filter" = "purpose" }
Filters of both may be below @PEER/: what a peer's topics are for is said here, at this site, and
nowhere else. What this site exports is for what its bridge's client, LABEL.to.PEER, says.
[families.purposes.words]            the words of that form, where it has others
[[families.purposes.grant]]          filter = "...", clients = [...], labels = [...]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from sealmq.near import near
from sealmq_spec.errors import SealError
from sealmq_spec.purposes import check_purpose
from sealmq_spec.topics import check_filter, is_reserved

from ..api import FamilyConfigError, Policy
from ..shared import is_mounted, mounts
from .dag import BadTree, Purposes
from .store import Reservation, TooDeep, check_depth
from .stores import DEFAULT, STORES
from .texts import WORDS, BadWord, Reader

MODES = ("hybrid", "fop", "fos")
_KEYS = (
    "mode",
    "strict",
    "store",
    "published",
    "stewards",
    "tree",
    "reserve",
    "presubscribe",
    "words",
    "grant",
)

Table = Mapping[str, Any]


class Grant(NamedTuple):
    """One [[families.purposes.grant]]: who may reserve what the filter covers."""

    filter: str
    clients: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says; the modes and `strict` may be overridden by a steward's SET."""

    mode: str = "hybrid"
    strict: bool = True
    store: str = DEFAULT
    stewards: frozenset[str] = frozenset()
    grants: tuple[Grant, ...] = ()
    tree: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reserve: Mapping[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    presubscribe: Mapping[tuple[str, str], str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    published: bool = False


class Parts(NamedTuple):
    """The settings, and what is made of them."""

    settings: Settings
    purposes: Purposes
    reader: Reader


def read(config: Policy) -> Parts:
    """Check it all. FamilyConfigError: the first thing that is wrong."""
    t = config.families.get("purposes", {})
    if "limit" in t:
        what = "what a client may keep is bounded for all families alike"
        raise FamilyConfigError("limit", what, "[limits] rows takes its place")
    _only(t, "", _KEYS)
    tree = _tree(t)
    purposes = _purposes(tree)
    words = _words(t)
    settings = Settings(
        mode=_one_of(t, "mode", MODES),
        strict=_flag(t, "strict", True),
        store=_one_of(t, "store", (DEFAULT, *(name for name in STORES if name != DEFAULT))),
        stewards=frozenset(_clients(t.get("stewards", []), "stewards", config)),
        grants=_grants(t, config),
        tree=MappingProxyType(tree),
        reserve=MappingProxyType(_reserve(t, purposes, config)),
        presubscribe=MappingProxyType(_presubscribe(t, purposes, config)),
        words=MappingProxyType(words),
        published=_flag(t, "published", False),
    )
    return Parts(settings, purposes, _reader(words, settings.published))


def _tree(t: Table) -> dict[str, tuple[str, ...]]:
    out = {}
    for parent, children in _table(t, "tree").items():
        key = f"tree.{parent}"
        out[parent] = _names(children, key)
        for purpose in (parent, *out[parent]):
            _check_purpose(purpose, key)
    return out


def _purposes(tree: Mapping[str, tuple[str, ...]]) -> Purposes:
    try:
        return Purposes(tree)
    except BadTree as error:
        raise FamilyConfigError(f"tree.{error.key}", error.what, error.hint) from None


def _words(t: Table) -> dict[str, str]:
    words = dict(_table(t, "words"))
    _only(words, "words", WORDS)
    if words and t.get("published") is not True:
        raise FamilyConfigError(
            "words",
            "words are the published form's, which this site does not read",
            "published = true; clients of SealMQ need neither",
        )
    return words


def _reader(words: Mapping[str, str], published: bool) -> Reader:
    try:
        return Reader(published, words)
    except BadWord as error:
        key = f"words.{error.name}" if error.name in words else "words"
        raise FamilyConfigError(key, error.what, error.hint) from None


def _grants(t: Table, config: Policy) -> tuple[Grant, ...]:
    rows = t.get("grant", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise FamilyConfigError(
            "grant", "grants are an array of tables", "[[families.purposes.grant]]"
        )
    out = []
    for i, row in enumerate(rows):
        key = f"grant.{i}"
        _only(row, key, ("filter", "clients", "labels"))
        filt = row.get("filter")
        if not isinstance(filt, str):
            raise FamilyConfigError(f"{key}.filter", "a grant has a filter", 'filter = "a/#"')
        _check_filter(filt, f"{key}.filter")
        labels = _names(row.get("labels", []), f"{key}.labels")
        for label in labels:
            # A label that there is dominates itself; `none` does not.
            if not config.dominates(label, label):
                raise FamilyConfigError(
                    f"{key}.labels",
                    f"no client has the label {label!r}",
                    "labels stand in [labels]; bottom and top are built in",
                )
        clients = _clients(row.get("clients", []), f"{key}.clients", config)
        out.append(Grant(filt, clients, labels))
    return tuple(out)


def _reserve(
    t: Table, purposes: Purposes, config: Policy
) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    out = {}
    for filt, row in _table(t, "reserve").items():
        key = f"reserve.{filt}"
        _check_filter(filt, key, config)
        try:
            check_depth(filt)
        except TooDeep as error:
            raise FamilyConfigError(key, str(error), "shorten it, or end it with #") from None
        if not isinstance(row, Mapping):
            raise FamilyConfigError(
                key, "a reservation is a table", f'"{filt}" = {{ aip = ["..."], pip = [] }}'
            )
        _only(row, key, ("aip", "pip"))
        aip, pip = (_names(row.get(name, []), key) for name in ("aip", "pip"))
        for purpose in (*aip, *pip):
            _check_known(purpose, purposes, key)
        # Shared with all reservations that have the same sets.
        one = Reservation(filt, aip, pip)
        out[filt] = (one.aip, one.pip)
    return out


def _presubscribe(t: Table, purposes: Purposes, config: Policy) -> dict[tuple[str, str], str]:
    out = {}
    for client, row in _table(t, "presubscribe").items():
        key = f"presubscribe.{client}"
        _clients([client], key, config)
        if not isinstance(row, Mapping):
            raise FamilyConfigError(
                key, "the client's filters are a table", f'{client} = {{ "a/#" = "PURPOSE" }}'
            )
        for filt, purpose in row.items():
            _check_filter(filt, key, config)
            if not isinstance(purpose, str):
                raise FamilyConfigError(
                    key, f"{purpose!r} is no purpose", f'{client} = {{ "{filt}" = "PURPOSE" }}'
                )
            _check_known(purpose, purposes, key)
            out[client, filt] = purpose
    return out


# --- single values ------------------------------------------------------------------------------


def _table(t: Table, name: str) -> Table:
    value = t.get(name, {})
    if not isinstance(value, Mapping):
        raise FamilyConfigError(name, f"{name} is a table", f"[families.purposes.{name}]")
    return value


def _only(t: Table, where: str, names: Iterable[str]) -> None:
    for name in t:
        if name not in names:
            key = f"{where}.{name}" if where else name
            raise FamilyConfigError(key, "unknown key", near(name, names))


def _one_of(t: Table, key: str, allowed: tuple[str, ...]) -> str:
    """The first one is the default."""
    value = t.get(key, allowed[0])
    if value not in allowed:
        raise FamilyConfigError(key, f"{key} is {value!r}", "one of: " + ", ".join(allowed))
    return str(value)


def _flag(t: Table, key: str, default: bool) -> bool:
    value = t.get(key, default)
    if type(value) is not bool:
        raise FamilyConfigError(key, f"{value!r} is neither true nor false", f"{key} = true")
    return value


def _names(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise FamilyConfigError(key, "this is a list of names", '["...", "..."]')
    if len(set(value)) != len(value):
        raise FamilyConfigError(key, "a name stands there twice", "name each once")
    return tuple(value)


def _clients(value: Any, key: str, config: Policy) -> tuple[str, ...]:
    names = _names(value, key)
    for name in names:
        if name not in config.clients:
            raise FamilyConfigError(key, f"there is no client {name!r}", near(name, config.clients))
    return names


def _check_filter(filt: str, key: str, config: Policy | None = None) -> None:
    """With config: it may be of a peer's topics."""
    _check_with(check_filter, filt, key)
    if is_reserved(filt) and not (config is not None and is_mounted(filt, mounts(config))):
        raise FamilyConfigError(
            key,
            "filters that begin with $, ! or @ are the protocol's own",
            "rename it" if config is None else "rename it; @PEER/... is for peers in [peers]",
        )


def _check_purpose(purpose: str, key: str) -> None:
    _check_with(check_purpose, purpose, key)


def _check_known(purpose: str, purposes: Purposes, key: str) -> None:
    _check_purpose(purpose, key)
    if not purposes.known(purpose):
        meant = purposes.suggest(purpose)
        raise FamilyConfigError(
            key,
            f"the purpose {purpose!r} is not in [families.purposes.tree]",
            f"did you mean {meant}?" if meant else "add it to the tree",
        )


def _check_with(rule: Callable[[str], object], value: str, key: str) -> None:
    try:
        rule(value)
    except SealError as error:
        raise FamilyConfigError(key, str(error), "shared_spec/PURPOSES.md P1") from None
