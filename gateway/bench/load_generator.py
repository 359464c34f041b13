"""The load generator: a process of its own that holds the clients of one site or one plain broker.

Reads one JSON object a line and answers each with one. `begin` says where to connect, `connect`
who. All that is sent in a measured span was sealed before it began (SPEC.md 6.1: within W = 60 s
and in the order of its counters), so that what the generator costs beside it stays small; its own
CPU time is told. Every delivery is counted by reader and topic: a span in which one is missing, or
one comes too many, is an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from load_cpu import LoadError, cpu_ns, processes
from load_peer import PATIENCE_S, Peer, Sealed

from sealmq.kglink import KgClient
from sealmq_spec.identity import Identity
from sealmq_spec.purposes import access, release, reserve

Told = dict[str, Any]
# How many topics each client reads: its own and those of the clients after it.
READS = 3
_FAMILY = "purposes"
# How many identities are asked for at once.
_LANES = 8


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
        self.purpose: str = told["purpose"]
        self.family: bool = told["family"]
        self.size: int = told["size"]
        self.peers: list[Peer] = []
        self._identities: list[Identity] = []
        self._boot = 0
        self._poll = select.epoll()
        self._by_fd: dict[int, Peer] = {}
        self._rounds = 0
        self._tls = _context(told.get("ca"))
        # What each client has to receive of one message that all publish, by topic.
        self._expected: list[dict[bytes, int]] = []

    def connect(self, clients: int, qos: int = 0, clean: bool = True) -> Told:
        """New clients in place of the old ones; each reads READS topics."""
        self.close()
        self._poll = select.epoll()
        self.peers = [self._peer(number, topic(number), qos, clean) for number in range(clients)]
        self._borrow()
        for peer in self.peers:
            peer.open(self._tls)
            peer.greet(self._hello(peer))
        self._begin()
        for peer in self.peers:
            wanted = self._reads(peer)
            peer.queue = [peer.subscribe(list(map(self._for, wanted)))]
        self._answers("subscriptions")
        self._expected = [{_field(filt): 1 for filt in self._reads(p)} for p in self.peers]
        return {"clients": len(self.peers)}

    def _reads(self, peer: Peer) -> list[str]:
        count = len(self.peers)
        return [topic((peer.number + far) % count) for far in range(min(READS, count))]

    def _peer(self, number: int, own: str, qos: int, clean: bool) -> Peer:
        made = Sealed if self._told.get("site") else Peer
        return made(number, self._told["host"], self._told["port"], own, qos, clean)

    def _borrow(self) -> None:
        """An identity for each client of a site, and a new boot session for all."""
        site = self._told.get("site")
        if site:
            self._boot += 1
            numbers = range(len(self._identities), len(self.peers))
            self._identities += asyncio.run(_lent(Path(site), numbers))

    def _hello(self, peer: Peer) -> bytes:
        if isinstance(peer, Sealed):
            return peer.begin(self._identities[peer.number], self._boot)
        return peer.hello(*(self._told[of] for of in ("user", "password", "ids")))

    def _begin(self) -> None:
        self._by_fd = {peer.sock.fileno(): peer for peer in self.peers}
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)

    # A filter as it is subscribed to.
    def _for(self, filt: str) -> str:
        return access(filt, self.purpose) if self.family else filt

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
        filters = self._dealt(count, lambda where: self._for(f"rate/{where}/+"))
        for peer, mine in filters.items():
            peer.queue = [peer.subscribe([filt]) for filt in mine]
        span = self._span(lambda: self._answers("subscriptions"))
        span["done"] = count
        for peer, mine in filters.items():
            peer.queue = [peer.unsubscribe([filt]) for filt in mine]
        self._answers("unsubscriptions")
        return span

    def reserve(self, count: int) -> Told:
        """So many reservations, dealt out in the same way; removed afterwards."""
        topics = self._dealt(count, lambda where: f"own/{where}")
        for peer, mine in topics.items():
            made = [reserve(filt, (self.purpose,), ("advertising",)).encode() for filt in mine]
            peer.queue = [peer.command(_FAMILY, body) for body in made]
        span = self._span(lambda: self._answers("reservations"))
        span["done"] = count
        for peer, mine in topics.items():
            gone = [release(filt).encode() for filt in mine]
            peer.queue = [peer.command(_FAMILY, body) for body in gone]
        self._answers("removals")
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


async def _lent(site: Path, numbers: Sequence[int]) -> list[Identity]:
    """Identities as the key generator lends them to the operator's own tools."""
    found: dict[int, Identity] = {}

    async def some(mine: Sequence[int]) -> None:
        async with await KgClient.connect(site / "run" / "kg" / "kg.sock") as kg:
            for number in mine:
                enrolment, dump = await kg.lend(name(number))
                found[number] = identity = Identity.from_enrolment(enrolment)
                if not identity.load(dump):
                    raise LoadError("the key generator lent what is no identity")

    # Each waits until the mediators know of it: several do that at once.
    await asyncio.gather(*(some(numbers[at::_LANES]) for at in range(_LANES)))
    return [found[number] for number in numbers]


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
