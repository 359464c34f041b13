"""The real mediator (core and shell, one worker) between models of everything around it.

Real: `Mediator` with its sessions, links, journal (files, too) and replay, its event loop's tasks.
Modelled: sockets, the broker (broker.py), the store (surroundings.py), clients (clients.py), time
and threads (turns.py).

A step is what one of them does next, so that a crash can come between any two steps, and what was
written before it may have arrived or not. `Bounds` says how much of everything there is.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core_world import CONFIG, TOPIC
from mediator_world import MEDIATOR, NOW_MS, SENSOR, SIBLING, sealed
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.records import TopicLabel
from sealmq.mediator.core.boots import BootSession
from sealmq.mediator.core.custody import BROKER, CLEAN, CUSTODY, ENDS, KEPT
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.wrap import look_m3, open_m2, open_m3, seal_m3, verify_m2
from sealmq.mediator.journal import SEGMENT_S
from sealmq.mediator.journal_file import read
from sealmq.mediator.links import BrokerAddress
from sealmq.mediator.mediator import Mediator
from sealmq.mediator.shared import Begin
from sealmq.mqtt import (
    Packet,
    Pubcomp,
    Publish,
)
from sealmq.order import Order
from sealmq.site.check import parse
from sealmq.site.layout import Layout
from sealmq.store.errors import StoreUnavailable
from sealmq_spec.const import LIVE

from .broker import Broker, Conn, Link, Out
from .canon import Canon
from .clients import KEYS, Client, Publisher, Reader, Socket
from .surroundings import Audit, Question, Shared, Shut, Store
from .turns import Timer, Turns

_CONFIG = parse(CONFIG)
# The instance of another machine's mediator.
_OTHER = 5
NEW_TOPIC = "machine/2/new"
LINKS = {
    f"/mediator-{MEDIATOR}": "control",
    "/publish": "publish",
    "/live": "live",
    f"/{SIBLING}/id": "own",
    "/messages": "messages",
    "/messages/alone": "alone",
}
"""The end of a client identifier at the broker, and what we call the link."""
_BY_ITSELF = ("brings a packet", "tries again", "is done", "to have fallen", "has waited")
_GONE = "a client is heard to have fallen"
_AGAIN = [f"m{n} is published again" for n in range(4)]
_LOCAL = frozenset({"clean", "kept", "publisher"})


@functools.cache
def _ring(inst: int) -> Keyring:
    return Keyring(KEYS.site, inst, KEYS.snapshot())


def _name(client_id: str) -> str:
    return next((name for end, name in LINKS.items() if client_id.endswith(end)), "")


class Bounds(NamedTuple):
    """`messages`: the QoS of each, in their order. `readers`: "clean", "kept", with their QoS.
    `crashes`: who may fall how often; `falls`: how often in all. `saves`: how often the broker may
    save. `new`: the topic has no label yet, and the store may fail. `publisher`: without it the
    messages are published at the broker by a mediator of another machine. `denies`: how often the
    policy may shut the readers out. `window`, `room`, `held`: bounds of a reader's unacknowledged
    messages, of bytes that wait for it, of packets that a paused own link holds. `away`: the kept
    reader comes back only when nothing else goes on. `begun`: steps that are done before the
    search. `apart`: each message comes from another worker or machine, and their journals are
    published again in any order. `prompt`: what needs no outside event happens at once.
    `company`: each write of the journal waits first for entries of others.
    """

    messages: tuple[int, ...]
    readers: Mapping[str, int]
    crashes: Mapping[str, int]
    falls: int = 1
    saves: int = 0
    new: bool = False
    publisher: bool = True
    denies: int = 0
    window: int = 20
    room: int = 1 << 20
    held: int = 64
    away: bool = False
    begun: tuple[str, ...] = ()
    apart: bool = False
    prompt: bool = False
    company: bool = False


class World:
    """One run. `bad`: the first thing that went wrong. `steps()`: what can happen next."""

    def __init__(self, bounds: Bounds, folder: Path) -> None:
        self.bounds = bounds
        self.folder = folder
        self.topic = NEW_TOPIC if bounds.new else TOPIC
        self.bad = ""
        self.left = dict(bounds.crashes)
        self.falls, self.saves, self.denies = bounds.falls, bounds.saves, bounds.denies
        self.clock = 0.0
        self.cut: list[Socket] = []
        # Which messages the broker has handed on; which are on the journal's disk.
        self.moved: Counter[int] = Counter()
        self.durable: set[int] = set()
        self._entries: set[int] = set()
        self._files: list[list[tuple[int, int]]] = []
        self.happened: Counter[str] = Counter()
        self._indexes: dict[bytes, int] = {}
        self._ctrs: dict[int, int] = {}
        self._sealed: dict[int, bytes] = {}
        self.store = Store()
        self.store.hold([TopicLabel(TOPIC, "low", "sensor", 0)])
        self.broker = Broker()
        self.broker.routed, self.broker.acknowledged = self._routed, self._acknowledged
        self._saved = folder / "saved"
        self._saved.touch()
        self._inst = 8
        self.shut = False
        self.publisher = Publisher(self) if bounds.publisher else None
        self._idle = tuple(
            link
            for link, used in (("live ", CLEAN in bounds.readers), ("publish ", bounds.publisher))
            if not used
        )
        self.readers = {
            name: Reader(self, name == "clean", qos) for name, qos in bounds.readers.items()
        }
        self._outside = KEYS.session(SENSOR, salt=bytes(8))
        self._injected = 0
        self._again: list[int] = []
        self._order = Order(_OTHER)
        self.mediator: Mediator
        self._start_worker()
        self._calm()
        for client in (*([self.publisher] if self.publisher else []), *self.readers.values()):
            client.connect()
            self._calm()
            if not client.welcome:
                raise RuntimeError("a client is not let in")
            if isinstance(client, Reader):
                client.subscribe()
                self._calm()
                client.socket.down.clear()  # type: ignore[union-attr]
                if bounds.away:
                    client.fall()
                    self.do(_GONE)
                    self._calm()
        # Sessions are in the broker's file before anything else happens.
        self.broker.save()
        self.broker.save()
        self.store.slow = bounds.new
        for step in bounds.begun:
            self.do(step)

    # --- worker ---

    def _start_worker(self) -> None:
        self.loop = Turns()
        self._inst += 1
        ring = _ring(self._inst)
        self.family = Shut()
        self.engine = Engine([Labels(), self.family])
        self.engine.apply(self.engine.load(_CONFIG, self.store.records()))
        layout = Layout(self.folder)
        layout.state_of("mediator").mkdir(parents=True, exist_ok=True)
        begin = Begin(layout, _CONFIG, ring, 0, 1, {}, False)
        address = BrokerAddress("", 0, saved=self._saved, inflight=1000, queue=100_000)
        self.mediator = self.run(Mediator, begin, Shared(self.store), self.engine, Audit(), address)
        self.mediator._tried = True
        self.mediator.journal._clock = lambda: self.clock
        self._shut()
        self.run(self._tasks)
        self.worker = True

    def _tasks(self) -> None:
        mediator = self.mediator
        for name, link in (
            ("control", mediator.control),
            ("publish", mediator._forwarding.link),
            ("live", mediator._live),
        ):
            self.loop.create_task(link.run(), name=name)

    def run(self, call: Callable[..., Any], *words: Any) -> Any:
        """In the mediator's loop."""
        Link.net = self.broker
        return self.loop.run(call, *words)

    def close(self) -> None:
        """Ends it, so that nothing of it is left."""
        if self.worker:
            self._worker_falls()

    # Does the steps that happen by themselves until there are none.
    def _calm(self) -> None:
        while steps := [s for s in self.progress() if s.endswith(_BY_ITSELF)]:
            self.do(steps[0])

    def _shut(self) -> None:
        self.family.on = self.shut

    # --- messages ---

    def sealed(self, keys: Any, index: int, qos: int) -> Publish:
        """The publisher's packet, which it keeps until it is acknowledged."""
        m2 = self._sealed.get(index)
        if m2 is None:
            m2 = self._sealed[index] = sealed(keys, self.topic, b"%d" % index, qos << 1)
            self._ctrs[int.from_bytes(m2[2:5], "big")] = index
            self._indexes[m2] = index
        raw = self.topic.encode()
        return Publish(self.topic, raw, m2, qos, False, False, index + 1 if qos else 0)

    # By a mediator of another machine: same keys, other instance.
    def _inject(self, index: int) -> None:
        qos, raw = self.bounds.messages[index], self.topic.encode()
        m2 = self.sealed(self._outside, index, qos).payload
        link = BootSession(KEYS.site, MEDIATOR, KEYS.ring.clients[SENSOR], 1, 1, bytes(8))
        verified = verify_m2(link, raw, m2, qos << 1)
        ring = _ring(_OTHER)
        client = ring.clients[SENSOR]
        body = open_m2(link, ring, client, verified, qos << 1, NOW_MS // 1000).body
        m3 = seal_m3(ring, ring.labels[client.label], self._order, LIVE, raw, body, NOW_MS)
        self.broker.route(Publish(self.topic, raw, m3, qos, packet_id=1 if qos else 0))

    def index(self, payload: bytes) -> int:
        """Which message is inside; -1: none."""
        index = self._indexes.get(payload)
        if index is None:
            index = self._indexes[payload] = self._opened(payload)
        return index

    def _opened(self, payload: bytes) -> int:
        try:
            seen = look_m3(KEYS.ring, payload)
            ctr = open_m3(KEYS.ring, seen, self.topic.encode(), payload).ctr
        except Exception:
            # An entry of the journal has it at its end.
            at = payload.find(self.topic.encode())
            if at < 0:
                return -1
            return self.index(payload[at + len(self.topic) :])
        return self._ctrs[ctr]

    def named(self, packet: Packet) -> Any:
        """A packet with the message inside instead of its bytes."""
        if not isinstance(packet, Publish):
            return packet
        return "Publish", self.index(packet.payload), packet.qos, packet.dup, packet.packet_id

    # --- what is checked at once ---

    def _routed(self, packet: Publish, number: int) -> None:
        self.moved[self.index(packet.payload)] += 1

    def acknowledges(self, index: int) -> None:
        """The publisher is told that this one is accepted."""
        publisher = self.publisher
        if publisher is None:
            return
        if not self.moved[index] and self.happened["store fails"]:
            publisher.refused.add(index)
            return
        if index not in self.durable:
            self.bad = f"m{index} is acknowledged to its publisher before the journal is durable"
        elif not self.moved[index]:
            self.bad = f"m{index} is acknowledged to its publisher before the broker has it"
        publisher.acked.add(index)

    def _acknowledged(self, conn: Conn, packet: Any, out: Out) -> None:
        index, link = self.index(out.payload), self._link(conn)
        what = type(packet).__name__
        if link == "live" and not isinstance(packet, Pubcomp):
            reader = self.readers.get("clean")
            if reader is not None and not self._lies_at(reader, index):
                self.bad = f"{what} on the live link, and the clean reader's outbox lacks m{index}"
        elif link == "own":
            said = self.readers["kept"].said
            if (what, packet.packet_id) not in said and not self.happened["policy shuts"]:
                self.bad = f"{what} on the own link for m{index}, which the kept reader never sent"

    # Whether the message is in its outbox, on its socket or with it, or it needs it no longer.
    def _lies_at(self, reader: Reader, index: int) -> bool:
        socket = reader.socket
        if reader.ended or socket is None or socket.over or reader.got[index]:
            return True
        if self.happened["policy shuts"]:
            return True
        session = socket.session
        rows = [item.message.payload for item in session.delivery._queue]
        rows += [packet.payload for packet in socket.down if isinstance(packet, Publish)]
        if any(self.index(payload) == index for payload in rows):
            return True
        data = b"".join(session.out)
        return any(one == index and m3 in data for m3, one in self._indexes.items())

    # --- steps ---

    def _link(self, conn: Conn) -> str:
        return _name(conn.client_id)

    def steps(self) -> list[str]:
        """All that can happen now; first what is not a fault."""
        return self.progress() + self._trouble()

    def progress(self) -> list[str]:
        """What can happen but faults. If there is none, everything has come to rest."""
        steps: list[str] = []
        if not self.worker:
            steps.append("worker starts")
        if not self.broker.up:
            steps.append("broker starts")
        for conn in self.broker.conns:
            name = self._link(conn)
            if not conn.alive:
                steps.append(f"{name or conn.client_id} is heard to have fallen")
            elif conn.down and name and not conn.link.paused:
                steps.append(f"{name} brings a packet")
        if self.worker:
            steps += self._within()
        steps += self._of_clients()
        if not steps and KEPT in self.readers and not self.readers[KEPT].there:
            steps.append("kept connects")
        return list(dict.fromkeys(steps))

    def _within(self) -> list[str]:
        steps = []
        if self.broker.up:
            steps += [f"{t.task} tries again" for t in self.loop.timers if self._counts(t)]
        if any(self._writes(t) for t in self.loop.timers):
            steps.append("the journal has waited")
        if any(job.writes for job in self.loop.jobs):
            steps.append("the disk is done")
        if any(not job.writes for job in self.loop.jobs):
            steps.append("a thread is done")
        if self.store.questions:
            steps.append("store answers" if self.store.questions[0].done else "store commits")
        if self.cut:
            steps.append(_GONE)
        return steps

    def _counts(self, timer: Any) -> bool:
        return timer.task in ("control", "publish", "live") and timer.delay < 5

    def _writes(self, timer: Timer) -> bool:
        return timer.call == self.mediator.journal._flush

    def _of_clients(self) -> list[str]:
        steps = []
        count = len(self.bounds.messages)
        inside = self.worker and self.mediator.site.away is None
        publisher = self.publisher
        if publisher is None:
            if self.broker.up and self._again:
                steps += [_AGAIN[n] for n in self._again[: None if self.bounds.apart else 1]]
            elif self.broker.up and self._injected < count:
                steps.append("a message is published")
        elif publisher.there:
            if publisher.unread:
                steps.append("publisher reads")
            if publisher.welcome and publisher.next < count:
                steps.append("publisher publishes")
        elif inside:
            steps.append("publisher connects")
        for name, reader in self.readers.items():
            if reader.there:
                if reader.unread:
                    steps.append(f"{name} reads")
                if reader.owed:
                    steps.append(f"{name} answers")
            elif name == "kept" and inside and not self.bounds.away:
                steps.append("kept connects")
        return steps

    def _trouble(self) -> list[str]:
        steps = []
        if self.falls:
            steps += [f"{who} falls" for who, left in self.left.items() if left and self._can(who)]
        if self.broker.up and self.saves and self._heard():
            steps.append("broker saves")
        if not self.broker.up and self.bounds.saves:
            steps.append("broker starts with the file before")
        if self.worker and self._unseen():
            steps.append("the journal looks")
        if self.worker and self.denies:
            steps.append("policy opens" if self.shut else "policy shuts")
        if self.store.questions and not self.store.questions[0].done:
            steps.append("store fails")
        return steps

    # A file of the broker's is looked at only if the broker is on this machine. Then its fall is
    # heard before it can have saved again.
    def _heard(self) -> bool:
        return all(conn.alive for conn in self.broker.conns if self._link(conn) == "control")

    # A save that the journal has not seen.
    def _unseen(self) -> bool:
        return self.mediator.journal._mtime != self._saved.stat().st_mtime_ns

    def _can(self, who: str) -> bool:
        if who == "worker":
            return self.worker
        if who == "broker":
            return self.broker.up
        if who == "publisher":
            return self.publisher is not None and self.publisher.there
        if who in self.readers:
            return self.readers[who].there
        return any(c.alive and self._link(c) == who for c in self.broker.conns)

    def do(self, step: str) -> None:
        """One step, and what happens on links that carry nothing here."""
        self._one(step)
        while steps := [one for one in self.progress() if self._at_once(one)]:
            self._one(steps[0])

    def _at_once(self, step: str) -> bool:
        return step.startswith(self._idle) or (self.bounds.prompt and step.endswith(_BY_ITSELF))

    def _one(self, step: str) -> None:
        self.happened[step] += 1
        who, _, what = step.partition(" ")
        match what:
            case "falls":
                self._falls(who)
            case "is heard to have fallen" if who != "a":
                link = next(
                    c.link
                    for c in self.broker.conns
                    if not c.alive and (self._link(c) or c.client_id) == who
                )
                self.run(link.hear)
            case "brings a packet":
                link = next(
                    c.link for c in self.broker.conns if c.alive and c.down and self._link(c) == who
                )
                self.run(link.read)
            case "tries again":
                timers = (t for t in self.loop.timers if self._counts(t) and t.task == who)
                self.run(self.loop.fire, next(timers))
            case _:
                self._do(step, who)
        for client in self._all():
            client.look()
        if self.loop.faults:
            self.bad = f"a fault in the mediator: {self.loop.faults[0]}"
        self._ends()

    def _all(self) -> list[Client]:
        return [*([self.publisher] if self.publisher else []), *self.readers.values()]

    def _do(self, step: str, who: str) -> None:
        match step:
            case "worker starts":
                self._start_worker()
            case "broker starts" | "broker starts with the file before":
                self.broker.start(int(step.endswith("before")))
                # Others have journals, too.
                self._again = list(range(self._injected))
            case "the journal has waited":
                timers = (t for t in self.loop.timers if self._writes(t))
                self.run(self.loop.fire, next(timers))
            case "the disk is done" | "a thread is done":
                self.run(self.loop.work, step.startswith("the disk"), self._look_at_disk)
            case "store commits" | "store fails" | "store answers":
                self._store(step)
            case _ if step == _GONE:
                socket = self.cut.pop(0)
                self.run(self.mediator.events.run, socket.session.lost, "it fell")
                socket.over = True
            case "a message is published":
                self._injected += 1
                self._inject(self._injected - 1)
            case _ if step in _AGAIN:
                self._again.remove(_AGAIN.index(step))
                self._inject(_AGAIN.index(step))
            case "publisher publishes":
                self.publisher.publish()  # type: ignore[union-attr]
            case "broker saves":
                self.saves -= 1
                self.broker.save()
                stamp = self._saved.stat().st_mtime_ns + 10**9
                os.utime(self._saved, ns=(stamp, stamp))
            case "the journal looks":
                self.clock += SEGMENT_S + 1
                self.run(self.mediator.journal.tick)
                self._look_at_disk()
            case "policy shuts" | "policy opens":
                self.denies -= 1
                self.shut = not self.shut
                self._shut()
            case _:
                client: Any = self.publisher if who == "publisher" else self.readers[who]
                verb = step.partition(" ")[2]
                getattr(client, verb.removesuffix("s"))()

    def _falls(self, who: str) -> None:
        self.left[who] -= 1
        self.falls -= 1
        if who == "broker":
            self.broker.die()
        elif who == "worker":
            self._worker_falls()
        elif who in _LOCAL:
            (self.publisher if who == "publisher" else self.readers[who]).fall()  # type: ignore[union-attr]
        else:
            self.broker.cut(next(c for c in self.broker.conns if c.alive and self._link(c) == who))

    def _worker_falls(self) -> None:
        self.worker = False
        for client in self._all():
            if client.socket is not None:
                client.socket.over = True
                client.socket.down.clear()
        for socket in self.cut:
            socket.over = True
        self.loop.die()
        for segment in self.mediator.journal.all():
            segment.end(False)
        for conn in list(self.broker.conns):
            self.broker.forget(conn)
        self.cut.clear()
        self.store.questions.clear()

    def _store(self, step: str) -> None:
        records, answer, done = self.store.questions[0]
        if step == "store commits":
            self.store.questions[0] = Question(records, answer, True)
            self.store.hold(records)
            return
        self.store.questions.popleft()
        if done:
            self.run(answer.set_result, self.store.hold(records))
        else:
            self.run(answer.set_exception, StoreUnavailable("the disk is full"))

    # What the journal's files hold.
    def _look_at_disk(self) -> None:
        folder = self.folder / "state" / "mediator" / "journal"
        self._files = [
            [(self.index(e.payload), e.qos) for e in read(path)]
            for path in sorted(folder.glob("*.seg"))
        ]
        self._entries = {index for rows in self._files for index, _ in rows}
        self.durable |= self._entries

    # --- what is checked after each step ---

    # A session may end only by the fall of something on which it depends.
    def _ends(self) -> None:
        for name, reader in self.readers.items():
            if reader.there and reader.socket.over:  # type: ignore[union-attr]
                causes = sorted(name if who == "reader" else who for who in ENDS[name])
                if not any(self.happened[f"{who} falls"] for who in causes):
                    text = ", ".join(causes)
                    self.bad = f"the session of the {name} reader ended, and none of {text} fell"
        fallen = {step.split()[0] for step in self.happened if step.endswith(" falls")}
        for index, count in self.moved.items():
            if count > 1 and not fallen & {"broker", "control", "messages", "publish", "worker"}:
                self.bad = f"m{index} is at the broker {count} times"
        self._owned()
        if not self.happened["broker falls"]:
            for name, reader in self.readers.items():
                for index, count in reader.got.items():
                    if min(reader.qos, self.bounds.messages[index]) == 2:
                        if count > self.moved[index]:
                            self.bad = f"m{index} of QoS 2 came to the {name} reader twice"

    # For each reader, each message of QoS 1 or 2 is in one row, and the owner in that row has it.
    def _owned(self) -> None:
        publisher = self.publisher
        count = self._injected if publisher is None else publisher.next
        for index in range(count):
            if not self.bounds.messages[index]:
                continue
            if publisher is not None and index in publisher.refused:
                continue
            if publisher is not None and index not in publisher.acked:
                row = self._row_before(index)
                self._look_at_owner(index, row, index + 1 in publisher.out)
                continue
            for name, reader in self.readers.items():
                if (name == CLEAN and reader.ended) or reader.got[index] or self.shut_out:
                    continue
                row = self._row_after(index, name)
                self._look_at_owner(index, row, self._has(index, name, CUSTODY[row].owner))

    def _look_at_owner(self, index: int, row: int, has: bool) -> None:
        if not has and not self.bad:
            where, owner, _ = CUSTODY[row]
            self.bad = f"m{index} is owed by {owner} (row {row}, {where}), which does not have it"

    # Not yet accepted.
    def _row_before(self, index: int) -> int:
        link = self.mediator._forwarding.link
        items = [*link._underway.values(), *link._waiting, *link._suspects]
        if self.worker and any(self.index(item.payload) == index for item in items):
            return 2
        return 3 if self.moved[index] else 1

    def _row_after(self, index: int, name: str) -> int:
        if name == KEPT:
            return 7 if self._has(index, name, BROKER) else 4
        if self._lies_at(self.readers[name], index):
            return 6
        return 5 if self._has(index, name, BROKER) else 4

    def _has(self, index: int, name: str, owner: str) -> bool:
        match owner:
            case "broker":
                return any(self._holds(rows, name, index) for rows in self._memories())
            case "journal and broker":
                # What another machine's mediator published is in its journal.
                entry = self.publisher is None or index in self._entries
                return entry or all(self._holds(rows, name, index) for rows in self.broker.saved)
            case _:
                return self._lies_at(self.readers[name], index)

    def _memories(self) -> Sequence[Mapping[str, Any]]:
        return [self.broker.sessions] if self.broker.up else self.broker.saved

    def _holds(self, sessions: Mapping[str, Any], name: str, index: int) -> bool:
        link = "own" if name == KEPT else "live"
        return any(
            self.index(out.payload) == index
            for client_id, session in sessions.items()
            if _name(client_id) == link
            for out in session.out.values()
        )

    def over(self) -> str:
        """Everything has come to rest: what is missing."""
        publisher = self.publisher
        accepted = set(range(len(self.bounds.messages)))
        if publisher is not None:
            if publisher.out:
                return f"the publisher waits for an answer: {sorted(publisher.out)}"
            accepted = publisher.acked
        for name, reader in self.readers.items():
            missing = {i for i in accepted if not reader.got[i] and self.bounds.messages[i]}
            if missing and not (name == "clean" and reader.ended) and not self.shut_out:
                return f"m{min(missing)} was accepted, and never came to the {name} reader"
            if reader.ids and reader.there:
                return f"the {name} reader keeps packet ids that nobody releases: {reader.ids}"
        return self._kept_for_ever()

    @property
    def shut_out(self) -> bool:
        """Whether the policy has ever denied the readers."""
        return self.happened["policy shuts"] > 0

    # What would be kept for ever.
    def _kept_for_ever(self) -> str:
        link = self.mediator._forwarding.link
        if link._underway or link._waiting or link._suspects:
            return "a message stays on the publish link"
        for name, reader in self.readers.items():
            if reader.socket is not None and not reader.socket.over:
                delivery = reader.socket.session.delivery
                rest = delivery._under_way or delivery._unreleased or delivery._of_own
                if delivery._queue or rest:
                    return f"something stays in the outbox of the {name} reader"
        for client_id, session in self.broker.sessions.items():
            if session.out:
                return f"the broker keeps a message for {client_id}"
        return ""

    # --- one text for all that behaves alike ---

    def state(self) -> int:
        """Equal for states that behave alike."""
        broker = self.broker
        named = self.named
        rows: list[Any] = [
            sorted(self.left.items()), self.falls, self.saves, self.denies, self.shut, self.worker,
            [client.state() for client in self._all()],
            broker.up,
            [
                (self._link(c), c.alive, c.link.paused, [named(p) for p in c.down])
                for c in broker.conns
            ],
            [self._sessions(rows) for rows in (broker.sessions, *broker.saved)],
            sorted(self.moved.items()), sorted(self.durable), self._injected, self._again,
            sorted(self.store.topics), [q.done for q in self.store.questions],
            sorted(step for step in self.happened if step.endswith((" falls", "shuts", "fails"))),
            self._files, self.worker and self._unseen(),
        ]  # fmt: skip
        inside = self._inside() if self.worker else ()
        return hash((repr(rows), repr(inside)))

    def _sessions(self, sessions: Mapping[str, Any]) -> Any:
        return [
            (
                name,
                held.clean,
                held.last,
                [
                    (n, self.index(o.payload), o.qos, o.sent, o.received)
                    for n, o in held.out.items()
                ],
                [(n, self.index(p.payload)) for n, p in held.incoming.items()],
            )
            for name, held in sessions.items()
            if held.filters or held.out or held.incoming
        ]

    def _inside(self) -> Any:
        mediator, loop = self.mediator, self.loop
        canon = Canon(self.index)
        return canon.of(
            [task.get_coro() for task in loop.tasks if not task.done()],
            [(t.task, t.call) for t in loop.timers if self._counts(t) or self._writes(t)],
            [(job.writes, job.call, job.words) for job in loop.jobs],
            mediator.journal,
            mediator._forwarding.link,
            mediator._live._filters,
            mediator.control.__dict__,
            mediator._messages,
            list(mediator._questions._asked.values()),
            list(mediator._links._links.values()),
            [socket.session for socket in self.cut],
            mediator.events.agenda.outboxes.copies,
            list(mediator.events.agenda.outboxes.table._of.values()),
            mediator.site.boots._links,
            mediator.site.away,
        )
