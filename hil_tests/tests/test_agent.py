"""`sealmq agent` in front of a site, with clients that know nothing of SealMQ: mosquitto_pub and
mosquitto_sub, and paho."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from free_ports import free_port
from running_site import ROOT, SEALMQ, Site, until

PASSWORD = "a-password-of-the-tests"


class Agent:
    """`sealmq agent --config`: the users ha (label monitor) and plc (label m1-temp)."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.port, self.web = free_port(), free_port()
        self.socket = folder / "mqtt.sock"
        for name, label in (("ha", "monitor"), ("plc", "m1-temp")):
            file = site.enrol(f"agent-{name}", label)
            shutil.copy(file, folder / f"{name}.json")
        password = folder / "password"
        password.write_text(PASSWORD + "\n")
        password.chmod(0o600)
        self.toml = folder / "agent.toml"
        self.toml.write_text(
            f'listen = ["./mqtt.sock", "127.0.0.1:{self.port}", "ws://127.0.0.1:{self.web}"]\n'
            'origins = ["http://ha.example:8123"]\n'
            '[users.ha]\nenrolment = "ha.json"\npassword_file = "password"\n'
            '[users.ha.discovery.senders]\nagent-plc = ["machine/1/#"]\nagent-ha = ["ha/#"]\n'
            '[users.plc]\nenrolment = "plc.json"\npassword_file = "password"\n'
            '[users.plc.discovery.senders]\nagent-plc = ["#"]\n'
        )
        self.log = folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        before = self.said().count("listens on")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(SEALMQ), "agent", "--config", self.toml.name],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        until("the agent to listen", lambda: self.said().count("listens on") > before)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def down(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(30) == 0, self.said()

    def words(self, user: str = "ha") -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port), "-u", user, "-P", PASSWORD]

    def pub(self, user: str, topic: str, text: str, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["mosquitto_pub", *self.words(user), "-t", topic, "-m", text, *more],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


class Paho:
    """A paho client, with what has come to it."""

    def __init__(
        self, agent: Agent, user: str, version: int, client_id: str = "", kept: bool = False
    ) -> None:
        self.came: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.acked: Counter[int] = Counter()
        self.codes: dict[int, Any] = {}
        self.granted: queue.Queue[list[Any]] = queue.Queue()
        self.connected = threading.Event()
        # Subscribes to what has no answer yet.
        self._ask: Callable[[], object] | None = None
        more: dict[str, Any] = {} if version == 5 else {"clean_session": not kept}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=paho.MQTTv5 if version == 5 else paho.MQTTv311,
            **more,
        )
        self.client.username_pw_set(user, PASSWORD)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_message = lambda c, u, m: self.came.put(m)
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda c, u, mid, codes, p: self.granted.put(codes)
        self.client.on_publish = self._published
        options: dict[str, Any] = {}
        if version == 5 and kept:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 3600
            options = {"clean_start": False, "properties": properties}
        self.client.connect("127.0.0.1", agent.port, keepalive=30, **options)
        self.client.loop_start()
        if not self.connected.wait(30):
            self.end()
            raise AssertionError(agent.said())

    # Where it is refused, since the site is away, it tries again by itself. paho sends a PUBLISH
    # again in the next connection, a SUBSCRIBE not.
    def _connected(self, _c: Any, _u: Any, _f: Any, code: Any, _p: Any) -> None:
        if not code.is_failure:
            if (ask := self._ask) is not None:
                ask()
            self.connected.set()

    def _published(self, _c: Any, _u: Any, mid: int, code: Any, _p: Any) -> None:
        self.acked[mid] += 1
        self.codes[mid] = code

    def subscribe(self, filt: str, qos: int = 0, purpose: str = "") -> list[Any]:
        properties = None
        if purpose:
            properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            properties.UserProperty = ("purpose", purpose)
        self._ask = partial(self.client.subscribe, filt, qos, properties=properties)
        self._ask()
        answer = self.granted.get(timeout=30)
        self._ask = None
        return answer

    def next(self) -> paho.MQTTMessage:
        return self.came.get(timeout=30)

    def about(self, message: paho.MQTTMessage) -> dict[str, str]:
        assert message.properties is not None
        found: dict[str, str] = dict(getattr(message.properties, "UserProperty", ()))
        return found

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@contextlib.contextmanager
def in_front(folder: Path) -> Iterator[Agent]:
    """A site in that folder, and the agent in front of it."""
    site = Site(folder)
    site.up("--broker", "mosquitto")
    made = Agent(site, folder)
    made.up()
    yield made
    made.down()
    site.down()


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    """Where other users get to: each pytest that is started closes its own folders to them."""
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with in_front(folder) as made:
            yield made


