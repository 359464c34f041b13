"""What the family knows, and what a change ends: settings, reservations, presubscriptions.

`configure` and `apply` give deps: what verdicts may no longer rest on. A client's reservation that
hangs on its topic's label counts only while the topic has that label, or none yet; meanwhile it
is dormant, out of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..api import CreationPolicy, Dep, FamilyRecord, Policy, Record
from ..bearers import BEARER, Bearers
from ..pace import Pace
from ..shared import mounts
from ..topiclabels import TopicLabels
from . import records as rows
from .dag import Purposes
from .judging import Judging
from .settings import Settings, read
from .store import SETTINGS, Reservation, Store
from .stores import STORES
from .texts import Reader

GUESSES = 20
"""Searches a second for the purpose that a client meant: one may take the loop 12 ms, and a packet
may name hundreds of unknown purposes."""


def presub_dep(client: str, filt: str) -> Dep:
    """What a verdict rests on that asked for a client's presubscription of a filter."""
    return ("purposes.presub", client, filt)


class State:
    """One site's purposes."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.purposes = Purposes()
        self.reader = Reader()
        self.labels = TopicLabels()
        self.creation: Sequence[CreationPolicy] = ()
        self.clients: frozenset[str] = frozenset()
        self.mounts: frozenset[str] = frozenset()
        self.store: Store = STORES[self.settings.store]()
        # Clients' reservations that do not count now, by filter.
        self.dormant: dict[str, Reservation] = {}
        # client -> filter -> (purpose, who asked for it, when); those of the file are in settings.
        self.presubs: dict[str, dict[str, tuple[str, str, int]]] = {}
        self.bearers = Bearers(rows.NAME, rows.orphaned)
        self.overrides: dict[str, str] = {}
        # The second of the newest guess, and how many there were in it.
        self._guessed = (0, 0)
        self.pace = Pace()
        self.judging = self._judging()

    # What holds now

    @property
    def mode(self) -> str:
        return self.overrides.get("mode", self.settings.mode)

    @property
    def strict(self) -> bool:
        said = self.overrides.get("strict")
        return self.settings.strict if said is None else said == "true"

    def presub(self, client: str, filt: str) -> str:
        """The purpose that was declared for the client's subscription, or "". The file's first."""
        site = self.settings.presubscribe.get((client, filt))
        if site is not None:
            return site
        made = self.presubs.get(client, {}).get(filt)
        return "" if made is None or not self.bearers.bears(client, made[2]) else made[0]

    def meant(self, purpose: str, now_ms: int) -> str:
        """The purpose of the site that a client probably meant; "" without an idea, or time."""
        second, count = self._guessed
        if second != now_ms // 1000:
            second, count = now_ms // 1000, 0
        if count >= GUESSES:
            return ""
        self._guessed = second, count + 1
        return self.purposes.suggest(purpose)

    def purpose(self, client: str, filt: str, notes: Mapping[str, object]) -> str:
        """A subscription's own purpose, else the one that was declared for it, or "".

        notes: what `parse` made of its filter.
        """
        said = notes.get("ap")
        return self.presub(client, filt) if said is None else str(said)

    def own(self, filt: str) -> Reservation | None:
        """The clients' reservation of exactly this filter, whether it counts now or not."""
        return self.dormant.get(filt) or self.store.get(filt, "client")

    def counts(self, r: Reservation) -> bool:
        """Whether its topic still has the label that entitled to it, or none yet."""
        return not r.label or self.labels.of(r.filter) in (None, r.label)

    # Configuration

    def configure(self, config: Policy) -> list[Dep]:
        """Take a checked file in. FamilyConfigError: nothing changed."""
        parts = read(config)
        before, self.settings = self.settings, parts.settings
        deps: list[Dep] = []
        if parts.settings.store != before.store:
            old, self.store = self.store, STORES[parts.settings.store]()
            for r in old:
                self.store.put(r)
        self._site_reserves(before, deps)
        now = parts.settings.presubscribe
        for key in before.presubscribe.keys() | now.keys():
            if before.presubscribe.get(key) != now.get(key):
                deps.append(presub_dep(*key))
        self.clients = frozenset(config.clients)
        self.mounts = mounts(config)
        self.creation = tuple(config.creation)
        for topic in self.labels.configure(config):
            deps += self._relabelled(topic)
        self.purposes, self.reader = parts.purposes, parts.reader
        if _judges(before) != _judges(parts.settings):
            deps.append(SETTINGS)
        self.judging = self._judging()
        return deps

    def _site_reserves(self, before: Settings, deps: list[Dep]) -> None:
        now = self.settings.reserve
        for filt in before.reserve.keys() - now.keys():
            deps += self.store.remove(filt, "site")
        for filt, sets in now.items():
            if before.reserve.get(filt) != sets:
                deps += self.store.put(Reservation(filt, *sets, source="site"))

    def _judging(self) -> Judging:
        return Judging(self.store, self.purposes, self.mode, self.strict)

    # Records

    def apply(self, records: Sequence[Record]) -> list[Dep]:
        """What the store holds: labels of all, the family's own rows."""
        deps: list[Dep] = []
        topics = self.labels.apply(records)
        for record in records:
            if isinstance(record, FamilyRecord):
                deps += self._row(record.key[:2], record.key[2:], record.value)
        for topic in topics:
            deps += self._relabelled(topic)
        return deps

    def _row(self, kind: str, key: str, value: bytes | None) -> Iterable[Dep]:
        if kind == rows.RESERVATION:
            return self._reserve(key, None if value is None else rows.read_reservation(key, value))
        if kind == rows.PRESUBSCRIPTION:
            return self._presubscribe(*rows.read_presubscription(key, value))
        if kind == BEARER:
            self.bearers.apply(kind + key, value)
            return ()
        if kind == rows.SETTING:
            self._set(key, value)
            return (SETTINGS,)
        raise ValueError(f"a row of purposes begins with {kind!r}")

    def _reserve(self, filt: str, new: Reservation | None) -> Sequence[Dep]:
        old = self.own(filt)
        if old is not None:
            self.dormant.pop(filt, None)
        if new is not None:
            if self.counts(new):
                return self.store.put(new)
            self.dormant[filt] = new
        return self.store.remove(filt, "client") if old is not None else ()

    def _relabelled(self, topic: str) -> Sequence[Dep]:
        r = self.own(topic)
        if r is None or self.counts(r) == (topic not in self.dormant):
            return ()
        if topic in self.dormant:
            return self.store.put(self.dormant.pop(topic))
        self.dormant[topic] = r
        return self.store.remove(topic, "client")

    def _presubscribe(self, client: str, filt: str, ap: str, by: str, at: int) -> Sequence[Dep]:
        mine = self.presubs.setdefault(client, {})
        mine.pop(filt, None)
        if ap:
            mine[filt] = ap, by, at
        elif not mine:
            del self.presubs[client]
        return (presub_dep(client, filt),)

    def _set(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.overrides.pop(name, None)
        else:
            self.overrides[name] = rows.read_setting(value)
        self.judging = self._judging()


def _judges(settings: Settings) -> tuple[object, ...]:
    """What every verdict rests on."""
    return (
        settings.mode,
        settings.strict,
        settings.store,
        settings.tree,
        settings.words,
        settings.published,
    )
