"""Claim 17: no packet poisons. A device in real MicroPython gets at QoS 1 what it cannot take: each
is acknowledged, so that the broker does not send it for ever, and the device goes on.

Its session is kept: over the live link, which many share, the mediator acknowledges by itself, but
over the own link of a kept session only after the device did.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attack_scene import TOPIC
from devices import Device, device
from evil_scene import EvilScene
from evil_seals import Sender, m1, m3, m3_head, now_of, outer
from wire import RawClient


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


def _poisons(evil: EvilScene, raw: RawClient, genuine: bytes) -> list[bytes]:
    """What passes the mediator as a live message and does not open, or says what it must not."""
    site, roots = raw.ident.site, evil.roots(raw.ident.own.label)

    def around(body: bytes) -> bytes:
        head = m3_head(roots, now_of(evil.listener.raw) * 1000)
        return m3(site, head, outer(site, roots, int.from_bytes(head[8:11], "big")), TOPIC, body)

    def inner(ctr: int, t_pub: int, kind: int = 0) -> bytes:
        return m1(site, roots, Sender.of(raw), TOPIC, b"x", ctr, t_pub, kind)

    now = now_of(raw)
    return [
        genuine,  # a replay
        genuine[:-1] + bytes((genuine[-1] ^ 1,)),
        genuine[:90],
        genuine + bytes(9000),  # more than the device keeps
        genuine[:5] + b"\x7f\xff\xff" + genuine[8:],  # an epoch of nobody
        around(os.urandom(43)),
        around(b"\x11\x10" + os.urandom(60)),
        around(inner(5000, now)[:-1]),
        around(inner(5001, now - 3600)),
        around(inner(5002, now + 3600)),
        around(inner(5003, now, kind=1)[:27] + os.urandom(17)),
        around(inner(5004, now, kind=3)),
        around(inner(5005, 0, kind=2)),
    ]


@pytest.mark.parametrize("bits", [64, pytest.param(32, marks=pytest.mark.full)])
def test_a_device_goes_on(evil: EvilScene, raw: RawClient, tmp_path: Path, bits: int) -> None:
    enrolment = evil.enrolment("m1-reader")
    folder = tmp_path / "device"
    folder.mkdir()
    mine = folder / "sealmq.json"
    mine.write_bytes(enrolment.read_bytes())
    with device(mine, bits=bits, connect=False) as panel:
        name = panel.do("connect", clean=False)["client_id"]
        panel.do("subscribe", filter=TOPIC.decode(), qos=1)
        genuine = evil.caught(TOPIC, b"genuine", raw)
        assert [m["payload"] for m in panel.receive(1)] == ["genuine"]
        poisons = _poisons(evil, raw, genuine)
        for pid, poison in enumerate(poisons, 1000 + 100 * bits):
            evil.evil.tell(name, TOPIC, poison, 0x32, pid)
            _alive(evil, raw, panel, pid)
            evil.evil.acknowledged(name, pid)
        refused = panel.do("receive", count=0)["refused"]
        assert sum(refused.values()) >= len(poisons) - 3, refused
        panel.publish("machine/1/arm/angle", "10")
        # The site is other tests', too: nothing of the session is kept for them.
        panel.do("disconnect")
        panel.connect()


def _alive(evil: EvilScene, raw: RawClient, panel: Device, n: int) -> None:
    """An honest message comes through behind whatever there was."""
    raw.publish(TOPIC, b"honest %d" % n)
    assert [m["payload"] for m in panel.receive(1)] == [f"honest {n}"]
