"""A family's command (SPEC.md 4.4, op 0x81) gets to the policy."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mediator_world import NOW_MS, SENSOR, World
from sealmq.families.api import FamilyRecord, Proposal, Verdict
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
        self.told: list[bytes] = []
        self.conn: Any = SimpleNamespace(
            link=world.link(self.session),
            low=0,
            hub=SimpleNamespace(now_ms=lambda: NOW_MS, rewriting=None),
            policy=SimpleNamespace(command=self._command),
            refuse=self._refuse,
            state="open",
        )

    def _command(self, family: str, body: bytes, now_ms: int) -> Verdict:
        self.asked.append((family, body))
        return Verdict(False, "toy.no", "toys are put away")

    def _refuse(self, what: int, error: SealError, rule: str) -> None:
        self.refused.append((rule, str(error)))

    def work(self, body: bytes) -> asyncio.Task[None]:
        """A command of the family toy, under way."""
        packet = self.session.up(bytes((OP_COMMAND, 3)) + b"toy" + body, 0)
        work = Controlling(self.conn).packet(Publish("!c1", b"!c1", packet, 0, False, False, 0))
        assert work is not None
        return asyncio.create_task(work)

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


class Disk:
    """A hub whose commits take as long as the test says; what is stored is in `rows`."""

    def __init__(self) -> None:
        self.changing: dict[tuple[str, str], asyncio.Future[None]] = {}
        self.rewriting: asyncio.Future[None] | None = None
        self.rows: dict[str, bytes | None] = {}
        self.waiting: list[asyncio.Future[None]] = []

    def now_ms(self) -> int:
        return NOW_MS

    async def commit(self, records: list[FamilyRecord], told: object, urgent: bool) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(written)
        await written
        self.rows.update((record.key, record.value) for record in records)

    def client(self, name: str) -> Scene:
        """Says NAME of the row that its command names; replaces nothing that another one has."""
        scene = Scene()
        scene.conn.hub = self
        scene.conn.client = SimpleNamespace(name=name)
        scene.conn.down = scene.told.append

        def judged(family: str, body: bytes, now_ms: int) -> Proposal | Verdict:
            key = body.decode()
            if self.rows.get(key, name.encode()) != name.encode():
                return Verdict(False, "toy.held", "it is another's")
            return Proposal((FamilyRecord(family, key, name.encode()),))

        scene.conn.policy.command = judged
        return scene


def test_what_a_command_was_judged_by_still_holds_when_it_is_stored() -> None:
    """Of two clients one must not replace what the other says, also while that is being written."""

    async def race() -> None:
        disk = Disk()
        first, second, third = map(disk.client, ("first", "second", "third"))
        works = [first.work(b"row"), second.work(b"row"), third.work(b"elsewhere")]
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(disk.waiting) == 2, "only another row is written beside it"
        while disk.waiting:
            disk.waiting.pop().set_result(None)
            for _ in range(3):
                await asyncio.sleep(0)
        await asyncio.gather(*works)
        assert disk.rows == {"row": b"first", "elsewhere": b"third"}
        assert second.refused == [("toy.held", "it is another's")]
        assert [len(scene.told) for scene in (first, second, third)] == [1, 0, 1]
        assert disk.changing == {}

    asyncio.run(race())
