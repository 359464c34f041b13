"""What a mediator's shared links rest on, tried at each broker of ours."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.peers import WAIT_S, BrokerProcess, until
from sealmq.broker import mosquitto, private
from sealmq.broker.credentials import Credentials
from sealmq.broker.peer import Peer
from sealmq.broker.target import Target
from sealmq.mqtt import Connack, Decoder, Packet, Pubcomp, Publish, Pubrec, build
from sealmq.site.layout import Layout
from sealmq.site.model import Limits
from sealmq.unix import connected, short_path

END = "@end"


def _listens(path: Path) -> bool:
    """The file is there a moment before anybody listens."""
    with socket.socket(socket.AF_UNIX) as sock, short_path(path) as short:
        return sock.connect_ex(short) == 0


@pytest.fixture(scope="module")
def private_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Debian's, as a site runs it: on its Unix socket, with the default limits."""
    layout, own = Layout.of(tmp_path_factory.mktemp("m")), Credentials.draw()
    for folder in (layout.broker_state, layout.broker_socket.parent):
        folder.mkdir(parents=True, mode=0o700)
    config = private.write(layout, own.user, mosquitto.passwords(own), Limits())
    with subprocess.Popen(
        [mosquitto.find().path, "-c", str(config)],
        cwd=layout.broker_socket.parent,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until(lambda: _listens(layout.broker_socket), "Mosquitto to listen")
            yield Target.at_socket(layout.broker_socket, own.user, own.password)
        finally:
            process.terminate()


@pytest.fixture(params=["mosquitto", pytest.param("embedded", marks=pytest.mark.full)])
def target(
    request: pytest.FixtureRequest, broker: BrokerProcess, private_mosquitto: Target
) -> Target:
    """One broker after the other."""
    if request.param == "mosquitto":
        return private_mosquitto
    own = broker.credentials
    return Target("127.0.0.1", broker.port, own.user, own.password)


def peer(target: Target) -> Peer:
    return Peer(target, f"sealmq/1/{os.urandom(4).hex()}", timeout_s=WAIT_S)


@pytest.mark.parametrize(
    ("count", "size"), [(3000, 40), (90, 500_000)], ids=["many", "45 MB in all"]
)
def test_a_snapshot_is_whole_when_the_retained_message_asked_for_last_comes(
    target: Target, count: int, size: int
) -> None:
    """Of every QoS, while others publish there."""

    async def run() -> None:
        async with peer(target) as writer, peer(target) as busy, peer(target) as reader:
            for n in range(count):
                await writer.publish(f"w/{n}", bytes(size), qos=n % 3, retain=True)
            await writer.publish(END, b"end", retain=True)
            for n in range(50):
                await busy.publish("w/live", b"live", qos=n % 3)
            asked = asyncio.create_task(reader.subscribe("w/#", END, qos=2))
            for n in range(50):
                await busy.publish("w/live", b"live", qos=n % 3)
            assert await asked == [2, 2]
            came: dict[str, int] = {}
            while (message := await reader.message()).topic != END:
                if message.retain:
                    came[message.topic] = message.qos
            assert came == {f"w/{n}": n % 3 for n in range(count)}
            for topic in [*came, END]:
                await writer.publish(topic, b"", retain=True)

    asyncio.run(run())


def test_a_live_link_whose_reader_pauses_loses_none_of_20_000_messages(target: Target) -> None:
    async def run() -> None:
        async with peer(target) as writer, peer(target) as reader:
            await reader.subscribe("p/#", qos=2)
            for n in range(20_000):
                await writer.publish("p/x", b"%0100d" % n, qos=n % 100 == 99)
            for n in range(20_000):
                assert (await reader.message()).payload == b"%0100d" % n

    asyncio.run(run())


def test_every_filter_at_qos_2_brings_one_copy_as_it_was_published(target: Target) -> None:
    async def run() -> None:
        async with peer(target) as writer, peer(target) as reader:
            await reader.subscribe("o/#", "o/x", "+/x", qos=2)
            for qos in (0, 1, 2):
                await writer.publish("o/x", b"%d" % qos, qos=qos)
            await writer.publish("o/end", b"", qos=2)
            came = [await reader.message() for _ in range(4)]
            assert [(m.payload, m.qos) for m in came] == [(b"0", 0), (b"1", 1), (b"2", 2), (b"", 2)]

    asyncio.run(run())


def test_500_messages_of_qos_2_that_are_not_released_yet_all_come(target: Target) -> None:
    """A Mosquitto with a limit on them acknowledges those beyond it, and loses them."""

    async def run() -> None:
        async with peer(target) as reader:
            await reader.subscribe("q/#", qos=2)
            await _publish_all_then_release(target, 500)
            assert [(await reader.message()).payload for _ in range(500)] == [
                b"%d" % n for n in range(500)
            ]

    asyncio.run(run())


async def _publish_all_then_release(target: Target, count: int) -> None:
    if target.unix is not None:
        reader, writer = await asyncio.open_unix_connection(sock=await connected(target.unix))
    else:
        reader, writer = await asyncio.open_connection(target.host, target.port)
    decoder, came = Decoder(1 << 20, "client"), list[Packet]()

    async def until_all(kind: type[Packet], wanted: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while sum(isinstance(packet, kind) for packet in came) < wanted:
                came.extend(decoder.feed(await reader.read(65536)))

    password = (target.password or "").encode()
    writer.write(build.connect("sealmq/1/window", username=target.user, password=password))
    await until_all(Connack, 1)
    for n in range(count):
        writer.write(build.publish(b"q/x", b"%d" % n, 2, packet_id=n + 1))
    await until_all(Pubrec, count)
    for n in range(count):
        writer.write(build.pubrel(n + 1))
    await until_all(Pubcomp, count)
    assert not any(isinstance(packet, Publish) for packet in came)
    writer.close()
