"""The embedded broker lets mediators in and nobody else, and a stranger can touch nothing."""

from __future__ import annotations

import socket

import pytest

from broker.peers import WAIT_S, BrokerProcess, MakePeer, until
from sealmq.mqtt import Connack, Decoder, Will, build

REFUSED_ID, NOT_AUTHORISED = 2, 5


def speak(broker: BrokerProcess, *packets: bytes) -> bytes:
    """Send raw bytes; everything that comes back until the broker closes."""
    with socket.create_connection(("127.0.0.1", broker.port), WAIT_S) as sock:
        sock.sendall(b"".join(packets))
        got = b""
        while chunk := sock.recv(4096):
            got += chunk
        return got


def refusal(answer: bytes) -> int:
    """The code of a CONNACK that is all there is."""
    [packet] = Decoder(1000, "client").feed(answer)
    assert isinstance(packet, Connack)
    return packet.code


def test_a_mediator_gets_in(broker: BrokerProcess, peer: MakePeer) -> None:
    assert peer(broker).connect(broker.port) == 0


@pytest.mark.parametrize(
    ("user", "password"),
    [(None, None), ("mediator", None), ("mediator", "wrong"), ("mediator", ""), ("other", "right")],
)
def test_anonymous_and_wrong_credentials_are_refused(
    broker: BrokerProcess, peer: MakePeer, user: str | None, password: str | None
) -> None:
    if password == "right":
        password = broker.credentials.password
    stranger = peer(None, "sealmq/1/x", user=user, password=password)
    assert stranger.connect(broker.port) == NOT_AUTHORISED


@pytest.mark.parametrize("name", ["device", "sealmq", "SEALMQ/1/x", " sealmq/1/x", "a/sealmq/1"])
def test_the_right_password_with_a_foreign_client_id_is_refused(
    broker: BrokerProcess, peer: MakePeer, name: str
) -> None:
    assert peer(broker, name).connect(broker.port) == REFUSED_ID


def test_a_stranger_neither_ends_nor_changes_a_session(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    """amqtt by itself deletes or takes over the session of a client id before it asks who it is."""
    watcher = peer(broker)
    assert watcher.connect(broker.port) == 0
    assert watcher.subscribe("door/#", 1) == 1
    victim = peer(broker, "sealmq/1/victim", clean=False)
    assert victim.connect(broker.port) == 0
    assert victim.subscribe("door/in", 1) == 1
    will = Will("door/forged", b"forged", 1, False)
    for clean in (False, True):
        connect = build.connect(
            "sealmq/1/victim", clean_session=clean, will=will, username="mediator", password=b"x"
        )
        publish = build.publish("door/forged", b"forged")
        assert refusal(speak(broker, connect, publish, build.disconnect())) == NOT_AUTHORISED
    watcher.publish("door/in", b"still there")
    assert victim.get().payload == b"still there"
    assert watcher.get().payload == b"still there"
    assert watcher.nothing_more()
    assert victim.lost.empty()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        build.publish("a", b"b"),
        build.pingreq(),
        b"\x10\xff\xff\xff\x7f",
        b"\x10\xff\xff\xff\xff\xff",
        b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\x00\x00",
    ],
    ids=["http", "tls", "publish", "ping", "huge", "length", "mqtt5"],
)
def test_what_is_no_connect_of_mqtt_3_1_1_ends_the_connection(
    broker: BrokerProcess, data: bytes
) -> None:
    answer = speak(broker, data)
    assert answer in (b"", build.connack(False, 1))


def test_the_log_names_refusals_and_holds_no_secret(broker: BrokerProcess, peer: MakePeer) -> None:
    stranger = peer(None, "sealmq/1/told", user="mediator", password="not-the-password-at-all")
    assert stranger.connect(broker.port) == NOT_AUTHORISED
    until(lambda: "'sealmq/1/told'" in broker.log(), "the refusal in the log")
    assert broker.credentials.password not in broker.log()
    assert "not-the-password-at-all" not in broker.log()


def test_neither_arguments_nor_environment_hold_the_password(broker: BrokerProcess) -> None:
    for what in ("cmdline", "environ"):
        with open(f"/proc/{broker.process.pid}/{what}", "rb") as file:
            assert broker.credentials.password.encode() not in file.read()


def test_the_same_client_id_again_ends_the_old_connection(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    """MQTT-3.1.4-2, the old one's will included; the new one is served."""
    watcher = peer(broker)
    assert watcher.connect(broker.port) == 0
    assert watcher.subscribe("door/will", 1) == 1
    for clean in (True, False):
        name = f"sealmq/1/twice-{clean}"
        first = peer(broker, name, clean=clean, will=("door/will", b"first"))
        assert first.connect(broker.port) == 0
        second = peer(broker, name, clean=clean, will=("door/will", b"second"))
        assert second.connect(broker.port) == 0
        first.lost.get(timeout=WAIT_S)
        assert watcher.get().payload == b"first"
        assert second.subscribe("door/new", 1) == 1
        watcher.publish("door/new", b"to the second")
        assert second.get().payload == b"to the second"
        second.close()
    assert watcher.nothing_more()
