"""Connecting, the boot counter, the clock, wills: the device client against a scripted peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import EVERY, board
from peer_connection import Connection
from peer_site import Site
from sealmq_spec import const, control
from sealmq_spec.window import Window

every = pytest.mark.parametrize("interpreter", EVERY)


@every
@pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])
def test_provisions_connects_and_publishes(interpreter: str, suite: int, tmp_path: Path) -> None:
    with board(tmp_path, Site(suite)) as b:
        said = b.run(
            interpreter,
            """
say(c.connect(), c.has_kg_time())
say(c.publish("machine/1/temperature", b"21.5", qos=1))
say(c.publish("machine/1/temperature", b"21.6"))
say(c.publish(b"machine/1/state", "gr\\u00fcn", retain=True, qos=1, life=7))
say(c.publish("machine/1/state", b"", retain=True, qos=1))
c.disconnect()
say(c.refused, c.notices, c.unacked)
""",
        )
        assert said == ["False True", "1", "2", "3", "4", "{} [] {}"]
        # The end of a connection is seen by a thread of its own.
        assert [event[0] for event in b.peer.events if event[0] != "end"] == [
            "quarantine", "asked", "connected", *["publish"] * 4,
        ]  # fmt: skip
        assert len(b.peer.said("end")) == 2
        t, state = "machine/1/temperature", "machine/1/state"
        # topic, plaintext, flags (RETAIN 1, QoS 1: 2), ctr, class, life
        assert b.peer.said("publish") == [
            (t, b"21.5", 2, 1, const.LIVE, 0),
            (t, b"21.6", 0, 2, const.LIVE, 0),
            (state, "grün".encode(), 3, 3, const.RETAINED, 7),
            (state, b"", 3, 4, const.CLEAR, 0),
        ]


@every
def test_roots_serve_from_then_on_and_boots_rise(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        for _ in range(3):
            assert b.run(interpreter, "c.connect()\nc.disconnect()\nc.connect()\n") == []
        assert b.peer.said("asked") == [(0,)]
        assert b.peer.said("connected") == [
            (1, boot, conn) for boot in (1, 2, 3) for conn in (1, 2)
        ]
        assert b.boot.read_bytes() == bytes.fromhex("000003fffffc")


@every
def test_a_lost_boot_counter_is_jumped_over(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.highest = (1, 500, 7)
        for torn in (b"", b"\x00", b"\x00\x00\x09\xff\xff\xf7", b"\xff" * 6, bytes(6), b"7" * 50):
            b.boot.write_bytes(torn)
            at = b.peer.highest[1]
            said = b.run(
                interpreter, "c.connect()\nsay(c.session.boot, c.publish('t', b'', qos=1))"
            )
            assert said == [f"{at + 1} 1"]
        assert len(b.peer.said("behind")) == 6
        assert b.peer.highest == (1, 506, 1)
        assert not b.peer.said("asked")


@every
def test_used_up_counters_begin_a_boot_session(interpreter: str, tmp_path: Path) -> None:
    """The last CONNECT of one is answered with CONNACK 5; then a connection would begin with too
    few counters for its subscriptions."""
    with board(tmp_path) as b:
        b.provision()

        def on_connect(c: Connection) -> bool:
            if c.conn == const.U24:
                c.send(0x20, b"\0\x05")
                return True
            return False

        b.peer.on_connect = on_connect
        said = b.run(
            interpreter,
            """
