"""Boards that sleep: each wake is a process of its own, RTC memory is a file between them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_script import INTERPRETERS, PRELUDE, Board, board
from living_script import first_of_each, gives_receipts, hangs_up
from peer_connection import Connection
from sealmq_spec import const

every = pytest.mark.parametrize("interpreter", INTERPRETERS)

# RTC memory that outlives a process, torn where the test says so; deepsleep ends the process.
SLEEPER = (
    PRELUDE.replace("c = client()\n", "")
    + """
import os
from sealmq_device.sleeping import Sleeper
from sealmq_device.outbox import Outbox
RTC_FILE = sys.argv[1] + ".rtc"
class RTC:
    def memory(self, data=None):
        if data is None:
            try:
                with open(RTC_FILE, "rb") as f:
                    return f.read()
            except OSError:
                return b""
        if len(data) > 2048:
            raise ValueError("buffer too long")
        with open(RTC_FILE, "wb") as f:
            f.write(data)
class Asleep(BaseException):
    pass
class board:
    def deepsleep(ms):
        say("asleep", ms)
        raise Asleep
board.RTC = RTC
def sleeper(**kw):
    kw.setdefault("timeout", 3)
    made = Sleeper(sys.argv[1], board=board, **kw)
    made.outbox.on_outcome = lambda item, how, error: say(item.msg.decode(), how)
    return made
def sleep(s, seconds=300):
    try:
        s.sleep(seconds)
    except Asleep:
        pass
"""
)


def rtc(b: Board) -> Path:
    return Path(f"{b.enrolment}.rtc")


def wake(b: Board, interpreter: str, script: str) -> list[str]:
    return b.run(interpreter, script, SLEEPER)


ONE = "s = sleeper()\ns.publish('t', '%s', qos=1)\nsleep(s)\n"


@every
def test_wake_publish_sleep(interpreter: str, tmp_path: Path) -> None:
    """Three wakes: each a boot session of its own, and one write to flash for all."""
    with board(tmp_path) as b:
        gives_receipts(b)
        stored = set()
        for n in range(3):
            assert wake(b, interpreter, ONE % n) == [f"{n} accepted", "asleep 300000"]
            stored.add(b.boot.read_bytes())
        assert first_of_each(b) == ["0", "1", "2"]
        assert [boot for _, boot, _ in b.peer.said("connected")] == [1, 2, 3]
        assert len(stored) == 1
        assert not b.peer.said("behind")
        # The power fails: the next number is beyond all that RTC memory can have given out.
        rtc(b).unlink()
        assert wake(b, interpreter, ONE % 3) == ["3 accepted", "asleep 300000"]
        assert [boot for _, boot, _ in b.peer.said("connected")][3:] == [65]
        assert not b.peer.said("behind")


@every
def test_messages_outlive_sleep(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        b.peer.on_connect = hangs_up
        for n in range(3):
            # Wakes that are passed over do not try.
            script = ONE % n + "say(s.rtc.failures)\n"
            said = wake(b, interpreter, script.replace("sleep(s)", "s.rtc.skip = 0\nsleep(s)"))
            assert said == ["asleep 300000", str(n + 1)]
        b.peer.on_connect = None
        script = (
            "s = sleeper()\nsay(len(s.outbox))\ns.publish('t', b'3', True, 1)\ns.rtc.skip = 0\n"
        )
        said = wake(b, interpreter, script + "sleep(s)\nsay(s.rtc.failures, s.rtc.skip)\n")
        ends = [f"{n} accepted" for n in range(4)]
        assert said == ["3", *ends, "asleep 300000", "0 0"]
        assert first_of_each(b) == ["0", "1", "2", "3"]
        assert [flags for _, _, flags, *_ in b.peer.said("publish")] == [2, 2, 2, 3]
        assert wake(b, interpreter, "s = sleeper()\nsay(len(s.outbox))\nsleep(s)\n") == [
            "0",
            "asleep 300000",
        ]


@every
def test_failing_wakes_are_passed_over(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        tries = []

        def on_connect(c: Connection) -> bool:
            tries.append(c.boot)
            return hangs_up(c)

        b.peer.on_connect = on_connect
        script = """
