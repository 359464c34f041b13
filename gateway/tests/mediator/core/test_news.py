"""What a family tells clients that have not asked (SPEC.md 4.4, op 9): with a command, and at each
welcome. Core alone, with real keys.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from core_world import Peer, Shell, opened
from mediator_world import PANEL, SENSOR
from sealmq.families.api import NEWS, TOLD, Ask, Family, FamilyRecord, Proposal, Verdict, Who, allow
from sealmq.mediator.core.effects import Commit, Tell
from sealmq_spec.const import OP_NEWS, OP_NOTICE, OP_REPLY
from sealmq_spec.news import get_news


class Tells(Family):
    """A command tells these. `greeting`: what each client is told, by name."""

    name: ClassVar[str] = "tells"
    rules: ClassVar[dict[str, str]] = {"tells.fine": "Fine."}

    def __init__(self, tells: Any = (("panel", b"opened"),)) -> None:
        self.tells = tells
        self.greeting: dict[str, Any] = {}

    def connect(self, ask: Ask) -> Verdict:
        return allow("tells.fine", "fine")

    publish = subscribe = deliver = connect

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal:
        row = FamilyRecord("tells", "row", b"x")
        return Proposal((row,), {"detail": "told"}, b"done", tells=self.tells)

    def greet(self, who: Who) -> bytes:
        said: bytes = self.greeting.get(who.client, b"")
        return said


def news(told: list[tuple[int, Any]]) -> list[tuple[str, bytes]]:
    return [get_news(said) for op, said in told if op == OP_NEWS]


def test_whom_a_command_tells_is_told_once_its_rows_are_on_disk() -> None:
    shell = Shell(Tells())
    peer = opened(shell)
    shell.later.add(Commit)
    peer.send(peer.command("tells", b"do"))
    assert shell.of(Tell) == []
    shell.answer()
    assert shell.of(Tell) == [Tell("tells", (("panel", b"opened"),))]
    peer.take()
    assert [op for op, _ in peer.told] == [OP_REPLY]


def test_a_client_that_has_gone_meanwhile_keeps_nobody_from_being_told() -> None:
    """What was committed is in force, whether its client is told or not."""
    shell = Shell(Tells())
    peer = opened(shell)
    shell.later.add(Commit)
    peer.send(peer.command("tells", b"do"))
    peer.session.lost("cut")
    shell.answer()
    assert len(shell.of(Tell)) == 1


@pytest.mark.parametrize(
    "tells",
    [
        tuple((f"c{n}", b"") for n in range(TOLD + 1)),
        (("panel", bytes(NEWS + 1)),),
        (("panel", "text"),),
        ((5, b"x"),),
        ("panel",),
        [("panel", b"x")],
        None,
    ],
)
def test_what_cannot_be_told_refuses_the_command_and_stores_nothing(tells: Any) -> None:
    shell = Shell(Tells(tells))
    peer = opened(shell)
    before = len(shell.store.rows)
    peer.send(peer.command("tells", b"do"))
    assert (shell.of(Tell), len(shell.store.rows)) == ([], before)
    assert [said[3] for op, said in peer.told if op == OP_NOTICE] == ["engine.bad-proposal"]


def test_the_most_that_can_be_told_is_told() -> None:
    shell = Shell(Tells(tuple((f"c{n}", bytes(NEWS)) for n in range(TOLD))))
    peer = opened(shell)
    peer.send(peer.command("tells", b"do"))
    assert len(shell.of(Tell)) == 1


def test_an_open_session_gets_news_and_one_whose_socket_is_full_gets_none() -> None:
    shell = Shell(Tells())
    peer = opened(shell, PANEL)
    peer.session.news("tells", b"opened")
    peer.session.writable(False)
    peer.session.news("tells", b"lost")
    peer.session.writable(True)
    peer.take()
    assert news(peer.told) == [("tells", b"opened")]
    peer.session.close("gone")
    peer.session.news("tells", b"late")
    assert peer.session.out == []


def test_each_welcome_is_followed_by_what_families_have_to_say() -> None:
    family = Tells()
    family.greeting = {"panel": b"while you were away"}
    shell = Shell(family)
    told = []
    for boot in (1, 2):
        peer = Peer(shell, PANEL, shell.world.session(PANEL, boot=boot)).connect()
        told.append(news(peer.told))
    assert told == [[("tells", b"while you were away")]] * 2
    assert news(opened(shell, SENSOR).told) == []


@pytest.mark.parametrize("greeting", [bytes(NEWS + 1), "text", None, 5])
def test_a_greeting_that_cannot_be_told_is_a_fault_and_the_client_comes_in(greeting: Any) -> None:
    family = Tells()
    family.greeting = {"panel": greeting}
    shell = Shell(family)
    peer = opened(shell, PANEL)
    assert peer.session.state == "open"
    assert news(peer.told) == []
    assert [(name, question) for name, question, _ in shell.faults] == [("tells", "greet")]
