"""Random histories of a site, run through the real engine with each store and through the model.

A history (purposes_draw) is there as a whole before it is run, so that one that fails can be cut
down to the few steps that matter: `run` says what went wrong, `smallest` cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from families.purposes import purposes_model as model
from families.purposes.purposes_site import CLIENTS, File, Op, Sets, Site, may_create
from sealmq.families.api import Proposal, Record, TopicLabel
from sealmq.families.engine import Conn, Engine
from sealmq.families.registry import load
from sealmq.site.config import loads
from sealmq_spec import purposes as say

STORES = ("cache", "tree", "flat")
NOW = 1_000_000


class Wrong(Exception):
    """The engine and the model do not agree."""


class One:
    """The real thing with one of the stores: an engine, and what its store of records holds."""

    def __init__(self, store: str, file: File) -> None:
        self.store = store
        self.rows: dict[object, Record] = {}
        self.start(file)

    def start(self, file: File) -> None:
        """As after a restart: an engine that knows the file and the rows."""
        self.faults: list[str] = []
        self.engine = Engine(
            load(["labels", "purposes"]),
            200,
            on_fault=lambda family, what, error: self.faults.append(f"{family} {what} {error!r}"),
        )
        self.conns: dict[str, Conn] = {}
        self.held: dict[tuple[str, str], bool] = {}
        self.commit(self.engine.load(loads(file.text(self.store)), list(self.rows.values())))

    def commit(self, records: Sequence[Record]) -> None:
        for record in records:
            key = getattr(record, "key", None) or (type(record), getattr(record, "topic", ""))
            self.rows[key] = record
        self.engine.apply(records)

    def conn(self, client: str) -> Conn:
        if client not in self.conns:
            self.conns[client] = self.engine.connection(self.engine.who(client, 1))
        return self.conns[client]

    def close(self, client: str) -> None:
        conn = self.conns.pop(client, None)
        if conn is not None:
            conn.close(NOW)
        for key in [key for key in self.held if key[0] == client]:
            del self.held[key]

    def follow(self) -> None:
        """As the mediator does: what is due is asked again, and paused or resumed."""
        for conn, raw in self.engine.due():
            again = conn.again(raw, NOW)
            if again is not None:
                self.held[conn.who.client, raw] = again.allow


class Run:
    """One history under way: the model, and an engine for each store."""

    def __init__(self, file: File, stores: Sequence[str] = STORES) -> None:
        self.site = Site(file)
        self.all = [One(store, file) for store in stores]
        # What was asked before is asked again after each step: it may be cached.
        self.asked_subs: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.asked_topics: dict[tuple[str, str], int] = {}
        self.answers = self.allowed = self.denied_commands = self.paused = 0
        self.commands = 0

    def same(self, what: str, got: bool, want: bool, one: One, more: object = "") -> None:
        self.answers += 1
        self.allowed += want
        if got != want:
            raise Wrong(f"{what}: {one.store} says {got}, the model {want}; {more}")
        if one.faults:
            raise Wrong(f"{what}: {one.store}: {one.faults}")

    def step(self, op: Op) -> None:
        getattr(self, f"do_{op[0]}")(*op[1:])
        for one in self.all:
            one.follow()
            for (client, raw), allowed in one.held.items():
                want = self.site.subscribe(client, *self.site.subs[client][raw])
                self.paused += not want
                self.same(f"{client} still has {raw}", allowed, want, one)
        for (client, raw), sub in self.asked_subs.items():
            self.subscribed(client, raw, sub)
        for (client, topic), how in self.asked_topics.items():
            self.delivered(client, topic, how)

    # Questions

    def subscribed(self, client: str, raw: str, sub: tuple[str, str | None]) -> bool:
        want = self.site.subscribe(client, *sub)
        for one in self.all:
            got = one.conn(client).subscribe(raw, 1, NOW)
            self.same(f"{client} subscribes {raw}", got.allow, want, one, got)
        return want

    def delivered(self, client: str, topic: str, how: int) -> None:
        want = self.site.deliver(client, topic)
        for one in self.all:
            got = one.conn(client).deliver(topic, "low", how, NOW)
            self.same(f"{client} gets {topic}", got.allow, want, one, got)
            audit = dict(got.audit)
            if audit.get("under"):
                self.justified(one, client, topic, audit["purpose"], audit["under"])

    def justified(self, one: One, client: str, topic: str, purpose: str, under: str) -> None:
        """What the audit says: one of the reader's purposes, and a reservation that allows it."""
        site = self.site
        mine = {
            site.purpose(client, *sub)
            for sub in site.subs[client].values()
            if model.matches(sub[0], topic)
        }
        above = site.graph.ancestors(purpose)
        by = [b for b in site.bound() if b.filter == under and model.matches(under, topic)]
        if purpose not in mine or not any(b.aip & above for b in by):
            raise Wrong(f"{topic} for {client}: {one.store} says for {purpose!r} under {under!r}")

    # Steps

    def do_subscribe(self, client: str, raw: str, filter: str, said: str | None) -> None:
        self.asked_subs[client, raw] = (filter, said)
        if not self.subscribed(client, raw, (filter, said)):
            return
        self.site.subs.setdefault(client, {})[raw] = (filter, said)
        for one in self.all:
            conn = one.conn(client)
            conn.subscribed(conn.subscribe(raw, 1, NOW), 1, NOW)
            one.held[client, raw] = True

    def do_unsubscribe(self, client: str, index: int) -> None:
        mine = self.site.subs.get(client)
        if not mine:
            return
        raw = sorted(mine)[index % len(mine)]
        del mine[raw]
        for one in self.all:
            one.conn(client).unsubscribed(raw)
            del one.held[client, raw]

    def do_deliver(self, client: str, topic: str, how: int) -> None:
        self.asked_topics[client, topic] = how
        self.delivered(client, topic, how)

    def do_close(self, client: str) -> None:
        self.site.subs.pop(client, None)
        for one in self.all:
            one.close(client)

    def do_comeback(self, client: str) -> None:
        """A kept session: the client is gone and back, and has what it had, allowed or not."""
        for one in self.all:
            one.close(client)
            conn = one.conn(client)
            for raw in self.site.subs.get(client, ()):
                decision = conn.subscribe(raw, 1, NOW)
                conn.subscribed(decision, 1, NOW)
                one.held[client, raw] = decision.allow

    def command(self, client: str, text: str, want: bool) -> None:
        self.denied_commands += not want
        # Slowly enough for each client.
        self.commands += 1
        now = NOW + self.commands * 1000
        for one in self.all:
            got = one.conn(client).command("purposes", text.encode(), now)
            done = isinstance(got, Proposal)
            self.same(f"{client} commands {text}", done, want, one, got)
            if isinstance(got, Proposal):
                one.commit(got.records)

    def do_reserve(self, client: str, filter: str, sets: Sets) -> None:
        want = self.site.reserve(client, filter, sets)
        self.command(client, say.reserve(filter, sorted(sets[0]), sorted(sets[1])), want)

    def do_release(self, client: str, index: int) -> None:
        if self.site.reserved:
            filter = sorted(self.site.reserved)[index % len(self.site.reserved)]
            want = self.site.release(client, filter)
            self.command(client, say.release(filter), want)

    def do_presub(self, by: str, client: str, filter: str, ap: str) -> None:
        want = self.site.presubscribe(by, client, filter, ap)
        self.command(by, say.presubscribe(client, filter, ap), want)

    def do_set(self, by: str, name: str, value: str) -> None:
        self.command(by, say.setting(name, value), self.site.set(by, name, value))

    def do_publish(self, client: str, topic: str) -> None:
        """A first publish gives the topic a label."""
        if self.site.label(topic) is not None:
            return
        if not may_create(self.site.file.creation, client, topic):
            return
        self.site.learned[topic] = CLIENTS[client]
        for one in self.all:
            got = one.conn(client).publish(topic, 0, False, 1, NOW)
            self.same(f"{client} publishes {topic}", got.label == CLIENTS[client], True, one, got)
            one.commit([TopicLabel(topic, CLIENTS[client], client, NOW)])

    def do_reload(self, file: File) -> None:
        self.site.file = file
        for one in self.all:
            one.commit(one.engine.reload(loads(file.text(one.store))).records)

    def do_other_store(self) -> None:
        """The engines change stores among themselves, by a reload."""
        names = [one.store for one in self.all]
        for one, store in zip(self.all, names[1:] + names[:1], strict=True):
            one.store = store
        self.do_reload(self.site.file)

    def do_tick(self) -> None:
        for one in self.all:
            one.engine.tick(NOW)

    def do_restart(self) -> None:
        self.site.subs.clear()
        for one in self.all:
            one.start(self.site.file)


def run(file: File, ops: Sequence[Op], stores: Sequence[str] = STORES) -> Run:
    """Wrong, with the step at which they parted."""
    history = Run(file, stores)
    for i, op in enumerate(ops):
        try:
            history.step(op)
        except Wrong as wrong:
            raise Wrong(f"step {i}, {op}: {wrong}") from None
    return history


def fails(file: File, ops: Sequence[Op]) -> str:
    try:
        run(file, ops)
    except Wrong as wrong:
        return str(wrong)
    return ""


def smallest(file: File, ops: Sequence[Op]) -> list[Op]:
    """Of a history that fails: as few of its steps as still fail."""
    kept = list(ops)
    size = len(kept) // 2
    while size:
        for start in range(len(kept) - size, -1, -size):
            fewer = kept[:start] + kept[start + size :]
            if fails(file, fewer):
                kept = fewer
        size //= 2
    return kept


def told(seed: int, file: File, ops: Sequence[Op]) -> str:
    """A failed history for people: the few steps, and what went wrong."""
    few = smallest(file, ops)
    lines: Iterator[str] = (f"  {op}" for op in few)
    return "\n".join([f"seed {seed}: {fails(file, few)}", f"  {file}", *lines])
