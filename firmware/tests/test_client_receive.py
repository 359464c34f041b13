"""Receiving and refusing: the device client against a scripted peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, board
from peer_connection import Connection
from sealmq_spec import const, control

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
suites = pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])

LISTEN = """
got = []
c.set_callback(got.append)
c.connect()
"""


@every
def test_lower_labels_open_by_pushed_records(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        lower = b.peer.site.lower

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            plain = b.peer.said("publish")[-1][1]
            sealed = c.m1(topic.encode(), plain, lower, ctr)
            if plain == b"record":
                c.tell(b"\x05" + c.site.record())
            c.publish(topic.encode(), c.m3(topic.encode(), sealed, lower), 0)
            return False

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            LISTEN
            + """
c.publish("t", b"no key", qos=1); c.check_msg()
say(len(got), c.refused)
c.publish("t", b"record", qos=1); c.check_msg()
say(got[0].payload == b"record", got[0].label, c.refused)
""",
        )
        assert said == ["0 {'NoKey': 1}", f"True {lower.label} {{'NoKey': 1}}"]


@every
def test_a_label_whose_roots_were_given_up_is_asked_for(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def take_up(c: Connection, packet: bytes) -> None:
        aead, s = c.aead(const.USE_CONTROL), c.site
        body = control.open_up(aead, c.salt, s.id, s.client, s.mediator, packet)
        asked.append((body[0], int.from_bytes(body[1:4], "big")))

    monkeypatch.setattr(Connection, "take_up", take_up)
    with board(tmp_path) as b:
        lower = b.peer.site.lower

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            plain = b.peer.said("publish")[-1][1]
            if asked and plain == b"5":
                c.tell(b"\x05" + c.site.record())
            sealed = c.m1(topic.encode(), plain, lower, ctr)
            c.publish(topic.encode(), c.m3(topic.encode(), sealed, lower), 0)
            return False

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            LISTEN
            + """
now = c.mono()
c.mono = lambda: now
for n in range(6):
    c.publish("t", b"%d" % n, qos=1)
c.check_msg()
say(got[0].payload == b"5", got[0].label, c.refused)
""",
        )
        assert said == [f"True {lower.label} {{'NoKey': 5}}"]
        # One question, however many messages came.
        assert asked == [(const.OP_FETCH, lower.label)]


@every
def test_public_records_by_subscription(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            record = bytearray(c.site.record())
            c.publish(b"@sm1/z/20/17", bytes(record), 1)
            record[40] ^= 1
            c.publish(b"@sm1/z/20/17", bytes(record))
            c.publish(b"@sm1/m/20", b"\x19nonsense")
            return False

        b.peer.on_subscribe = on_subscribe
        said = b.run(
            interpreter,
            LISTEN + "c.subscribe('@sm1/#')\nsay(sorted(c.refused.items()), len(c.reader._roots))",
        )
        assert said == ["[('Malformed', 1)] 2"]


@every
def test_refused_packets_are_acknowledged_first_and_counted(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            t = topic.encode()
            good = c.m3(t, m1, c.site.own)
            changed = bytearray(good)
            changed[30] ^= 1
            for payload in (bytes(changed), b"", b"plain text", good[:40], good, good):
                c.publish(t, payload, 1)
            c.publish(const.CONTROL, b"\x15 no genuine one at all, but as long as one")
            c.publish(const.CONTROL, c.down(b"\x63unknown op"))
            c.publish(const.CONTROL, b"", 1)
            return False

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            LISTEN
            + """
c.publish("t", b"x", qos=1)
say(len(got), sorted(c.refused.items()), type(c.last_refused).__name__)
say(c.check_msg(), len(got))
c.disconnect()
""",
        )
        assert said == [
            "0 [('Malformed', 4), ('Replay', 1), ('Unauthentic', 1), ('Unsupported', 1)] Malformed",
            "True 1",
        ]
        assert b.peer.said("puback") == [(n,) for n in range(1, 8)]


@every
def test_a_callback_that_raises_comes_after_the_acknowledgement(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            """
def angry(m):
    raise ValueError("I do not like " + m.payload.decode())
c.set_callback(angry)
c.connect()
c.subscribe("t", 1)
c.publish("t", b"this", qos=1)
c.publish("t", b"that", qos=1)
for _ in range(2):
    try:
        c.wait_msg()
    except ValueError as error:
        say(error)
say(c.check_msg(), c.publish("t", b"the other", qos=1))
c.disconnect()
""",
        )
        assert said == ["I do not like this", "I do not like that", "False 4"]
        assert b.peer.said("puback") == [(1,), (2,), (3,)]


@every
def test_a_callback_may_publish_what_comes_back_for_ever(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            """
depth, deepest, calls = 0, 0, 0
def echo(m):
    global depth, deepest, calls
    depth += 1
    deepest = max(deepest, depth)
    calls += 1
    c.publish("t", b"again", qos=1)
    depth -= 1
c.set_callback(echo)
c.connect()
c.subscribe("t", 1)
c.publish("t", b"first", qos=1)
for _ in range(60):
    c.wait_msg()
say(deepest, calls, c.refused)
""",
        )
        assert said == ["1 60 {}"]


@every
def test_more_than_the_queue_holds_is_counted(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            LISTEN
            + """
c.subscribe("t", 1)
for n in range(20):
    c.publish("t", b"%d" % n, qos=1)
say(c.refused)
while c.check_msg():
    pass
say(len(got), got[0].payload == b"0", got[-1].payload == b"15")
""",
        )
        assert said == ["{'RateLimited': 4}", "16 True True"]
