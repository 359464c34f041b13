"""Sources of attributes in the mediator: workers hear what they say, and an operator which fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sealmq.attributes.files import BadSource
from sealmq.attributes.sources import Rows
from sealmq.audit.events import check
from sealmq.families.attributes import Attribute
from sealmq.mediator import attribute_sources
from sealmq.mediator.attribute_sources import AttributeSources
from sealmq.site.model import Attribute as Settings

CONTRACT = Settings("file", path=Path("/nowhere.toml"))
BOB = Attribute("contract", "bob", "signed", 5)
EVE = Attribute("contract", "eve", True, 5)


class Fake:
    """Says what the test puts into `says`."""

    def __init__(self) -> None:
        self.says: Rows | Exception | None = None
        self.looks = 0

    def look(self) -> Rows | None:
        self.looks += 1
        says, self.says = self.says, None
        if isinstance(says, Exception):
            raise says
        return says


class Scene:
    def __init__(self) -> None:
        self.told: list[Attribute] = []
        self.fakes: dict[str, Any] = {}
        self.changes = 0
        self.recorded: list[dict[str, Any]] = []
        self.sources = AttributeSources(self._tell, self._changed, self._record, self._make)

    async def _tell(self, rows: list[Attribute]) -> None:
        self.told += rows

    def _changed(self) -> None:
        self.changes += 1

    def _record(self, event: str, **fields: Any) -> None:
        written, wrong = check(event, fields)
        assert (written is not None, wrong) == (True, ""), "it is one of the schema"
        self.recorded.append({"event": event} | (written or {}))

    def _make(self, name: str, settings: Settings) -> Any:
        return self.fakes[name]

    async def says(self, name: str, says: Rows | Exception) -> list[Attribute]:
        """What is told when that source says this."""
        self.told.clear()
        fake = self.fakes[name]
        fake.says = says
        await until(lambda: fake.says is None)
        looks = fake.looks
        await until(lambda: fake.looks > looks)
        return self.told


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("waited in vain")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribute_sources, "LOOK_S", 0.001)


def run(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def bounded() -> None:
        scene = Scene()
        async with asyncio.timeout(30):
            try:
                await story(scene)
            finally:
                await scene.sources.close()

    asyncio.run(bounded())


def test_workers_are_told_what_has_changed_and_what_is_said_no_more() -> None:
    async def story(it: Scene) -> None:
        fake = it.fakes["contract"] = Fake()
        fake.says = {"bob": BOB}
        await it.sources.take({"contract": CONTRACT})
        assert it.told == [BOB], "before anybody is served"
        assert await it.says("contract", {"bob": BOB, "eve": EVE}) == [EVE]
        assert it.sources.rows == [BOB, EVE], "for a worker that begins"
        one = EVE._replace(value=1)
        assert await it.says("contract", {"bob": BOB, "eve": one}) == [one], "1 is not true"
        assert await it.says("contract", {"eve": one}) == [BOB._replace(value=None, until=0)]
        await it.sources.take({})
        assert it.told[-1] == one._replace(value=None, until=0)
        assert it.sources.rows == []

    run(story)


def test_a_source_that_fails_is_said_and_what_it_said_before_is_not_taken_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(it: Scene) -> None:
        fake = it.fakes["contract"] = Fake()
        fake.says = {"bob": BOB}
        await it.sources.take({"contract": CONTRACT})
        assert await it.says("contract", BadSource("it is not TOML", "mend it")) == []
        assert it.sources.failing == {"contract": "it is not TOML; mend it"}
        assert it.sources.rows == [BOB]
        assert await it.says("contract", FileNotFoundError(2, "No such file")) == []
        assert it.sources.failing == {"contract": "it cannot be read: No such file"}
        assert await it.says("contract", ZeroDivisionError("a\nb")) == []
        assert it.sources.failing == {"contract": "ZeroDivisionError: a\\nb"}
        assert await it.says("contract", {"bob": BOB}) == []
        assert it.sources.failing == {}
        assert it.changes == 4

    # An earlier test may have run a command that silences the logging of its process.
    with caplog.at_level("WARNING"):
        run(story)
    assert "attribute contract: it is not TOML; mend it; what it said before holds" in caplog.text
    assert "attribute contract: its source is there again" in caplog.text


def test_sources_whose_disk_hangs_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many: a right that ends in another file ends."""
    monkeypatch.setattr(attribute_sources, "FIRST_S", 0.01)
    back = threading.Event()

    class Hangs(Fake):
        def look(self) -> Rows | None:
            back.wait()
            return None

    async def story(it: Scene) -> None:
        hanging = [f"remote{n}" for n in range(32)]
        it.fakes |= {name: Hangs() for name in hanging}
        fake = it.fakes["contract"] = Fake()
        fake.says = {"bob": BOB}
        try:
            await it.sources.take(dict.fromkeys((*hanging, "contract"), CONTRACT))
            await until(lambda: it.told == [BOB])  # nobody waits for it longer than FIRST_S
            assert await it.says("contract", {}) == [BOB._replace(value=None, until=0)]
        finally:
            back.set()

    run(story)