skips = []
for n in range(12):
    s = sleeper()
    draws = [0, 0, 65535]     # two connections that fail, then how many wakes to pass over
    s.backoff.draw = lambda: draws.pop(0)
    s.publish("t", str(n), qos=1)
    s.sleep
    try:
        s.sleep(1)
    except Asleep:
        skips.append(s.rtc.skip)
say(skips, len(s.outbox))
""".replace("    s.sleep\n", "")
        said = wake(b, interpreter, script)
        assert said[-1] == "[1, 0, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2] 12"
        assert len(tries) == 6  # two in a wake that tries


@every
def test_a_batch_spares_the_radio(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        for n in range(6):
            wake(b, interpreter, (ONE % n).replace("sleeper()", "sleeper(batch=3)"))
        assert [boot for _, boot, _ in b.peer.said("connected")] == [2, 3]
        assert first_of_each(b) == ["0", "1", "2", "3", "4", "5"]


@every
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("when", ["sent", "unsent"])
def test_a_reset_while_flushing(interpreter: str, again: bool, when: str, tmp_path: Path) -> None:
    """A watchdog's reset between two messages: RTC memory stays, all else is gone."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        script = f"""
s = sleeper(outbox=Outbox(50, 2015, again={again}, proof=False))
for n in range(4):
    s.publish("t", str(n), qos=1)
send = s.core.publish
def reset(*args):
    if args[1] == b"2":
        {"send(*args)" if when == "sent" else "pass"}
        raise Asleep
    return send(*args)
s.core.publish = reset
sleep(s)
"""
        assert wake(b, interpreter, script) == ["0 accepted", "1 accepted"]
        rest = (
            "s = sleeper(outbox=Outbox(50, 2015, again=%s))\nsay(len(s.outbox))\nsleep(s)\n" % again
        )
        said = wake(b, interpreter, rest)
        third = "2 accepted" if again else "2 doubt"
        assert said == ["2", third, "3 accepted", "asleep 300000"]
        twice = ["2"] if again and when == "sent" else []
        once = ["2"] if again or when == "sent" else []
        assert first_of_each(b) == ["0", "1", *once, *twice, "3"]


@every
def test_a_power_cut_loses_what_lay_in_ram_and_no_more(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        for n in range(8):
            cut = n % 3 == 2
            if cut:
                rtc(b).unlink(missing_ok=True)
            assert wake(b, interpreter, ONE % n) == [f"{n} accepted", "asleep 300000"]
        assert first_of_each(b) == [str(n) for n in range(8)]
        boots = [boot for _, boot, _ in b.peer.said("connected")]
        assert boots == sorted(set(boots))
        assert not b.peer.said("behind")


@every
def test_torn_and_foreign_content_counts_as_none(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.on_connect = hangs_up
        wake(b, interpreter, ONE % "kept")
        whole = rtc(b).read_bytes()
        script = """
import os
with open(RTC_FILE, "rb") as f:
    whole = f.read()
def try_(raw):
    with open(RTC_FILE, "wb") as f:
        f.write(raw)
    s = sleeper()
    return len(s.outbox), s.rtc.lost
say(try_(whole), try_(b""))
taken = 0
for at in range(len(whole)):
    bad = bytearray(whole)
    bad[at] ^= 1 << at % 8
    taken += try_(bad) != (0, True)
    taken += try_(whole[:at]) != (0, at > 0)
say(taken, try_(whole + b"x"), try_(os.urandom(2048)), try_(bytes(2048)), try_(whole))
"""
        assert wake(b, interpreter, script) == [
            "(1, False) (0, False)",
            "0 (0, True) (0, True) (0, True) (1, False)",
        ]
        # Another client's, or that of a secret that is over.
        b.peer.site.ps = bytes(32)
        other = b.peer.site.enrolment(b.peer.port)

        b.enrolment.write_text(json.dumps(other), encoding="utf-8")
        rtc(b).write_bytes(whole)
        assert wake(b, interpreter, "s = sleeper()\nsay(len(s.outbox), s.rtc.lost)") == ["0 True"]


@every
def test_what_rtc_memory_cannot_hold_is_reported(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.on_connect = hangs_up
        script = """
s = sleeper()
for n in range(30):
    s.publish("t/" + "x" * 20, "%02d" % n + "y" * 60, qos=1)
