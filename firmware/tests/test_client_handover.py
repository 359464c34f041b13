"""A new epoch of the client's own label while it is connected: against a scripted peer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from device_script import INTERPRETERS, Board, board
from peer_connection import Connection
from sealmq_spec import const, control, provision
from sealmq_spec.records import Roots

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
EPOCH = 6  # notice class (SPEC.md 4.4)

# Pings until the session knows of a newer epoch.
TOLD = """
c.ping()
while not c.session.due:
    c.wait_msg()
"""


def tell_epoch(c: Connection) -> None:
    """Op 4 about the client's label."""
    s = c.site
    body = b"\x04" + s.own.label.to_bytes(3, "big") + s.own.epoch.to_bytes(3, "big")
    end = s.now_ms() // 1000 + 60
    c.tell(body + s.kseq.to_bytes(4, "big") + end.to_bytes(4, "big"))


def epoch_on_ping(b: Board) -> None:
    """Each PINGREQ is answered with a new epoch."""

    def on_ping(c: Connection) -> bool:
        c.site.new_epoch()
        tell_epoch(c)
        return True

    b.peer.on_ping = on_ping


def refuse_old(b: Board, every_one: bool = False) -> list[tuple[int, bytes]]:
    """A PUBLISH of an epoch that is over, or each, gets the notice and its PUBACK. (epoch, m1) of
    each that came.
    """
    came: list[tuple[int, bytes]] = []

    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        epoch = int.from_bytes(m1[2:5], "big")
        came.append((epoch, m1))
        if epoch == c.site.own.epoch and not every_one:
            return False
        c.notice(1, ctr, EPOCH, "epoch", "provision again")
        if qos:
            c.send(0x40, c.publish_pid)
        return True

    b.peer.on_publish = on_publish
    return came


