"""A family's command (SPEC.md 4.4, op 0x81) gets to the policy."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from mediator_world import NOW_MS, SENSOR, World

from sealmq.families.api import Verdict
from sealmq.mediator.controlling import Controlling
from sealmq.mqtt import Publish
from sealmq_spec.const import OP_COMMAND
from sealmq_spec.errors import SealError


class Scene:
    """A connection that is open, as far as control packets touch one."""

    def __init__(self) -> None:
        world = World()
        self.session = world.session(SENSOR)
        self.asked: list[tuple[str, bytes]] = []
        self.refused: list[tuple[str, str]] = []
        self.conn: Any = SimpleNamespace(
            link=world.link(self.session),
            low=0,
            hub=SimpleNamespace(now_ms=lambda: NOW_MS),
            policy=SimpleNamespace(command=self._command),
            refuse=self._refuse,
            state="open",
        )

    def _command(self, family: str, body: bytes, now_ms: int) -> Verdict:
        self.asked.append((family, body))
        return Verdict(False, "toy.no", "toys are put away")

    def _refuse(self, what: int, ctr: int, error: SealError, rule: str) -> None:
        self.refused.append((rule, str(error)))

    def send(self, body: bytes) -> None:
        """A control packet of the client."""
        packet = self.session.up(body, 0)
        work = Controlling(self.conn).packet(Publish("!c1", b"!c1", packet, 0, False, False, 0))
        if work is not None:
            asyncio.run(work)


def test_a_command_gets_to_its_family() -> None:
    scene = Scene()
    scene.send(bytes((OP_COMMAND, 3)) + b"toy" + b"do it")
    assert scene.asked == [("toy", b"do it")]
    assert scene.refused == [("toy.no", "toys are put away")]


def test_a_command_that_was_overtaken_does_not_overwrite_the_newer_one() -> None:
    """The network may hold one back: inside of the window, and fresh."""
    scene = Scene()
    older = scene.session.up(bytes((OP_COMMAND, 3)) + b"toy" + b"allow", 0)
    scene.send(bytes((OP_COMMAND, 3)) + b"toy" + b"forbid")
    Controlling(scene.conn).packet(Publish("!c1", b"!c1", older, 0, False, False, 0))
    assert scene.asked == [("toy", b"forbid")]
    assert scene.refused[-1][0] == "mediator.control.replay"


@pytest.mark.parametrize("body", [b"", b"\x03to"], ids=["no name", "half a name"])
def test_a_command_without_its_name_is_malformed(body: bytes) -> None:
    scene = Scene()
    scene.send(bytes((OP_COMMAND,)) + body)
    assert scene.asked == []
    assert scene.refused[0][0] == "mediator.control.malformed"
