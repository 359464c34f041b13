"""Owner policies in a started site of two workers with Mosquitto: the paper's campus, and what was
kept by broker and mediator when a right is taken back, or put back by a backup.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sealmq.client import Client, Options  # noqa: TID251 - it is what is tried
from sealmq.client.lent import lent_client  # noqa: TID251 - as `sealmq sub` does
from sealmq_spec.errors import Denied

from handover_cast import until as soon
from running_site import Site, ran, until

HOURS = (
    'WORK_DAY = { between = ["08:00", "18:00"], weekdays = ["mon", "tue", "wed", "thu", "fri"] }\n'
    'WORK_NIGHT = { between = ["18:00", "08:00"], weekdays = ["mon", "tue", "wed", "thu"] }\n'
)
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Figure 8, as far as it reads these events.
FILTERS = {
    "Alice": ["loc/Eve/EECS/+", "loc/Bob/EECS/+", "loc/Bob/GGBR/1005", "loc/Sam/EECS/3115",
              "loc/Tom/+/+", "loc/+/EECS/2246"],
    "Eve": ["loc/+/+/+"],
    "Bob": ["loc/Alice/ATL/+"],
}  # fmt: skip
FIGURE_9 = ["loc/Eve/EECS/1005", "loc/Eve/EECS/1003", "loc/Tom/GGBR/1020", "loc/Alice/ATL/133",
            "loc/Sam/EECS/3227"]  # fmt: skip
SPEED = """
[families.owners.types.SPEED]
app = "CAR_APP"
topic = "car/{user}"
owner = "user"
control = "both"
attributes = { speed = "int" }

[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["owner", "location_publisher"]
app = "CAR_APP"
actions = ["*"]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("owners"), "campus", "owners")
    site.edit("[mediator]\n", "[mediator]\nworkers = 2\n")
    # What the calendar says is else alone: the hours are those of another day of the week.
    day = DAYS[(datetime.date.today().weekday() + 3) % 7]
    site.edit(HOURS, f'SOME_DAY = {{ between = ["08:00", "09:00"], weekdays = ["{day}"] }}\n')
    site.edit('else = "WEEKEND"', 'else = "WORK_DAY"')
    site.toml.write_text(site.toml.read_text() + SPEED)
    site.up("--broker", "mosquitto")
    yield site
    site.down()


