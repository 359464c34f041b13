"""Publishing and subscribing: the device client against a scripted peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, Board, board
from peer_connection import Connection
from peer_site import Site
from sealmq_spec import const, control

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
suites = pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])

LISTEN = """
got = []
c.set_callback(got.append)
c.connect()
"""


def told(b: Board, what: int, code: int, said: str) -> None:
    """From now on a PUBLISH gets a notice and no PUBACK, and the connection ends."""

    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        c.notice(what, ctr, code, "labels.writer", said)
        c.sock.close()
        return True

    b.peer.on_publish = on_publish


@every
@suites
def test_a_reading_comes_back(interpreter: str, suite: int, tmp_path: Path) -> None:
    with board(tmp_path, Site(suite)) as b:
        said = b.run(
            interpreter,
            LISTEN
            + """
say(c.subscribe("machine/+/temperature", 1), c.subscribe(b"machine/1/#"))
# The clock stands: an age counts whole seconds, and one may begin at any moment.
now = c.mono()
c.mono = lambda: now
say(c.publish("machine/1/temperature", b"21.5", qos=1))
for _ in range(5000):
    if got and c.refused: break
    c.check_msg()
m = got[0]
say(m.topic == "machine/1/temperature", m.payload == b"21.5", m.label, m.sender, m.age, m.how)
say(len(got), c.refused)
c.unsubscribe("machine/+/temperature")
c.unsubscribe(b"machine/1/#")
c.publish("machine/1/temperature", b"21.5", qos=1)
say(c.check_msg(), c.check_msg())
""",
        )
        # Two overlapping subscriptions, so the same message twice: the second is a replay.
        assert said == ["1 0", "3", "True True 20 7 0 0", "1 {'Replay': 1}", "False False"]
        assert b.peer.said("unsubscribe") == [("machine/+/temperature", 0), ("machine/1/#", 0)]
        assert b.peer.said("puback") == [(1,)]


@every
def test_a_denied_publish_raises_rule_and_reason(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.denied = {"machine/2/x": (5, "labels.writer", "it is machine 2's, señor")}
        said = b.run(
            interpreter,
            """
c.connect()
caught(c.publish, "machine/2/x", b"1", qos=1)
say(c.publish("machine/2/x", b"1"), c.publish("machine/1/x", b"1", qos=1))
say(c.notices[0][:4], c.notices[1][:4], c.unacked)
""",
        )
        assert said == [
            "Denied labels.writer it is machine 2's, señor",
            "2 3",
            "(1, 1, 5, 'labels.writer') (1, 2, 5, 'labels.writer') {}",
        ]


@every
@pytest.mark.parametrize(
    ("code", "name"),
    [(1, "Malformed"), (3, "Stale"), (4, "Replay"), (6, "WrongEpoch"), (7, "Unavailable")]
    + [(8, "TooLarge"), (9, "RateLimited"), (10, "Unsupported"), (77, "SealError")],
)
def test_a_notice_counts_even_if_the_connection_ends(
    interpreter: str, code: int, name: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        told(b, 1, code, "so it is")
        script = "c.connect()\ncaught(c.publish, 't', b'x', qos=1)\nsay(c.unacked, c.sock)"
        assert b.run(interpreter, script) == [f"{name} labels.writer so it is", "{} None"]


@every
@pytest.mark.parametrize("order", ["receipt, notice", "notice, receipt"])
def test_a_receipt_beats_a_notice(interpreter: str, order: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            for word in order.split(", "):
                if word == "receipt":
                    c.tell(control.receipt(ctr, 1))
                else:
                    c.notice(1, ctr, 4, "mediator.publish.replay", "it came before")
            c.send(0x40, c.publish_pid)
            return True

        b.peer.on_publish = on_publish
        script = "c.connect()\nsay(c.publish('t', b'x', qos=1), c.receipted(1), c.unacked)"
        assert b.run(interpreter, script) == ["1 True {}"]


@every
@pytest.mark.parametrize("what", [0, 2, 3, 4, 5])
def test_a_notice_about_something_else_ends_no_message(
    interpreter: str, what: int, tmp_path: Path
) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            c.notice(what, ctr, 5, "labels.writer", "not this one")
            c.send(0x40, c.publish_pid)
            return True

        b.peer.on_publish = on_publish
        script = "c.connect()\nsay(c.publish('t', b'x', qos=1), c.unacked, len(c.notices))"
        assert b.run(interpreter, script) == ["1 {} 1"]


@every
def test_a_refused_subscription(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.denied = {"machine/2/#": (5, "labels.reader", "not yours")}
        silent = [False]

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            if silent[0]:
                c.send(0x90, b"\x00\x02\x80")
            silent[0] = True
            return len(b.peer.said("subscribe")) > 1

        b.peer.on_subscribe = on_subscribe
        said = b.run(
            interpreter,
            LISTEN
            + """