sleep(s)
say(len(RTC().memory()) <= 2048)
s = sleeper()
say(len(s.outbox), s.outbox.waiting[0].msg[:2] == b"10")
s = sleeper(outbox=Outbox(300, 3000))
say(s.outbox.queue_len, s.outbox.queue_bytes)
"""
        said = wake(b, interpreter, script)
        assert sum(line.endswith("dropped") for line in said) == 10
        assert said[10:] == ["asleep 300000", "True", "20 True", "255 2015"]


@every
def test_subscriptions_of_a_session_that_lasts_are_spared(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        gives_receipts(b)

        def on_welcome(c: Connection, want: bool) -> bool:
            # What waited for it while it slept comes behind the welcome.
            c.tell(c.welcome(want_time=want))
            m1 = c.m1(b"t", b"%d" % c.boot, c.site.own, c.boot)
            c.publish(b"t", c.m3(b"t", m1, c.site.own, how=3), 1)
            return True

        script = """
s = sleeper(clean=False, listen=300)
s.set_callback(lambda m: say(m.payload.decode(), m.how))
s.subscribe("t/#", 1); s.subscribe("u")
sleep(s)
"""
        b.peer.on_welcome = on_welcome
        for n in range(1, 4):
            assert wake(b, interpreter, script) == [f"{n} 3", "asleep 300000"]
            b.peer.present = 1
        assert b.peer.said("subscribe") == [("t/#", 1), ("u", 0)]
        wake(b, interpreter, script.replace('"u"', '"v"'))
        assert [filt for filt, _ in b.peer.said("subscribe")][2:] == ["t/#", "v"]


@every
def test_a_subscription_that_was_not_answered_is_no_spared_one(
    interpreter: str, tmp_path: Path
) -> None:
    """What is refused for the moment is asked for in the next wake."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            refuses = c.boot == 2
            if refuses:
                c.notice(2, ctr, 7, "rule", "try later")
                c.send(0x90, c.subscribe_pid + b"\x80")
            return refuses

        b.peer.on_subscribe = on_subscribe
        script = """
s = sleeper(clean=False, listen=0)
s.set_callback(say)
s.subscribe("t/#", 1)
s.publish("u", "x", qos=1)
sleep(s)
say(s.rtc.failures)
"""
        for _ in range(3):
            assert wake(b, interpreter, script) == ["x accepted", "asleep 300000", "0"]
            b.peer.present = 1
        assert b.peer.said("subscribe") == [("t/#", 1)] * 2


@every
@pytest.mark.parametrize("ends", [False, True], ids=["refused", "cut off"])
def test_a_session_that_is_lost_within_a_wake_spares_none(
    interpreter: str, ends: bool, tmp_path: Path
) -> None:
    """The wake's first session had them, its second one was not given them."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            lost = c.boot == 3 and c.conn == 1
            if lost:
                b.peer.present = 0
                c.sock.close()
            return lost

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            refuses = c.boot == 3
            if refuses and ends:
                c.sock.close()
            elif refuses:
                c.notice(2, ctr, 7, "rule", "try later")
                c.send(0x90, c.subscribe_pid + b"\x80")
            return refuses

        b.peer.on_publish, b.peer.on_subscribe = on_publish, on_subscribe
        script = """
s = sleeper(clean=False, listen=0)
s.backoff.draw = lambda: 0
s.set_callback(say)
s.subscribe("t/#", 1)
s.publish("u", "x", qos=1)
sleep(s)
"""
        for _ in range(3):
            wake(b, interpreter, script)
            b.peer.present = 1
        filters = [filt for filt, _ in b.peer.said("subscribe")]
        assert filters[0] == filters[-1]
        assert [boot for _, boot, _ in b.peer.said("connected")][-1] == 4
        assert len(filters) == 4


@every
def test_a_reset_before_a_new_session_has_its_subscriptions_spares_none(
    interpreter: str, tmp_path: Path
) -> None:
    """The next wake finds that session, in which there are none."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        script = """
s = sleeper(clean=False, listen=0)
s.set_callback(say)
s.subscribe("t/#", 1)
sleep(s)
"""
        reset = """
def reset(*args):
    raise Asleep
