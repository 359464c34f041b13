"""MQTT 5 end to end: the real processes of a site, its own clients and paho as clients that speak
it, beside one that speaks 3.1.1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from free_ports import free_port
from run.conftest import end
from run.sites import sealmq, until
from run.test_run_real import RealSite
from sealmq.client import Client, ConnectRefused, Options, Refused
from sealmq.client.boot import Boots
from sealmq.client.lent import borrowed, lent_client
from sealmq.client.opening import connect as signed_connect
from sealmq.client.randomness import mono_ms
from sealmq.client.seal import seal_message
from sealmq.client.speech import SPEECHES, V5
from sealmq.mqtt import five as v5
from sealmq.mqtt import five_client as v5c
from sealmq_spec.errors import Denied

TOPIC = "machine/1/temperature"
FIVE = Options(protocol=5, reconnect=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSite]:
    """A site that is up, with the embedded broker."""
    with running(tmp_path_factory.mktemp("five")) as made:
        yield made


@contextmanager
def running(folder: Path, *options: str) -> Iterator[RealSite]:
    """A site that is up, with these options of `sealmq up`."""
    port = free_port()
    root, key = folder / "factory", folder / "factory.key"
    words = ("--example", "factory", "--key-file", str(key), "--listen", f"127.0.0.1:{port}")
    done = sealmq("init", str(root), "--policy", "labels", *words)
    assert done.returncode == 0, done.stderr
    made = RealSite(root, key)
    try:
        made.up(*options).ready()
        yield made
    finally:
        end(made)


async def client(site: RealSite, name: str, options: Options = FIVE) -> Client:
    made = await lent_client(str(site.root), name, options=options)
    await made.connect()
    return made


def test_clients_of_both_versions_read_and_write_one_another_s(site: RealSite) -> None:
    async def play() -> None:
        old = Options(reconnect=False)
        readers = [await client(site, "monitor"), await client(site, "m1-control-panel", old)]
        writers = [await client(site, "m1-temp-sensor", o) for o in (FIVE, old)]
        for reader in readers:
            assert await reader.subscribe("machine/1/#", qos=2) == [2]
        said = []
        for number, writer in enumerate(writers):
            for qos in (0, 1, 2):
                said.append(f"{number} {qos}".encode())
                await writer.publish(TOPIC, said[-1], qos=qos)
        for reader in readers:
            heard = [(await reader.receive(within=30)).payload for _ in said]
            assert sorted(heard) == sorted(said)
        for one in (*readers, *writers):
            await one.disconnect()

    asyncio.run(play())


def test_a_denied_message_names_its_rule_and_the_session_goes_on(site: RealSite) -> None:
    async def play() -> None:
        sensor = await client(site, "m1-temp-sensor")
        for qos in (1, 2):
            with pytest.raises(Denied) as denied:
                await sensor.publish("machine/2/temperature", b"21", qos=qos)
            assert isinstance(denied.value, Refused)
            assert denied.value.rule.startswith("labels.")
        await sensor.publish(TOPIC, b"21", qos=1)
        await sensor.disconnect()

    asyncio.run(play())


def test_a_kept_session_is_refused_where_the_broker_keeps_none(site: RealSite) -> None:
    options = Options(protocol=5, clean=False, client_id="kept", reconnect=False)
    with pytest.raises(ConnectRefused, match="does not keep") as refused:
        asyncio.run(client(site, "monitor", options))
    assert refused.value.return_code == 0x83


def test_pub_and_sub_speak_it_with_mosquitto_s_flag(site: RealSite) -> None:
    root = str(site.root)
    program = Path(sys.executable).with_name("sealmq")
    words = ["sub", root, "--client", "monitor", "-t", TOPIC, "-C", "1", "-q", "1", "-d"]
    with subprocess.Popen(
        [program, *words, "-V", "mqttv5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sub:
        try:
            assert sub.stderr is not None
            assert "subscribed" in sub.stderr.readline()
            say = ("-t", TOPIC, "-m", "21.5", "-q", "1", "-V", "mqttv5")
            done = sealmq("pub", root, "--client", "m1-temp-sensor", *say)
            assert done.returncode == 0, done.stderr
            out, _ = sub.communicate(timeout=60)
        finally:
            sub.kill()
    assert out == "21.5\n"
    wrong = sealmq("pub", root, "--client", "monitor", "-t", "a", "-m", "b", "-V", "mqttv31")
    assert wrong.returncode == 1
    assert "protocol version mqttv31" in wrong.stderr
    kept = ("-c", "-i", "kept", "-V", "mqttv5")
    for more, said in (
        (("-x", "60"), "-x without -c and -V mqttv5"),
        ((*kept, "-x", "0"), "session expiry interval 0"),
        ((*kept, "-x", "60"), "does not keep"),
    ):
        wrong = sealmq("sub", root, "--client", "monitor", "-t", TOPIC, *more)
        assert wrong.returncode == 1
        assert said in wrong.stderr


@pytest.mark.full
def test_a_kept_session_goes_on_and_clean_start_begins_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Options(protocol=5, clean=False, client_id="kept", reconnect=False)

    async def play(site: RealSite) -> None:
        sensor = await client(site, "m1-temp-sensor")
        reader = await client(site, "monitor", kept)
        assert not reader.present
        assert await reader.subscribe(TOPIC, qos=1) == [1]
        await reader.disconnect()
        await sensor.publish(TOPIC, b"while away", qos=1, life=10)
        reader = await client(site, "monitor", kept)
        assert reader.present
        assert (await reader.receive(within=30)).payload == b"while away"
        await reader.disconnect()
        await sensor.publish(TOPIC, b"for nobody", qos=1, life=10)
        anew = partial(v5c.connect, properties={v5.SESSION_EXPIRY: 60}, fresh=True)

        def connect(client_id: str, clean_session: bool = True, **more: Any) -> bytes:
            return anew(client_id, **more)

        monkeypatch.setitem(SPEECHES, 5, V5._replace(connect=connect))
        reader = await client(site, "monitor", kept)
        assert not reader.present, "clean start"
        await reader.subscribe(TOPIC, qos=1)
        await sensor.publish(TOPIC, b"new", qos=1)
        assert (await reader.receive(within=30)).payload == b"new"
        await reader.disconnect()
        monkeypatch.undo()
        reader = await client(site, "monitor", kept)
        assert reader.present, "it was kept all the same"
        await reader.disconnect()
        await sensor.disconnect()

    with running(tmp_path, "--broker", "mosquitto") as site:
        asyncio.run(play(site))


def _is_back(site: RealSite, was: int) -> bool:
    return bool(site.status()["code"] == 0 and site.row("mediator")["pid"] != was)


@pytest.mark.full
def test_a_session_is_kept_for_as_long_as_its_client_has_said_whoever_is_killed(
    tmp_path: Path,
) -> None:
    hour = Options(protocol=5, clean=False, client_id="kept", reconnect=False, expiry=3600)

    async def play(site: RealSite) -> None:
        reader = await client(site, "monitor", hour)
        assert await reader.subscribe(TOPIC, qos=1) == [1]
        await reader.disconnect()
        was = (await asyncio.to_thread(site.row, "mediator"))["pid"]
        os.kill(was, signal.SIGKILL)
        back = partial(_is_back, site, was)
        await asyncio.to_thread(until, back, "the mediator")
        sensor = await client(site, "m1-temp-sensor")
        await sensor.publish(TOPIC, b"while away", qos=1, life=10)
        await sensor.disconnect()
        reader = await client(site, "monitor", replace(hour, expiry=1))
        assert reader.present
        assert (await reader.receive(within=30)).payload == b"while away"
        await reader.disconnect()
        log = site.ups[-1].err
        until(lambda: "is over" in log.read_text(), "the session's end")
        reader = await client(site, "monitor", hour)
        assert not reader.present
        await reader.disconnect()

    with running(tmp_path, "--broker", "mosquitto") as site:
        asyncio.run(play(site))


class Paho(paho.Client):
    """paho's MQTT 5, whose CONNECT is one of ours with its proof."""

    signed = b""

    def _send_connect(self, keepalive: int) -> Any:
        return self._packet_queue(paho.CONNECT, self.signed, 0, 0)


