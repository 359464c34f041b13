"""Claim 19 and claim 6: time that is late, false or old, and keys that are old, are noticed.

The client is the device's, in MicroPython. The attacker is the network, or a mediator that says
what it likes: it has the link's keys, but no pre-shared secret.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sealmq_spec.const import ANSWER, OP_WELCOME
from sealmq_spec.identity import Identity

from attack_scene import TOPIC
from devices import DeviceError, device
from evil_path import Between, EvilPath, Packets, is_control, is_down
from evil_scene import EvilScene

HOUR_MS = 3_600_000
# SPEC.md 7.3; a little more, since a test waits no longer than it must.
TOO_LATE_S = 2.2
TLV_AT = 29
CONTROL_HEAD = 5


@pytest.fixture
def path(evil: EvilScene) -> Iterator[EvilPath]:
    """The network in front of the mediator."""
    made = EvilPath(evil.site.port)
    yield made
    made.close()


@pytest.fixture
def enrolment(evil: EvilScene, path: EvilPath, tmp_path: Path) -> Path:
    """A device that goes through it, provisioned."""
    file = path.enrolment(evil.enrolment("m1-device"), tmp_path / "device")
    with device(file):
        pass
    return file


def keys_of(enrolment: Path) -> Identity:
    """What the dishonest mediator has of it: the link root. The rest it does not look at."""
    ident = Identity.from_enrolment(json.loads(enrolment.read_text()))
    assert ident.load(enrolment.with_suffix(".state").read_bytes()[:-12])
    return ident


def _lies(ident: Identity, change: Callable[[bytes], bytes]) -> Callable[..., Packets]:
    """A hook that changes each welcome and seals it again."""

    def down(line: Between, first: int, body: bytes) -> Packets:
        if not is_down(first, body):
            return [(first, body)]
        order, inner = line.opened(ident, body)
        if inner[0] == OP_WELCOME:
            inner = change(inner)
        return [line.sealed(ident, order, inner)]

    return down


def _hour_early(welcome: bytes) -> bytes:
    ms = int.from_bytes(welcome[2:8], "big") - HOUR_MS
    return welcome[:2] + ms.to_bytes(6, "big") + welcome[8:]


def test_a_welcome_that_was_held_back(path: EvilPath, enrolment: Path) -> None:
    """Later than two seconds it sets no clock: the device connects again."""
    calls = len(path.lines)
    held = threading.Event()

    def late(line: Between, first: int, body: bytes) -> Packets:
        if is_down(first, body) and not held.is_set():
            held.set()
            time.sleep(TOO_LATE_S)
        return [(first, body)]

    path.down = late
    with device(enrolment) as sensor:
        assert held.is_set()
        assert len(path.lines) >= calls + 2
        assert sensor.do("clock")["now_ms"] is not None


def test_a_false_time_beside_the_key_generator_s(path: EvilPath, enrolment: Path) -> None:
    """The KG's counts, and the difference is reported."""
    with device(enrolment) as sensor:
        right = sensor.do("clock")
        assert right["has_kg_time"]
        assert not right["conflict"]
    path.down = _lies(keys_of(enrolment), _hour_early)
    with device(enrolment) as sensor:
        clock = sensor.do("clock")
        assert clock["has_kg_time"]
        assert clock["conflict"]
        assert clock["now_ms"] >= right["now_ms"]


def test_a_false_time_without_the_key_generator_s(path: EvilPath, enrolment: Path) -> None:
    """The mediator withheld it: the application sees whose time it has."""
    path.down = _lies(keys_of(enrolment), lambda w: _hour_early(w)[:TLV_AT] + b"\0")
    with device(enrolment) as sensor:
        clock = sensor.do("clock")
        assert not clock["has_kg_time"]
        # What it seals then is as old as its clock, and refused by whoever has the time.
        with pytest.raises(DeviceError, match="Stale"):
            sensor.publish(TOPIC.decode(), "an hour ago")


def test_the_key_generator_s_time_of_an_earlier_start(path: EvilPath, enrolment: Path) -> None:
    """Kept by a dishonest mediator, and served again: it is bound to the boot session."""
    ident, kept = keys_of(enrolment), []

    def keep(welcome: bytes) -> bytes:
        kept.append(welcome[TLV_AT:])
        return welcome

    path.down = _lies(ident, keep)
    with device(enrolment) as sensor:
        assert sensor.do("clock")["has_kg_time"]
    assert len(kept[0]) > 40
    path.down = _lies(ident, lambda w: _hour_early(w)[:TLV_AT] + kept[0])
    with device(enrolment, connect=False) as sensor:
        with pytest.raises(DeviceError) as refused:
            sensor.connect()
        assert refused.value.kind == "Unauthentic"
        assert sensor.do("clock")["now_ms"] is None
        path.honest()
        sensor.connect()
        assert sensor.do("clock")["now_ms"] is not None


def test_an_answer_of_an_earlier_provisioning(path: EvilPath, enrolment: Path) -> None:
    """Old roots for a new question: refused, and the true answer is still taken."""
    old = [
        body[CONTROL_HEAD:]
        for line in path.lines
        for first, body in line.sent_down
        if is_control(first, body) and body[CONTROL_HEAD] == ANSWER
    ]
    assert len(old) == 1
    enrolment.with_suffix(".state").unlink()

    def down(line: Between, first: int, body: bytes) -> Packets:
        true = [(first, body)]
        if is_control(first, body) and body[CONTROL_HEAD] == ANSWER:
            return [(first, body[:CONTROL_HEAD] + old[0]), *true]
        return true

    path.down = down
    with device(enrolment) as sensor:
        assert sensor.do("receive", count=0)["refused"] == {"Unauthentic": 1}
        sensor.publish(TOPIC.decode(), "with the newest keys")
