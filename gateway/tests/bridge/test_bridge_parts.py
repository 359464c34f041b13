"""A bridge's parts by themselves: its spool, its line, what passes over it, its keys."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from free_ports import free_port
from sealmq import peerkeys
from sealmq.bridge import crossing
from sealmq.bridge.crossing import Crossing
from sealmq.bridge.line import (
    CERTIFICATE,
    MESSAGE,
    TAKEN,
    WHO,
    Line,
    LineLost,
    Listener,
    NotThePeer,
    Own,
)
from sealmq.bridge.line import call as call_peer
from sealmq.bridge.spool import WIDTH, Message, Spool
from sealmq.site.model import Peer
from sealmq_spec.errors import SealError


def own(seed: int, name: str) -> tuple[Own, peerkeys.Shown]:
    key = bytes((seed,)) * 32
    der = peerkeys.certificate(key, bytes((seed + 100,)) * 32, bytes((seed,)) * 4, name)
    return Own(der, key), peerkeys.read(der)


NORTH, SOUTH, OTHER = own(1, "north"), own(2, "south"), own(3, "other")


# --- keys ---


def test_a_certificate_is_the_same_each_time_and_says_whose_it_is() -> None:
    again, shown = own(1, "north")
    assert again.der == NORTH[0].der
    assert (shown.site, shown.name) == (b"\1\1\1\1", "north")
    assert shown.fingerprint == hashlib.sha256(again.der).hexdigest()
    assert shown.kg == peerkeys.kg_key(bytes((101,)) * 32).public_key().public_bytes_raw()


def test_whichever_byte_of_a_certificate_is_another_one_it_is_none_or_another_one() -> None:
    """A library has more errors than one for what is no certificate, and none may end a bridge."""
    der = NORTH[0].der
    for at in range(len(der)):
        for change in (1, 3, 4, 0x80, 0xFF):
            spoiled = bytearray(der)
            spoiled[at] ^= change
            try:
                shown = peerkeys.read(bytes(spoiled))
            except peerkeys.BadPeer:
                continue
            assert shown.fingerprint != NORTH[1].fingerprint


@pytest.mark.parametrize("at", [10, 60, 100, -1])
def test_a_certificate_that_was_changed_is_none(at: int) -> None:
    der = bytearray(NORTH[0].der)
    der[at] ^= 1
    with pytest.raises(peerkeys.BadPeer):
        peerkeys.read(bytes(der))


def test_keys_pass_between_two_key_generators_and_nobody_else() -> None:
    north = peerkeys.Between(peerkeys.kg_key(bytes((101,)) * 32), b"\1\1\1\1", SOUTH[1])
    south = peerkeys.Between(peerkeys.kg_key(bytes((102,)) * 32), b"\2\2\2\2", NORTH[1])
    other = peerkeys.Between(peerkeys.kg_key(bytes((103,)) * 32), b"\2\2\2\2", NORTH[1])
    packet = north.seal(b"roots")
    assert south.open(packet) == b"roots"
    assert packet != north.seal(b"roots")
    for who, what in ((north, packet), (other, packet), (south, packet[:-1]), (south, b"")):
        with pytest.raises(peerkeys.BadPeer):
            who.open(what)


# --- what passes ---

M1 = bytes(43)
HOME = b"\1\1\1\1"


def one(**more: object) -> Crossing:
    said: dict[str, object] = {
        "seq": 7, "flags": 2, "hops": 1, "site": b"\2\2\2\2", "label": 16, "token": b"\7" * 8,
        "topic": "a/ü", "m1": M1,
    }  # fmt: skip
    return Crossing(**(said | more))  # type: ignore[arg-type]


def test_a_message_comes_over_as_it_was() -> None:
    assert crossing.unpack(one().pack()) == one()
    assert crossing.read_answer(crossing.answer(7, 1, "stale")) == (7, 1, "stale")
    crossing.check(one(hops=crossing.HOPS), HOME)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"site": HOME}, "loop"),
        ({"hops": crossing.HOPS + 1}, "hops"),
        ({"hops": 0}, "hops"),
        ({"flags": 8}, "flags"),
        ({"flags": 6}, "flags"),
        ({"topic": "@west/a"}, "third site"),
        ({"topic": "!c1"}, "own"),
        ({"topic": "$SYS/a"}, "own"),
        ({"topic": "a/+"}, "no \\+"),
        ({"topic": ""}, "1 to"),
    ],
)
def test_what_comes_home_or_too_far_is_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(SealError, match=words):
        crossing.check(one(**more), HOME)


# --- the spool ---


def message(topic: str, m1: bytes = bytes(10)) -> Message:
    return Message(HOME, 16, "heat", 1, bytes(8), topic, 2, m1)


def topics(spool: Spool, who: str) -> list[str]:
    return [w.message.topic for w in spool.after(who, 0, 9)]


def test_what_waits_is_there_after_a_restart_in_its_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    for i in range(3):
        spool.put(message(f"t/{i}"), ("b2", "b3") if i else ("b2",))
    spool.close()
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    assert (topics(spool, "b2"), topics(spool, "b3")) == (["t/0", "t/1", "t/2"], ["t/1", "t/2"])
    first = spool.after("b2", 0, 1)[0]
    for _ in range(2):
        spool.done("b2", first)
        spool.write()
    assert (spool.count("b2"), spool.count("b3")) == (2, 2)
    for one in spool.after("b2", 0, 9):
        spool.done("b2", one)
    spool.write()
    assert (topics(spool, "b2"), topics(spool, "b3")) == ([], ["t/1", "t/2"])
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("messages", "size"), [(3, 1 << 20), (100, 3 * (64 + 3 + 10))])
def test_what_is_too_much_is_a_neighbours_oldest_and_is_named(
    tmp_path: Path, messages: int, size: int
) -> None:
    gone: list[tuple[str, str]] = []
    spool = Spool(
        tmp_path / "s.db", lambda who, one, why: gone.append((who, one.topic)), messages, size
    )
    for i in range(5):
        spool.put(message(f"t/{i}"), ("b2", "b3") if i < 2 else ("b2",))
        spool.write()
    assert gone == [("b2", "t/0"), ("b2", "t/1")]
    assert topics(spool, "b2") == ["t/2", "t/3", "t/4"]
    assert topics(spool, "b3") == ["t/0", "t/1"], "what waits for others stays"
    assert spool._held["b2"] == [3, 3 * (64 + 3 + 10)]


def test_a_full_disk_is_named_and_loses_nothing_that_was_taken(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    [pages] = spool._db.execute("PRAGMA page_count").fetchone()
    spool._db.execute(f"PRAGMA max_page_count = {pages + 4}")
    taken, safe = 0, list[int]()
    with contextlib.suppress(sqlite3.OperationalError):
        for taken in range(1000):
            spool.put(message(f"t/{taken}", bytes(1000)), ("b2",), partial(safe.append, taken))
            spool.write()
    with pytest.raises(sqlite3.OperationalError, match="disk is full"):
        spool.write()
    assert safe == list(range(taken)), "the last one is in memory, and nobody is told it is safe"
    spool.then(partial(safe.append, -1))
    assert safe == list(range(taken)), "and nobody is answered"
    assert spool.count("b2") == len(spool.after("b2", 0, 1000)) == taken + 1 > 3
    for n, one in enumerate(spool.after("b2", 0, taken)):
        assert one.message.topic == f"t/{n}"
        spool.done("b2", one)
    spool.write()
    assert (topics(spool, "b2"), safe[-2:]) == ([f"t/{taken}"], [taken, -1])


def test_what_waits_for_no_neighbour_any_more_is_named(tmp_path: Path) -> None:
    gone: list[tuple[str, str]] = []
    spool = Spool(tmp_path / "s.db", lambda who, one, why: gone.append((who, one.topic)))
    spool.put(message("t/0"), ("b2", "b3"))
    spool.keep_only(["b3"])
    assert (gone, topics(spool, "b2"), topics(spool, "b3")) == ([("b2", "t/0")], [], ["t/0"])


def test_what_has_come_is_known_after_a_restart_and_what_was_refused_is_not(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    a, b = b"site-a", b"site-b"
    assert not spool.seen(a, 5)
    assert not spool.seen(a, 5), "to ask uses nothing up"
    spool.came(a, 5)
    spool.came(a, 3)
    spool.came(a, 3 * WIDTH + 5)
    spool.close()
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    assert [spool.seen(a, n) for n in (5, 4, 3, 0)] == [True, False, True, False]
    assert [spool.seen(a, n * WIDTH + 5) for n in (1, 2, 3)] == [False, False, True]
    assert not spool.seen(b, 5)


def test_what_the_judge_keeps_is_what_it_said_last_and_no_more_is_written(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    spool.put_judged([(b"%d" % n, b"a") for n in range(100)])
    written = spool._db.total_changes
    spool.put_judged([(b"0", None), (b"1", b"b"), (b"2", b"a"), (b"100", b"a")])
    assert spool._db.total_changes - written == 3
    spool.close()
    kept = dict(Spool(tmp_path / "s.db", lambda *gone: None).judged())
    assert kept == {b"%d" % n: b"b" if n == 1 else b"a" for n in range(1, 101)}


# --- the line ---


@asynccontextmanager
async def waiting(at: int, peer: peerkeys.Shown = SOUTH[1]) -> AsyncIterator[Listener]:
    said = Peer("south", peer.fingerprint, listen=("127.0.0.1", at))
    async with Listener(NORTH[0], said, lambda what: None).serving() as listener:
        yield listener


def to(at: int, who: peerkeys.Shown = NORTH[1]) -> Peer:
    return Peer("north", who.fingerprint, address=("127.0.0.1", at))


async def joined(at: int, listener: Listener) -> tuple[Line, Line]:
    line = await call_peer(SOUTH[0], to(at))
    return line, await listener.next()


def test_a_port_that_is_taken_is_told_once() -> None:
    async def scene() -> None:
        at = free_port()
        async with waiting(at):
            with pytest.raises(LineLost) as error:
                async with waiting(at):
                    pass
        assert str(error.value) == f"cannot listen on 127.0.0.1:{at}: Address already in use"

    asyncio.run(scene())


def test_two_peers_find_each_other_and_call_again() -> None:
    async def scene() -> None:
        at = free_port()
        async with waiting(at) as listener:
            for _ in range(2):
                line, other = await joined(at, listener)
                assert (line.peer, other.peer) == (NORTH[0].der, SOUTH[0].der)
                line.send(MESSAGE, b"x" * 100_000)
                assert await other.receive() == (MESSAGE, b"x" * 100_000)
                await line.close()
                with pytest.raises(LineLost):
                    await other.receive()

    asyncio.run(scene())


@pytest.mark.parametrize("met", [False, True])
def test_a_caller_with_another_key_is_sent_away(met: bool) -> None:
    async def scene() -> None:
        at = free_port()
        async with waiting(at) as listener:
            if met:
                await joined(at, listener)
            with pytest.raises(LineLost, match="does it have this site's fingerprint"):
                await call_peer(OTHER[0], to(at))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await listener.next()
            line, _ = await joined(at, listener)
            await line.close()

    asyncio.run(scene())


def test_nobody_gets_in_by_showing_the_peers_certificate_without_its_key() -> None:
    async def scene() -> None:
        at = free_port()
        async with waiting(at) as listener:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            OTHER[0].into(context)
            loop = asyncio.get_running_loop()
            _, line = await loop.create_connection(Line, "127.0.0.1", at, ssl=context)
            assert (await line.receive())[0] == WHO
            line.send(CERTIFICATE, SOUTH[0].der)
            assert await line.receive() == (TAKEN, b""), "it is known now, and nothing more"
            with pytest.raises(LineLost):
                await line.receive()
            with pytest.raises(LineLost):
                await call_peer(OTHER[0], to(at))
            assert listener._lines.empty()

    asyncio.run(scene())


def test_a_caller_says_nothing_to_somebody_else() -> None:
    async def scene() -> None:
        at = free_port()
        async with waiting(at):
            with pytest.raises(NotThePeer):
                await call_peer(SOUTH[0], to(at, OTHER[1]))

    asyncio.run(scene())


def test_tls_below_1_3_is_refused() -> None:
    async def scene() -> None:
        at = free_port()
        async with waiting(at):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((OSError, ssl.SSLError)):
                await asyncio.open_connection("127.0.0.1", at, ssl=context)

    asyncio.run(scene())
