"""Frames between the processes of a mediator: known records pass whole, and nothing else does."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from sealmq.families.records import FamilyRecord, TopicLabel
from sealmq.kglink import KgDenied
from sealmq.mediator.frames import RECORDS, BadFrame, Gone, Peer, pack, unpack
from sealmq.site.errors import SiteError
from sealmq.store import KeptSub, KeptSubs, SessionMark, StoreUnavailable, WillRecord

SAMPLES = (
    TopicLabel("t", "l", "c", 1),
    FamilyRecord("f", "k", None),
    FamilyRecord("f", "k", b"\x00\xff", "c"),
    SessionMark(1, 2, 3, b"saltsalt", 4),
    KeptSubs(1, "x", (KeptSub(1, "x", "a/#", 1, "a/#"),)),
    WillRecord(1, "x", 2, 3, 4, "t", 1, True, 5, 6, b"body"),
)


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_comes_as_it_was_sent(record: object) -> None:
    assert unpack(pack([record, b"bytes"])) == [record, b"bytes"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b'{"%r":["Popen",["true"]]}',
        b'{"%r":["TopicLabel","t","l","c","1"]}',
        b'{"%r":["TopicLabel","t","l","c"]}',
        b'{"%r":["TopicLabel","t","l","c",true]}',
        b'{"%r":["KeptSubs",1,"x",["a"]]}',
        b'{"%r":[]}',
        b'{"%b":"zz"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_frame_of_ours_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrame):
        unpack(body)


def test_only_records_are_sent() -> None:
    with pytest.raises(ValueError, match="object is not sent"):
        pack(object())
    assert all(kind.__name__ == name for name, kind in RECORDS.items())


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


async def pair(one: dict[str, Any], two: dict[str, Any]) -> tuple[Peer, Peer, list[Any]]:
    left, right = socket.socketpair()
    peers = Peer(left, one), Peer(right, two)
    for peer in peers:
        await peer.open()
    return *peers, [asyncio.ensure_future(peer.run()) for peer in peers]


def test_errors_of_store_key_generator_and_site_come_as_what_they_are() -> None:
    def store() -> None:
        raise StoreUnavailable("full", "make room")

    async def kg() -> None:
        raise KgDenied("no")

    def site() -> None:
        raise SiteError("not taken over", "take it back")

    def defect() -> None:
        raise KeyError("a secret")

    async def story() -> None:
        one, two, _ = await pair({}, {"store": store, "kg": kg, "site": site, "defect": defect})
        with pytest.raises(StoreUnavailable, match="full") as caught:
            await one.call("store")
        assert caught.value.hint == "make room"
        with pytest.raises(KgDenied, match="no"):
            await one.call("kg")
        with pytest.raises(SiteError, match="not taken over") as wrong:
            await one.call("site")
        assert wrong.value.hint == "take it back"
        with pytest.raises(StoreUnavailable) as other:
            await one.call("defect")
        assert "secret" not in str(other.value)
        two.close()
        with pytest.raises(Gone):
            await one.call("store")

    run(story())


@pytest.mark.parametrize(
    "raw",
    [
        (2**31).to_bytes(4, "big"),
        b"\x00\x00\x00\x02{}",
        (body := json.dumps(["call", 1, "unknown", []]).encode())
        and len(body).to_bytes(4, "big") + body,
    ],
    ids=["huge", "no list", "unknown name"],
)
def test_a_bad_frame_ends_the_connection(raw: bytes) -> None:
    async def story() -> None:
        left, right = socket.socketpair()
        peer = Peer(left, {})
        await peer.open()
        right.sendall(raw)
        await peer.run()
        right.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(right, 1) == b""

    run(story())
