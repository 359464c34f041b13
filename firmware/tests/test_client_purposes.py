"""What data is for: reservations and purposes of subscriptions, against a scripted peer."""

from __future__ import annotations

from pathlib import Path

import pytest

import aio_script
from device_script import INTERPRETERS, Board, board
from peer_connection import Connection
from sealmq_spec.errors import Denied, Unavailable

every = pytest.mark.parametrize("interpreter", INTERPRETERS)

LISTEN = """
got = []
c.set_callback(got.append)
c.connect()
"""
DENIED = (4, Denied.code, "purposes.entitled", "it is machine 2's, señor")


def commands(b: Board) -> list[str]:
    """What was commanded."""
    said = b.peer.said("command")
    assert {family for family, _, _ in said} <= {"purposes"}
    return [text for _, text, _ in said]


def filters(b: Board, kind: str = "subscribe") -> list[str]:
    return [filt for filt, _ in b.peer.said(kind)]


@every
def test_what_a_board_says_about_its_data(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            """
c.connect()
say(c.reserve("machine/1/temperature", ["billing", "care/nurse"], ("marketing",)))
c.reserve(b"machine/+/#")
c.reserve("a{b}|c,%/HASH/\\u00fc", pip=["x,y|z"])
c.release("machine/+/#")
c.presubscribe("old-panel", "machine/#", "billing")
c.presubscribe("old-panel", "machine/#", None)
say(c.publish("machine/1/temperature", b"21.5", qos=1), c.notices, c.refused)
""",
        )
        # Their counters come between: the PUBLISH's is the seventh.
        assert said == ["b''", "7 [] {}"]
        assert commands(b) == [
            "!RESERVE/machine/1/temperature{billing,care/nurse|marketing}",
            "!RESERVE/machine/%2B/%23{|}",
            "!RESERVE/a%7Bb%7D%7Cc%2C%25/%48ASH/ü{|x%2Cy%7Cz}",
            "!RESERVE/machine/%2B/%23{}",
            "!PBAC/PRESUB/old-panel/machine/%23{billing}",
            "!PBAC/PRESUB/old-panel/machine/%23{}",
        ]


