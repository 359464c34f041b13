"""A host client that speaks MQTT 5: what stands there in the clear proves nothing to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mediator_world import SENSOR, World
from sealmq.aead import make
from sealmq.client import Options
from sealmq.client import events as ev
from sealmq.client.core import Core, Stage
from sealmq.client.errors import ConnectionLost, NotAuthorised, PeerFault, connect_refused
from sealmq.client.foreign import Reader
from sealmq.client.outbox import Outbox
from sealmq.client.speech import V5, V311, Speech
from sealmq.mqtt import Decoder, ProtocolError, QoS2Receiver, Will, build
from sealmq.mqtt import five as v5
from sealmq.mqtt import five_client as v5c
from sealmq_spec.errors import Malformed

TOPIC = b"machine/1/temperature"


class Opened:
    """A client's core that has been welcomed."""

    def __init__(self, speech: Speech = V5) -> None:
        self.session = World().session(SENSOR)
        self.outbox = Outbox(speech)
        reader = Reader(self.session.ident, make)
        self.core = Core(
            self.session, reader, self.outbox, QoS2Receiver(), Counter(), speech=speech
        )
        if speech is V5:
            self.core.receive(b"\x20\x03\0\0\0", 0)
        else:
            self.core.receive(build.connack(False, 0), 0)
        self.core.stage = Stage.READY

    def publish(self, qos: int) -> tuple[int, int]:
        """(ctr, packet id) of a message that is under way."""
        ctr, packet = self.core.publish(TOPIC, b"21.5", qos, False, 0, 0, 0)
        assert len(self.outbox)
        [flight] = self.outbox._flights.values()
        assert flight.packet == packet
        return ctr, flight.packet_id

    def hears(self, data: bytes) -> list[Any]:
        return self.core.receive(data, 0)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("code", [0x80, 0x87, 0x97])
def test_a_refusal_without_its_sealed_notice_ends_the_connection_and_no_message(
    qos: int, code: int
) -> None:
    opened = Opened()
    opened.publish(qos)
    forged = v5.ack("PUBACK" if qos == 1 else "PUBREC", 1, code, {v5.REASON: "labels.publish"})
    [fault] = opened.hears(forged)
    assert isinstance(fault, ev.Fault)
    assert isinstance(fault.error, PeerFault)
    assert len(opened.outbox) == 1, "it is sent again"
    again, lost = opened.outbox.resume(False)
    assert (again[:1], lost) == (bytes((0x38 | qos << 1,)), [])


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refusal_after_its_notice_ends_the_message(qos: int) -> None:
    opened = Opened()
    ctr, packet_id = opened.publish(qos)
    opened.outbox.refuse(ctr)
    assert opened.hears(v5.ack("PUBACK" if qos == 1 else "PUBREC", packet_id, 0x87)) == [
        ev.Acked([ctr])
    ]
    assert not len(opened.outbox)
    assert opened.core.take() == b"", "no PUBREL after a PUBREC that refuses"


def test_properties_of_a_delivery_change_nothing() -> None:
    said = {
        v5.EXPIRY: 0, v5.USER: [("sealmq-sender", "somebody")], v5.SUBSCRIPTION_ID: (9,),
        v5.CONTENT_TYPE: "x", v5.RESPONSE_TOPIC: "y",
    }  # fmt: skip

    def heard(properties: v5.Properties) -> Any:
        decoder = V5.decoder(1000)
        decoder.feed(b"\x20\x03\0\0\0")
        return decoder.feed(v5.publish("a", b"m3", 1, False, False, 3, properties))

    assert heard(said) == heard(v5.NONE)


def test_an_end_is_said_with_its_reason_and_is_a_loss_like_any_other() -> None:
    [fault] = Opened().hears(v5.disconnect(0x8E, {v5.REASON: "x\u00e9"}))
    assert isinstance(fault.error, ConnectionLost)
    assert "0x8e" in str(fault.error)


