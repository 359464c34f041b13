"""A client that lives: waits between attempts, peers that fall silent, Wi-Fi, watchdog, time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_script import INTERPRETERS, board
from living_script import LIVING, NETWORK, gives_receipts, hangs_up, live
from peer_connection import Connection

every = pytest.mark.parametrize("interpreter", INTERPRETERS)

PURE = """
from sealmq_device.backoff import Backoff as Drawn
from sealmq_device.keepalive import Keepalive
def Backoff(draw, most=60000):
    made = Drawn(most)
    made.draw = draw
    return made
"""


@every
def test_the_backoff_schedule(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = live(
            b,
            interpreter,
            PURE
            + """
most, none, half = Backoff(lambda: 65535), Backoff(lambda: 0), Backoff(lambda: 32768, 5000)
say([most.next() for _ in range(8)])
say([none.next() for _ in range(8)])
say([half.next() for _ in range(5)])
waits = [Drawn().next() for _ in range(300)]
say(min(waits) >= 0, max(waits) < 1000, min(waits) < 250, max(waits) > 750)
""",
        )
        assert said == [
            "[999, 1999, 3999, 7999, 15999, 31999, 59999, 59999]",
            "[0, 0, 0, 0, 0, 0, 0, 0]",
            "[500, 1000, 2000, 2500, 2500]",
            "True True True True",
        ]


@every
def test_attempts_follow_the_schedule(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.on_connect = hangs_up
        said = live(
            b,
            interpreter,
            """
l = living()
l.on_change = lambda up, error: say(clock[0] - began)
l.backoff.draw = lambda: 65535
clock = stopped(l)
began = clock[0]
for _ in range(200):
    l.turn(0)
    clock[0] += 1000
""",
        )
        assert said == ["0", "1000", "3000", "7000", "15000", "31000", "63000", "123000", "183000"]


@every
def test_the_keep_alive_is_kept(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = live(
            b,
            interpreter,
            PURE
            + """
def run(k, seconds, answers, talks=0):
    k.start(0)
    pings = []
    for s in range(seconds):
        now = 1000 * s
        if k.dead(now):
            return pings, s
        if talks and s % talks == 0:
            k.sent(now)
        if k.wait(now) <= 0:
            pings.append(s)
            k.pinged(now)
            if answers:
                k.heard(now)
    return pings, None
say(run(Keepalive(60), 200, True))
say(run(Keepalive(60), 200, False))
say(run(Keepalive(60), 200, False, 5))   # what is sent does not hide a silent peer
say(run(Keepalive(0), 100000, False))
""",
        )
        assert said == [
            "([45, 90, 135, 180], None)",
            "([45], 75)",
            "([45], 75)",
            "([], None)",
        ]


@every
def test_a_half_open_connection_is_found_out(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.on_ping = lambda c: len(b.peer.said("ping")) == 3
        said = live(
            b,
            interpreter,
            """
l = living()
clock = stopped(l)
began = clock[0]
l.on_change = lambda up, error: say(up, name(error), (clock[0] - began) // 1000)
for _ in range(230):
    l.turn(30 if l._keep._pinged >= 0 else 0)
    clock[0] += 1000
""",
        )
        # Answers to two pings, at 45 s and 90 s, then silence: known a keep alive and a half later.
        first, lost, again = said
        assert first == "True  0"
        assert lost.startswith("False OSError ")
        assert again.startswith("True  ")
        assert 160 < int(lost.split()[-1]) <= 90 + 90
        assert len(b.peer.said("ping")) == 4


@every
def test_nothing_is_begun_without_wifi(interpreter: str, tmp_path: Path) -> None:
    """Association, loss, return; a salt is drawn only while there is a network."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        said = live(
            b,
            interpreter,
            """
import sealmq_device.joining as joining
salt = joining.salt
def drawn(*args):
    say("salt, wifi", network.WLAN(0).isconnected())
    return salt(*args)
joining.salt = drawn
Radio.reachable = False
l = living(Wlan("plant", "right", pm=WLAN.PM_POWERSAVE, txpower=8))
l.radio.backoff.draw = lambda: 0
clock = stopped(l)
l.publish("t", b"1", qos=1)
for _ in range(5):
    l.turn(0); clock[0] += 1000
say(Radio.log, l.isconnected())
Radio.log.clear()
clock[0] += 20000
for _ in range(3):
    l.turn(0); clock[0] += 100
say(Radio.log, l.radio.error)
Radio.reachable = True
for _ in range(9):
    l.turn(20); clock[0] += 100
Radio.reachable = False
l.publish("t", b"2", qos=1)
l.turn(0)
say(l.core.sock is None)
for _ in range(3):
    l.turn(0); clock[0] += 100
Radio.reachable = True
for _ in range(9):
    l.turn(20); clock[0] += 200
""",
            LIVING + NETWORK,
        )
        assert said[0].startswith("['on', {")
        assert "'pm': 2" in said[0]
        assert said[0].endswith("'connect plant'] False")
        assert "'off', 'on'" in said[1]
        assert "no address in time" in said[1]
        assert said[2:] == [
            "salt, wifi True",
            "up",
            "1 accepted",
            "down Unavailable",
            "True",
            "up",
            "2 accepted",
        ]
        assert b.peer.said("connected") == [(1, 2, 1), (1, 2, 2)]