class Campus:
    """Who is connected, and what each has got: topic and payload."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clients: dict[str, Client] = {}
        self.got: dict[str, list[tuple[str, str]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends = 0

    async def client(self, name: str, clean: bool = True) -> Client:
        if name not in self.clients:
            options = Options(client_id=f"{name}-site", clean=clean)
            self.clients[name] = await lent_client(self.site.path, name, options=options)
            await self.clients[name].connect()
        return self.clients[name]

    async def reads(self, name: str, *filters: str, clean: bool = True) -> None:
        client = await self.client(name, clean)
        self.got.setdefault(name, [])
        for filt in filters:
            await client.subscribe(filt, qos=1)
        self._tasks[name] = asyncio.create_task(self._follow(client, self.got[name]))

    async def _follow(self, client: Client, into: list[tuple[str, str]]) -> None:
        async for message in client.messages():
            into.append((message.topic, bytes(message.payload).decode()))

    async def publish(self, topic: str, payload: str = "x", **more: Any) -> None:
        client = await self.client("location_publisher")
        await client.publish(topic, payload, qos=1, **more)

    async def command(self, name: str, do: str, **body: Any) -> Any:
        client = await self.client(name)
        return json.loads(await client.command("owners", json.dumps({"do": do, **body}).encode()))

    async def lets(self, name: str, *licensees: str, **more: Any) -> str:
        said = {"licensees": licensees, "app": "LOC_APP", "type": "LOC_INFO",
                "actions": ["RECEIVE"], **more}  # fmt: skip
        id: str = (await self.command(name, "assert", **said))["id"]
        return id

    async def has(self, name: str, payload: str) -> None:
        await soon(
            lambda: f"{payload} at {name}: {self.got}",
            lambda: any(what == payload for _, what in self.got[name]),
        )

    async def receivers(self, *topics: str) -> list[list[str]]:
        """Who gets one event on each, in this order; each reader once."""
        for got in self.got.values():
            got.clear()
        for n, topic in enumerate(topics):
            await self.publish(topic, f"event {n}")
        self._ends += 1
        for topic in ("loc/Eve/EECS/end", "loc/Alice/ATL/end"):
            await self.publish(topic, f"end {self._ends}")
        for name in self.got:
            await self.has(name, f"end {self._ends}")
        found = []
        for n, topic in enumerate(topics):
            now = [name for name, got in self.got.items() if (topic, f"event {n}") in got]
            assert all(self.got[name].count((topic, f"event {n}")) == 1 for name in now)
            found.append(sorted(now))
        return found

    async def leaves(self, *names: str) -> None:
        for name in names or tuple(self.clients):
            if (task := self._tasks.pop(name, None)) is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await self.clients.pop(name).disconnect()


@asynccontextmanager
async def campus(site: Site) -> AsyncIterator[Campus]:
    made = Campus(site)
    try:
        yield made
    finally:
        await made.leaves()


def run(site: Site, story: Callable[[Campus], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120), campus(site) as it:
            await story(it)

    asyncio.run(bounded())


def time_is(site: Site, old: str, new: str) -> None:
    site.edit(f'else = "{old}"', f'else = "{new}"')
    ran("reload", site.path)


def test_the_campus_of_the_paper(place: Site) -> None:
    async def story(it: Campus) -> None:
        ends = [await it.lets("Eve", "Alice", condition='room == "end"'),
                await it.lets("Alice", "Bob", condition='room == "end"')]  # fmt: skip
        for name, filters in FILTERS.items():
            await it.reads(name, *filters)
        assert await it.receivers(*FIGURE_9) == [["Eve"], ["Eve"], [], [], []]
        # (a) Where Alice is, is soon known at all workers. The events that ask for it move her.
        readers = [["Alice", "Eve"], ["Eve"]]
        found: list[list[str]] = []
        for passed_s in (0.5, 5):
            if found != readers:
                await it.publish("loc/Alice/EECS/1005", "nobody's")
                await asyncio.sleep(passed_s)
                found = await it.receivers(*FIGURE_9[:2])
        assert found == readers
        # (b)
        for before, now, who in (
            ("WORK_DAY", "WORK_NIGHT", ["Alice", "Eve"]),
            ("WORK_NIGHT", "WEEKEND", []),
            ("WEEKEND", "WORK_DAY", ["Alice", "Eve"]),
        ):
            await asyncio.to_thread(time_is, it.site, before, now)
            assert await it.receivers("loc/Bob/GGBR/1005") == [who], now
        # (c) Once, though two filters match.
        assert await it.receivers("loc/Bob/EECS/2246") == [["Alice", "Eve"]]
        # (d)
        nick = ("loc/Nick/EECS/1005", "loc/Nick/EECS/2246")
        hr = await it.client("hr")
        assert await it.receivers(*nick) == [[], []]
        await hr.set_attribute("extCollaborator", ("Nick", "Eve"), "true")
        assert await it.receivers(*nick) == [["Eve"], ["Eve"]]
        await hr.set_attribute("extCollaborator", ("Nick", "Alice"), "true")
        assert await it.receivers(*nick) == [["Eve"], ["Alice", "Eve"]]
        await hr.set_attribute("extCollaborator", ("Nick", "Eve"), None)
        assert await it.receivers(*nick) == [[], ["Alice"]]
        eve = await it.client("Eve")
        with pytest.raises(Denied):
            await eve.set_attribute("extCollaborator", ("Nick", "Eve"), "true")
        # (e)
        ends.append(await it.lets("Alice", "Bob"))
        assert await it.receivers(FIGURE_9[3]) == [["Bob"]]
        # (f)
        for owner in ("Bob", "*"):
            with pytest.raises(Denied):
                await it.lets("Alice", "Sam", owner=owner)
        for name, id in zip(("Eve", "Alice", "Alice"), ends, strict=True):
            await it.command(name, "retract", id=id)

    run(place, story)


def test_nothing_kept_under_way_or_in_a_session_goes_out_after_a_retraction(place: Site) -> None:
    async def story(it: Campus) -> None:
        topic = "loc/Alice/ATL/133"
        own = await it.lets("Alice", "Bob", condition='room == "own"')
        id = await it.lets("Alice", "Bob")
        await it.reads("Bob", "loc/Alice/ATL/+", clean=False)
        # Live, with deliveries under way.
        sent, stopping = 0, False

        async def stream() -> None:
            nonlocal sent
            while not stopping:
                sent += 1
                await it.publish(topic, str(sent))

        streaming = asyncio.create_task(stream())
        await soon(lambda: "deliveries", lambda: len(it.got["Bob"]) > 20)
        await it.command("Alice", "retract", id=id)
        first = sent + 1
        await soon(lambda: "more of them", lambda: sent > first + 30)
        stopping = True
        await streaming
        await it.publish("loc/Alice/ATL/own", "live end")
        await it.has("Bob", "live end")
        got = {int(what) for _, what in it.got["Bob"] if what.isdecimal()}
        assert len(got) > 20
        assert not got & set(range(first, sent + 1))
        # Queued in a kept session, and retained, while it was allowed.
        id = await it.lets("Alice", "Bob")
        await it.leaves("Bob")
        await it.publish(topic, "queued")
        await it.publish(topic, "retained", retain=True, life=255)
        await it.publish("loc/Alice/ATL/own", "kept end")
        await it.command("Alice", "retract", id=id)
        await it.reads("Bob", clean=False)
        await it.has("Bob", "kept end")
        client = await it.client("Bob")
        await client.subscribe("loc/Alice/+/133", qos=1)
        await it.publish("loc/Alice/ATL/own", "retained end")
        await it.has("Bob", "retained end")
        assert not {"queued", "retained"} & {what for _, what in it.got["Bob"]}
        # And it is there: whoever is allowed again has the retained one.
        id = await it.lets("Alice", "Bob")
        await client.subscribe("loc/Alice/ATL/133", qos=1)
        await it.has("Bob", "retained")
        await client.unsubscribe("loc/Alice/ATL/+")
        await it.leaves("Bob")
        await it.command("Alice", "retract", id=id)
        await it.command("Alice", "retract", id=own)

    run(place, story)


def test_a_sealed_attribute_is_judged_and_shown_to_nobody(place: Site) -> None:
    async def story(it: Campus) -> None:
        said = {"app": "CAR_APP", "type": "SPEED", "actions": ["RECEIVE", "SUBSCRIBE"]}
        id = await it.lets("Tom", "Sam", **{**said, "condition": "speed < 50"})
        plain = await it.lets("Tom", "Sam", **{**said, "actions": ["SUBSCRIBE"]})
        await it.reads("Sam", "car/Tom")
        for speed in (70, 30):
            await it.publish("car/Tom", f"at {speed}", put={"attribute": [f"speed={speed}"]})
        await it.has("Sam", "at 30")
        assert [what for _, what in it.got["Sam"]] == ["at 30"]
        await it.publish("car/Tom", "kept at 30", retain=True, life=255,
                         put={"attribute": ["speed=30"]})  # fmt: skip
        await it.has("Sam", "kept at 30")
        # A subscription ends with the right to subscribe.
        await it.command("Tom", "retract", id=plain)
        await it.command("Tom", "retract", id=id)
        client = await it.client("Sam")
        with pytest.raises(Denied):
            await client.subscribe("car/Tom", qos=1)
        await it.publish("car/Tom", "later at 30", put={"attribute": ["speed=30"]})
        await asyncio.sleep(0.3)
        assert [what for _, what in it.got["Sam"]] == ["at 30", "kept at 30"]

    run(place, story)


def test_an_emergency_is_told_to_the_owner_and_ends(place: Site) -> None:
    async def story(it: Campus) -> None:
        topic = "loc/Sam/EECS/3227"
        id = await it.lets("location_admin", "Eve", owner="Sam", actions=["EMERGENCY"])
        owner = await it.client("Sam")
        await it.reads("Eve", "loc/Sam/+/+")
        await it.publish(topic, "before")
        said = {"owner": "Sam", "reason": "fire in EECS", "minutes": 5}
        with pytest.raises(Denied):
            await it.command("Alice", "break-glass", **said)
        await it.command("Eve", "break-glass", **said)
        await soon(lambda: "the news", lambda: any(b"fire in EECS" in n.said for n in owner.news))
        await it.publish(topic, "while")
        await it.has("Eve", "while")
        await it.leaves("Sam")
        owner = await it.client("Sam")
        await soon(lambda: "the greeting", lambda: any(b"fire in" in n.said for n in owner.news))
        await it.command("Sam", "close-glass", client="Eve")
        await it.publish(topic, "after")
        marked = await it.lets("Sam", "Eve")
        await it.publish(topic, "end")
        await it.has("Eve", "end")
        assert [what for _, what in it.got["Eve"]] == ["while", "end"]
        await it.command("Sam", "retract", id=marked)
        await it.command("location_admin", "retract", id=id)

    run(place, story)
    told = until("the record", lambda: place.audit("command", client="Eve", family="owners"))
    assert any("fire in EECS" in str(row.get("detail")) for row in told)


def test_what_a_backup_puts_back_counts_when_its_author_has_confirmed_it(
    place: Site, tmp_path: Path
) -> None:
    """What was retracted since opens nothing after a restore, nor does what was not: its author, or
    the operator, says which is which. So it is, too, where a store comes that is not known.
    """
    ids: dict[str, str] = {}

    async def asserts(it: Campus) -> None:
        ids["retracted"] = await it.lets("Tom", "Eve")
        ids["kept"] = await it.lets("Tom", "Bob")
        ids["other"] = await it.lets("Nick", "Bob")

    async def retracts(it: Campus) -> None:
        await it.command("Tom", "retract", id=ids["retracted"])

    def who(*wanted: str) -> Callable[[Campus], Awaitable[None]]:
        async def story(it: Campus) -> None:
            await it.reads("Eve", "loc/+/+/+")
            await it.reads("Bob", "loc/+/+/+")
            for name in ("Eve", "Bob"):
                await it.lets("location_admin", name, owner="*", condition='room == "end"')
            found = await it.receivers("loc/Tom/GGBR/1020", "loc/Nick/GGBR/1020")
            assert [" ".join(names) for names in found] == list(wanted)

        return story

    def owners(*words: str) -> str:
        return ran("owners", words[0], place.path, *words[1:])

    run(place, asserts)
    run(place, who("Bob Eve", "Bob"))
    ran("backup", place.path, tmp_path / "old")
    run(place, retracts)
    place.down()
    told = ran("restore", place.path, tmp_path / "old")
    assert "owners' assertions, of which none counts before it is confirmed:" in told
    assert f"sealmq owners confirm {place.path}" in told
    waits = json.loads(owners("confirm", "--json"))["waiting"]
    assert set(ids.values()) <= {one["id"] for one in waits}
    assert "unconfirmed" in owners("list", "--by", "Tom")
    assert f"{ids['other']}: confirmed" in owners("confirm", "--by", "Nick")
    place.up("--broker", "mosquitto")
    run(place, who("", "Bob"))
    run(place, retracts)
    assert owners("confirm", "--client", "Tom", "--all") == f"{ids['kept']}: confirmed\n"
    run(place, who("Bob", "Bob"))
    place.down()
    with contextlib.closing(sqlite3.connect(place.path / "state/mediator/mediator.db")) as db, db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'store'", (bytes(16).hex(),))
    place.up("--broker", "mosquitto")
    assert "is open again" in ran("reopen", place.path)
    run(place, who("", ""))
