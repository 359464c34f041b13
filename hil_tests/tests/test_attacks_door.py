"""Attacks by peers that have proved nothing, or nothing new: what they can make a mediator hold.

Memory is read where an operator sees it; the limits are wide, what they stand against was not
bounded at all.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sealmq_spec.const import WANT_KG_TIME
from sealmq_spec.control import proof_head

from attack_scene import Scene, scene
from running_site import PATIENCE_S, Site, until
from wire import RawClient, Wire, connect, length, mono, text

CONNACK = (0x20, b"\0\0")
REFUSED = (0x20, b"\0\x05")
PINGREQ = b"\xc0\0" * 32_768
# More than a kernel keeps of answers that nobody reads.
FLOOD_BYTES = 6 << 20


@pytest.fixture(scope="module")
def stage(shared_site: Site) -> Iterator[Scene]:
    with scene(shared_site) as made:
        yield made


def memory_mb(site: Site) -> float:
    """The mediator's resident memory."""
    lines = Path(f"/proc/{site.pid('mediator')}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def quarantined(stage: Scene, flags: int = 0, conn: int = 0, low: int = 0) -> bytes:
    """CONNECT of a client that has no keys yet."""
    i = stage.client("m1-temp-sensor").ident
    head = proof_head(i.suite, flags, 0, i.client, 1, os.urandom(8), conn, low)
    return bytes(connect(b"stranger", head))


def refused(stage: Scene, made: bytes) -> None:
    """CONNACK 5, and one record that says why."""
    rule = "mediator.connect.malformed"
    before = len(stage.site.audit(rule=rule))
    with closing(Wire(stage.site.port)) as wire:
        wire.send(made)
        assert wire.read() == REFUSED
        assert wire.closed()
    until("the record", lambda: len(stage.site.audit(rule=rule)) == before + 1)


def enters(raw: RawClient) -> None:
    """An honest client is let in, from the same address."""
    raw.connect()
    assert raw.publish(b"machine/1/temperature", b"honest") == [(0x40, b"\0\x01")]
    raw.close()


@pytest.mark.parametrize(
    ("flags", "conn", "low"), [(1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (2, 7, 9)]
)
def test_quarantine_takes_no_flags_no_conn_no_low(
    stage: Scene, flags: int, conn: int, low: int
) -> None:
    refused(stage, quarantined(stage, flags, conn, low))


def test_kg_time_is_for_the_first_connect_of_a_boot_session(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    s, i = raw.session, raw.ident

    def asking() -> bytes:
        s.begin_connect(False)
        head = proof_head(i.suite, WANT_KG_TIME, i.gen, i.client, s.boot, s.salt, s.conn, 1)
        made = connect(raw.client_id, head + b"A" * 22)
        s.sign(made, mono())
        return bytes(made)

    with closing(Wire(stage.site.port)) as wire:
        wire.send(asking())
        assert wire.read() == CONNACK
    refused(stage, asking())


def test_a_flood_of_unread_answers_is_cut_and_costs_no_memory(stage: Scene) -> None:
    made = quarantined(stage)
    before = memory_mb(stage.site)
    with ExitStack() as stack:
        sent: dict[socket.socket, int] = {}
        for _ in range(2):
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            peer.connect(("127.0.0.1", stage.site.port))
            peer.sendall(made)
            peer.setblocking(False)
            sent[peer] = 0
        cut: set[socket.socket] = set()
        ends = select.poll()
        for peer in sent:
            ends.register(peer, 0)

        def sent_or_cut() -> bool:
            for peer in sent.keys() - cut:
                try:
                    while sent[peer] < FLOOD_BYTES:
                        sent[peer] += peer.send(PINGREQ[sent[peer] % 2 :])
                except BlockingIOError:
                    continue
                except ConnectionError:
                    cut.add(peer)
            return all(peer in cut or n >= FLOOD_BYTES for peer, n in sent.items())

        until("all peers to have sent their flood, or to be cut", sent_or_cut)
        assert memory_mb(stage.site) - before < 20
        # Without a byte more from us, and without our reading one.
        # When quarantine ends, and a little later, for a peer that does not read.
        until("all peers to be cut", lambda: len(ends.poll(0)) == len(sent), 2 * PATIENCE_S)
    enters(stage.client("m1-temp-sensor"))


def test_quarantine_takes_no_large_packet(stage: Scene) -> None:
    with closing(Wire(stage.site.port)) as wire:
        wire.send(quarantined(stage))
        assert wire.read() == CONNACK
        wire.send(b"\x30" + length(1_000_000) + text(b"!c1") + bytes(40_000))
        assert wire.closed()


def test_a_connect_replayed_3000_times_costs_no_memory(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    made = bytes(raw.connect_packet())

    def replay(times: int) -> None:
        for _ in range(times):
            wire = Wire(stage.site.port)
            wire.send(made)
            assert wire.read() == CONNACK
            assert wire.closed()
            wire.close()

    raw.wire = Wire(stage.site.port)
    raw.wire.send(made)
    assert raw.wire.read() == CONNACK
    replay(500)
    before = memory_mb(stage.site)
    replay(3000)
    assert memory_mb(stage.site) - before < 6
    enters(stage.client("m1-temp-sensor"))