@every
def test_the_welcome_tells_and_the_connection_stays(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.new_epoch()
        script = "c.connect()\nsay(c.ident.gen, c.ident.own.epoch, c.publish('t', b'x', qos=1))"
        assert b.run(interpreter, script) == ["2 2 1"]
        assert b.peer.said("asked") == [(1,)]
        assert b.peer.said("connected") == [(1, 2, 1)]
        # The new gen's link begins with the next CONNECT.
        assert b.run(interpreter, "c.connect()\nsay(c.publish('t', b'x', qos=1))") == ["1"]
        assert b.peer.said("connected")[1:] == [(2, 3, 1)]


@every
def test_op_4_tells_and_nothing_is_lost(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        epoch_on_ping(b)
        said = b.run(
            interpreter,
            """
got = []
c.set_callback(lambda m: got.append((m.payload, m.how)))
c.connect()
c.subscribe("t/#")
c.publish("t/1", b"before", qos=1)
"""
            + TOLD
            + """
c.publish("t/1", b"after", qos=1)
say(c.ident.gen, c.ident.own.epoch, c.session.ctr)
while len(got) < 2:
    c.wait_msg()
say(got, c.refused)
""",
        )
        assert said == ["2 2 3", "[(b'before', 0), (b'after', 0)] {}"]
        assert b.peer.said("connected") == [(1, 2, 1)]
        assert len(b.peer.said("subscribe")) == 1


@every
def test_what_the_old_epoch_sealed_is_read(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.new_epoch()

        def on_ping(c: Connection) -> bool:
            s = c.site
            m1 = c.m1(b"t", b"old", s.epochs[1], 5)
            c.publish(b"t", c.m3(b"t", m1, s.own, how=3))  # queued, as a mediator seals it again
            c.publish(b"t", c.m3(b"t", m1, s.epochs[1], how=3))  # m3 of an epoch that is over
            return False

        b.peer.on_ping = on_ping
        said = b.run(
            interpreter,
            """
got = []
c.set_callback(lambda m: got.append((m.payload, m.how)))
c.connect()
c.ping()
while not c.refused:
    c.wait_msg()
say(got, c.refused)
""",
        )
        assert said == ["[(b'old', 3)] {'WrongEpoch': 1}"]


@every
def test_a_publish_refused_for_its_epoch_is_published_anew_once(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        came = refuse_old(b)
        script = """
c.connect()
say(c.publish("t", b"first", qos=1))
c.ping()
c.wait_msg()
say(c.publish("t", b"second", qos=1), c.ident.gen, c.unacked, len(c.notices))
"""

        def on_ping(c: Connection) -> bool:
            c.site.new_epoch()  # and no word of it
            return False

        b.peer.on_ping = on_ping
        assert b.run(interpreter, script) == ["1", "3 2 {} 1"]
        said = [(plain, ctr) for _, plain, _, ctr, _, _ in b.peer.said("publish")]
        assert said == [(b"first", 1), (b"second", 2), (b"second", 3)]
        assert [epoch for epoch, _ in came] == [1, 1, 2]
        assert b.peer.said("connected") == [(1, 2, 1)]


@every
@pytest.mark.parametrize("answer", ["refused again", "no new epoch", "later"])
def test_or_it_is_reported(interpreter: str, answer: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        came = refuse_old(b, every_one=True)
        if answer == "refused again":
            script = "c.connect()\n"

            def on_ask(c: Connection, packet: bytes) -> bool:
                c.site.new_epoch()
                return False

            b.peer.on_ask = on_ask
        else:
            script = "c.connect()\n"
            if answer == "later":
                b.peer.site.answer_status = provision.LATER
        script += "caught(c.publish, 't', b'x', qos=1)\nsay(c.unacked, c.publish('u', b'y'))"
        last = 3 if answer == "refused again" else 2
        assert b.run(interpreter, script) == ["WrongEpoch epoch provision again", f"{{}} {last}"]
        assert len(came) == last
        assert b.peer.said("asked") == [(1,)]


@every
def test_what_no_puback_came_for_goes_on_under_the_new_gen(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        epoch_on_ping(b)
        came = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            came.append((c.gen, ctr, m1))
            if len(came) == 1:
                c.sock.close()
            return len(came) == 1

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            "c.connect()\n"
            + TOLD
            + """
c.check_msg()
say(c.ident.gen, c.session.ident.gen, c.session.due)
caught(c.publish, "t", b"x", False, 1)
say(list(c.unacked))
c.connect()
c.resend()
say(c.unacked, c.session.ident.gen, c.publish("t", b"y", qos=1))
""",
        )
        assert said == ["2 1 False", "OSError ECONNRESET", "[1]", "{} 2 2"]
        (_, _, first), again, _ = came
        assert again == (2, 1, first)
        assert b.peer.said("connected") == [(1, 2, 1), (2, 2, 2)]


@every
def test_no_new_roots_to_be_had_leaves_the_old_ones(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.new_epoch()
        b.peer.site.answer_status = provision.LATER
        script = """
c.connect()
for _ in range(3):
    say(c.publish("t", b"x", qos=1), c.ident.own.epoch)
say(c.refused)
mono = c.mono
c.mono = lambda: mono() + 5000
say(c.publish("t", b"x", qos=1), c.ident.own.epoch)
for later in (14000, 16000, 21000):
    c.mono = lambda: mono() + later
    say(c.publish("t", b"x", qos=1))
"""
        said = ["1 1", "2 1", "3 1", "{'Unavailable': 1}", "4 1", "5", "6", "7"]
        assert b.run(interpreter, script) == said
        assert b.peer.said("asked") == [(1,), (1,), (1,)]
        assert b.peer.said("connected") == [(1, 2, 1)]


@every
def test_a_refused_publish_does_not_wait_to_ask_again(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        refuse_old(b)
        b.peer.site.new_epoch()

        def on_ask(c: Connection, packet: bytes) -> bool:
            c.site.answer_status = provision.OK if b.peer.said("asked")[1:] else provision.LATER
            return False

        b.peer.on_ask = on_ask
        assert b.run(interpreter, "c.connect()\nsay(c.publish('t', b'x', qos=1))") == ["2"]
        assert b.peer.said("asked") == [(1,), (1,)]


@every
def test_a_request_refused_by_a_notice_is_not_waited_for(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.new_epoch()

        def on_ask(c: Connection, packet: bytes) -> bool:
            c.tell(control.notice(4, 0, 7, "kg", "the key generator is away"))
            return True

        b.peer.on_ask = on_ask
        script = """
c.timeout = 3600
c.connect()
say(c.publish("t", b"x", qos=1), c.refused, c.last_refused.reason)
"""
        said = ["1 {'Unavailable': 1} the key generator is away"]
        assert b.run(interpreter, script) == said


@every
def test_a_request_without_an_answer_ends_one_connection(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.new_epoch()
        b.peer.on_ask = lambda c, packet: True
        script = """
c.timeout = 1
caught(c.connect)
c.connect()
say(c.publish("t", b"x", qos=1), c.ident.own.epoch)
"""
        assert b.run(interpreter, script) == ["OSError ETIMEDOUT", "1 1"]
        assert b.peer.said("asked") == [(1,)]


@every
def test_another_label_takes_a_new_connection(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_ping(c: Connection) -> bool:
            tell_epoch_of_next(c)
            return True

        def tell_epoch_of_next(c: Connection) -> None:
            s = c.site
            body = b"\x04" + s.own.label.to_bytes(3, "big") + b"\0\0\x02"
            c.tell(body + (9).to_bytes(4, "big") + bytes(4))
            s.epochs[2] = Roots(21, 1, const.CCM, os.urandom(32), os.urandom(32))
            s.epochs = {1: s.epochs[2]}

        b.peer.on_ping = on_ping
        script = "c.connect()\n" + TOLD + "say(c.publish('t', b'x', qos=1), c.ident.own.label)"
        assert b.run(interpreter, script) == ["1 21"]
        assert b.peer.said("connected") == [(1, 2, 1), (2, 2, 2)]


@every
def test_a_stored_message_of_another_label_is_not_sent_under_the_new_one(
    interpreter: str, tmp_path: Path
) -> None:
    """Its m1 is under the old label's roots: a mediator would take it, no reader could open it."""
    with board(tmp_path) as b:
        b.provision()
        came = []

        def on_ping(c: Connection) -> bool:
            s = c.site
            body = b"\x04" + s.own.label.to_bytes(3, "big") + b"\0\0\x02"
            c.tell(body + (9).to_bytes(4, "big") + bytes(4))
            s.epochs = {1: Roots(21, 1, const.CCM, os.urandom(32), os.urandom(32))}
            return True

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            came.append((c.gen, ctr))
            if len(came) == 1:
                c.sock.close()
            return len(came) == 1

        b.peer.on_ping, b.peer.on_publish = on_ping, on_publish
        said = b.run(
            interpreter,
            "c.connect()\ncaught(c.publish, 't', b'x', False, 1)\n"
            "say(list(c.unacked))\nc.connect()\n"
            + TOLD
            + "say(c.publish('t', b'y', qos=1), c.ident.own.label, c.unacked)\nc.resend()\n",
        )
        assert said == ["OSError ECONNRESET", "[1]", "2 21 {}"]
        assert came == [(1, 1), (2, 2)]