@pytest.fixture
def clients() -> Iterator[list[Paho]]:
    made: list[Paho] = []
    yield made
    for one in made:
        one.end()


@pytest.mark.parametrize("version", [4, 5])
def test_what_one_program_publishes_another_gets_with_who_and_when(
    agent: Agent, clients: list[Paho], version: int
) -> None:
    reader, writer = Paho(agent, "ha", version), Paho(agent, "plc", version)
    clients += [reader, writer]
    assert [int(getattr(c, "value", c)) for c in reader.subscribe(f"machine/1/v{version}", 2)] == [
        2
    ]
    for qos in (0, 1, 2):
        info = writer.client.publish(f"machine/1/v{version}", f"of {qos}", qos)
        info.wait_for_publish(30)
        came = reader.next()
        assert (came.payload, came.qos, came.retain) == (f"of {qos}".encode(), qos, False)
        if version == 5:
            about = reader.about(came)
            assert about["sealmq-sender"] == "agent-plc"
            assert about["sealmq-label"] == "m1-temp"
            assert about["sealmq-how"] == "live"
            assert 0 <= int(about["sealmq-age"]) < 30
    writer.client.publish("machine/1/kept", "old", 1, retain=True).wait_for_publish(30)
    later = Paho(agent, "ha", version)
    clients.append(later)
    later.subscribe("machine/1/kept", 1)
    came = later.next()
    assert (came.payload, came.retain) == (b"old", True)
    assert version == 4 or later.about(came)["sealmq-how"] == "retained"


def test_a_refused_publish_says_its_rule_in_mqtt_5_and_never_looks_successful_in_3_1_1(
    agent: Agent, clients: list[Paho]
) -> None:
    plc, ha = Paho(agent, "plc", 5), Paho(agent, "ha", 5)
    clients += [plc, ha]
    plc.client.publish("machine/1/owned", "1", 1).wait_for_publish(30)
    ha.subscribe("$SYS/sealmq/refused")
    for qos in (1, 2):
        info = ha.client.publish("machine/1/owned", "99", qos)
        code = until("an answer", partial(ha.codes.get, info.mid))
        # paho sends PUBREL even so, and is told that there is nothing to release.
        assert code.value == (0x87 if qos == 1 else 0x92)
        told = json.loads(ha.next().payload)
        assert told["rule"] == "labels.publish.other-label"
        assert told["topic"] == "machine/1/owned"
    told5 = agent.pub("ha", "machine/1/owned", "99", "-q", "1", "-V", "5").stderr
    assert "labels.publish.other-label: the topic has m1-temp, the client monitor" in told5
    done = agent.pub("ha", "machine/1/owned", "99", "-q", "1", "-V", "311")
    assert done.returncode != 0, "a refused message was acknowledged"
    # QoS 0 has no acknowledgement: whoever listens is told, and nobody is cut off.
    ha.client.publish("machine/1/owned", "99", 0)
    assert json.loads(ha.next().payload)["rule"] == "labels.publish.other-label"
    assert ha.client.is_connected()


def test_a_label_too_low_opens_nothing_and_says_so(agent: Agent, clients: list[Paho]) -> None:
    ha, plc = Paho(agent, "ha", 5), Paho(agent, "plc", 5)
    clients += [ha, plc]
    ha.client.publish("secret/of-monitor", "s", 1, retain=True).wait_for_publish(30)
    [code] = plc.subscribe("secret/of-monitor", 1)
    assert code.value == 0x87
    assert plc.subscribe("#", 1)[0].value == 1
    plc.client.publish("machine/1/seen", "x", 1).wait_for_publish(30)
    topics = {plc.next().topic}
    while "machine/1/seen" not in topics:
        topics.add(plc.next().topic)
    assert "secret/of-monitor" not in topics


