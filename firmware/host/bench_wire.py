"""Bytes on the wire, by stage: what TCP carries between client and server, without its headers.

The paper's Figure 7 (data that the client sends). Counted by a relay between the two, as the
difference of two runs that differ in how often a thing is done.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from bench_rows import Row, each, row
from bench_runs import CLIENTS, BenchError, FarEnd, Rig

DIRECTIONS = ("sent", "received")
PATIENCE_S = 60.0
_OFTEN = 20
_HEAP = "2M"
_PIECE = 1 << 16


class Relay:
    """`port`: whoever connects there reaches the port behind it. `counts`: bytes (sent, received)
    by the client, of all connections that have ended."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._counts = [0, 0]
        self._pumps: list[threading.Thread] = []

    def counts(self) -> tuple[int, int]:
        """Waits for the connections to end."""
        with self._lock:
            pumps = list(self._pumps)
        for pump in pumps:
            pump.join(PATIENCE_S)
            if pump.is_alive():
                raise BenchError("a connection of a client that has ended does not end")
        with self._lock:
            return self._counts[0], self._counts[1]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._behind))
                for sock in (client, server):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ways = ((client, server, 0), (server, client, 1))
                pumps = [threading.Thread(target=self._pump, args=way, daemon=True) for way in ways]
                with self._lock:
                    self._pumps += pumps
                for pump in pumps:
                    pump.start()

    def _pump(self, of: socket.socket, to: socket.socket, way: int) -> None:
        with suppress(OSError):
            while piece := of.recv(_PIECE):
                with self._lock:
                    self._counts[way] += len(piece)
                to.sendall(piece)
        # Either end is gone: the other one learns it, and its pump ends as well.
        for sock in (of, to):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def relaying(self) -> Iterator[Relay]:
        """Relays while the block runs."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


def wire(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Both directions of one stage, `wire_STAGE`."""
    what = measure.removeprefix("wire_")
    times = (0, CLIENTS) if what == "connect" else (0, _OFTEN)
    with rig.far_end(variant, 1 + CLIENTS if what == "connect" else 1) as far:
        few, many = (_bytes(rig, far, far.words(what, size, n)) for n in times)
    params: dict[str, Any] = {"first_publish_qos": 1} if what == "connect" else {"qos": 0}
    return [
        row(
            measure,
            variant,
            size,
            max(0.0, each(few[way], many[way], *times)),
            "bytes",
            times[1],
            {"direction": direction, **params},
        )
        for way, direction in enumerate(DIRECTIONS)
    ]


def _bytes(rig: Rig, far: FarEnd, words: list[object]) -> tuple[int, int]:
    """Of one run (sent, received)."""
    total = [0, 0]
    with ExitStack() as stack:
        relays = [stack.enter_context(Relay(port).relaying()) for port in far.ports()]
        with far.reached_through([relay.port for relay in relays], words) as told:
            rig.plainly(told, heap=_HEAP)
        for relay in relays:
            for way, count in enumerate(relay.counts()):
                total[way] += count
    return total[0], total[1]