c.connect()
first = c.session.boot
c.disconnect()
c.session.conn = 0xFFFFFE
c.connect()
say(c.session.boot - first, c.session.conn)
c.set_callback(say)
for n in range(3): c.subscribe("t/%d" % n)
c.disconnect()
c.session.ctr = 0xFFFFFC
c.connect()
say(c.session.boot - first, c.session.conn, c.session.ctr, len(c._subscribed), c.refused)
""",
        )
        assert said == ["1 1", "2 1 3 3 {'Denied': 1}"]


@every
def test_a_salt_is_new_in_each_boot_session(interpreter: str, tmp_path: Path) -> None:
    salts = []
    with board(tmp_path) as b:
        b.provision()

        def note(c: Connection) -> bool:
            salts.append(c.salt)
            return False

        b.peer.on_connect = note
        b.peer.highest = (1, 90, 1)
        b.run(interpreter, "c.connect()\nc.disconnect()\nc.connect()\nclient().connect()\n")
    # Behind, then twice the same boot session, then another client's.
    assert len(salts) == 4
    assert salts[1] == salts[2]
    assert len(set(salts)) == 3


@every
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x20\x02\0\x03", "Unavailable  "),
        (b"\x20\x02\0\x01", "Unsupported  "),
        (b"\x30\x02\0\0", "Malformed  "),
        (b"\x20\x03\0\0\0", "Malformed  "),
        (b"\x20\x02\0", "OSError ECONNRESET"),
        (b"", "OSError ECONNRESET"),
    ],
)
def test_other_answers_to_connect(
    interpreter: str, answer: bytes, said: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_connect(c: Connection) -> bool:
            c.sock.sendall(answer)
            c.sock.close()
            return True

        b.peer.on_connect = on_connect
        assert b.run(interpreter, "caught(c.connect)\nsay(c.sock)") == [said, "None"]


@every
@pytest.mark.parametrize(
    "what", ["other key", "other conn", "bit", "cut", "receipt", "topic", "nothing", "status"]
)
def test_nothing_goes_out_before_a_genuine_welcome(
    interpreter: str, what: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            if what == "other key":
                c.salt = bytes(8)
            if what == "other conn":
                c.conn += 1
            packet = bytearray(c.down(c.welcome(7 if what == "status" else 0, want)))
            if what == "bit":
                packet[20] ^= 4
            if what == "receipt":
                packet = bytearray(c.down(control.receipt(0, 0)))
            if what == "nothing":
                c.send(0xD0, b"")
            else:
                topic = b"t" if what == "topic" else const.CONTROL
                c.publish(topic, bytes(packet[:-9] if what == "cut" else packet))
            return True

        b.peer.on_welcome = on_welcome
        said = b.run(
            interpreter, "caught(c.connect)\ncaught(c.publish, 't', b'x')\nsay(c.now_ms())"
        )
        genuine = {"other key": "Unauthentic", "other conn": "Unauthentic", "bit": "Unauthentic"}
        genuine["cut"] = "Unauthentic"
        assert said == [genuine.get(what, "Malformed") + "  ", "OSError ENOTCONN", "None"]
        assert not b.peer.said("publish")


@every
def test_a_late_welcome_sets_no_clock_and_is_asked_for_again(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        seen = []

        def on_welcome(c: Connection, want: bool) -> bool:
            seen.append(want)
            if len(seen) == 1:
                b.peer.settle_after(2.1)
            return False

        b.peer.on_welcome = on_welcome
        said = b.run(interpreter, "c.connect()\nsay(c.now_ms() is not None)")
        assert said == ["True"]
        assert [event[2] for event in b.peer.said("connected")] == [1, 2]


@every
def test_kg_time_is_asked_for_over_the_session_when_the_first_welcome_lacked_it(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.gives_kg_time = False

        def on_ping(c: Connection) -> bool:
            b.peer.gives_kg_time = True
            return False

        b.peer.on_ping = on_ping
        said = b.run(
            interpreter,
            """
c.connect()
say(c.has_kg_time(), c.now_ms() is not None)
c.ping(); c.wait_msg()
c.disconnect()
c.connect()
while not c.has_kg_time():
    c.wait_msg()
say(c.refused)
""",
        )
        assert said == ["False True", "{}"]
        assert b.peer.said("up") == [(const.OP_ASK_TIME,)]


@every
def test_a_clock_that_lies_far_from_the_key_generators_is_reported(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            c.tell(c.welcome(0, want, ms=c.site.now_ms() + 40000))
            return True

        b.peer.on_welcome = on_welcome
        script = """
c.connect()
say(c.has_kg_time(), c.session.clock_conflict)
c.connect()
"""
        assert b.run(interpreter, script) == ["True True"]
        # Told once: a mediator that lies does not get a new boot session each time.
        assert b.peer.said("connected") == [(1, 2, 1), (1, 2, 2)]


@every
def test_a_clock_that_is_wrong_by_now_is_left_with_its_boot_session(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_connect(c: Connection) -> bool:
            if b.peer.said("connected"):
                c.site.clock_error_ms = 60_000
            return False

        b.peer.on_connect = on_connect
        script = """
c.connect()
first = c.now_ms()
c.connect()
say(c.now_ms() - first >= 45000, c.session.clock_conflict, c.session.kg_time)
c.connect()
say(c.session.conn)
"""
        assert b.run(interpreter, script) == ["True False True", "2"]
        assert b.peer.said("connected") == [(1, 2, 1), (1, 2, 2), (1, 3, 1), (1, 3, 2)]


@every
def test_a_clock_that_a_mediator_set_follows_it_back_with_a_new_boot_session(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.gives_kg_time = False

        def on_connect(c: Connection) -> bool:
            if b.peer.said("connected"):
                c.site.clock_error_ms = -7_600_000
            return False

        b.peer.on_connect = on_connect
        script = """