def test_a_discovery_message_that_names_others_topics_is_planted_in_vain(
    agent: Agent, clients: list[Paho], tmp_path: Path
) -> None:
    ha, plc = Paho(agent, "ha", 5), Paho(agent, "plc", 5)
    clients += [ha, plc]
    # plc's own agent lets it: whoever attacks has no agent of ours. Retained, before ha is there.
    topic = "homeassistant/switch/agent-plc/config"
    bad = json.dumps({"name": "lamp", "command_topic": "secret/of-monitor"})
    good = json.dumps({"name": "t", "~": "machine/1", "stat_t": "~/temperature"})
    plc.client.publish(topic, bad, 1, retain=True).wait_for_publish(30)
    # In the place of an entity of somebody else, which `{}` removes.
    others = "homeassistant/sensor/agent-ha/config"
    plc.client.publish(others, "{}", 1, retain=True).wait_for_publish(30)
    right = "homeassistant/sensor/agent-plc/config"
    plc.client.publish(right, good, 1, retain=True).wait_for_publish(30)
    ha.subscribe("$SYS/sealmq/refused")
    ha.subscribe("homeassistant/#", 1)
    came = [ha.next() for _ in range(3)]
    assert {m.topic for m in came} == {"$SYS/sealmq/refused", right}
    told = [json.loads(m.payload) for m in came if m.topic.startswith("$SYS")]
    assert {(one["rule"], one["topic"]) for one in told} == {
        ("agent.discovery", topic),
        ("agent.discovery", others),
    }
    # And what ha itself would plant is refused before it leaves.
    info = ha.client.publish("homeassistant/switch/x/config", bad, 1)
    assert until("an answer", lambda: ha.codes.get(info.mid)).value == 0x87


def test_a_session_that_is_kept_goes_on_with_the_packet_ids_that_its_client_knows(
    agent: Agent,
) -> None:
    for version in (4, 5):
        first = Paho(agent, "ha", version, f"kept-{version}", kept=True)
        first.subscribe(f"machine/kept{version}", 2)
        first.end()
        agent.pub("plc", f"machine/kept{version}", "meanwhile", "-q", "2")
        again = Paho(agent, "ha", version, f"kept-{version}", kept=True)
        came = again.next()
        assert (came.payload, came.qos) == (b"meanwhile", 2)
        again.end()


def test_a_will_is_the_site_s_to_send_when_its_client_vanishes(
    agent: Agent, clients: list[Paho]
) -> None:
    words = [*agent.words("plc"), "-t", "machine/1/none", "-i", "dies"]
    will = ["--will-topic", "machine/1/status", "--will-payload", "gone", "--will-qos", "1"]
    reader = Paho(agent, "ha", 5)
    clients.append(reader)
    reader.subscribe("machine/1/status", 1)
    dies = subprocess.Popen(["mosquitto_sub", *words, *will], stdout=subprocess.DEVNULL)
    until("the client with a will", lambda: "dies: connected" in agent.said())
    dies.kill()
    dies.wait()
    came = reader.next()
    assert came.payload == b"gone"
    assert reader.about(came)["sealmq-how"] == "will"


def test_what_a_subscription_of_mqtt_5_asks_for_besides_qos_is_done_also_after_a_kill(
    agent: Agent,
) -> None:
    """No local, retain as published, retain handling, identifiers; the session is kept."""
    topic = "machine/1/asks"
    agent.pub("plc", topic, "old", "-q", "1", "-r")
    one, other = Paho(agent, "plc", 5, "asks", kept=True), Paho(agent, "plc", 5)
    try:
        wishes: dict[str, Any] = {"noLocal": True, "retainAsPublished": True, "retainHandling": 2}
        properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        properties.SubscriptionIdentifier = 77
        options = SubscribeOptions(qos=1, **wishes)
        one.client.subscribe(topic, options=options, properties=properties)
        assert one.granted.get(timeout=30)[0].value == 1
        for round in range(2):
            one.client.publish(topic, "my own", 1).wait_for_publish(30)
            another = f"another's {round}".encode()
            other.client.publish(topic, another, 1, retain=True).wait_for_publish(30)
            came = one.next()
            if round and came.payload == b"another's 0":
                # The kill came before its PUBACK had gone on to the site.
                came = one.next()
            assert (came.payload, came.retain) == (another, True)
            assert came.properties is not None
            assert vars(came.properties)["SubscriptionIdentifier"] == [77]
            assert one.came.empty()
            if not round:
                agent.kill()
                agent.up()
                until("both to be back", lambda: one.client.is_connected())
                until("both to be back", lambda: other.client.is_connected())
        # A new one brings what is retained; the same once more does not.
        for handling, brings in ((1, True), (1, False), (0, True)):
            options = SubscribeOptions(qos=1, retainHandling=handling)
            one.client.subscribe("machine/1/+", options=options)
            one.granted.get(timeout=30)
            other.client.publish("machine/1/mark", "mark", 1).wait_for_publish(30)
            seen = [one.next() for _ in range(2)] if brings else [one.next()]
            while seen[-1].payload != b"mark":
                seen.append(one.next())
            assert any(m.topic == topic and m.retain for m in seen) is brings, handling
    finally:
        one.end()
        other.end()
    forget(agent, "plc", "asks")