def test_paho_reads_what_the_mediator_says_in_mqtt_5(site: RealSite) -> None:
    lent = asyncio.run(borrowed(str(site.root), "m1-temp-sensor"))
    # Above what other tests have used of this identity.
    state = type("State", (), {
        "open": lambda self, identity: (1000, b""), "save": lambda self, *a: None,
        "close": lambda self: None,
    })()  # fmt: skip
    boots = Boots(lent.identity, state, speech=V5)
    asyncio.run(boots.open())
    session = asyncio.run(boots.begin())
    peer = Paho(CallbackAPIVersion.VERSION2, "paho", protocol=MQTTProtocolVersion.MQTTv5)
    peer.signed = signed_connect(session, "paho", True, 60, None, False, 0, mono_ms(), V5)
    seen: dict[str, list[Any]] = {"connect": [], "publish": [], "subscribe": [], "message": []}
    peer.on_connect = lambda c, u, f, code, said: seen["connect"].append((code, said))
    peer.on_publish = lambda c, u, mid, code, said: seen["publish"].append((code, said))
    peer.on_subscribe = lambda c, u, mid, codes, said: seen["subscribe"].append(codes)

    def on_message(c: Any, u: Any, message: paho.MQTTMessage) -> None:
        if message.topic == "!c1":
            session.down(message.payload, mono_ms())
        seen["message"].append(message)

    peer.on_message = on_message
    peer.connect(lent.host, lent.port)
    peer.loop_start()
    try:
        until(lambda: bool(seen["message"]), "the welcome")
        [(code, said)] = seen["connect"]
        assert (code.value, said.ReceiveMaximum, said.TopicAliasMaximum) == (0, 64, 64)
        assert said.SharedSubscriptionAvailable == 0
        name = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        name.SubscriptionIdentifier = 77
        peer.subscribe(session.token(TOPIC, 1)[0], 1, properties=name)
        until(lambda: bool(seen["subscribe"]), "the SUBACK")
        assert [code.value for code in seen["subscribe"][0]] == [1]
        alias = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        alias.TopicAlias = 5
        for number, topic in enumerate((TOPIC, "")):
            _, m2 = seal_message(session, TOPIC.encode(), b"21", 2, 0, 0, mono_ms())
            peer.publish(topic, bytes(m2), 1, properties=alias)
            until(lambda n=number: len(seen["publish"]) > n, "the PUBACK")  # type: ignore[misc]
        elsewhere = "machine/2/temperature"
        _, m2 = seal_message(session, elsewhere.encode(), b"21", 2, 0, 0, mono_ms())
        peer.publish(elsewhere, bytes(m2), 1)
        until(lambda: len(seen["publish"]) == 3, "the PUBACK that refuses")
        codes = [code.value for code, _ in seen["publish"]]
        assert codes == [0, 0, 0x87]
        assert seen["publish"][2][1].ReasonString.startswith("labels.")
        until(lambda: len([m for m in seen["message"] if m.topic == TOPIC]) == 2, "both back")
        own = [one for one in seen["message"] if one.topic == TOPIC]
        assert [one.properties.SubscriptionIdentifier for one in own] == [[77], [77]]
    finally:
        peer.disconnect()
        peer.loop_stop()