s.core.subscribe = reset
"""
        wake(b, interpreter, script)
        assert wake(b, interpreter, script.replace("sleep(s)", f"{reset}sleep(s)")) == []
        b.peer.present = 1
        for _ in range(2):
            wake(b, interpreter, script)
        assert b.peer.said("subscribe") == [("t/#", 1)] * 2


@every
@pytest.mark.parametrize("where", ["one connect", "one wake", "two wakes"])
def test_a_session_that_began_before_spares_none(
    interpreter: str, where: str, tmp_path: Path
) -> None:
    """The mediator held none at CONNECT, and holds this one by the time that there is a welcome."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        new = [True]

        def on_welcome(c: Connection, want: bool) -> bool:
            if c.boot == 2 or not new:
                return False
            b.peer.present = 1
            if where == "one connect":
                new.clear()
                c.tell(c.welcome(const.BEHIND))
            else:
                if where == "one wake" or c.conn == 2:
                    new.clear()
                c.sock.close()
            return True

        script = """
s = sleeper(clean=False, listen=0)
s.backoff.draw = lambda: 0
s.set_callback(say)
s.subscribe("t/#", 1)
s.rtc.skip = 0
sleep(s)
"""
        b.peer.on_welcome = on_welcome
        for _ in range(4):
            wake(b, interpreter, script)
        assert b.peer.said("subscribe") == [("t/#", 1)] * 2


@every
def test_it_sleeps_whatever_a_callback_raises(interpreter: str, tmp_path: Path) -> None:
    """A message that the program cannot read would hold the board awake until its battery is
    empty."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            c.filters[filt] = 0
            c.send(0x90, c.subscribe_pid + b"\0")
            m1 = c.m1(b"t", b"no number", c.site.own, 1000)
            c.publish(b"t", c.m3(b"t", m1, c.site.own))
            return True

        b.peer.on_subscribe = on_subscribe
        said = wake(
            b,
            interpreter,
            """
s = sleeper()
s.set_callback(lambda m: say(int(m.payload)))
s.subscribe("t")
s.publish("u", "x", qos=1)
sleep(s)
say(s.core.sock, s.rtc.failures, len(s.rtc.read()))
""",
        )
        assert any("ValueError" in line for line in said)
        assert "x accepted" in said
        assert said[-2:] == ["asleep 300000", "None 0 0"]


@every
def test_a_program_with_less_room_sends_what_it_finds(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        b.peer.on_connect = hangs_up
        wake(b, interpreter, (ONE % ("long" * 20)) + "s.publish('t', '1', qos=1); sleep(s)\n")
        b.peer.on_connect = None
        script = """
s = sleeper(outbox=Outbox(queue_bytes=50))
s.outbox.waiting[0].ctr = 1  # as if a wake had sealed it
s.publish("t", "more", qos=1)
s.outbox.waiting[0].ctr = 0
s.rtc.skip = 0
sleep(s)
"""
        long = "long" * 20
        ends = ["1 dropped", "more dropped", f"{long} accepted", "asleep 300000"]
        assert wake(b, interpreter, script) == ends


@every
def test_a_rekey_while_asleep(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        gives_receipts(b)
        assert wake(b, interpreter, ONE % 0) == ["0 accepted", "asleep 300000"]
        b.peer.site.new_epoch()
        script = ONE % 1 + "say(s.core.ident.own.epoch)\n"
        assert wake(b, interpreter, script) == ["1 accepted", "asleep 300000", "2"]
        assert first_of_each(b) == ["0", "1"]


@every
def test_a_board_that_was_rotated_out_sleeps_on(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        b.peer.site.km.clear()
        b.peer.site.ps = bytes(32)
        # It does not wait, awake, for a minute to be over that it would not live to see.
        script = (ONE % 0).replace("sleeper()", "sleeper(budget=50)")
        script += "say(type(s.error).__name__, s.rtc.failures)\n"
        assert wake(b, interpreter, script) == ["asleep 300000", "Denied 1"]


@every
def test_a_board_whose_rtc_keeps_nothing_is_told_what_is_missing(
    interpreter: str, tmp_path: Path
) -> None:
    """An RP2040's, say."""
    with board(tmp_path) as b:
        script = """
class board:
    class RTC:
        pass
try:
    sleeper()
except errors.Unsupported as error:
    say(error)
"""
        assert wake(b, interpreter, script) == [
            "this chip's RTC has no memory(), which a Sleeper needs; Living stays awake"
        ]
