"""The load generator: a process of its own that holds the clients of one site or one plain broker.

Reads one JSON object a line and answers each with one. The first says where to connect. All that is
sent in a measured span was sealed before it began (SPEC.md 6.1: within W = 60 s and in the order of
its counters), so that what the generator costs beside it stays small; its own CPU time is told.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from purposes_peer import PATIENCE_S, LoadError, Peer, Sealed, cpu_ns

from sealmq.kglink import KgClient
from sealmq_spec.identity import Identity
from sealmq_spec.purposes import access, release, reserve

Told = dict[str, Any]
# How many topics each client reads: its own and those of the clients behind it.
READS = 3
_FAMILY = "purposes"


def name(number: int) -> str:
    """A client's name; all have the same length, and so do its topics."""
    return f"c{number:04d}"


def topic(number: int) -> str:
    """What a client publishes to."""
    return f"bench/{name(number)}/value"


class Load:
    """Clients and what they do."""

    def __init__(self, told: Told) -> None:
        self.pids: dict[str, int] = told["pids"]
        self.purpose: str = told["purpose"]
        self.family: bool = told["family"]
        self.size: int = told["size"]
        self.peers: list[Peer] = []
        self._poll = select.epoll()
        self._by_fd: dict[int, Peer] = {}
        self._rounds = 0
        self._connect(told)

    def _connect(self, told: Told) -> None:
        count, host, port = told["clients"], told["host"], told["port"]
        site = told.get("site")
        identities = asyncio.run(_lent(Path(site), count)) if site else []
        for number in range(count):
            if identities:
                sealed = Sealed(number, host, port, topic(number))
                sealed.greet(identities[number])
                self.peers.append(sealed)
            else:
                plain = Peer(number, host, port, topic(number))
                plain.login(told["user"], told["password"])
                self.peers.append(plain)
        for peer in self.peers:
            self._by_fd[peer.sock.fileno()] = peer
            self._poll.register(peer.sock.fileno(), select.EPOLLIN)
        for peer in self.peers:
            wanted = [topic((peer.number + far) % count) for far in range(READS)]
            peer.queue = [peer.subscribe(list(map(self._for, wanted)))]
        self._answers("subscriptions")

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
        has its own back."""
        payload = os.urandom(self.size)
        for peer in self.peers:
            made = [peer.publish(payload) for _ in range(each)]
            # Taken from the end.
            peer.queue = [b"".join(made[at : at + burst]) for at in range(0, each, burst)][::-1]
            peer.delivered = peer.echoed = 0
        per = min(READS, len(self.peers))
        trips: list[int] = []
        span = self._span(lambda: self._in_turns(each, burst, each * len(self.peers) * per, trips))
        trips.sort()
        span["messages"] = each * len(self.peers)
        span["deliveries"] = span["messages"] * per
        span["trip_ms"] = trips[len(trips) // 2] / 1e6
        span["trip95_ms"] = trips[len(trips) * 95 // 100] / 1e6
        return span

    def _in_turns(self, each: int, burst: int, expected: int, trips: list[int]) -> None:
        poll, by_fd, now = self._poll.poll, self._by_fd, time.perf_counter_ns
        began = dict.fromkeys(by_fd, 0)
        due = dict.fromkeys(by_fd, min(burst, each))
        for fd, peer in by_fd.items():
            began[fd] = now()
            peer.send(peer.queue.pop())
        got = 0
        while got < expected:
            ready = poll(PATIENCE_S)
            if not ready:
                raise LoadError(f"{expected - got} of {expected} deliveries did not come")
            for fd, _ in ready:
                peer = by_fd[fd]
                before = peer.delivered
                peer.receive()
                got += peer.delivered - before
                if peer.echoed >= due[fd]:
                    trips.append(now() - began[fd])
                    if peer.queue:
                        due[fd] = min(due[fd] + burst, each)
                        began[fd] = now()
                        peer.send(peer.queue.pop())
                    else:
                        due[fd] = each + 1

    def calm(self, count: int) -> Told:
        """One message at a time on an otherwise idle system."""
        payload = os.urandom(self.size)
        trips = []
        for at in range(count):
            peer = self.peers[at % len(self.peers)]
            packet = peer.publish(payload)
            peer.echoed = 0
            for other in self.peers:
                other.delivered = 0
            began = time.perf_counter_ns()
            peer.send(packet)
            end, got = time.monotonic() + PATIENCE_S, 0
            while got < min(READS, len(self.peers)) or not peer.echoed:
                for fd, _ in self._wait(end):
                    other = self._by_fd[fd]
                    before = other.delivered
                    other.receive()
                    got += other.delivered - before
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
        before = {role: cpu_ns(pid) for role, pid in self.pids.items()}
        mine, began = time.process_time_ns(), time.perf_counter_ns()
        act()
        wall, mine = time.perf_counter_ns() - began, time.process_time_ns() - mine
        used = {role: cpu_ns(pid) - before[role] for role, pid in self.pids.items()}
        return {"wall_s": wall / 1e9, "cpu_us": {**_us(used), "generator": mine / 1000}}

    def close(self) -> None:
        """Leave."""
        for peer in self.peers:
            peer.close()


def _us(used: dict[str, int]) -> dict[str, float]:
    return {role: ns / 1000 for role, ns in used.items()}


async def _lent(site: Path, count: int) -> list[Identity]:
    """Identities as the key generator lends them to the operator's own tools."""
    found = []
    async with await KgClient.connect(site / "run" / "kg" / "kg.sock") as kg:
        for number in range(count):
            enrolment, dump = await kg.lend(name(number))
            identity = Identity.from_enrolment(enrolment)
            if not identity.load(dump):
                raise LoadError("the key generator lent what is no identity")
            found.append(identity)
    return found


def main() -> int:
    """Until the end of the input, or {"do": "end"}."""
    load: Load | None = None
    for line in sys.stdin:
        told = json.loads(line)
        what = told.pop("do")
        if what == "end":
            break
        try:
            if what == "connect":
                load = Load(told)
                answer: Told = {"clients": len(load.peers)}
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