def forget(agent: Agent, user: str, client_id: str) -> None:
    """Ends a session: the site keeps eight of a client."""
    words = [*agent.words(user), "-i", client_id, "-t", "machine/1/none", "-E"]
    subprocess.run(["mosquitto_sub", *words], timeout=60, check=False)


def vanishes(agent: Agent, client_id: str, delay: int) -> None:
    """A client of plc whose will waits, and whose session is kept."""
    dies = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
    dies.username_pw_set("plc", PASSWORD)
    will = Properties(PacketTypes.WILLMESSAGE)  # type: ignore[no-untyped-call]
    will.WillDelayInterval = delay
    dies.will_set("machine/1/delayed", client_id, 1, properties=will)
    kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    kept.SessionExpiryInterval = 3600
    before = agent.said().count(f"{client_id}: connected")
    dies.connect("127.0.0.1", agent.port, clean_start=False, properties=kept)
    until("CONNACK", lambda: dies.loop_read() or dies.is_connected())
    assert agent.said().count(f"{client_id}: connected") > before
    sock = dies.socket()
    assert sock is not None
    sock.close()


def test_a_will_waits_as_long_as_it_is_to_and_is_not_sent_if_its_client_returns(
    agent: Agent, clients: list[Paho]
) -> None:
    reader, other = Paho(agent, "ha", 5), Paho(agent, "plc", 5)
    clients += [reader, other]
    reader.subscribe("machine/1/delayed", 1)
    vanishes(agent, "delayed", 3)
    other.client.publish("machine/1/delayed", "meanwhile", 1)
    assert [reader.next().payload for _ in range(2)] == [b"meanwhile", b"delayed"]
    vanishes(agent, "delayed", 3600)
    back = Paho(agent, "plc", 5, "delayed", kept=True)
    back.client.publish("machine/1/delayed", "back", 1).wait_for_publish(30)
    back.end()
    assert reader.next().payload == b"back"
    # And when its session ends, for which it need not wait longer.
    vanishes(agent, "delayed", 3600)
    forget(agent, "plc", "delayed")
    assert reader.next().payload == b"delayed"


def test_wills_that_wait_give_their_places_to_clients_that_come(
    agent: Agent, clients: list[Paho]
) -> None:
    reader = Paho(agent, "ha", 5)
    clients.append(reader)
    reader.subscribe("machine/1/delayed", 1)
    for n in range(3):
        vanishes(agent, f"waits-{n}", 3600)
    # The site has 14 places for a user's readers.
    for n in range(13):
        clients.append(Paho(agent, "plc", 5))
        assert [code.value for code in clients[-1].subscribe("machine/1/none")] == [0], n
    assert {reader.next().payload for _ in range(2)} == {b"waits-0", b"waits-1"}
    assert reader.came.empty(), "more went than places were needed"
    # The session outlives that.
    back = Paho(agent, "plc", 5, "waits-0", kept=True)
    back.end()
    assert reader.next().payload == b"waits-2"
    for n in range(3):
        forget(agent, "plc", f"waits-{n}")


def test_the_add_on_of_home_assistant_runs_by_its_options(agent: Agent, tmp_path: Path) -> None:
    """Its run script, as the container calls it."""
    data, config, port = tmp_path / "data", tmp_path / "config", free_port()
    for folder in (data, config):
        folder.mkdir()
    file = agent.site.enrol("add-on", "monitor")
    (config / "hub.sealmq.json").write_bytes(file.read_bytes())
    options = {
        "enrolment": "hub.sealmq.json",
        "username": "hub",
        "password": PASSWORD,
        "port": port,
        "senders": [{"client": "agent-plc", "filter": "machine/1/#"}],
    }
    (data / "options.json").write_text(json.dumps(options))
    run = ROOT / "gateway/homeassistant/sealmq-agent/run.py"
    log = data / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(run), str(data), str(config)], stdout=out, stderr=out
        )
    until("the add-on to listen", lambda: "listens on" in log.read_text())
    words = ["-h", "127.0.0.1", "-p", str(port), "-u", "hub", "-P", PASSWORD]
    done = subprocess.run(
        ["mosquitto_pub", *words, "-t", "addon/x", "-m", "1", "-q", "1", "-V", "5"],
        timeout=60,
        check=False,
    )
    words_of_it = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    process.terminate()
    assert process.wait(30) == 0, log.read_text()
    assert done.returncode == 0, log.read_text()
    assert PASSWORD.encode() not in words_of_it
    assert PASSWORD not in log.read_text()
    assert [f.name for f in config.iterdir()] == ["hub.sealmq.json"], "its folder is read only"


