"""The part of the key generator: it keeps what operators write, and encodes it for mediators.

What is kept is sealed in its store: the text, a root key, and an epoch for each customer and each
kind of events, 16 bytes by chance, drawn anew when anything of it changes. So what was encoded
before a change, or before a customer was revoked, has nothing to do with what is encoded now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..api import FamilyConfigError, Policy
from . import bloom, coded, edit, paper, plain, scoped, settings
from .plain import BadPlain, Customer, Granted, Kind, Plain
from .words import RECEIVE, Dnf, Have, asked, holding

MOST_BYTES = 300_000
"""Of filters of one customer."""
MOST_FILTERS = 262_144
"""Of all that mediators are told, who get these 64 MiB at each change: for 10,000 customers 13
kinds of events with one conjunction on each side.
"""
MOST_BENEATH = 262_144
"""Each event grant leaves out the prefixes below its topic that have a type or policy of their own;
mediators get that list. The most entries of all lists together.
"""
_EPOCH = 16

Draw = Callable[[int], bytes]


@dataclass(slots=True)
class Kept:
    """What is sealed."""

    root: bytes
    text: str = ""
    epochs: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """By "customer NAME" and "kind NAME": the epoch, and a digest of what it was drawn for."""


# --- what the key generator asks for (manifest.py, KgKeeps) --------------------------------------


def take(config: Policy, kept: bytes, said: bytes, draw: Draw) -> bytes:
    """Another text from now on. FamilyConfigError: it cannot be, and nothing changes."""
    try:
        text = said.decode()
        read = plain.read(text)
        _check_size(read)
        made = _drawn(_load(kept), text, read, draw)
        size: dict[str, int] = {}
        for key, row in _rows(settings.read(config), made, read, read.customers):
            customer = key.rpartition("/")[2]
            size[customer] = size.get(customer, 0) + len(row)
        for customer, count in size.items():
            if customer in read.customers and count > MOST_BYTES:
                raise BadPlain(
                    f"customers.{customer}",
                    f"its filters have {count} bytes; {MOST_BYTES} fit",
                    "fewer conjunctions, or fewer kinds of events",
                )
    except UnicodeDecodeError:
        raise FamilyConfigError("", "the text is no UTF-8", "") from None
    except BadPlain as error:
        raise FamilyConfigError(error.key, error.what, error.hint) from None
    except scoped.TooFull as error:
        raise _too_full(error) from None
    return _dump(made)


def _drawn(before: Kept | None, text: str, read: Plain, draw: Draw) -> Kept:
    """The text with its epochs, new ones for what has changed."""
    made = Kept(draw(32) if before is None else before.root, text)
    had = {} if before is None else before.epochs
    for name, what in _scopes(made.root, read):
        epoch = had.get(name)
        made.epochs[name] = (draw(_EPOCH), what) if epoch is None or epoch[1] != what else epoch
    return made


def shown(kept: bytes) -> bytes:
    """The text, for operators."""
    found = _load(kept)
    return b"" if found is None else found.text.encode()


def left(config: Policy, kept: bytes, names: Collection[str], draw: Draw) -> bytes:
    """Without these customers, and without event grants of theirs."""
    held = _load(kept)
    if held is None:
        return kept
    read = plain.read(held.text)
    if not any(name in names for name in (*read.customers, *(e.client for e in read.events))):
        return kept
    # It is less than what fitted: whether that fits, too, nobody who leaves must wait for.
    text = edit.leave(held.text, names)
    return _dump(_drawn(held, text, plain.read(text), draw))


def grants(config: Policy, kept: bytes) -> Mapping[str, Collection[str]]:
    """Always the mediators' own; and of each sealed event grant one that those hold who match."""
    found: dict[str, Collection[str]] = {coded.GRANT: []}
    held = _load(kept)
    if held is None:
        return found
    read = plain.read(held.text)
    there = _there(config, read)
    for event in read.events:
        if event.sealed:
            kind = read.kind(event)
            found[event.id] = [
                name
                for name, one in there.items()
                if read.lets(kind, one) and read.wanted(kind, one)
            ]
    return found


