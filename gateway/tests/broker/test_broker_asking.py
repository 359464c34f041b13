"""What brokers are asked, and what they really do: amqtt, and Mosquitto in several settings."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.peers import BrokerProcess, until
from free_ports import free_port
from sealmq.broker import asking, promises
from sealmq.broker.asking import ask
from sealmq.broker.errors import Silent
from sealmq.broker.peer import Peer
from sealmq.broker.promises import NotPromised, Promises
from sealmq.broker.target import Target

ANSWER_S = 20.0


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[Target]:
    """Debian's, open to all on the loopback, with these lines in its configuration."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    assert program, "mosquitto is missing: make setup"
    port = free_port()
    config = folder / "mosquitto.conf"
    head = [f"listener {port} 127.0.0.1", "allow_anonymous true"]
    config.write_text("\n".join([*head, *lines]) + "\n")
    with subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _listens(process, port), "Mosquitto to listen")
            yield Target("127.0.0.1", port)
        finally:
            process.send_signal(signal.SIGTERM)


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def asked(target: Target) -> Promises:
    return asyncio.run(ask(target, ANSWER_S))


def test_mosquitto_keeps_them_all_and_nothing_is_left_there(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as target:
        assert asked(target) == promises.MOSQUITTO

        async def left() -> list[str]:
            found = []
            async with Peer(target, "looking", timeout_s=ANSWER_S) as peer:
                await peer.subscribe("#", "$SYS/broker/clients/disconnected")
                await peer.publish("end", b"end")
                while (message := await peer.message()).topic != "end":
                    found.append(f"{message.topic} {message.payload.decode()}")
            return found

        # A session that was kept would count as a client that is not connected.
        assert [row for row in asyncio.run(left()) if not row.endswith(" 0")] == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("retain_available false", Promises(retained=False)),
        ("max_qos 1", Promises(qos=1)),
        ("max_qos 0", Promises(keeps_sessions=False, shared=False, qos=0)),
    ],
)
def test_what_a_setting_takes_away_is_noticed(tmp_path: Path, line: str, wanted: Promises) -> None:
    with mosquitto(tmp_path, line) as target:
        assert asked(target) == wanted


def test_the_embedded_broker_does_what_is_said_of_it(broker: BrokerProcess) -> None:
    """But for sessions: it has them, until it ends, so they are not promised."""
    target = Target("127.0.0.1", broker.port, broker.credentials.user, broker.credentials.password)
    found = asked(target)
    assert found == dataclasses.replace(promises.EMBEDDED, keeps_sessions=True)
    assert (found.inflight, found.queue, found.filters, found.faults) == (64, 1000, 100, ())


@pytest.mark.parametrize(
    ("lines", "inflight", "queues"),
    [
        ((), 20, {1000}),
        # Since 2.1 it counts those that are under way twice.
        (("max_inflight_messages 10", "max_queued_messages 100"), 10, {110, 120}),
        (("max_inflight_messages 0", "max_queued_messages 100000"), 64, {1000}),
    ],
    ids=["stock", "less", "ours"],
)
def test_what_a_mosquitto_keeps_for_the_links_that_readers_share_is_found_out(
    tmp_path: Path, lines: tuple[str, ...], inflight: int, queues: set[int]
) -> None:
    with mosquitto(tmp_path, *lines) as target:
        found = asked(target)
    assert (found.inflight, found.filters) == (inflight, 100)
    queue = found.queue
    assert queue in queues
    assert [f"keeps {queue} messages" in fault for fault in found.faults] == [True] * (queue < 1000)


def test_a_broker_that_falls_silent_promises_nothing() -> None:
    async def run() -> Promises:
        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"\x20\x02\x00\x00")
            with contextlib.suppress(OSError):
                while await reader.read(4096):
                    pass
            writer.close()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await ask(Target("127.0.0.1", port), 0.1)

    assert asyncio.run(run()) == Promises(False, False, False, 0)


def test_one_silence_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy moment at the start must not take a promise away until the next one."""
    asks: Counter[str] = Counter()

    def silent_once(name: str) -> None:
        async def question(self: object, *about: int) -> bool:
            asks[name] += 1
            if asks[name] == 1:
                raise Silent("busy")
            return True

        monkeypatch.setattr(asking._Asking, name, question)

    for name in ("sessions", "shared", "retained", "qos", "at_once", "filters"):
        silent_once(name)

    async def all_of_them(self: object, most: int) -> int:
        return most

    for name in ("window", "queue"):
        monkeypatch.setattr(asking._Asking, name, all_of_them)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        target = Target("127.0.0.1", nobody.getsockname()[1])
        assert asyncio.run(ask(target, 0.1)) == Promises()
    assert set(asks.values()) == {2}


def test_what_is_not_promised_is_refused_with_its_rule() -> None:
    promises.check_session(keeps_sessions=True, clean=False)
    promises.check_session(keeps_sessions=False, clean=True)
    promises.check_group(True)
    promises.check_publish(True, 2, retain=True, qos=2)
    promises.check_publish(False, 0, retain=False, qos=0)
    with pytest.raises(NotPromised) as caught:
        promises.check_session(keeps_sessions=False, clean=False)
    assert caught.value.rule == promises.SESSION
    with pytest.raises(NotPromised) as caught:
        promises.check_group(False)
    assert caught.value.rule == promises.SHARED
    with pytest.raises(NotPromised) as caught:
        promises.check_publish(False, 2, retain=True, qos=0)
    assert caught.value.rule == promises.RETAINED
    with pytest.raises(NotPromised) as caught:
        promises.check_publish(True, 1, retain=False, qos=2)
    assert caught.value.rule == promises.QOS
    assert Promises(False, False, False, 1).missing()
    assert not Promises().missing()


def test_a_cleared_retained_message_is_gone_from_the_embedded_broker(
    broker: BrokerProcess,
) -> None:
    target = Target("127.0.0.1", broker.port, broker.credentials.user, broker.credentials.password)
    topic = f"kept/{os.urandom(3).hex()}"

    async def run() -> list[bytes]:
        async with Peer(target, f"sealmq/{topic}") as peer:
            await peer.publish(topic, b"kept", retain=True)
            await peer.publish(topic, b"", retain=True)
            await peer.subscribe(topic)
            await peer.publish(topic, b"last")
            found = [await peer.message()]
            while found[-1].payload != b"last":
                found.append(await peer.message())
            return [message.payload for message in found]

    assert asyncio.run(run()) == [b"last"]
