"""Messages at a fixed rate, whether or not the last ones have arrived, and how long each took from
its sending to each reader."""

from __future__ import annotations

import select
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

from load_cpu import LoadError
from load_peer import PATIENCE_S, Peer


class Paced:
    """One such span. packets: in the order of their sending, each with who sends it.

    expected: deliveries of a message to all its readers, by topic. shared: each message goes to
    one reader of a group, whichever.
    """

    def __init__(
        self,
        poll: select.epoll,
        by_fd: dict[int, Peer],
        packets: Sequence[tuple[Peer, bytes]],
        expected: dict[bytes, int],
        shared: bool,
    ) -> None:
        self._poll, self._by_fd, self._packets = poll, by_fd, packets
        self._due = sum(expected[peer.own] for peer, _ in packets)
        self._acks = sum(1 for peer, _ in packets if peer.qos)
        self._shared = shared
        self._sent: defaultdict[bytes, list[int]] = defaultdict(list)
        self._seen: Counter[tuple[int, bytes]] = Counter()
        self._got = 0
        # Nanoseconds of each delivery; and how late each message was sent.
        self.took: list[int] = []
        self.late: list[int] = []

    def run(self, rate: float) -> None:
        """LoadError when messages are lost. It begins now and takes len(packets) / rate seconds."""
        now, step = time.monotonic_ns, 1e9 / rate
        began, at, total = now(), 0, len(self._packets)
        while at < total:
            due = began + int(at * step)
            left = due - now()
            if left <= 0:
                peer, packet = self._packets[at]
                self._sent[peer.own].append(now())
                peer.send(packet)
                self.late.append(-left)
                at += 1
                left = 0
            # In microseconds, where epoll itself has milliseconds.
            if select.select([self._poll], [], [], left / 1e9)[0]:
                self._receive(0)
        while self._got < self._due or self._unacknowledged():
            if not self._receive(PATIENCE_S):
                raise LoadError(f"{self._due - self._got} of {self._due} deliveries did not come")

    def _unacknowledged(self) -> bool:
        return self._acks > sum(peer.acked for peer in self._by_fd.values())

    def _receive(self, patience: float) -> bool:
        ready = self._poll.poll(patience)
        for fd, _ in ready:
            peer = self._by_fd[fd]
            peer.arrived = []
            self._got += peer.receive()
            now, group = time.monotonic_ns(), -1 if self._shared else fd
            for topic in peer.arrived:
                nth = self._seen[group, topic]
                self._seen[group, topic] += 1
                if nth >= len(self._sent[topic]):
                    raise LoadError(f"client {peer.number} received a message that nobody sent")
                self.took.append(now - self._sent[topic][nth])
            peer.arrived = None
        return bool(ready)


def percentile(ordered: Sequence[int], share: float) -> float:
    """Milliseconds of nanoseconds in ascending order; of none, 0."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6 if ordered else 0.0