@every
def test_a_wrong_wifi_password_is_said(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = live(
            b,
            interpreter,
            """
l = living(Wlan("plant", "wrong"))
l.radio.backoff.draw = lambda: 65535
clock = stopped(l)
for _ in range(60):
    l.turn(0); clock[0] += 100
say(l.radio.error, Radio.log.count("connect plant"))
Radio.password = "wrong"
for _ in range(60):
    l.turn(0); clock[0] += 100
say(l.isconnected())
WLAN.connect = lambda *args: (_ for _ in ()).throw(OSError("Wifi Internal State Error"))
Radio.active = False
l.turn(0); clock[0] += 1100; l.turn(0); clock[0] += 1100; l.turn(0)
say(l.radio.error)
""",
            LIVING + NETWORK,
        )
        assert said[0].startswith("Wi-Fi: STAT_WRONG_PASSWORD 3")
        assert said[1:3] == ["up", "True"]
        assert said[-1].startswith("Wi-Fi: ")


@every
def test_the_watchdog_is_fed_by_turns_alone(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)

        def on_welcome(c: Connection, want: bool) -> bool:
            if len(b.peer.said("connected")) > 1:
                c.sock.sendall(b"\x30\x7f\x00")  # the beginning of a packet, and no more
                return True
            return False

        b.peer.on_welcome = on_welcome
        said = live(
            b,
            interpreter,
            """
class Wdt:
    fed = 0
    def feed(self):
        self.fed += 1
wdt = Wdt()
l = living(wdt=wdt, patience=60000, timeout=1)
clock = stopped(l)
def callback(m):
    before = wdt.fed
    for _ in range(10):
        clock[0] += 60000   # hangs for ten minutes
    say("hung", wdt.fed - before)
l.set_callback(callback)
l.subscribe("t")
l.publish("t", b"x", qos=1)
for _ in range(8):
    before = wdt.fed
    l.turn(50)
    if wdt.fed - before != 1:
        say("turn", wdt.fed - before)
l.core._close()
before = wdt.fed
while wdt.fed == before:
    l.turn(50)       # learns that it is down
before = wdt.fed
l.turn(50)           # a welcome that does not come to its end is a turn of a second
say(l.isconnected(), wdt.fed - before)
clock[0] += 59000
l.turn(0)
fed = wdt.fed
clock[0] += 2000
for _ in range(2):
    l.turn(0)
say("starved", wdt.fed - fed)
""",
        )
        assert "hung 0" in said
        assert "starved 0" in said
        assert "False 1" in said


@every
def test_time_is_asked_for_once_a_day(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        said = live(
            b,
            interpreter,
            """
l = living(keepalive=600)
l.subscribe("t")
for _ in range(3): l.turn(10)
clock = stopped(l)
clock[0] -= 20000        # a clock that is 20 s late
s = l.core.session
was = l.core.now_ms()
l._sync_at = clock[0]
l.turn(10)
until(l, lambda: l.core.now_ms() - was > 15000)
say((l.core.now_ms() - was) // 10000, l._sync_at - clock[0], s.clock_conflict)
""",
        )
        assert said == ["up", "2 86400000 False"] or said == ["up", "1 86400000 False"]
        assert b.peer.said("up") == [(0x82,)]


@every
def test_a_new_epoch_while_connected_and_while_away(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            plain = b.peer.said("publish")[-1][1]
            if int.from_bytes(m1[2:5], "big") < c.site.own.epoch:
                c.notice(1, ctr, 6, "epoch", "provision again")
            elif plain == b"2":
                c.site.new_epoch()
            elif plain == b"3":
                c.site.new_epoch()
                c.send(0x40, c.publish_pid)
                c.sock.close()
                return True
            return False

        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            """
l = living(box=Outbox(proof=False))
for n in range(6):
    l.publish("t", str(n), qos=1)
l.flush(9000)
say(l.core.ident.own.epoch)
""",
        )
        assert [line for line in said if line[0].isdigit()] == [
            *(f"{n} accepted" for n in range(1, 7)),
            "3",
        ]


@every
def test_a_rotated_board_says_what_to_do(interpreter: str, tmp_path: Path) -> None:
    """Its secret is over: CONNACK 5, and nobody answers in quarantine. It waits, and says why."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        b.peer.site.km.clear()
        b.peer.site.ps = bytes(32)
        script = """
l = living()
clock = stopped(l)
l.publish("t", b"x", qos=1)
for _ in range(130):
    l.turn(0); clock[0] += 1000
say(len(l.outbox))
"""
        said = live(b, interpreter, script)
        assert said == ["down Denied", "down Denied", "down Denied", "1"]
        # With its new enrolment file it goes on.
        b.enrolment.write_text(json.dumps(b.peer.site.enrolment(b.peer.port)), encoding="utf-8")
        b.peer.highest = (0, 0, 0)
        b.state.unlink()
        again = script.replace("clock = stopped(l)\n", "").replace(
            "l.turn(0); clock[0] += 1000", "l.turn(20)"
        )
        assert live(b, interpreter, again.replace("130", "20")) == ["up", "1 accepted", "0"]


@every
def test_a_short_connection_is_one_more_failure(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        said = live(
            b,
            interpreter,
            """
l = living()
clock = stopped(l)
limits = []
for lasted in (0, 5000, 9999, 10000, 0):
    l.turn(0)
    clock[0] += lasted
    l.core._close()
    l.turn(0)
    limits.append(l.backoff.limit)
l.on_change = None
say(limits)
""",
        )
        assert said[-1] == "[2000, 4000, 8000, 2000, 4000]"
