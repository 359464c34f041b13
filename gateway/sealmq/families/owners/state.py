"""What the family knows, and what a change ends: settings, types, assertions, consents.

`configure` and `apply` give deps, what verdicts may no longer rest on:

    ("owners", "of", OWNER)         what was said about one owner's events
    ("owners", "all")               what was said about the events of all, and the settings
    ("owners", "types")             that a topic is of no type
    ("owners", "type", APP, TYPE)   what a type is
    ("owners", "to", NAME)          whose events a licensee may be let receive ("*": everybody)
    ("owners", "consent", CLIENT)   which contracts it has signed
    ("owners", "clients")           which clients there are
    ("owners", "some")              what was said about anybody's
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from ..api import Dep, FamilyRecord, Policy, Record
from ..attributes import Attributes
from ..bearers import BEARER, Bearers
from ..counts import Counts
from ..filters import crosses
from ..pace import Pace
from . import records as rows
from .actions import EMERGENCY
from .assertions import Assertion
from .chains import Index, Plans, about
from .events import EventType
from .facts import World
from .names import EVERYBODY
from .records import Glass
from .settings import Settings, read

ALL_DEP: Dep = ("owners", "all")
NO_TYPE: Dep = ("owners", "types")
CLIENTS: Dep = ("owners", "clients")
SOME: Dep = ("owners", "some")


def of_owner(owner: str) -> Dep:
    return ("owners", "of", owner)


def to_licensee(name: str) -> Dep:
    return ("owners", "to", name)


def consents_of(client: str) -> Dep:
    return ("owners", "consent", client)


_Words = Callable[[list[str]], object]


def _place(kind: EventType) -> tuple[list[str], tuple[int, ...]]:
    """The levels of a type's filter, and which of them are plain words."""
    path = kind.filter.split("/")
    return path, tuple(i for i, level in enumerate(path) if level != "+")


def _words(at: tuple[int, ...]) -> _Words:
    return itemgetter(*at) if at else lambda path: ()