NODE_RED = "node-red@4.1.15"  # the last one for Node.js 18 and 20
FLOW = [
    {"id": "tab", "type": "tab", "label": "a flow"},
    {"id": "in", "type": "mqtt in", "z": "tab", "topic": "machine/1/asked", "qos": "1",
     "datatype": "utf8", "broker": "agent", "inputs": 0, "wires": [["make"]]},
    {"id": "make", "type": "function", "z": "tab", "outputs": 1, "wires": [["out"]],
     "func": "return {topic: 'nodes/answer', payload: 'heard ' + msg.payload};"},
    {"id": "out", "type": "mqtt out", "z": "tab", "topic": "", "qos": "1", "retain": "",
     "broker": "agent", "wires": []},
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("version", ["4", "5"])
def test_a_flow_of_node_red_hears_and_answers_through_the_agent(
    agent: Agent, clients: list[Paho], tmp_path: Path, version: str
) -> None:
    """Headless, from npm. Node-RED keeps passwords in a file of its own, beside the flow."""
    place = ROOT / "build/node-red"
    place.mkdir(parents=True, exist_ok=True)
    red = place / "node_modules/node-red/red.js"
    if not red.exists():
        words = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), NODE_RED]
        subprocess.run(words, check=True, timeout=1200)
    broker = {
        "id": "agent", "type": "mqtt-broker", "broker": "127.0.0.1", "port": str(agent.port),
        "clientid": f"nodes{version}", "autoConnect": True, "protocolVersion": version,
        "keepalive": "60", "cleansession": True, "usetls": False,
    }  # fmt: skip
    (tmp_path / "flow.json").write_text(json.dumps([*FLOW, broker]))
    secret = {"agent": {"user": "ha", "password": PASSWORD}}
    (tmp_path / "flow_cred.json").write_text(json.dumps(secret))
    (tmp_path / "settings.js").write_text(
        'module.exports = {flowFile: "flow.json", httpAdminRoot: false, httpNodeRoot: false, '
        f'uiHost: "127.0.0.1", uiPort: {free_port()}, credentialSecret: false}};'
    )
    log = tmp_path / "red.log"
    before = agent.said().count(f"nodes{version}: connected")
    with log.open("wb") as out:
        red_process = subprocess.Popen(
            ["node", str(red), "-u", str(tmp_path), "-s", str(tmp_path / "settings.js")],
            stdout=out,
            stderr=out,
        )
    try:
        reader, writer = Paho(agent, "ha", 5), Paho(agent, "plc", 5)
        clients += [reader, writer]
        reader.subscribe("nodes/answer", 1)
        connected = f"nodes{version}: connected"
        until(
            f"Node-RED to subscribe: {log.read_text()}",
            lambda: agent.said().count(connected) > before,
            60,
        )

        # It says nothing when SUBACK has come, so it is asked until it answers.
        def answered() -> bool:
            writer.client.publish("machine/1/asked", version, 1).wait_for_publish(30)
            with contextlib.suppress(queue.Empty):
                return reader.came.get(timeout=1).payload == f"heard {version}".encode()
            return False

        until("the flow's answer", answered, 60)
    finally:
        red_process.terminate()
        red_process.wait(30)


def test_a_web_page_of_another_origin_or_by_another_name_gets_no_websocket(agent: Agent) -> None:
    def handshake(host: str, origin: str) -> str:
        lines = [
            "GET /mqtt HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: mqtt",
            *([f"Origin: {origin}"] if origin else []),
        ]
        with socket.create_connection(("127.0.0.1", agent.web), timeout=30) as sock:
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            return sock.recv(4096).decode().partition("\r\n")[0]

    here = f"127.0.0.1:{agent.web}"
    assert " 101 " in handshake(here, "")
    assert " 101 " in handshake(f"localhost:{agent.web}", "http://ha.example:8123")
    assert " 403 " in handshake(here, "http://evil.example")
    assert " 403 " in handshake(here, "null")
    assert " 403 " in handshake(f"rebound.evil.example:{agent.web}", "")
    assert " 403 " in handshake(f"127.0.0.1.evil.example:{agent.web}", "")


