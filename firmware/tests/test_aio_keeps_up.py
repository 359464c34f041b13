"""The asyncio client over what changes while it lives: wills, keys, time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aio_script import run
from device_script import WIDTHS, board
from peer_connection import Connection
from sealmq_spec import const

both = pytest.mark.parametrize("interpreter", WIDTHS)


@both
def test_a_will_is_sealed_for_each_connection(interpreter: str, tmp_path: Path) -> None:
    wills = []
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            if c.flags & 4:
                topic, payload = c.fields[1:3]
                flags = c.flags >> 5 & 1 | c.flags >> 2 & 6
                ctr, _, plain = c.unseal(topic, flags, payload)
                wills.append((c.conn, ctr, topic, flags, plain))
            return False

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if c.conn == 1:
                c.sock.close()
            return c.conn == 1

        b.peer.on_welcome, b.peer.on_publish = on_welcome, on_publish
        said = run(
            b,
            interpreter,
            """
c.set_last_will("t/will", b"gone", retain=True, qos=1)
await c.connect()
await caught(c.publish("t", b"x", qos=1))
await c.connect()
await c.resend()
c.set_last_will("t/will", b"gone again")
say(await c.publish("t", b"y", qos=1), c.unacked)
await c.connect()
""",
        )
    # Each has a ctr of its own, which no message had.
    assert said == ["OSError ECONNRESET", "4 {}"]
    assert wills == [
        (1, 1, b"t/will", 3, b"gone"),
        (2, 3, b"t/will", 3, b"gone"),
        (3, 5, b"t/will", 0, b"gone again"),
    ]


@both
def test_a_board_that_is_enrolled_anew_gets_what_is_retained(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        site = b.peer.site
        kept: list[bytes] = []
        old = site.ps

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            kept.append(m1)
            if topic == "t":
                return False
            # The client is enrolled anew: the old secrets are nobody's any more.
            site.ps = os.urandom(32)
            site.km.clear()
            b.enrolment.write_text(json.dumps(site.enrolment(b.peer.port)), encoding="utf-8")
            c.send(0x40, c.publish_pid)
            return True

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            topic = b"t/kept"
            raw = c.m3(topic, kept[0], site.epochs[1], const.RETAINED)
            c.send(0x31, len(topic).to_bytes(2, "big") + topic + raw)
            return False

        b.peer.on_publish, b.peer.on_subscribe = on_publish, on_subscribe
        said = run(
            b,
            interpreter,
            """
global c
await c.connect()
await c.publish("t/kept", b"kept", retain=True, qos=1, life=255)
await c.disconnect()
c = client()
await c.connect()
await c.subscribe("t/#", 1)
async for m in c:
    say(m.topic, m.payload, m.how)
    break
say(await c.publish("t", b"x", qos=1) > 0, c.refused)
""",
        )
        assert site.ps != old
        assert said == [f"t/kept b'kept' {const.RETAINED}", "True {}"]
        assert [event[0] for event in b.peer.said("quarantine")] == [site.client]


@both
@pytest.mark.parametrize("hours", [1, 25])
def test_a_loop_that_slept_finds_its_connection_and_the_time(
    interpreter: str, hours: int, tmp_path: Path
) -> None:
    """The clock goes on while nothing runs. It runs 40 s a day fast, as the peer tells."""
    with board(tmp_path) as b:
        b.provision()
        slept = hours * 3_600_000

        def on_ping(c: Connection) -> bool:
            if len(b.peer.said("ping")) > 1:
                b.peer.site.clock_error_ms = slept - 40_000 * (hours > 24)
            return False

        b.peer.on_ping = on_ping
        said = run(
            b,
            interpreter,
            f"""
slept = {slept}
"""
            + """
global c
c = client(keepalive=60)
real = c.core.mono
jumped = 0
c.core.mono = lambda: real() + jumped
await c.connect()
await c.subscribe("t", 1)
await c.ping()
await until(lambda: c.core._daily_at)
before = c.now_ms()
boot = c.core.session.boot
jumped = slept
if slept > 86400000:
    await until(lambda: c.core.session.boot > boot and c.isconnected() and not c._busy)
else:
    await until(lambda: c._keep._heard >= slept)
say(c.core.session.conn, c.core.session.boot - boot, c.error)
at = c.now_ms()
say(await c.publish("t", b"x", qos=1) > 0)
async for m in c:
    say(m.payload, 0 <= m.age <= (c.now_ms() - at) // 1000 + 1)
    break
ahead = c.now_ms() - before - slept
say(-40000 <= ahead < -20000 if slept > 86400000 else 0 <= ahead < 20000)
""",
        )
        fast = hours > 24
        assert said == [f"1 {int(fast)} None", "True", "b'x' True", "True"]
        assert len(b.peer.said("ping")) == 2
