"""A reader that has given up a label's roots asks for its records, and loses no message."""

from __future__ import annotations

from typing import Any

from client_peer import OTHER, Peer, client_of, play, until
from sealmq.client import Client, Options
from sealmq.client.missing import Missing
from sealmq.mqtt import Publish
from sealmq_spec.records import Roots

ELSEWHERE = 99


def _forget(client: Client) -> None:
    """As the least recently used of more labels than the table holds."""
    reader: Any = client._boots.reader
    reader._roots.pop((OTHER, 1), None)
    reader._now.pop(OTHER, None)
    reader.plans.clear()


def test_messages_wait_for_the_records_that_open_them() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            for n in range(3):
                _forget(client)
                for qos in range(3):
                    pid = qos and 9 + qos
                    peer.link.deliver("a/b", peer.m3("a/b", b"%d" % qos), qos=qos, pid=pid)
                got = [(await client.receive()).payload for _ in range(3)]
                assert got == [b"0", b"1", b"2"]
                # Acknowledged when they were read: PUBACK, PUBREC, PUBCOMP.
                await until(lambda n=n: len(peer.link.acked) == 3 * n + 3)  # type: ignore[misc]
            assert peer.link.fetched == [OTHER] * 3
            assert not client.refused

    play(story)


def test_what_no_record_opens_is_refused_and_not_asked_for_again() -> None:
    async def story(peer: Peer) -> None:
        roots = peer.site.roots[OTHER]
        peer.site.roots[ELSEWHERE] = Roots(ELSEWHERE, 1, 1, roots.r, roots.r_bar)
        async with client_of(peer) as client:
            for n in range(3):
                peer.link.deliver("a/b", peer.m3("a/b", b"x", label=ELSEWHERE), qos=1, pid=5 + n)
            await until(lambda: peer.link.acked == [5, 6, 7])
            await client.publish("a", b"x", confirm=5)
            peer.link.deliver("a/b", peer.m3("a/b", b"x", label=ELSEWHERE), qos=1, pid=9)
            await until(lambda: peer.link.acked[-1] == 9)
            assert peer.link.fetched == [ELSEWHERE]
            assert client.refused == {"NoKey": 4}
            assert not client.notices

    play(story)


def test_records_that_do_not_help_are_no_reason_to_wait_longer() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            peer.knobs.fetches = False
            old = Roots(OTHER, 7, 1, bytes(32), bytes(32))
            was, peer.site.roots[OTHER] = peer.site.roots[OTHER], old
            m3 = peer.m3("a/b", b"of an epoch that nothing opens")
            peer.site.roots[OTHER] = was
            peer.link.deliver("a/b", m3, qos=1, pid=5)
            await until(lambda: peer.link.fetched == [OTHER])
            peer.link.record()
            assert not peer.link.acked
            # The first packet that is no record ends it.
            peer.link.deliver("a/b", peer.m3("a/b", b"readable"), qos=1, pid=6)
            assert (await client.receive()).payload == b"readable"
            await until(lambda: peer.link.acked == [5, 6])
            assert client.refused == {"NoKey": 1}

    play(story)


def test_what_waits_comes_again_in_the_next_connection() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.present = True
        options = Options(reconnect=True, clean=False, client_id="r", connect_timeout=5)
        async with client_of(peer, options=options) as client:
            peer.knobs.fetches = False
            m3 = peer.m3("a/b", b"kept")
            peer.link.deliver("a/b", m3, qos=2, pid=5)
            await until(lambda: peer.link.fetched == [OTHER])
            links = len(peer.links)
            peer.knobs.fetches = True
            peer.link.cut()
            await until(lambda: len(peer.links) > links and client.connected)
            peer.link.deliver("a/b", m3, qos=2, pid=5)
            assert (await client.receive()).payload == b"kept"

    play(story)


def test_what_waits_is_bounded() -> None:
    def packet(size: int = 100) -> Publish:
        return Publish("a", b"a", bytes(size))

    missing = Missing()
    kept = [missing.keeps(packet(), 20 + n % 3, 0) for n in range(100)]
    assert sum(kept) == 64
    assert len(missing.everything()) == 64
    large = [missing.keeps(packet(300_000), 20, 0) for _ in range(5)]
    assert sum(large) == 3
    missing.asked(20, 7)
    assert not missing.denied(8, 0)
    assert len(missing.denied(7, 0)) == 3
    assert not missing.keeps(packet(), 20, 9_999)
    assert missing.keeps(packet(), 20, 10_000)