def rows(config: Policy, kept: bytes) -> Iterable[tuple[str, bytes]]:
    """What mediators are told (coded.py). FamilyConfigError: it does not fit these settings."""
    held = _load(kept)
    if held is None:
        return ()
    read = plain.read(held.text)
    try:
        return list(_rows(settings.read(config), held, read, _there(config, read)))
    except scoped.TooFull as error:
        raise _too_full(error) from None


def _too_full(error: scoped.TooFull) -> FamilyConfigError:
    hint = "shorter conjunctions; of the paper's encoding, fewer decoys or places"
    return FamilyConfigError("policies", str(error), hint)


# --- encoding ------------------------------------------------------------------------------------


def _there(config: Policy, read: Plain) -> dict[str, Customer]:
    clients = config.clients
    return {n: one for n, one in read.customers.items() if n in clients and not clients[n].disabled}


def _scopes(root: bytes, read: Plain) -> Iterator[tuple[str, str]]:
    """Each name with an epoch, and what it rests on, under a key: the digest is in the store."""
    for name, customer in read.customers.items():
        yield f"customer {name}", _digest(root, repr((customer.has, customer.wants)))
    for kind in _kinds(read):
        what = repr((kind, read.policies[kind.policy], read.is_(kind)))
        yield f"kind {kind.name.decode()}", _digest(root, what)


def _digest(root: bytes, text: str) -> str:
    return bloom.prf(root, b"sealmq blinded 1 content", text.encode()).hex()[:32]


def _check_size(read: Plain) -> None:
    """Before anything is encoded: each kind with each customer is much. BadPlain."""
    kinds, customers = _kinds(read), read.customers.values()
    own = [one for one in customers if one.wants]
    count = len(customers) * sum(len(read.policies[kind.policy]) for kind in kinds)
    count += len(kinds) * sum(len(one.has) + len(one.wants) for one in customers)
    count += len(own) * sum(len(read.is_(kind)) for kind in kinds)
    if count > MOST_FILTERS:
        raise BadPlain(
            "events",
            f"{len(kinds)} kinds of events and {len(customers)} customers have {count} filters; "
            f"{MOST_FILTERS} fit",
            "fewer policies, types and session attributes, or fewer customers",
        )
    beneath = sum(len(range(*read.beneath(event))) for event in read.events)
    if beneath > MOST_BENEATH:
        raise BadPlain(
            "events",
            f"types and policies below the topics of {len(read.events)} event grants make "
            f"{beneath} exceptions; {MOST_BENEATH} fit",
            "grants for the topics below, or fewer types and policies there",
        )


def _kinds(read: Plain) -> list[Kind]:
    return list(dict.fromkeys(read.kind(event) for event in read.events))


def _rows(
    how: settings.Settings, kept: Kept, read: Plain, customers: Mapping[str, Customer]
) -> Iterator[tuple[str, bytes]]:
    opaque = {kind: _opaque(kept, kind) for kind in _kinds(read)}
    for event in read.events:
        yield (
            coded.EVENT + event.id,
            coded.write_event(_event(read, event, opaque[read.kind(event)])),
        )
    if not how.scoped:
        yield from _paper_rows(how, kept, read, opaque, customers)
        return
    for kind, ident in opaque.items():
        dnf, is_ = read.policies[kind.policy], read.is_(kind)
        for name, customer in customers.items():
            key = _key(kept, kind, name)
            yield f"{coded.PAIR}{ident}/{name}", _ENCODED.row(key, dnf, is_, customer)


def _opaque(kept: Kept, kind: Kind) -> str:
    epoch = kept.epochs[f"kind {kind.name.decode()}"][0]
    return bloom.prf(kept.root, b"sealmq blinded 1 kind", kind.name, epoch).hex()[: 2 * coded.ID]


def _key(kept: Kept, kind: Kind, customer: str) -> bytes:
    epochs = (f"kind {kind.name.decode()}", f"customer {customer}")
    parts = [kept.epochs[name][0] for name in epochs]
    return scoped.key_of(kept.root, kind.name, customer, *parts)