def test_a_server_of_3_1_1_alone_says_so() -> None:
    decoder = V5.decoder(1000)
    [connack] = decoder.feed(b"\x20\x02\0\x01")
    assert "unacceptable protocol version" in str(connect_refused(connack.code))  # type: ignore[union-attr]
    assert isinstance(connect_refused(0x87), NotAuthorised)
    with pytest.raises(Malformed, match="protocol 3"):
        Options(protocol=3)
    for wrong in (
        {"expiry": 60},
        {"expiry": 60, "protocol": 5},
        {"expiry": 0, "protocol": 5, "clean": False},
        {"expiry": 0xFFFFFFFF, "protocol": 5, "clean": False},
    ):
        with pytest.raises(Malformed, match="expiry"):
            Options(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("speech", [V311, V5])
def test_what_is_kept_for_sending_again_is_sealed_for_a_new_link_as_it_was(
    speech: Speech,
) -> None:
    opened = Opened(speech)
    _, packet_id = opened.publish(2)
    seen: list[tuple[bytes, int, bytes]] = []

    def seal(topic: bytes, flags: int, m2: bytes) -> bytes:
        seen.append((topic, flags, m2))
        return b"resealed"

    opened.outbox.relink(seal)
    assert [(topic, flags) for topic, flags, _ in seen] == [(TOPIC, 4)]
    [flight] = opened.outbox._flights.values()
    assert speech.parts(flight.packet) == (TOPIC, b"resealed", 2, False)
    assert flight.packet_id == packet_id


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("will", [None, Will("w/t", b"gone", 1, True)])
def test_a_connect_of_mqtt_5_says_what_one_of_3_1_1_does(clean: bool, will: Will | None) -> None:
    said = {
        "clean_session": clean, "keepalive": 300, "will": will, "username": "u",
        "password": b"p" * 54,
    }  # fmt: skip
    [old] = Decoder(4096, max_connect=4096).feed(build.connect("id", **said))  # type: ignore[arg-type]
    [new] = v5.Decoder5(4096).feed(V5.connect("id", **said))  # type: ignore[arg-type]
    assert isinstance(new, v5.Connect5)
    assert (new.client_id, new.keepalive, new.username, new.password) == (
        old.client_id, old.keepalive, old.username, old.password  # type: ignore[union-attr]
    )  # fmt: skip
    assert new.clean_start == clean
    assert new.properties == ({} if clean else {v5.SESSION_EXPIRY: 0xFFFFFFFF})
    assert (new.will is None) == (will is None)
    if will is not None and new.will is not None:
        assert new.will[:4] == (will.topic, will.payload, will.qos, will.retain)


def test_what_a_server_sends_is_read_at_any_chunking_and_one_defect_ends_it() -> None:
    stream = b"".join((
        v5.connack(True, 0, {v5.RECEIVE_MAX: 9, v5.REASON: "r"}),
        v5.publish("a", b"p", 2, True, True, 4, {v5.SUBSCRIPTION_ID: (1, 300)}),
        v5.ack("PUBACK", 1), v5.ack("PUBREC", 2, 0x87, {v5.REASON: "x"}), v5.ack("PUBREL", 3),
        v5.suback(4, [1, 0x87]), v5.unsuback(5, [0, 0x11]), build.pingresp(), v5.disconnect(0),
    ))  # fmt: skip
    whole = v5c.ServerDecoder5(1000).feed(stream)
    assert whole[1].properties == {v5.SUBSCRIPTION_ID: [1, 300]}
    assert whole[3] == v5c.Refused5("PUBREC", 2, 0x87, {v5.REASON: "x"})
    for size in (1, 3, 7):
        decoder = v5c.ServerDecoder5(1000)
        cut = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [one for piece in cut for one in decoder.feed(piece)] == whole
    for bad in (
        b"\xe0\x00", b"\x20\x03\x02\0\0", b"\x20\x03\x01\x87\0", b"\x20\x05\0\0\x02\x01\0",
        b"\x20\x03\0\0\0\x20\x03\0\0\0", b"\x20\x03\0\0\0\x82\x00",
        b"\x20\x03\0\0\0\x90\x03\0\1\0", b"\x20\x03\0\0\0\x34\x08\0\1a\0\1\2\x0b\0",
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            v5c.ServerDecoder5(1000).feed(bad)