def test_each_change_of_a_value_stands_in_the_audit_log_and_each_failure_of_its_source() -> None:
    site = EVE._replace(subject="", value="früh\n", until=7)

    async def story(it: Scene) -> None:
        fake = it.fakes["contract"] = Fake()
        fake.says = {"bob": BOB, "": site}
        await it.sources.take({"contract": CONTRACT})
        it.fakes["contract"].says = {"bob": BOB, "": site}
        await it.says("contract", {"bob": BOB._replace(until=6)})
        await it.says("contract", BadSource("it is not TOML", "mend it"))
        await it.says("contract", BadSource("it is not TOML", "mend it"))
        await it.says("contract", {"bob": BOB._replace(until=6)})
        await it.sources.take({})
        of = {"event": "attribute-changed", "attribute": "contract"}
        bob = {**of, "subject": "bob", "value": '"signed"'}
        assert it.recorded == [
            {**bob, "until_ms": 5},
            {**of, "value": '"früh\\n"', "until_ms": 7},
            {**bob, "until_ms": 6},
            of,
            {
                "event": "attribute-away",
                "attribute": "contract",
                "reason": "it is not TOML; mend it",
            },
            {"event": "attribute-back", "attribute": "contract"},
            {**of, "subject": "bob"},
        ]

    run(story)


def test_of_a_time_zone_its_failure_alone_stands_in_the_audit_log() -> None:
    async def story(it: Scene) -> None:
        fake = it.fakes["time"] = Fake()
        fake.says = {"": Attribute("time", "", [[0, 0]], 5)}
        await it.sources.take({"time": Settings("time", zone="UTC")})
        await it.says("time", {"": Attribute("time", "", [[0, 0], [5, 1]], 9)})
        await it.says("time", BadSource("no such zone", "install tzdata"))
        assert [one["event"] for one in it.recorded] == ["attribute-away"]

    run(story)


def test_with_other_settings_a_source_begins_anew() -> None:
    async def story(it: Scene) -> None:
        old = it.fakes["contract"] = Fake()
        old.says = {"bob": BOB}
        await it.sources.take({"contract": CONTRACT})
        new = it.fakes["contract"] = Fake()
        new.says = {"eve": EVE}
        it.told.clear()
        await it.sources.take({"contract": Settings("file", path=Path("/other.toml"))})
        assert it.told == [BOB._replace(value=None, until=0), EVE]

    run(story)


def test_what_began_under_new_settings_is_told_again_when_workers_go_by_them() -> None:
    async def story(it: Scene) -> None:
        it.fakes["contract"] = fake = Fake()
        fake.says = {"bob": BOB}
        await it.sources.take({"contract": CONTRACT})
        it.told.clear()
        await it.sources.again()
        assert it.told == [BOB]
        await it.sources.again()
        assert it.told == [BOB], "once"

    run(story)


def test_of_what_several_workers_derive_all_are_told_what_counts_by_then() -> None:
    room = Attribute("room", "anna", "1005", 5)
    events = {"room": Settings("events", of="owner", family="probe", valid_ms=1)}

    async def story(it: Scene) -> None:
        await it.sources.take(events)
        assert it.sources.derived(0, [room]) == [room]
        later = room._replace(value="1003")
        assert it.sources.derived(1, [later]) == [later]
        await until(lambda: it.told == [later])
        assert it.sources.rows == [later]
        it.sources.lost(0)
        assert it.sources.rows == [later], "it is the other worker's by now"
        it.sources.lost(1)
        gone = room._replace(value=None, until=0)
        await until(lambda: it.told[-1] == gone)
        assert it.sources.derived(0, [gone]) == [gone]
        it.sources.derived(0, [room])
        await it.sources.take({"room": Settings("events", of="owner", family="probe", valid_ms=2)})
        assert it.sources.rows == [room]
        await it.sources.take(events)
        assert it.sources.rows == [], "it may hold for longer than one that is told now"
        it.sources.derived(0, [room])
        await it.sources.take({"room": Settings("events", of="pair", family="probe", valid_ms=1)})
        assert it.sources.rows == [], "it is asked about something else now"
        await it.sources.take({})
        assert it.sources.derived(0, [room]) == [gone], "there is no such attribute"

    run(story)


def test_a_disk_that_hangs_holds_up_neither_the_start_nor_other_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attribute_sources, "FIRST_S", 0.01)
    goes_on = threading.Event()

    class Hangs:
        def look(self) -> Rows | None:
            goes_on.wait(20)
            return None

    async def story(it: Scene) -> None:
        it.fakes["hangs"] = Hangs()
        it.fakes["contract"] = Fake()
        try:
            await it.sources.take({"hangs": CONTRACT, "contract": CONTRACT})
            assert await it.says("contract", {"bob": BOB}) == [BOB]
        finally:
            goes_on.set()

    run(story)