def _event(read: Plain, event: Granted, ident: str) -> coded.Event:
    return coded.Event(event.client, event.topic, read.but(event), ident, event.sealed)


class _Encoded:
    """Rows that were encoded before. A key is of its epochs, and those of what is encoded: so what
    a change does not reach costs nothing.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._rows: dict[bytes, bytes] = {}

    def row(self, key: bytes, dnf: Dnf, is_: tuple[Have, ...], customer: Customer) -> bytes:
        found = self._rows.get(key)
        if found is None:
            found = coded.write_pair(_pair(key, dnf, is_, customer))
            if self._size + len(found) > self._most:
                self._rows.clear()
                self._size = 0
            self._rows[key] = found
            self._size += len(found)
        return found


_ENCODED = _Encoded(128 << 20)


def _pair(key: bytes, dnf: Dnf, is_: tuple[Have, ...], customer: Customer) -> coded.Pair:
    there, back = scoped.way(key, b"publisher"), scoped.way(key, b"reader")
    has = plain.acting(customer.has, RECEIVE)
    wants = customer.wants
    return coded.Pair(
        not wants,
        scoped.rules(there, dnf),
        scoped.sets(there, has, dnf),
        scoped.rules(back, wants) if wants else [],
        scoped.sets(back, is_, wants) if wants else [],
    )


def _paper_rows(
    how: settings.Settings,
    kept: Kept,
    read: Plain,
    opaque: Mapping[Kind, str],
    customers: Mapping[str, Customer],
) -> Iterator[tuple[str, bytes]]:
    """One key for all. What is asked for anywhere is in every customer's filters whom it holds of,
    beside the customer's own attributes."""
    encoder = paper.Encoder(kept.root, decoys=how.decoys, length=how.length)
    ask_c = frozenset().union(*(asked(dnf) for dnf in read.policies.values()))
    ask_k = frozenset().union(*(asked(one.wants) for one in read.customers.values()))

    def helds(had: Iterable[Have], atoms: frozenset[Any], salt: bytes) -> list[list[int]]:
        out = []
        for at, have in enumerate(had):
            met = sorted({*paper.atoms_of(have), *holding(atoms, have)})
            one = encoder.held(met, salt + at.to_bytes(4, "big"))
            if max(one.t, *one.each, key=int.bit_count).bit_count() > bloom.MOST_ONES:
                raise scoped.TooFull(f"{len(one.each)} places of one conjunction are too many")
            out.append([one.t, *one.each])
        return out

    def rules(dnf: Dnf, salt: bytes) -> list[tuple[int, int]]:
        return [(one.a, one.m) for one in encoder.policy(dnf, salt)] if dnf else []

    for kind, ident in opaque.items():
        salt = b"k" + bytes.fromhex(ident)
        side = coded.Side(
            False, rules(read.policies[kind.policy], salt), helds(read.is_(kind), ask_k, salt)
        )
        yield coded.KIND + ident, coded.write_side(side)
    for name, customer in customers.items():
        salt = b"c" + name.encode() + kept.epochs[f"customer {name}"][0]
        has = plain.acting(customer.has, RECEIVE)
        side = coded.Side(not customer.wants, rules(customer.wants, salt), helds(has, ask_c, salt))
        yield coded.CUSTOMER + name, coded.write_side(side)


# --- what is sealed ------------------------------------------------------------------------------


def _dump(kept: Kept) -> bytes:
    epochs = {name: [epoch.hex(), what] for name, (epoch, what) in kept.epochs.items()}
    doc = {"v": 1, "root": kept.root.hex(), "text": kept.text, "epochs": epochs}
    return json.dumps(doc).encode()


def _load(kept: bytes) -> Kept | None:
    if not kept:
        return None
    doc = json.loads(kept)
    epochs = {name: (bytes.fromhex(epoch), what) for name, (epoch, what) in doc["epochs"].items()}
    return Kept(bytes.fromhex(doc["root"]), doc["text"], epochs)
