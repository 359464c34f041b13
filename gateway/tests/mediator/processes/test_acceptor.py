"""Connections before their CONNECT is whole: which are handed over, and which are cut off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sealmq.mediator import acceptor as module
from sealmq.mediator.acceptor import CHUNK, Acceptor, Caller
from sealmq.mqtt import build
from sealmq.strangers import Strangers
from sealmq_spec.const import USER
from sealmq_spec.control import proof_head


def connect_of(number: int, more: int = 0) -> bytes:
    proof = proof_head(1, 0, 0, number, 0, bytes(8), 0, 0)
    return build.connect("x" * (1 + more), username=USER.decode(), password=proof)


class Scene:
    def __init__(self, places: int = 8) -> None:
        self.given: list[tuple[bytes, int]] = []
        self.acceptor = Acceptor(Strangers(places), self._give)
        self.came = asyncio.Event()

    def _give(self, caller: Caller, data: bytes, client: int) -> None:
        self.given.append((data, client))
        caller.close("given")
        self.came.set()

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not hasattr(self, "_port"):
            _, self._port = await self.acceptor.listen("127.0.0.1", 0)
        return await asyncio.open_connection("127.0.0.1", self._port)


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("data", "client"),
    [
        (connect_of(7), 7),
        (connect_of(7) + b"\x00 what is no packet", 7),
        (build.connect("x"), 0),
        (build.connect("x", username="other", password=b"secret"), 0),
        (connect_of(7, more=100), 0),
        (build.pingreq(), 0),
        (b"GET / HTTP/1.1\r\n\r\n", 0),
        (b"\x10\xff\xff\xff\x7f", 0),
    ],
    ids=[
        "claim",
        "claim, then a fault",
        "no proof",
        "another's",
        "long id",
        "ping",
        "http",
        "huge",
    ],
)
def test_a_connection_goes_to_the_worker_that_it_claims_and_else_to_the_first(
    data: bytes, client: int
) -> None:
    async def story() -> None:
        scene = Scene()
        _, writer = await scene.connection()
        writer.write(data)
        await scene.came.wait()
        assert scene.given == [(data, client)]
        scene.acceptor.close()

    run(story())


def test_of_what_follows_a_connect_at_once_no_more_is_read_than_a_chunk() -> None:
    async def story() -> None:
        scene = Scene()
        _, writer = await scene.connection()
        writer.write(connect_of(7) + bytes(4 * CHUNK))
        await scene.came.wait()
        [(data, client)] = scene.given
        assert client == 7
        assert len(data) <= CHUNK
        scene.acceptor.close()

    run(story())


def test_who_sends_no_whole_connect_in_time_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPENING_S", 0.1)

    async def story() -> None:
        scene = Scene()
        silent, _ = await scene.connection()
        slow, writer = await scene.connection()
        writer.write(connect_of(7)[:-1])
        assert await ended(silent)
        assert await ended(slow)
        assert not scene.given
        assert len(scene.acceptor.strangers) == 0
        scene.acceptor.close()

    run(story())


def test_one_connection_more_than_there_are_places_ends_the_oldest() -> None:
    async def story() -> None:
        scene = Scene(places=2)
        readers = [await scene.connection() for _ in range(3)]
        assert await ended(readers[0][0])
        readers[2][1].write(connect_of(7))
        await scene.came.wait()
        assert [client for _, client in scene.given] == [7]
        scene.acceptor.close()

    run(story())
