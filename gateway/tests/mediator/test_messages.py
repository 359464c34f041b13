"""Messages on a connection of their own: which one is to blame when the broker ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sealmq.broker.promises import BrokerTakes
from sealmq.mediator import messages as module
from sealmq.mediator.links import BrokerAddress, BrokerAway, NotTaken
from sealmq.mediator.links.publish import OVER, Over
from sealmq.mediator.messages import MessageConnection
from sealmq.mqtt import Connect, Decoder, Pingreq, Publish, build

TAKES = BrokerTakes(levels=5)


class Broker:
    """Acknowledges what comes, in order, but hangs up, or says nothing, as `answer` tells it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.seen: list[bytes] = []
        self.answer: Callable[[bytes], str] = lambda payload: "takes"
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listens, on the port from before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """As if killed."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        decoder = Decoder(1 << 20, connect_first=True)
        try:
            while data := await reader.read(65536):
                for packet in decoder.feed(data):
                    if isinstance(packet, Connect):
                        writer.write(build.connack(False, 0))
                    elif isinstance(packet, Pingreq):
                        writer.write(build.pingresp())
                    elif isinstance(packet, Publish):
                        self.seen.append(packet.payload)
                        said = self.answer(packet.payload)
                        if said == "hangs up":
                            return
                        if said == "takes":
                            self.taken.append(packet.payload)
                            if packet.qos:
                                writer.write(build.puback(packet.packet_id))
        except OSError:
            pass
        finally:
            self._open.discard(writer)
            writer.close()


def played(story: Callable[[Broker, MessageConnection, list[int]], Awaitable[None]]) -> Broker:
    """Runs a story with a broker; its list holds how often the broker was lost."""
    broker = Broker()

    async def run() -> None:
        await broker.start()
        losses = [0]
        address = BrokerAddress("127.0.0.1", broker.port)

        async def life() -> int:
            return losses[0]

        messages = MessageConnection(address, "messages", lambda: TAKES, life)
        try:
            async with asyncio.timeout(60):
                await story(broker, messages, losses)
        finally:
            messages.close()
            broker.stop()

    asyncio.run(run())
    return broker


async def many(messages: MessageConnection, qos: int) -> list[BaseException | None]:
    """Fifty messages at once, numbered."""
    works = (messages.publish(b"t", b"%d" % n, qos, False) for n in range(50))
    return await asyncio.gather(*works, return_exceptions=True)


# Nobody can see that a message of QoS 0 was dropped.
@pytest.mark.parametrize(("does", "qos"), [("hangs up", 0), ("hangs up", 1), ("says nothing", 1)])
def test_of_many_under_way_only_the_one_that_ends_the_connection_is_blamed(
    does: str, qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if does == "says nothing":
        monkeypatch.setattr(module, "OPENING_S", 1.0)

    async def story(broker: Broker, messages: MessageConnection, losses: list[int]) -> None:
        broker.answer = lambda payload: does if payload in (b"20", b"33") else "takes"
        ends = await many(messages, qos)
        blamed = [n for n, end in enumerate(ends) if isinstance(end, NotTaken)]
        assert blamed == [20, 33]
        assert all(end is None for n, end in enumerate(ends) if n not in blamed)
        await messages.publish(b"t", b"afterwards", qos, False)

    broker = played(story)
    order = list(dict.fromkeys(broker.taken))
    assert set(order) == {b"%d" % n for n in range(50)} - {b"20", b"33"} | {b"afterwards"}


def test_a_message_is_not_blamed_for_a_broker_that_restarts() -> None:
    async def story(broker: Broker, messages: MessageConnection, losses: list[int]) -> None:
        def dies(payload: bytes) -> str:
            if payload == b"20" and broker.seen.count(b"20") <= 3:
                losses[0] += 1
                broker.stop()
                return "hangs up"
            return "takes"

        broker.answer = dies
        for _ in range(3):
            ends = await many(messages, 1)
            assert any(isinstance(end, BrokerAway) for end in ends)
            assert not any(isinstance(end, NotTaken) for end in ends)
            await broker.start()
        assert await many(messages, 1) == [None] * 50

    played(story)


def test_a_message_is_not_blamed_while_the_mediator_s_own_connection_is_lost_too() -> None:
    """The broker is back before the message is tried anew: only the count of losses shows it."""

    async def story(broker: Broker, messages: MessageConnection, losses: list[int]) -> None:
        def restarts(payload: bytes) -> str:
            if broker.seen.count(b"x") <= 3:
                losses[0] += 1
                return "hangs up"
            return "takes"

        broker.answer = restarts
        for _ in range(3):
            with pytest.raises(BrokerAway):
                await messages.publish(b"t", b"x", 1, False)
        await messages.publish(b"t", b"x", 1, False)

    played(story)


def test_what_was_found_not_to_be_taken_is_not_even_tried() -> None:
    async def story(broker: Broker, messages: MessageConnection, losses: list[int]) -> None:
        for topic in (b"1/2/3/4/5/6", b"a\x01", "\ufdd0".encode()):
            with pytest.raises(NotTaken):
                await messages.publish(topic, b"x", 1, False)

    assert played(story).seen == []


@pytest.mark.parametrize("when", ["common", "alone"])
def test_whether_a_message_may_go_out_is_asked_when_it_does(when: str) -> None:
    """Its client may be put out while a connection is opened, or others are tried."""
    left = [1 if when == "alone" else 0]

    def may() -> bool:
        left[0] -= 1
        return left[0] >= 0

    async def story(broker: Broker, messages: MessageConnection, losses: list[int]) -> None:
        broker.answer = lambda payload: "hangs up" if when == "alone" else "takes"
        with pytest.raises(Over, match=OVER):
            await messages.publish(b"t", b"late", 1, False, may)
        broker.answer = lambda payload: "takes"
        await messages.publish(b"t", b"next", 1, False)

    broker = played(story)
    assert broker.taken == [b"next"]
    assert broker.seen.count(b"late") == (when == "alone")