@every
def test_who_is_not_entitled_is_told(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            refused = command.startswith("!RESERVE/machine/2")
            if refused:
                c.notice(DENIED[0], ctr, *DENIED[1:])
            return refused

        b.peer.on_command = on_command
        said = b.run(
            interpreter,
            """
c.connect()
caught(c.reserve, "machine/2/x", ["billing"])
c.reserve("machine/1/x", ["billing"])
caught(c.release, "machine/2/x")
say(c.publish("t", b"x", qos=1), len(c.notices), c.notices[0][:3])
""",
        )
        refusal = "Denied purposes.entitled it is machine 2's, señor"
        assert said == [refusal, refusal, "4 2 (4, 1, 5)"]


@every
def test_what_comes_before_the_answer(interpreter: str, tmp_path: Path) -> None:
    """Messages are kept for the callback, all else is handled; what is about another packet, or
    about none, does not end the wait."""
    with board(tmp_path) as b:

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            own = c.site.own
            topic = b"machine/1/t"
            for n in (101, 102):
                c.publish(topic, c.m3(topic, c.m1(topic, b"x", own, n), own))
            c.receipt()
            c.publish(topic, bytes(90))
            c.reply(ctr - 1, b"another's")
            c.notice(4, ctr - 1, Denied.code, "purposes.entitled", "another's")
            c.notice(4, 0, Denied.code, "mediator.control.unauthentic", "an injected one")
            c.notice(1, 1, Unavailable.code, "mediator", "what was published before")
            c.tell(b"\x40")
            c.send(0x40, b"\0\x09")
            c.send(0xD0, b"")
            c.reply(ctr)
            return True

        b.peer.on_command = on_command
        said = b.run(
            interpreter,
            LISTEN
            + """
c.subscribe("machine/#")
c.publish("machine/1/u", b"y")
c.reserve("machine/1/t", ["billing"])
say(len(got), [n[0] for n in c.notices], c.refused)
while c.check_msg():
    pass
say([m.payload for m in got], c.publish("t", b"x", qos=1))
""",
        )
        assert said == ["0 [4, 4, 1] {'Malformed': 1}", "[b'y', b'x', b'x'] 4"]


@every
def test_an_answer_that_never_comes(interpreter: str, tmp_path: Path) -> None:
    """Whether it counted is not known, and can be asked for again."""
    with board(tmp_path) as b:
        silent = [True]

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            return silent.pop() if silent else False

        b.peer.on_command = on_command
        said = b.run(
            interpreter,
            """
c = client(timeout=1)
c.connect()
caught(c.reserve, "machine/1/t", ["billing"])
say(c.sock)
caught(c.reserve, "machine/1/t", ["billing"])
c.connect()
c.reserve("machine/1/t", ["billing"])
say(c.publish("t", b"x", qos=1))
""",
        )
        assert said == ["OSError ETIMEDOUT", "None", "OSError ENOTCONN", "3"]
        assert len(commands(b)) == 2


@every
def test_an_endless_peer_does_not_hold_it_for_ever(interpreter: str, tmp_path: Path) -> None:
    """Packets that are not the answer, without a pause: the wait still ends."""
    with board(tmp_path) as b:

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            while True:
                c.send(0xD0, b"")
                b.peer.settle_after(0.05)

        b.peer.on_command = on_command
        script = "c = client(timeout=1)\nc.connect()\ncaught(c.release, 'a')\nsay(c.sock)"
        assert b.run(interpreter, script) == ["OSError ETIMEDOUT", "None"]


@every
def test_a_connection_that_is_lost_meanwhile(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            first = len(commands(b)) == 1
            if first:
                c.sock.close()
            return first

        b.peer.on_command = on_command
        said = b.run(
            interpreter,
            """
c.connect()
caught(c.reserve, "machine/1/t", ["billing"])
c.connect()
say(c.sock is None, c.publish("t", b"x", qos=1))
c.reserve("machine/1/t", ["billing"])
""",
        )
        assert said == ["OSError ECONNRESET", "False 2"]
        # What is to hold is said again by who wants it: the client repeats nothing by itself.
        assert len(commands(b)) == 2


@every
def test_a_subscription_says_what_it_is_for(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            LISTEN
            + """
say(c.subscribe("machine/+/temperature", 1, "care/nurse"), c.subscribe(b"a/#", purpose="x,y"))
say(c.subscribe("plain/#", purpose=None), c.subscribe("a/#", purpose="billing"))
c.publish("machine/1/temperature", b"21.5", qos=1)
while not got:
    c.wait_msg()
say(got[0].topic, got[0].payload)
c.unsubscribe("a/#", "x,y")
c.unsubscribe("a/#", purpose="none like this")
c.disconnect()
c.connect()
say(c.publish("t", b"x", qos=1))
""",
        )
        assert said[:3] == ["1 0", "0 0", "machine/1/temperature b'21.5'"]
        first, second, other = (
            "!AP/machine/%2B/temperature{care/nurse}",
            "!AP/a/%23{x%2Cy}",
            "!AP/a/%23{billing}",
        )
        # Each for its purpose, and after a reconnect those that were left, as they were.
        asked = b.peer.said("subscribe")
        assert asked[:4] == [(first, 1), (second, 0), ("plain/#", 0), (other, 0)]
        assert sorted(asked[4:]) == sorted([(first, 1), ("plain/#", 0), (other, 0)])
        assert filters(b, "unsubscribe") == [second, "!AP/a/%23{none like this}"]
        assert b.peer.said("command") == []


@every
def test_a_refused_purpose(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.denied = {"!AP/a{marketing}": (5, "purposes.subscribe", "not for marketing")}
        said = b.run(
            interpreter,
            LISTEN
            + """
caught(c.subscribe, "a", purpose="marketing")
say(c.subscribe("a", purpose="billing"))
c.disconnect()
c.connect()
""",
        )
        assert said == ["Denied purposes.subscribe not for marketing", "0"]
        again = "!AP/a{billing}"
        assert filters(b) == ["!AP/a{marketing}", again, again]


WRONG = [
    ('c.reserve, "a", "billing"', "Misuse"),
    ('c.reserve, "a", (), "billing"', "Misuse"),
    ('c.reserve, "a", [""]', "Malformed"),
    ('c.reserve, "a", ["x", "x"]', "Malformed"),
    ('c.reserve, "a/#/b", ["x"]', "Malformed"),
    ('c.reserve, b"\\xff", ["x"]', "Malformed"),
    ('c.reserve, "a", ["p%d" % i * 20 for i in range(400)]', "Malformed"),
    ('c.reserve, "a", ["p%d" % i * 10 for i in range(200)]', "TooLarge"),
    ('c.release, ""', "Malformed"),
    ('c.presubscribe, "x/y", "a", "billing"', "Malformed"),
    ('c.presubscribe, "x", "a", ""', "Malformed"),
    ('c.subscribe, "a", 0, ""', "Malformed"),
    ('c.subscribe, "a", purpose="x//y"', "Malformed"),
    ('c.subscribe, "+" * 2, purpose="x"', "Malformed"),
    ('c.subscribe, "{" * 400, purpose="x"', "Malformed"),
    ('c.subscribe, "a", 2, purpose="x"', "Misuse"),
    ('c.unsubscribe, "a", ""', "Malformed"),
]


@every
def test_what_cannot_be_said(interpreter: str, tmp_path: Path) -> None:
    """Nothing of it is sealed."""
    with board(tmp_path) as b:
        b.provision()
        lines = [f"caught({call})" for call, _ in WRONG]
        script = LISTEN + "\n".join([*lines, "say(c.session.ctr, c.sock is None)"])
        assert b.run(interpreter, script) == [*(f"{error}  " for _, error in WRONG), "0 False"]
        assert not [event for event in b.peer.events if event[0] in ("command", "subscribe")]


@every
def test_at_the_end_of_the_counters(interpreter: str, tmp_path: Path) -> None:
    """A command takes one as a message does: the next boot session begins in time."""
    with board(tmp_path) as b:
        b.provision()
        script = "c.connect()\nc.session.ctr = 0xFFFFFE\nc.reserve('a', ['x'])\nsay(c.session.ctr)"
        assert b.run(interpreter, script) == ["1"]
        assert [ctr for _, _, ctr in b.peer.said("command")] == [1]
        assert len(b.peer.said("connected")) == 2


# --- asyncio ---


@every
def test_asyncio_says_the_same(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            refused = "/machine/2" in command
            if refused:
                c.notice(DENIED[0], ctr, *DENIED[1:])
            return refused

        b.peer.on_command = on_command
        said = aio_script.run(
            b,
            interpreter,
            """
await caught(c.reserve("a", ["x"]))
await c.connect()
say(await c.reserve("machine/1/t", ["billing"], ["marketing"]))
await caught(c.reserve("machine/2/t", ["billing"]))
async def wrong():
    await c.reserve("machine/1/t", "billing")
await caught(wrong())
await c.release(b"machine/1/t")
await c.presubscribe("old-panel", "machine/#", "billing")
say(await c.subscribe("machine/#", 1, "billing"))
await c.publish("machine/1/t", b"21.5", qos=1)
async for m in c:
    say(m.payload)
    break
await c.unsubscribe("machine/#", "billing")
await caught(c.subscribe("machine/#", purpose=""))
say(c.core._subscribed, len(c.core.waits), c.core.notices[0][0])
""",
        )
        refusal = "Denied purposes.entitled it is machine 2's, señor"
        assert said == [
            "OSError ENOTCONN", "b''", refusal, "Misuse  ", "1", "b'21.5'", "Malformed  ",
            "{} 0 4",
        ]  # fmt: skip
        assert commands(b) == [
            "!RESERVE/machine/1/t{billing|marketing}",
            "!RESERVE/machine/2/t{billing|}",
            "!RESERVE/machine/1/t{}",
            "!PBAC/PRESUB/old-panel/machine/%23{billing}",
        ]
        assert filters(b) == filters(b, "unsubscribe") == ["!AP/machine/%23{billing}"]


@every
def test_asyncio_answers_find_their_tasks(interpreter: str, tmp_path: Path) -> None:
    """Several commands at a time, answered in another order, one of them given up; others publish
    meanwhile."""
    with board(tmp_path) as b:
        b.provision()
        held: list[int] = []

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            held.append(ctr)
            if command.startswith("!RESERVE/last"):
                for one in held[::-1]:
                    if one == held[1]:
                        c.notice(DENIED[0], one, *DENIED[1:])
                    else:
                        c.reply(one)
            return True

        b.peer.on_command = on_command
        said = aio_script.run(
            b,
            interpreter,
            """
await c.connect()
async def reserve(name):
    await caught(c.reserve(name, ["x"]))
    say(name)
tasks = [asyncio.create_task(reserve(name)) for name in ("one", "two", "given up")]
await until(lambda: len(c.core.waits) == 3)
say(await c.publish("t", b"y", qos=1))
tasks[2].cancel()
try:
    await tasks[2]
except asyncio.CancelledError:
    say("cancelled", len(c.core.waits))
await reserve("last")
await asyncio.gather(*tasks[:2])
say(c.core.refused, len(c.core.waits), c.isconnected())
""",
        )
        assert said[:2] == ["4", "cancelled 2"]
        assert sorted(said[2:-1]) == [
            "Denied purposes.entitled it is machine 2's, señor", "last", "one", "two",
        ]  # fmt: skip
        assert said[-1] == "{} 0 True"


@every
def test_asyncio_leaves_who_does_not_answer(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_command(c: Connection, command: str, ctr: int) -> bool:
            if command.startswith("!RESERVE/cut"):
                c.sock.close()
            return True

        b.peer.on_command = on_command
        said = aio_script.run(
            b,
            interpreter,
            """
c = client(timeout=1)
await c.connect()
await caught(c.reserve("silent", ["x"]))
say(c.isconnected())
await c.connect()
await caught(c.reserve("cut", ["x"]))
say(c.isconnected(), len(c.core.waits), c.unacked)
""",
        )
        assert said == ["OSError ETIMEDOUT", "False", "OSError ECONNRESET", "False 0 {}"]


@every
def test_asyncio_subscribes_again_for_the_same_purpose(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = aio_script.run(
            b,
            interpreter,
            """
await c.connect()
await c.subscribe("a/#", 1, "billing")
await c.reserve("a/b", ["billing"])
await c.disconnect()
await c.connect()
say(await c.publish("a/b", b"x", qos=1))
await c.disconnect()
""",
        )
        assert len(said) == 1
        assert b.peer.said("subscribe") == [("!AP/a/%23{billing}", 1)] * 2
        assert len(b.peer.said("command")) == 1


def test_the_module_is_loaded_at_its_first_use(tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            "64",
            LISTEN
            + """
def loaded():
    say([m for m in sys.modules if "purposes" in m])
c.subscribe("a")
c.unsubscribe("a")
c.publish("t", b"x", qos=1)
loaded()
c.subscribe("a", purpose="x")
loaded()
""",
        )
        assert said[0] == "[]"
        assert "purposes" in said[1]
