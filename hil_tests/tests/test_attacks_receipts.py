"""Claim 11: a forged acknowledgement is noticed, and a changed message is sent again.

The client is the device's, in MicroPython; the attacker is the network between it and the mediator.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attack_scene import LIVE, TOPIC
from devices import DeviceError, device
from evil_path import Between, EvilPath, Packets, is_down
from evil_scene import EvilScene
from running_site import until


@pytest.fixture
def path(evil: EvilScene) -> Iterator[EvilPath]:
    """The network in front of the mediator."""
    made = EvilPath(evil.site.port)
    yield made
    made.close()


@pytest.fixture
def enrolment(evil: EvilScene, path: EvilPath, tmp_path: Path) -> Path:
    """A device that goes through it."""
    return path.enrolment(evil.enrolment("m1-device"), tmp_path / "device")


def _swallow(line: Between, first: int, body: bytes) -> Packets:
    """Takes a PUBLISH off the wire and acknowledges it in the mediator's place."""
    if first & 0xF6 != 0x32:
        return [(first, body)]
    at = 2 + int.from_bytes(body[:2], "big")
    line.to_client(b"\x40\x02" + body[at : at + 2])
    return []


def test_a_puback_that_the_network_forged(evil: EvilScene, path: EvilPath, enrolment: Path) -> None:
    with device(enrolment) as sensor:
        path.up = _swallow
        lost = sensor.do("send", topic=TOPIC.decode(), payload="lost")["ctr"]
        path.honest()
        kept = sensor.do("send", topic=TOPIC.decode(), payload="kept")["ctr"]
        assert sensor.do("ask", ctr=kept, seconds=30)["receipted"]
        assert not sensor.do("ask", ctr=lost)["receipted"]
    assert [p for _, p, _ in evil.heard()] == [b"kept"]


def test_receipts_of_another_session_and_connection(
    evil: EvilScene, path: EvilPath, enrolment: Path
) -> None:
    """Genuine ones, for the same counters; and the attacker's own noise."""
    with device(enrolment) as sensor:
        ctr = sensor.do("send", topic=TOPIC.decode(), payload="first")["ctr"]
        assert sensor.do("ask", ctr=ctr, seconds=30)["receipted"]
    old = [p for line in path.lines for p in line.sent_down if is_down(*p)]
    assert len(old) >= 2, "a welcome and a receipt"
    with device(enrolment) as sensor:
        sensor.do("disconnect")
        sensor.connect()
        old += [p for line in path.lines[:-1] for p in line.sent_down if is_down(*p)]
        line = path.lines[-1]
        path.up = _swallow
        lost = sensor.do("send", topic=TOPIC.decode(), payload="lost")["ctr"]
        assert lost <= ctr
        for first, body in old:
            line.to_client(bytes((first, len(body))) + body)
            line.to_client(bytes((first, len(body))) + body[:-1] + b"\0")
        path.honest()
        kept = sensor.do("send", topic=TOPIC.decode(), payload="kept")["ctr"]
        assert sensor.do("ask", ctr=kept, seconds=30)["receipted"]
        assert not sensor.do("ask", ctr=lost)["receipted"]
        refused = sensor.do("receive", count=0)["refused"]
        assert refused["Unauthentic"] >= 2 * len(old)
    assert [p for _, p, _ in evil.heard()] == [b"first", b"kept"]


def test_a_message_that_the_network_changed(
    evil: EvilScene, path: EvilPath, enrolment: Path
) -> None:
    """Not acknowledged, and the connection ends: the stored packet goes out in the next one, and
    arrives once.
    """

    def bend(line: Between, first: int, body: bytes) -> Packets:
        if first & 0xF6 == 0x32:
            body = body[:-1] + bytes((body[-1] ^ 1,))
        return [(first, body)]

    with device(enrolment) as sensor:
        path.up = bend
        with pytest.raises(DeviceError, match="OSError"):
            sensor.do("send", topic=TOPIC.decode(), payload="bent")
        path.honest()
        sensor.connect()
        sensor.do("resend")
        sensor.publish(TOPIC.decode(), "next")
    heard = evil.heard()
    assert heard == [(TOPIC, b"bent", LIVE), (TOPIC, b"next", LIVE)]


@pytest.mark.parametrize("first", [0x30, 0x32])
def test_a_notice_that_the_network_provoked(
    evil: EvilScene, path: EvilPath, enrolment: Path, first: int
) -> None:
    """A packet injected beside the client's own does not make it give up its own.

    One with QoS 1 ends the connection, as its end by any other means would.
    """

    def inject(line: Between, got: int, body: bytes) -> Packets:
        if got & 0xF6 != 0x32:
            return [(got, body)]
        at = 2 + int.from_bytes(body[:2], "big")
        front = body[: at + 2] if first & 6 else body[:at]
        noise = front + body[at + 2 : at + 11] + bytes(len(body) - at - 11)
        return [(first, noise), (got, body)]

    with device(enrolment) as sensor:
        path.up = inject
        if first & 6:
            with pytest.raises(DeviceError, match="OSError"):
                sensor.do("send", topic=TOPIC.decode(), payload="mine")
            path.honest()
            sensor.connect()
            sensor.do("resend")
        else:
            ctr = sensor.do("send", topic=TOPIC.decode(), payload="mine")["ctr"]
            assert sensor.do("ask", ctr=ctr, seconds=30)["receipted"]
    assert evil.heard() == [(TOPIC, b"mine", LIVE)]


def test_a_mediator_whose_receipt_never_came(
    evil: EvilScene, path: EvilPath, enrolment: Path
) -> None:
    """Receipts withheld by the network confirm nothing; the next welcome makes up for it."""

    def withhold(line: Between, first: int, body: bytes) -> Packets:
        return [] if is_down(first, body) else [(first, body)]

    with device(enrolment) as sensor:
        path.down = withhold
        ctr = sensor.do("send", topic=TOPIC.decode(), payload="there")["ctr"]
        line = path.lines[-1]
        before = len(line.sent_down)
        assert not sensor.do("ask", ctr=ctr)["receipted"]
        until("the receipt on the wire", lambda: len(line.sent_down) > before + 1)
        assert not sensor.do("ask", ctr=ctr)["receipted"]
        path.honest()
        sensor.do("disconnect")
        sensor.connect()
        assert sensor.do("ask", ctr=ctr)["receipted"]
    assert [p for _, p, _ in evil.heard()] == [b"there"]