c.connect()
first = c.now_ms()
c.connect()
say(first - c.now_ms() > 7000000, c.session.clock_conflict, c.session.kg_time)
"""
        assert b.run(interpreter, script) == ["True False False"]
        assert b.peer.said("connected") == [(1, 2, 1), (1, 2, 2), (1, 3, 1)]


# A day goes by in a connection, whose clock is off by then.
DAY = """
c.connect()
c.ping(); c.wait_msg()
first = c.now_ms()
mono = c.mono
c.mono = lambda: mono() + 86400000
c.publish("day", b"", qos=1)
c.ping(); c.wait_msg()
c.wait_msg()
drift = c.now_ms() - first - 86400000
c.publish("t", b"x", qos=1)
say(drift, c.has_kg_time(), c.session.conn, c.session.clock_conflict, c.refused)
"""


@every
@pytest.mark.parametrize(("error_ms", "boots"), [(4000, 1), (-4000, 1), (-40_000, 2)])
def test_a_clock_that_drifts_is_put_right_once_a_day(
    interpreter: str, error_ms: int, boots: int, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if topic == "day":
                c.site.clock_error_ms = 86_400_000 + error_ms
            return False

        b.peer.on_publish = on_publish
        said = b.run(interpreter, DAY)[0].split(" ", 1)
        assert said[1] == "True 1 False {}"
        # Behind: moved on. Ahead: waited out, or left with its boot session. Either time may have
        # been late on its way.
        assert abs(int(said[0]) - max(error_ms, 0)) < 3000
        assert b.peer.said("up") == [(const.OP_ASK_TIME,)]
        assert len(b.peer.said("connected")) == boots


@every
def test_a_stale_publish_begins_a_boot_session_once_a_minute(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            c.notice(1, ctr, 3, "freshness", "message lies 90 s ahead")
            if qos:
                c.send(0x40, c.publish_pid)
            return True

        b.peer.on_publish = on_publish
        script = """
c.connect()
caught(c.publish, "t", b"x", qos=1)
caught(c.publish, "t", b"x", qos=1)
caught(c.publish, "t", b"x", qos=1)
mono = c.mono
c.mono = lambda: mono() + 60000
caught(c.publish, "t", b"x", qos=1)
"""
        said = ["Stale freshness message lies 90 s ahead"] * 4
        assert b.run(interpreter, script) == said
        assert b.peer.said("connected") == [(1, 2, 1), (1, 3, 1), (1, 4, 1)]


@every
def test_a_stored_publish_that_is_stale_by_now_begins_none(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        came = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            came.append(topic)
            if topic == "t" and len(came) == 1:
                b.peer.window = Window()  # it does not count as taken
                c.sock.close()
            elif topic == "t":
                c.notice(1, ctr, 3, "freshness", "its life is over")
                c.send(0x40, c.publish_pid)
            return topic == "t"

        b.peer.on_publish = on_publish
        script = """
c.connect()
caught(c.publish, "t", b"x", qos=1)
c.connect()
caught(c.resend)
say(c.publish("u", b"x", qos=1))
"""
        said = ["OSError ECONNRESET", "Stale freshness its life is over", "2"]
        assert b.run(interpreter, script) == said
        assert b.peer.said("connected") == [(1, 2, 1), (1, 2, 2)]


@every
def test_a_clock_that_is_right_again_stays(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if len(b.peer.said("publish")) == 1:
                c.notice(1, ctr, 3, "freshness", "message lies 90 s ahead")
            return False

        b.peer.on_publish = on_publish
        script = """
c.connect()
caught(c.publish, "t", b"x", qos=1)
c.publish("t", b"x", qos=1)
mono = c.mono
c.mono = lambda: mono() + 60000
c.publish("t", b"x", qos=1)
"""
        assert b.run(interpreter, script) == ["Stale freshness message lies 90 s ahead"]
        assert b.peer.said("connected") == [(1, 2, 1), (1, 3, 1)]


@every
@pytest.mark.parametrize("qos", [0, 1])
def test_a_will_is_sealed_anew_for_each_connect(interpreter: str, qos: int, tmp_path: Path) -> None:
    wills = []
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            _, topic, payload, _, _ = c.fields
            flags = c.flags >> 5 & 1 | c.flags >> 2 & 6
            wills.append((topic, flags, *c.unseal(topic, flags, payload)))
            return False

        b.peer.on_welcome = on_welcome
        script = f"""
