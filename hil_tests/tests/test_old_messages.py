"""Messages old by nature stay readable: wills, retained and queued ones (GATEWAY.md G2)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devices import device
from free_ports import free_port
from running_site import Site, until
from wire import RawClient, publish, text

TOPIC = b"machine/1/temperature"
QOS1, RETAIN = 2, 1
RETAINED, WILL, CLEAR = 1, 2, 3


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[int]:
    """An unmodified Mosquitto with persistent sessions; gives its port."""
    program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
    assert program, "mosquitto is missing: make setup"
    port = free_port()
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 1000\n"
    )
    with subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        yield port
        process.terminate()


@pytest.fixture
def sensor(shared_site: Site) -> Iterator[RawClient]:
    file = shared_site.clients / "m1-temp-sensor" / "sealmq.json"
    if not file.exists():
        shared_site.enrol("m1-temp-sensor", "m1-temp")
    made = RawClient(shared_site.port, file)
    # Each test is a restart of the same sensor: the mediator tells it which boot comes next.
    made.provision()
    made.boot = 100 + len(shared_site.audit("connect"))
    made.begin()
    yield made
    made.close()


def _with_will(sensor: RawClient, payload: bytes) -> None:
    will = sensor.seal(TOPIC, payload, flags=QOS1, kind=WILL, life=255)
    sensor.connect(will=text(TOPIC) + text(will), flags=0xCE)


def test_a_will_reaches_its_readers_when_the_client_is_cut_off(
    shared_site: Site, sensor: RawClient
) -> None:
    with device(shared_site.enrol("monitor", "monitor")) as monitor:
        monitor.subscribe("machine/#")
        _with_will(sensor, b"gone")
        sensor.close()
        (message,) = monitor.receive(1)
        assert (message["payload"], message["how"]) == ("gone", WILL)


def test_a_will_is_not_published_behind_a_disconnect(shared_site: Site, sensor: RawClient) -> None:
    with device(shared_site.enrol("m1-arm-operator", "m1-arm")) as reader:
        reader.subscribe("machine/1/temperature")
        _with_will(sensor, b"gone")
        sensor.wire.send(b"\xe0\0")
        assert sensor.wire.closed()
        sensor.connect()
        sensor.publish(TOPIC, b"back")
        assert [m["payload"] for m in reader.receive(1)] == ["back"]


def test_a_will_on_a_foreign_topic_is_refused_with_its_connect(
    shared_site: Site, sensor: RawClient
) -> None:
    foreign = b"machine/2/temperature"
    will = sensor.seal(foreign, b"gone", flags=QOS1, kind=WILL, life=255)
    assert sensor.connect(will=text(foreign) + text(will), flags=0xCE) == b"\0\x05"
    row = until("the record", lambda: shared_site.audit("connect-refused"))[-1]
    assert row["rule"] == "mediator.will.denied"


def test_a_retained_message_is_read_later_and_cleared(shared_site: Site, sensor: RawClient) -> None:
    topic = b"machine/1/state"
    sensor.connect()
    sealed = sensor.seal(topic, b"on", QOS1 | RETAIN, RETAINED, 255)
    sensor.wire.send(publish(topic, sealed, 0x33, 1))
    sensor.acknowledged()
    with device(shared_site.enrol("m1-control-panel", "m1-ctrl"), bits=32) as panel:
        panel.subscribe("machine/1/state")
        (message,) = panel.receive(1)
        assert (message["payload"], message["how"]) == ("on", RETAINED)
    sealed = sensor.seal(topic, b"", QOS1 | RETAIN, CLEAR, 255)
    sensor.wire.send(publish(topic, sealed, 0x33, 2))
    sensor.acknowledged()
    with device(shared_site.clients / "m1-control-panel" / "sealmq.json") as panel:
        panel.subscribe("machine/1/state")
        assert panel.receive(1, seconds=1) == []


def test_a_sleeping_reader_gets_what_mosquitto_queued(site: Site, mosquitto: int) -> None:
    site.up("--broker", f"mqtt://127.0.0.1:{mosquitto}")
    raw = RawClient(site.port, site.enrol("monitor", "monitor"))
    clean_off = 0xC0
    raw.connect(flags=clean_off)
    raw.subscribe("machine/#", qos=1)
    raw.wire.send(b"\xe0\0")
    with device(site.enrol("m1-temp-sensor", "m1-temp")) as publisher:
        for n in range(20):
            publisher.publish("machine/1/temperature", f"reading {n}")
    assert raw.connect(flags=clean_off)[0] == 1, "session present"
    seen: list[bytes] = []
    while len(seen) < 20:
        got = raw.next("a message")
        if got[0] & 0xF0 == 0x30 and got[1][2:5] != b"!c1":
            seen.append(got[1])
        elif got[0] & 0xF0 == 0x30:
            raw.control(got)
    assert all(body[2 : 2 + len(TOPIC)] == TOPIC for body in seen)
