"""The encoders refuse what MQTT 3.1.1 cannot say; their good output is in test_mqtt_samples.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sealmq.mqtt import Connect, Decoder, Publish, UsageError, Will, build

LONG = "x" * 65536

CASES: list[tuple[Callable[[], bytes], str]] = [
    (lambda: build.publish("", b""), "is empty"),
    (lambda: build.publish(b"", b""), "topic name of 0 bytes"),
    (lambda: build.publish("a/+", b""), "wildcard '[+]'"),
    (lambda: build.publish("a/#", b""), "wildcard '#'"),
    (lambda: build.publish("a\0", b""), "U[+]0000"),
    (lambda: build.publish("a\ud800", b""), "surrogate at character 1"),
    (lambda: build.publish(LONG, b""), "topic name of 65536 bytes"),
    (lambda: build.publish(LONG.encode(), b""), "topic name of 65536 bytes"),
    (lambda: build.publish("t", b"", 3, packet_id=1), "QoS 3"),
    (lambda: build.publish("t", b"", -1, packet_id=1), "QoS -1"),
    (lambda: build.publish("t", b"", 1), "packet id 0"),
    (lambda: build.publish("t", b"", 2, packet_id=65536), "packet id 65536"),
    (lambda: build.publish("t", b"", 0, packet_id=1), "packet id with QoS 0"),
    (lambda: build.publish("t", b"", 0, dup=True), "DUP"),
    (lambda: build.connect("", clean_session=False), "empty client id"),
    (lambda: build.connect("c", password=b"s3cret"), "needs a user name"),
    (lambda: build.connect("c", keepalive=65536), "keep alive 65536"),
    (lambda: build.connect("c", keepalive=-1), "keep alive -1"),
    (lambda: build.connect("c\0"), "client id holds U[+]0000"),
    (lambda: build.connect(LONG), "client id of 65536 bytes"),
    (lambda: build.connect("\udfff"), "client id holds a surrogate"),
    (lambda: build.connect("c", username="s3cret\0"), "user name holds U[+]0000"),
    (lambda: build.connect("c", username="s3cret\ud800"), "user name holds a surrogate"),
    (
        lambda: build.connect("c", username="u", password=b"s3cret" * 11000),
        "password of 66000 bytes",
    ),
    (lambda: build.connect("c", will=Will("w/+", b"")), "wildcard"),
    (lambda: build.connect("c", will=Will("", b"")), "is empty"),
    (lambda: build.connect("c", will=Will("w", b"", 3)), "will QoS 3"),
    (lambda: build.connect("c", will=Will("w", b"s3cret" * 11000)), "will message of 66000 bytes"),
    (lambda: build.connack(False, 6), "return code 6"),
    (lambda: build.connack(False, -1), "return code -1"),
    (lambda: build.connack(True, 1), "session present"),
    (lambda: build.puback(0), "packet id 0"),
    (lambda: build.pubrec(65536), "packet id 65536"),
    (lambda: build.pubrel(-1), "packet id -1"),
    (lambda: build.pubcomp(0), "packet id 0"),
    (lambda: build.unsuback(0), "packet id 0"),
    (lambda: build.subscribe(0, [("t", 0)]), "packet id 0"),
    (lambda: build.subscribe(1, []), "no topic filter"),
    (lambda: build.subscribe(1, [("t", 3)]), "requested QoS 3"),
    (lambda: build.subscribe(1, [("a#", 0)]), "misplaced '#'"),
    (lambda: build.subscribe(1, [("", 0)]), "is empty"),
    (lambda: build.subscribe(1, [(LONG, 0)]), "topic filter of 65536 bytes"),
    (lambda: build.suback(0, [0]), "packet id 0"),
    (lambda: build.suback(1, []), "no return code"),
    (lambda: build.suback(1, [3]), "return code 3"),
    (lambda: build.unsubscribe(0, ["t"]), "packet id 0"),
    (lambda: build.unsubscribe(1, []), "no topic filter"),
    (lambda: build.unsubscribe(1, ["a/+b"]), "misplaced '[+]'"),
    (lambda: build.unsubscribe(1, "abc"), "one topic filter where a list"),
]


@pytest.mark.parametrize(("call", "text"), CASES, ids=[text for _, text in CASES])
def test_refused(call: Callable[[], bytes], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        call()
    assert "s3cret" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_topic_of_the_largest_size_passes() -> None:
    topic = "x" * 65535
    (got,) = Decoder(70000).feed(build.publish(topic, b"p"))
    assert got == Publish(topic, topic.encode(), b"p")


@pytest.mark.parametrize("size", [0, 124, 125, 16379, 16380, 16381, 2097148, 2097149])
def test_each_size_of_the_length_field(size: int) -> None:
    data = build.publish("t", bytes(size))
    remaining = size + 3
    assert len(data) - remaining - 1 == (
        1 if remaining < 128 else 2 if remaining < 16384 else 3 if remaining < 2097152 else 4
    )
    assert Decoder(1 << 22).feed(data) == [Publish("t", b"t", bytes(size))]


def test_a_length_above_the_largest_is_refused() -> None:
    assert build.remaining_length(268_435_455) == b"\xff\xff\xff\x7f"
    with pytest.raises(UsageError, match="remaining length 268435456"):
        build.remaining_length(268_435_456)


def test_every_payload_buffer_gives_the_same_bytes() -> None:
    raw = bytes(range(8))
    words = memoryview(raw).cast("H")
    want = build.publish("t", raw)
    assert build.publish("t", bytearray(raw)) == want
    assert build.publish("t", memoryview(raw)) == want
    assert build.publish("t", words) == want
    for wrong in (8, "text", None):
        with pytest.raises(TypeError):
            build.publish("t", wrong)  # type: ignore[arg-type]


def test_a_field_of_the_largest_size_passes() -> None:
    password = bytes(65535)
    data = build.connect("c", username="u", password=password)
    (got,) = Decoder(64, max_connect=70000).feed(data)
    assert isinstance(got, Connect)
    assert got.password == password