def test_another_user_of_the_machine_gets_in_by_no_door(agent: Agent) -> None:
    mode = agent.socket.stat().st_mode
    assert mode & 0o777 == 0o600, oct(mode)
    own = ["--unix", str(agent.socket), "-u", "ha", "-P", PASSWORD]
    done = subprocess.run(["mosquitto_pub", *own, "-t", "ha/own", "-m", "1", "-q", "1"], timeout=60)
    assert done.returncode == 0
    if os.geteuid() == 0:
        # Even where somebody has opened the socket's mode.
        agent.socket.chmod(0o666)
        words = ["mosquitto_pub", *own, "-t", "ha/other", "-m", "1", "-q", "1"]
        other = subprocess.run(words, timeout=60, user=65534, check=False)
        agent.socket.chmod(0o600)
        assert other.returncode != 0
        assert "another user of this machine was cut off" in agent.said()
    for user, password in (("ha", "wrong-password"), ("nobody", PASSWORD), ("", "")):
        who = ["-u", user, "-P", password] if user else []
        where = ["-h", "127.0.0.1", "-p", str(agent.port)]
        done = subprocess.run(
            ["mosquitto_pub", *where, *who, "-t", "ha/x", "-m", "1"], timeout=60, check=False
        )
        assert done.returncode != 0


def test_a_client_that_does_not_read_costs_bounded_memory_and_holds_up_nobody(
    agent: Agent, clients: list[Paho]
) -> None:
    reader, writer = Paho(agent, "ha", 4), Paho(agent, "plc", 4)
    clients += [reader, writer]
    slow = socket.create_connection(("127.0.0.1", agent.port), timeout=30)
    user, password = b"\0\2ha", len(PASSWORD).to_bytes(2, "big") + PASSWORD.encode()
    body = b"\0\4MQTT\4\xc2\0\0\0\4slow" + user + password
    slow.sendall(bytes((0x10, len(body))) + body)
    assert slow.recv(4) == b"\x20\2\0\0"
    filt = b"machine/1/flood"
    body = b"\0\1" + len(filt).to_bytes(2, "big") + filt + b"\0"
    slow.sendall(bytes((0x82, len(body))) + body)
    assert slow.recv(5) == b"\x90\3\0\1\0"
    reader.subscribe("machine/1/flood", 0)
    assert agent.process is not None
    big = bytes(256 * 1024)
    before = memory(agent.process.pid, "VmRSS")
    # Also one that asks and never reads the answers.
    pings = b"\xc0\0" * 4096
    slow.setblocking(False)
    asked = 0
    for _ in range(160):
        writer.client.publish("machine/1/flood", big).wait_for_publish(60)
        try:
            asked += slow.send(pings)
        except BlockingIOError:
            pass
    writer.client.publish("machine/1/flood", b"last", 1).wait_for_publish(60)
    while reader.next().payload != b"last":
        pass
    more = memory(agent.process.pid, "VmHWM") - before
    assert more < 24 * 1024, f"{more} KiB for 40 MiB that nobody read"
    slow.close()


def memory(pid: int, which: str) -> int:
    """In KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which))


def test_what_could_not_be_sent_waits_on_disk_and_is_acknowledged_after_it_is_sent(
    agent: Agent, clients: list[Paho]
) -> None:
    site = agent.site
    writer = Paho(agent, "plc", 5)
    clients.append(writer)
    killed = site.kill("mediator")
    held = [writer.client.publish("machine/1/late", f"{n}", 1) for n in range(5)]
    one_shot = subprocess.Popen(
        ["mosquitto_pub", *agent.words("plc"), "-t", "machine/1/late", "-m", "5", "-q", "1"]
    )
    site.back("mediator", killed)
    assert one_shot.wait(60) == 0
    for info in held:
        info.wait_for_publish(60)
        assert writer.codes[info.mid].value == 0
    with sqlite3.connect(agent.folder / "agent.spool/unsent.db") as db:
        assert db.execute("SELECT seq FROM sqlite_sequence").fetchall() != []
        assert db.execute("SELECT COUNT(*) FROM unsent").fetchone() == (0,)