caught(c.subscribe, "machine/2/#")
caught(c.subscribe, "machine/2/x")
c.disconnect(); c.connect()
""",
        )
        assert said == ["Denied labels.reader not yours", "Denied  "]
        assert len(b.peer.said("subscribe")) == 2  # what was refused is not tried again


@every
def test_subscriptions_are_made_again_when_the_session_is_gone(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        script = LISTEN + "c.subscribe('a/#')\nc.subscribe('b')\nc.unsubscribe('b')\n"
        again = "c.disconnect()\nsay(c.connect(False))\n"
        b.run(interpreter, script + again)
        assert [filt for filt, _ in b.peer.said("subscribe")] == ["a/#", "b", "a/#"]
        b.peer.present = 1
        b.peer.events.clear()
        assert b.run(interpreter, script + again) == ["True"]
        assert [filt for filt, _ in b.peer.said("subscribe")] == ["a/#", "b"]


@every
def test_a_forged_session_present_leaves_nobody_without_subscriptions(
    interpreter: str, tmp_path: Path
) -> None:
    """CONNACK is not sealed; whoever asks for a clean session takes no word for another."""
    with board(tmp_path) as b:
        b.peer.present = 1
        script = LISTEN + "c.subscribe('a/#')\nc.disconnect()\nsay(c.connect())\n"
        assert b.run(interpreter, script) == ["False"]
        assert [filt for filt, _ in b.peer.said("subscribe")] == ["a/#", "a/#"]


@every
def test_long_filters_are_subscribed(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        filt = "ü" * 500 + "/#"
        assert b.run(interpreter, LISTEN + "say(c.subscribe('\\u00fc' * 500 + '/#', 1))") == ["1"]
        assert b.peer.said("subscribe") == [(filt, 1)]


@every
def test_receipts(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_ping(c: Connection) -> bool:
            c.receipt()
            return False

        b.peer.on_ping = on_ping
        said = b.run(
            interpreter,
            """
c.connect()
ctrs = [c.publish("t", b"x", qos=1) for _ in range(3)]
say([c.receipted(n) for n in ctrs])
c.ping(); c.wait_msg(); c.wait_msg()
say([c.receipted(n) for n in ctrs + [4]])
c.disconnect(); c.connect()
say(c.receipted(3))
""",
        )
        assert said == ["[False, False, False]", "[True, True, True, False]", "True"]


@every
def test_an_unacknowledged_publish_is_kept_and_sent_again_as_it_was(
    interpreter: str, tmp_path: Path
) -> None:
    packets = []
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            packets.append((m1, ctr))
            if len(packets) < 2:
                c.sock.close()
            return len(packets) < 2

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            """
c.connect()
caught(c.publish, "t", b"x", qos=1)
caught(c.publish, "t", b"not even sealed", qos=1)
say(list(c.unacked), c.session.ctr)
c.connect()
c.resend()
say(c.unacked, c.publish("t", b"y", qos=1))
""",
        )
        assert said == ["OSError ECONNRESET", "OSError ENOTCONN", "[1] 1", "{} 2"]
        assert packets[0] == packets[1]
        low = [event[1:] for event in b.peer.events if event[0] == "publish"]
        assert [event[3] for event in low] == [1, 1, 2]


@every
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ('"t/+", b""', "Malformed"),
        ('"", b""', "Malformed"),
        ('"t" * 1025, b""', "Malformed"),
        ('b"\\xff\\xfe", b""', "Malformed"),
        ('"$SYS/x", b""', "Misuse"),
        ('"!c1", b""', "Misuse"),
        ('"@sm1/z/1/2", b""', "Misuse"),
        ('"t", b"", qos=2', "Misuse"),
        ('"t", b"", qos=-1', "Misuse"),
        ('"t", b"", life=32', "Misuse"),
        ('"t", b"", life=-1', "Misuse"),
        ('"t", bytes(4096), qos=1', "TooLarge"),
    ],
)
def test_what_cannot_be_published(interpreter: str, call: str, error: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        script = f"c.connect()\ncaught(c.publish, {call})\n"
        script += "say(c.session.ctr, c.publish('t', b'x', qos=1))"
        assert b.run(interpreter, script) == [f"{error}  ", "0 1"]


@every
def test_sizes_up_to_the_limit(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            """
c = client(limit=70000)
c.connect()
for n in (0, 1, 40, 50, 60, 61, 200, 16300, 16310, 66000, 3):
    c.publish("t", bytes(n), qos=1)
    c.publish("t", bytes(n))
c.publish("t", b"", qos=1)
""",
        )
        assert said == []
        sizes = [len(plain) for _, plain, _, _, _, _ in b.peer.said("publish")]
        assert sizes[::2] == [0, 1, 40, 50, 60, 61, 200, 16300, 16310, 66000, 3, 0]


@every
def test_not_without_a_callback(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        script = (
            "c.connect()\ncaught(c.subscribe, 't')\nc.set_callback(say)\ncaught(c.subscribe, 'a+')"
        )
        assert b.run(interpreter, script) == ["Misuse  ", "Malformed  "]
        assert not b.peer.said("subscribe")
