"""The load generator: a process of its own that holds the clients of one site or one plain broker.

Reads one JSON object a line and answers each with one. `begin` says where to connect, `connect`
who. All that is sent in a measured span was sealed before it began (SPEC.md 6.1: within W = 60 s
and in the order of its counters), so that what the generator costs beside it stays small; its own
CPU time is told. Every delivery is counted by reader and topic: a span in which one is missing, or
one comes too many, is an error.
"""

from __future__ import annotations

import json
import os
import select
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from load_cpu import LoadError, cpu_ns, processes
from load_family import site_of
from load_paced import Paced, percentile
from load_peer import PATIENCE_S, Peer, Sealed
from load_storm import Idle, Storm

from sealmq.mqtt import build
from sealmq_spec.identity import Identity

Told = dict[str, Any]
# How many topics each client reads: its own and those of the clients after it.
READS = 3
# Stands for a topic's last levels in a family's command.
WHERE = "WHERE"


def name(number: int) -> str:
    """A client's name; all have the same length, and so do its topics."""
    return f"c{number:04d}"


def topic(number: int) -> str:
    """What a client publishes to."""
    return f"bench/{name(number)}/value"


class Load:
    """Clients and what they do."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._main: int = told["main"]
        self._pids: dict[str, int] = told["pids"]
        # A policy family whose commands are sent, and who says how a filter is subscribed to.
        self._family: str = told["family"]
        self._as_sent = site_of(self._family).as_sent if self._family else str
        self.size: int = told["size"]
        self.peers: list[Peer] = []
        self._identities = [_identity(*one) for one in told.get("lent", ())]
        self._boot = 0
        self._poll = select.epoll()
        self._by_fd: dict[int, Peer] = {}
        self._rounds = 0
        self._tls = _context(told.get("ca"))
        self.publishers: list[Peer] = []
        # What each client has to receive of one message on each topic; shared: one of them has.
        self._expected: list[dict[bytes, int]] = []
        self._shared = False

    def connect(self, clients: int, qos: int = 0, clean: bool = True) -> Told:
        """New clients in place of the old ones; each publishes and reads READS topics, its own
        among them."""
        self._enter([topic(number) for number in range(clients)], qos, clean)
        self._shared = False
        self.publishers = self.peers
        self._read({
            peer: [topic((peer.number + far) % clients) for far in range(min(READS, clients))]
            for peer in self.peers
        })  # fmt: skip
        return {"clients": clients}

    def scenario(self, kind: str, publishers: int, subscribers: int, topics: int) -> Told:
        """New clients, as emqx/mqttbs has them, with QoS 1: publishers with one topic each, or one
        of few, and subscribers with one topic each (p2p), all of them (fanout), or one shared
        subscription (fanin)."""
        own = [_test(number % topics) for number in range(publishers)]
        self._enter([*own, *(_test(0) for _ in range(subscribers))], 1, True)
        self.publishers, readers = self.peers[:publishers], self.peers[publishers:]
        self._shared = kind == "fanin"
        if self._shared:
            wanted = {peer: ["$share/benchmark/test/#"] for peer in readers}
        elif kind == "fanout":
            every = [_test(number) for number in range(topics)]
            wanted = {peer: every for peer in readers}
        else:
            wanted = {peer: [_test(at % topics)] for at, peer in enumerate(readers)}
        self._read(wanted)
        return {"clients": len(self.peers)}

    def _enter(self, own: Sequence[str], qos: int, clean: bool) -> None:
        """A client for each of these topics, connected."""
        self._fresh(own, qos, clean)
        for peer in self.peers:
            peer.open(self._tls)
            peer.greet(self._hello(peer))
        self._begin()

    def _fresh(self, own: Sequence[str], qos: int, clean: bool) -> None:
        self.close()
        self._poll = select.epoll()
        self.peers = [self._peer(number, what, qos, clean) for number, what in enumerate(own)]
        self._boot += 1

    def _read(self, wanted: dict[Peer, list[str]]) -> None:
        """Each subscribes to these."""
        for peer, filters in wanted.items():
            peer.queue = [peer.subscribe(list(map(self._as_sent, filters)))]
        self._answers("subscriptions")
        # What each client has to receive of one message on each topic.
        self._expected = [
            {} if self._shared else {_field(filt): 1 for filt in wanted.get(peer, ())}
            for peer in self.peers
        ]

    def _peer(self, number: int, own: str, qos: int, clean: bool) -> Peer:
        made = Sealed if self._identities else Peer
        return made(number, self._told["host"], self._told["port"], own, qos, clean)

    def _hello(self, peer: Peer) -> bytes:
        if isinstance(peer, Sealed):
            return peer.begin(self._identities[peer.number], self._boot)
        return peer.hello(*(self._told[of] for of in ("user", "password", "ids")))

    def _begin(self) -> None:
        self._by_fd = {peer.sock.fileno(): peer for peer in self.peers}
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)

    def _wait(self, end: float) -> list[tuple[int, int]]:
        ready = self._poll.poll(max(0.0, end - time.monotonic()))
        if not ready:
            raise LoadError(f"nothing came for {PATIENCE_S:.0f} s: messages were lost")
        return ready

    # --- what is measured ---

    def messages(self, each: int, burst: int) -> Told:
        """Every client publishes `each` messages of 64 B, `burst` at a time; the next ones when it
        has its own back, and its acknowledgements."""
        payload = os.urandom(self.size)
        for peer in self.peers:
            made = [peer.publish(payload) for _ in range(each)]
            # Taken from the end.
            peer.queue = [b"".join(made[at : at + burst]) for at in range(0, each, burst)][::-1]
        self._forget()
        expected = each * sum(map(len, self._expected))
        trips: list[int] = []
        span = self._span(lambda: self._in_turns(each, burst, expected, trips))
        self._all_came(each)
        trips.sort()
        span["messages"] = each * len(self.peers)
        span["deliveries"] = expected
        span["trip_ms"] = trips[len(trips) // 2] / 1e6
        span["trip95_ms"] = trips[len(trips) * 95 // 100] / 1e6
        return span

    def _forget(self) -> None:
        for peer in self.peers:
            peer.counts.clear()
            peer.echoed = peer.acked = 0

    def _all_came(self, each: int) -> None:
        for peer, expected in zip(self.peers, self._expected, strict=True):
            came(peer, {what: each * times for what, times in expected.items()})

    def _in_turns(self, each: int, burst: int, expected: int, trips: list[int]) -> None:
        poll, by_fd, now = self._poll.poll, self._by_fd, time.perf_counter_ns
        began = dict.fromkeys(by_fd, 0)
        due = dict.fromkeys(by_fd, min(burst, each))
        for fd, peer in by_fd.items():
            began[fd] = now()
            peer.send(peer.queue.pop())
        got, under_way = 0, len(by_fd)
        while got < expected or under_way:
            ready = poll(PATIENCE_S)
            if not ready:
                raise LoadError(f"{expected - got} of {expected} deliveries did not come")
            for fd, _ in ready:
                peer = by_fd[fd]
                got += peer.receive()
                if peer.echoed >= due[fd] and (not peer.qos or peer.acked >= due[fd]):
                    trips.append(now() - began[fd])
                    if peer.queue:
                        due[fd] = min(due[fd] + burst, each)
                        began[fd] = now()
                        peer.send(peer.queue.pop())
                    else:
                        due[fd] = each + 1
                        under_way -= 1

    def paced(self, rate: float, seconds: float, size: int) -> Told:
        """The publishers in turns, so many messages a second in all, of `size` bytes."""
        payload, count = os.urandom(size), max(1, int(rate * seconds))
        turns = [self.publishers[at % len(self.publishers)] for at in range(count)]
        packets = [(peer, peer.publish(payload)) for peer in turns]
        sent = Counter(peer.own for peer in turns)
        readers = Counter(what for expected in self._expected for what in expected)
        if self._shared:
            readers = Counter(sent.keys())
        self._forget()
        paced = Paced(self._poll, self._by_fd, packets, readers, self._shared)
        span = self._span(lambda: paced.run(rate))
        if self._shared:
            came_to_one(self.peers, sent)
        else:
            for peer, expected in zip(self.peers, self._expected, strict=True):
                came(peer, {what: sent[what] for what in expected})
        paced.took.sort()
        paced.late.sort()
        span |= {"messages": count, "deliveries": len(paced.took)}
        for name_, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
            span[f"{name_}_ms"] = percentile(paced.took, share)
        span["late_ms"] = percentile(paced.late, 0.99)
        return span

    def storm(self, clients: int, under_way: int) -> Told:
        """New clients that only connect, so many of them at a time."""
        self._fresh([topic(number) for number in range(clients)], 0, True)
        self._expected = [{} for _ in self.peers]
        hellos = [self._hello(peer) for peer in self.peers]
        storm = Storm(self.peers, hellos, self._tls)
        span = self._span(lambda: storm.run(under_way))
        self._begin()
        storm.took.sort()
        for name_, share in (("p50", 0.5), ("p99", 0.99)):
            span[f"{name_}_ms"] = percentile(storm.took, share)
        return span | {"clients": clients}

    def idle(self, seconds: float, keepalive: float) -> Told:
        """The clients do nothing but keep alive."""
        idle = Idle(self._poll, self._by_fd, keepalive)
        return self._span(lambda: idle.run(seconds))

    def calm(self, count: int) -> Told:
        """One message at a time on an otherwise idle system."""
        payload = os.urandom(self.size)
        trips = []
        per = min(READS, len(self.peers))
        for at in range(count):
            peer = self.peers[at % len(self.peers)]
            packet = peer.publish(payload)
            peer.echoed = 0
            began = time.perf_counter_ns()
            peer.send(packet)
            end, got = time.monotonic() + PATIENCE_S, 0
            while got < per or not peer.echoed:
                for fd, _ in self._wait(end):
                    other = self._by_fd[fd]
                    got += other.receive()
                    if other is peer and peer.echoed == 1:
                        trips.append(time.perf_counter_ns() - began)
                        peer.echoed = 2
        trips.sort()
        return {
            "trip_ms": trips[len(trips) // 2] / 1e6,
            "trip95_ms": trips[len(trips) * 95 // 100] / 1e6,
            "messages": count,
        }

    def subscribe(self, count: int) -> Told:
        """So many subscriptions, dealt out to the clients, each of which has one under way; left
        afterwards."""
        filters = self._dealt(count, lambda where: self._as_sent(f"rate/{where}/+"))
        for peer, mine in filters.items():
            peer.queue = [peer.subscribe([filt]) for filt in mine]
        span = self._span(lambda: self._answers("subscriptions"))
        span["done"] = count
        for peer, mine in filters.items():
            peer.queue = [peer.unsubscribe([filt]) for filt in mine]
        self._answers("unsubscriptions")
        return span

    def wild(self, needed: Sequence[str], filters: Sequence[str], calm: int) -> Told:
        """One client sends the commands, and subscribes to the filters, which take long to judge;
        another one waits for each of its PINGRESPs meanwhile. Before that it does so `calm` times
        with nobody beside. Milliseconds.
        """
        asks, pings = self.peers[:2]
        asks.may_be_refused = True
        asks.queue = [asks.command(self._family, text.encode()) for text in needed]
        self._answers("commands")
        asks.answered = 0
        quiet = [self._ping(pings) for _ in range(calm)]
        trips: list[float] = []

        def act() -> None:
            for at, filt in enumerate(filters):
                asks.send(asks.subscribe([filt]))
                while asks.answered <= at:
                    trips.append(self._ping(pings))

        span = self._span(act)
        for what, of in (("calm", quiet), ("wild", trips)):
            of.sort()
            span[f"{what}_p50"], span[f"{what}_p99"] = of[len(of) // 2], of[len(of) * 99 // 100]
            span[f"{what}_max"] = of[-1]
        return span

    # Milliseconds until its PINGREQ is answered; what comes for others meanwhile is taken.
    def _ping(self, peer: Peer) -> float:
        peer.answered = 0
        began = time.perf_counter_ns()
        end = time.monotonic() + PATIENCE_S
        peer.send(build.pingreq())
        while True:
            ready = self._wait(end)
            now = time.perf_counter_ns()
            for fd, _ in ready:
                self._by_fd[fd].receive()
            if peer.answered:
                return (now - began) / 1e6

    def commands(self, made: str, gone: str, count: int) -> Told:
        """So many commands of the family, dealt out in the same way; undone afterwards. In a text
        stands WHERE for what is another one in each."""
        wheres = self._dealt(count, str)
        for peer, mine in wheres.items():
            texts = [made.replace(WHERE, where) for where in mine]
            peer.queue = [peer.command(self._family, text.encode()) for text in texts]
        span = self._span(lambda: self._answers("commands"))
        span["done"] = count
        for peer, mine in wheres.items():
            texts = [gone.replace(WHERE, where) for where in mine]
            peer.queue = [peer.command(self._family, text.encode()) for text in texts]
        self._answers("commands that undo them")
        return span

    def _dealt(self, count: int, make: Callable[[str], str]) -> dict[Peer, list[str]]:
        self._rounds += 1
        made: dict[Peer, list[str]] = {}
        for n in range(count):
            peer = self.peers[n % len(self.peers)]
            made.setdefault(peer, []).append(make(f"{self._rounds}/{name(peer.number)}/{n}"))
        return made

    # Each client sends the next of its queue when the last was answered.
    def _answers(self, what: str) -> None:
        left = sum(len(peer.queue) for peer in self.peers)
        for peer in self.peers:
            peer.queue.reverse()
            if peer.queue:
                peer.send(peer.queue.pop())
        while left > 0:
            for fd, _ in self._wait(time.monotonic() + PATIENCE_S):
                peer = self._by_fd[fd]
                peer.answered = 0
                peer.receive()
                left -= peer.answered
                if peer.answered and peer.queue:
                    peer.send(peer.queue.pop())
        if left < 0:
            raise LoadError(f"more answers than {what}")

    def _span(self, act: Callable[[], None]) -> Told:
        """What `act` takes: time, and CPU of each role."""
        roles = processes(self._main, self._pids)
        before = {pid: cpu_ns(pid) for pid in roles}
        mine, began = time.process_time_ns(), time.perf_counter_ns()
        act()
        wall, mine = time.perf_counter_ns() - began, time.process_time_ns() - mine
        used: dict[str, float] = {}
        for pid, role in roles.items():
            used[role] = used.get(role, 0.0) + (cpu_ns(pid) - before[pid]) / 1000
        return {"wall_s": wall / 1e9, "cpu_us": {**used, "generator": mine / 1000}}

    def close(self) -> None:
        """Leave."""
        for peer in self.peers:
            peer.close()
        self.peers = []
        self._poll.close()


def came(peer: Peer, expected: dict[bytes, int]) -> None:
    """LoadError unless the peer has received so many of each topic, and nothing else."""
    for what in expected.keys() | peer.counts.keys():
        due, got = expected.get(what, 0), peer.counts.get(what, 0)
        if got != due:
            raise LoadError(
                f"client {peer.number} received {got} of {due} messages on {what[2:].decode()}"
            )


def came_to_one(peers: Sequence[Peer], sent: Mapping[bytes, int]) -> None:
    """LoadError unless each message of these topics came to one of the peers, once."""
    got: Counter[bytes] = Counter()
    for peer in peers:
        got.update(peer.counts)
    for what in sent.keys() | got.keys():
        if sent.get(what, 0) != got[what]:
            raise LoadError(
                f"the group received {got[what]} of {sent.get(what, 0)} messages on "
                f"{what[2:].decode()}"
            )


def _test(number: int) -> str:
    """A topic as emqx/mqttbs names them, all of the same length."""
    return f"test/{number:04d}"


def _field(topic_: str) -> bytes:
    """A topic as it stands in a PUBLISH."""
    raw = topic_.encode()
    return len(raw).to_bytes(2, "big") + raw


def _context(ca: str | None) -> ssl.SSLContext | None:
    if ca is None:
        return None
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _identity(enrolment: dict[str, Any], dump: str) -> Identity:
    made = Identity.from_enrolment(enrolment)
    if not made.load(bytes.fromhex(dump)):
        raise LoadError("the key generator lent what is no identity")
    return made


def main() -> int:
    """Until the end of the input, or {"do": "end"}."""
    load: Load | None = None
    for line in sys.stdin:
        told = json.loads(line)
        what = told.pop("do")
        if what == "end":
            break
        try:
            if what == "begin":
                load = Load(told)
                answer: Told = {}
            else:
                answer = getattr(load, what)(**told)
        except Exception as error:
            answer = {"error": f"{error}" if isinstance(error, LoadError) else f"{error!r}"}
        print(json.dumps(answer), flush=True)
    if load is not None:
        load.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