c.set_last_will("machine/1/state", "gone", retain=True, qos={qos}, life=255)
c.connect()
say(c.publish("t", b"x", qos=1))
c.disconnect()
c.connect()
"""
        assert b.run(interpreter, script) == ["2"]
    for (topic, flags, ctr, m1, plain), at in zip(wills, (1, 3), strict=True):
        assert (topic, flags, ctr, plain) == (b"machine/1/state", 1 | qos << 1, at, b"gone")
        assert m1[1] & 15 == const.WILL | const.UNTIMED
        assert m1[26] == 255


@every
def test_a_host_that_is_not_there(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        script = "c.port = 9\ncaught(c.connect)\ncaught(c.ping)\nc.disconnect()\nsay(c.sock)"
        assert b.run(interpreter, script) == ["OSError ECONNREFUSED", "OSError ENOTCONN", "None"]


@every
def test_an_error_of_the_store_is_not_taken_for_a_name_that_nobody_knows(
    interpreter: str, tmp_path: Path
) -> None:
    """Such errors, too, are a text or a number below zero, as those of name resolution are."""
    with board(tmp_path) as b:
        script = """
def fails(boot):
    raise OSError(wrong)
for wrong in (-5, "the card is out"):
    c.store.put_boot = fails
    try:
        c.connect()
    except OSError as error:
        say(error.args)
c = client()
c.server = "gateway.invalid"
try:
    c.connect()
except OSError as error:
    say(error.args[1])
"""
        first, second, name = b.run(interpreter, script)
        assert (first, second) == ("(-5,)", "('the card is out',)")
        assert "this network does not know the name" in name
        assert name.startswith("gateway.invalid:")


@every
@pytest.mark.parametrize("ends", ["never", "welcome", "subscribe"])
def test_a_session_that_was_kept_gets_what_it_lacks(
    interpreter: str, ends: str, tmp_path: Path
) -> None:
    """One subscription is refused for the moment, or its connection ends before all are made."""
    with board(tmp_path) as b:
        b.provision()
        asked: list[list[str]] = []

        def on_connect(c: Connection) -> bool:
            asked.append([])
            b.peer.present = int(len(asked) > 2)
            return False

        def on_welcome(c: Connection, want: bool) -> bool:
            if len(asked) == 2 and ends == "welcome":
                c.sock.close()
                return True
            return False

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            asked[-1].append(filt)
            if len(asked) != 2 or len(asked[-1]) != 2:
                return False
            if ends == "subscribe":
                c.sock.close()
            else:
                c.notice(2, ctr, 7, "rule", "try later")
                c.send(0x90, c.subscribe_pid + b"\x80")
            return True

        b.peer.on_connect, b.peer.on_welcome = on_connect, on_welcome
        b.peer.on_subscribe = on_subscribe
        said = b.run(
            interpreter,
            """
c.set_callback(say)
c.connect(False)
for filt in ("a", "b", "c"):
    c.subscribe(filt, 1)
c._close()
try:
    c.connect(False)
except OSError:
    pass
c._close()
say(c.connect(False), list(c.missing))
c._close()
say(c.connect(False), len(c._subscribed))
""",
        )
        assert said == ["True []", "True 3"]
        first, second, third, fourth = asked
        assert first == ["a", "b", "c"]
        done = {"never": second[:1] + second[2:], "welcome": [], "subscribe": second[:1]}[ends]
        assert sorted(third) == sorted({*first} - {*done})
        assert fourth == []


@every
def test_what_the_program_subscribes_itself_is_missing_no_more(
    interpreter: str, tmp_path: Path
) -> None:
    """Else the next connect would make it one with the QoS of before."""
    with board(tmp_path) as b:
        b.provision()
        refuses = [False, True]

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            b.peer.present = int(not refuses)
            refused = bool(refuses) and refuses.pop(0)
            if refused:
                c.notice(2, ctr, 7, "rule", "try later")
                c.send(0x90, c.subscribe_pid + b"\x80")
            return refused

        b.peer.on_subscribe = on_subscribe
        said = b.run(
            interpreter,
            """
c.set_callback(say)
c.connect(False)
c.subscribe("a", 0)
c._close()
say(c.connect(True), c.missing)
c.subscribe("a", 1)
say(c.missing)
c._close()
say(c.connect(False), c._subscribed)
""",
        )
        assert said == ["False {b'a': 0}", "{}", "True {b'a': 1}"]
        assert b.peer.said("subscribe") == [("a", 0), ("a", 0), ("a", 1)]