class Types:
    """Event types, and which one a topic is of."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], EventType] = {}
        # Number of levels and which of them are plain words -> these words -> the type.
        self._found: dict[int, dict[tuple[int, ...], dict[object, EventType]]] = {}
        # The same, with what takes these words out of a topic's levels.
        self._look: dict[int, list[tuple[_Words, dict[object, EventType]]]] = {}

    def put(self, kind: EventType) -> None:
        self.take(kind.key)
        self.by_key[kind.key] = kind
        path, at = _place(kind)
        places = self._found.setdefault(len(path), {})
        by = places.setdefault(at, {})
        if len(self._look.get(len(path), ())) < len(places):
            self._look.setdefault(len(path), []).append((_words(at), by))
        by[_words(at)(path)] = kind

    def take(self, key: tuple[str, str]) -> EventType | None:
        kind = self.by_key.pop(key, None)
        if kind is not None:
            path, at = _place(kind)
            del self._found[len(path)][at][_words(at)(path)]
        return kind

    def of(self, path: list[str]) -> EventType | None:
        """The type of a topic, by its levels."""
        for words, by in self._look.get(len(path), ()):
            found = by.get(words(path))
            if found is not None:
                return found
        return None

    def reached(self, filt: str) -> list[EventType]:
        """Those that a filter reaches."""
        return [kind for kind in self.by_key.values() if crosses(filt, kind.filter)]


class State:
    """One site's owner policies."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.pace = Pace()
        self.tells_all = False
        """Whether answers are the operator's."""
        self.outside = Attributes()
        self.counts = Counts()
        self.types = Types()
        self.index = Index()
        self.plans = Plans(self.index)
        # All assertions, by id: the settings', and those of the store as they stand there.
        self.assertions: dict[str, Assertion] = {}
        # What counts of those of which some names are borne by others now.
        self.altered: dict[str, Assertion | None] = {}
        # Rows that a backup has put back and nobody has confirmed, by whom they are, with their
        # key: they count not.
        self.suspended: dict[str, dict[str, rows.Spans]] = {}
        # Types that were advertised; one that the settings are in the way of counts not.
        self.advertised: dict[tuple[str, str], EventType] = {}
        self.keys: dict[str, tuple[bytes, int]] = {}
        # When each client has signed which contract; and which one is meant by a row's key. One
        # answer may ask for thousands.
        self.consents: dict[str, dict[str, int]] = {}
        self._contracts: dict[str, str] = {}
        self.glass: dict[tuple[str, str], dict[int, Glass]] = {}
        self.mediators: dict[str, tuple[int, int]] = {}
        self.bearers = Bearers(rows.NAME, rows.orphaned)
        # What conditions may ask of the site.
        self.world = World(self.settings.externals, self.signed, self.settings.counts)

    # What holds now

    def signed(self, client: str, address: str) -> bool:
        """Whether the client has signed the contract at this address."""
        at = self.consents.get(client, {}).get(address)
        return at is not None and self.bearers.bears(client, at)

    def key_of(self, owner: str) -> bytes:
        """The owner's public key, or b""."""
        fixed = self.settings.keys.get(owner)
        if fixed is not None:
            return fixed
        key, at = self.keys.get(owner, (b"", 0))
        return key if self.bearers.bears(owner, at) else b""

    def broken_until(self, owner: str, client: str, now_ms: int) -> int:
        """Until when the client may receive the owner's events in an emergency; 0: not."""
        until = 0
        for one in self.glass.get((owner, client), {}).values():
            if self.bearers.bears(owner, one.at_ms) and self.bearers.bears(client, one.at_ms):
                until = max(until, one.until_ms)
        return until if now_ms < until else 0

    def ways(self, kind: EventType, owner: str, client: str, now_ms: int) -> list[tuple[int, ...]]:
        """To receive an event of the owner's it has to hold all the actions of one of these."""
        if kind.control == "none":
            return [()]
        is_open = self.broken_until(owner, client, now_ms)
        return [kind.asked, (EMERGENCY,)] if is_open else [kind.asked]

    def suspension(self, client: str, key: str) -> rows.Spans:
        """When the client's row was suspended, if it is now; else ()."""
        return self.suspended.get(client, {}).get(key, ())

    def is_suspended(self, made: Assertion) -> bool:
        return bool(self.suspension(made.authorizer, rows.ASSERTION + made.id))

    def _suspend(self, client: str, key: str, value: bytes | None) -> bool:
        """Whether the row, as it is now, is suspended."""
        found = rows.spans(value or b"")
        if rows.is_open(found):
            self.suspended.setdefault(client, {})[key] = found
            return True
        mine = self.suspended.get(client, {})
        if key in mine:
            del mine[key]
            if not mine:
                del self.suspended[client]
        return False

    def elsewhere(self, owner: str) -> int:
        """The mediator that the owner has appointed, if it is not this one; else 0."""
        number, at = self.mediators.get(owner, (0, 0))
        if not number or not self.bearers.bears(owner, at) or number == self.settings.mediator:
            return 0
        return number

    # Configuration

    def configure(self, config: Policy) -> list[Dep]:
        """Take a checked file in. FamilyConfigError: nothing changed."""
        new = read(config)
        before, self.settings = self.settings, new
        self.world = World(new.externals, self.signed, new.counts)
        deps: list[Dep] = []
        if new.clients != before.clients:
            deps.append(CLIENTS)
        if (new.dynamic, new.authenticate, new.externals, new.mediator) != (
            before.dynamic,
            before.authenticate,
            before.externals,
            before.mediator,
        ):
            deps.append(ALL_DEP)
            self.plans.static = not new.dynamic
            self.plans.clear()
        deps += self._retype()
        old = {made.id: made for made in before.assertions}
        now = {made.id: made for made in new.assertions}
        for id in old.keys() | now.keys():
            if old.get(id) != now.get(id):
                deps += self._replace(id, now.get(id))
        return deps

    def _retype(self) -> list[Dep]:
        """The types that count: the settings', and those advertised that they leave room for."""
        wanted = {kind.key: kind for kind in self.settings.types}
        for key, kind in sorted(self.advertised.items()):
            if self.suspension(kind.by, rows.TYPE + "/".join(key)):
                continue
            if key in wanted or any(crosses(kind.filter, w.filter) for w in wanted.values()):
                continue
            if not self.settings.externals.keys() & kind.names:
                wanted[key] = kind
        deps: list[Dep] = []
        for key, kind in list(self.types.by_key.items()):
            if wanted.get(key) != kind:
                self.types.take(key)
                deps.append(kind.dep)
        for key, kind in wanted.items():
            if key not in self.types.by_key:
                self.types.put(kind)
                deps += [kind.dep, NO_TYPE]
        if deps:
            self.plans.clear()
        return deps

    # Records

    def apply(self, records: Sequence[Record]) -> list[Dep]:
        """What the store holds: the family's own rows."""
        deps: list[Dep] = []
        types = False
        for record in records:
            if not isinstance(record, FamilyRecord):
                continue
            kind, key, value = record.key[:2], record.key[2:], record.value
            if kind == rows.ASSERTION:
                deps += self._assertion(key, value)
            elif kind == BEARER:
                self.bearers.apply(record.key, value)
            elif kind == rows.TYPE:
                types = True
                self._type(key, value)
            else:
                deps += self._other(kind, key, value)
        return deps + (self._retype() if types else [])

    def _assertion(self, id: str, value: bytes | None) -> list[Dep]:
        made = None if value is None else rows.read_assertion(id, value)
        said = self.assertions.get(id) if made is None else made
        if said is not None:
            self._suspend(said.authorizer, rows.ASSERTION + id, value)
        return self._replace(id, made)

    def _type(self, key: str, value: bytes | None) -> None:
        app, _, name = key.partition("/")
        before = self.advertised.pop((app, name), None)
        if before is not None:
            self._suspend(before.by, rows.TYPE + key, None)
        if value is not None:
            kind = self.advertised[app, name] = rows.read_event_type(key, value)
            self._suspend(kind.by, rows.TYPE + key, value)

    def _other(self, kind: str, key: str, value: bytes | None) -> list[Dep]:
        first, _, rest = key.partition("/")
        row = None if value is None else rows.decoded(value)
        if kind == rows.KEY:
            self.keys.pop(first, None)
            if row is not None:
                self.keys[first] = bytes.fromhex(row["key"]), row["at"]
            return []
        if kind == rows.CONSENT:
            mine = self.consents.setdefault(first, {})
            mine.pop(self._contracts.pop(key, ""), None)
            if not self._suspend(first, kind + key, value) and row is not None:
                address = self._contracts[key] = row["address"]
                mine[address] = row["at"]
            elif not mine:
                del self.consents[first]
            return [consents_of(first)]
        if kind == rows.GLASS:
            client, _, at = rest.partition("/")
            held = self.glass.setdefault((first, client), {})
            held.pop(int(at), None)
            if value is not None:
                held[int(at)] = rows.read_glass(key, value)
            elif not held:
                del self.glass[first, client]
            return [of_owner(first), SOME]
        if kind == rows.MEDIATOR:
            self.mediators.pop(first, None)
            if row is not None:
                self.mediators[first] = row["mediator"], row["at"]
            return [of_owner(first), SOME]
        raise ValueError(f"a row of owners begins with {kind!r}")

    def counting(self, id: str) -> Assertion | None:
        """What counts now under this id."""
        return self.altered[id] if id in self.altered else self.assertions.get(id)

    def _replace(self, id: str, made: Assertion | None) -> list[Dep]:
        """What is said under this id now, in one step; what was said there counts no more."""
        deps: list[Dep] = []
        before = self.counting(id)
        self.altered.pop(id, None)
        if made is None:
            self.assertions.pop(id, None)
        else:
            self.assertions[id] = made
            counts = self._in_force(made)
            if counts is not made:
                self.altered[id] = made = counts
        for one in (before, made):
            if one is not None:
                owner = about(one)
                self.plans.drop(owner)
                deps += (ALL_DEP if owner == EVERYBODY else of_owner(owner), SOME)
                deps += map(to_licensee, one.licensees)
        if before is not None:
            self.index.take(before)
        if made is not None:
            self.index.put(made)
        return deps

    def _in_force(self, made: Assertion) -> Assertion | None:
        """What counts of it: nothing while it is suspended; and while others bear some of its
        names, the rest."""
        at, bears = made.at_ms, self.bearers.bears
        if self.suspended and self.is_suspended(made):
            return None
        if not at or not self.bearers.since:
            return made
        named = (made.authorizer, made.owner, *made.condition.principals)
        if not all(bears(name, at) for name in named):
            return None
        left = tuple(name for name in made.licensees if bears(name, at))
        if len(left) == len(made.licensees):
            return made
        if not left:
            return None
        return Assertion(
            made.authorizer,
            left,
            made.owner,
            made.app,
            made.type,
            made.actions,
            made.condition,
            id=made.id,
            at_ms=at,
        )

    # Names that went from one client to another

    def noted(self, since: Mapping[str, int]) -> bool:
        """In force at once; whether rows have to be put right."""
        before = self.bearers.since
        unsettled = self.bearers.noted(since)
        changed = {name for name, at in since.items() if before.get(name) != at}
        if changed:
            for id, made in list(self.assertions.items()):
                names = {made.authorizer, made.owner, *made.licensees, *made.condition.principals}
                if not names.isdisjoint(changed):
                    self._replace(id, made)
            self._retype()
        return unsettled
