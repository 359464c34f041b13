"""Reservations and purposes of boards that live: queued, and sent until they are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, Board, board
from living_script import first_of_each, gives_receipts, live
from peer_connection import Connection
from sealmq_spec.errors import Denied
from test_living_aio import ASYNC
from test_sleeping import wake

every = pytest.mark.parametrize("interpreter", INTERPRETERS)


def commands(b: Board) -> list[str]:
    return [text for _, text, _ in b.peer.said("command")]


def answers(b: Board) -> None:
    """The first command ends the connection, one about `no` is refused."""

    def on_command(c: Connection, command: str, ctr: int) -> bool:
        first = len(b.peer.said("command")) == 1
        if first:
            c.sock.close()
        elif "/no" in command:
            c.notice(4, ctr, Denied.code, "purposes.entitled", "not yours")
        return first or "/no" in command

    b.peer.on_command = on_command


SAYS = [
    "!RESERVE/a/b{billing|}",  # lost with its connection, hence
    "!RESERVE/a/b{billing|}",
    "!RESERVE/no{billing|}",
    "!RESERVE/no/more{}",
    "!PBAC/PRESUB/old-panel/a/%23{billing}",
]


@every
def test_queued_and_sent_until_it_is_answered(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        answers(b)
        said = live(
            b,
            interpreter,
            """
l = living()
l.reserve("a/b", ["billing"])
l.reserve("no", ["billing"])
l.release("no/more")
l.presubscribe("old-panel", "a/#", "billing")
l.subscribe("a/#", 1, "billing")
l.subscribe("c", 0, "x"); l.unsubscribe("c", "x")
caught(l.reserve, "a", "billing")
caught(l.subscribe, "a", 0, "")
until(l, lambda: not l.asks)
l.publish("a/b", b"x", qos=1)
l.flush(5000)
l.core._close()
l.publish("a/b", b"y", qos=1)
l.flush(5000)
l.disconnect()
""",
        )
        assert said == [
            "Misuse", "Malformed", "up", "down OSError", "up", "up Denied", "up Denied",
            "1 accepted", "down OSError", "up", "2 accepted",
        ]  # fmt: skip
        # What was answered, or refused, is not said again in a new connection; subscriptions are.
        assert commands(b) == SAYS
        asked = ["!AP/a/%23{billing}", "!AP/c{x}", "!AP/a/%23{billing}"]
        assert [filt for filt, _ in b.peer.said("subscribe")] == asked
        assert b.peer.said("unsubscribe") == [("!AP/c{x}", 0)]
        assert first_of_each(b) == ["x", "y"]


@every
def test_the_same_with_asyncio(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        answers(b)
        said = live(
            b,
            interpreter,
            """
async def main():
    l = living()
    l.reserve("a/b", ["billing"])
    l.reserve("no", ["billing"])
    l.release("no/more")
    l.presubscribe("old-panel", "a/#", "billing")
    l.subscribe("a/#", 1, "billing")
    l.unsubscribe("c", "x")
    task = asyncio.create_task(l.run())
    await until(lambda: not l.asks)
    await l.disconnect()
    task.cancel()
asyncio.run(main())
""",
            ASYNC,
        )
        assert said[:5] == ["up", "down OSError", "up", "up Denied", "up Denied"]
        assert commands(b) == SAYS
        assert b.peer.said("subscribe") == [("!AP/a/%23{billing}", 1)]
        assert b.peer.said("unsubscribe") == [("!AP/c{x}", 0)]


@every
def test_one_that_sleeps_says_it_in_each_wake(interpreter: str, tmp_path: Path) -> None:
    """Its subscriptions lie at the broker and are spared; whether a command was answered in an
    earlier wake is not known."""
    with board(tmp_path) as b:
        gives_receipts(b)
        script = """
s = sleeper(clean=False, listen=100)
s.set_callback(say)
s.subscribe("t/#", 1, "billing")
s.unsubscribe("u")
s.reserve("t/x", ["billing"])
sleep(s)
say(sorted(s.core._subscribed.values()))
"""
        for _ in range(2):
            assert wake(b, interpreter, script) == ["asleep 300000", "[1]"]
            b.peer.present = 1
        assert b.peer.said("subscribe") == [("!AP/t/%23{billing}", 1)]
        assert b.peer.said("unsubscribe") == [("u", 0)]
        assert commands(b) == ["!RESERVE/t/x{billing|}"] * 2
