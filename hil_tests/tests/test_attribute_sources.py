"""Attributes that clients tell, that come of events, and counts: in a started site of two workers,
with a policy family that the test makes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from sealmq.client import Client  # noqa: TID251 - it is what is tried
from sealmq.client.lent import lent_client  # noqa: TID251 - as `sealmq sub` does
from sealmq_spec.errors import Denied

from handover_cast import until as soon
from installed_family import installed
from running_site import Site, publish, ran, sealmq, until

# By the last level of a topic, what its readers need. Whoever publishes on where/NAME/ROOM has seen
# NAME there.
FAMILY = """\
from sealmq.families.api import FOREVER, Attribute, Family, allow, deny
from sealmq.families.manifest import Manifest, Ref


class Needs(Family):
    name = "needs"
    rules = {"needs.yes": "It is so.", "needs.no": "It is not so."}

    def connect(self, ask):
        return allow("needs.yes", "anybody")

    publish = subscribe = connect

    def deliver(self, ask):
        word, me = ask.topic.rpartition("/")[2], ask.who.client
        if word == "signed":
            met = ask.attribute("contract", me) == "signed"
        elif word == "room":
            met = ask.attribute("room", "anna") == "1005"
        elif word == "once":
            met = ask.attribute("got", me) < 1
        else:
            met = True
        return (allow if met else deny)("needs.yes" if met else "needs.no", "as it is")

    def see(self, what, ask):
        levels = ask.topic.split("/")
        if what == "accepted" and levels[0] == "where":
            yield Attribute("room", levels[1], levels[2], FOREVER)


MANIFEST = Manifest(name="needs", family=Ref(":Needs"), stands_on=("labels",))
"""
SETTINGS = """
[attributes.contract]
source = "client"
of = "subscriber"
by = ["hr"]
valid = "1h"
[attributes.room]
source = "events"
family = "needs"
of = "owner"
valid = "1h"
[attributes.got]
source = "count"
of = "subscriber"
window = "1h"
"""
READERS = ["r1", "r2", "r3"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("attributes"))
    for name in ("hr", "boss", "p1", "p2"):
        site.enrol(name, "m1-temp")
    for name in READERS:
        site.enrol(name, "m1-ctrl")
    site.edit('order = ["labels"]\n', 'order = ["labels", "needs"]\n')
    site.edit("[mediator]\n", "[mediator]\nworkers = 2\n")
    site.toml.write_text(site.toml.read_text() + SETTINGS)
    with installed(tmp_path_factory.mktemp("installed"), "needs", FAMILY):
        site.up()
        yield site
        site.down()


class Crowd:
    """Readers of all topics, what each got, and who else is needed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.clients: dict[str, Client] = {}
        self.got: dict[str, list[str]] = {name: [] for name in READERS}
        self._tasks: list[asyncio.Task[None]] = []

    async def client(self, name: str) -> Client:
        if name not in self.clients:
            self.clients[name] = await lent_client(self._site.path, name)
            await self.clients[name].connect()
        return self.clients[name]

    async def read(self) -> None:
        for name in READERS:
            client = await self.client(name)
            await client.subscribe("#", qos=1)
            self._tasks.append(asyncio.create_task(self._follow(client, self.got[name])))

    async def _follow(self, client: Client, into: list[str]) -> None:
        async for message in client.messages():
            into.append(bytes(message.payload).decode())

    async def all_have(self, word: str) -> None:
        await soon(lambda: f"{word}: {self.got}", lambda: all(word in g for g in self.got.values()))

    async def all_begin(self, word: str) -> None:
        def all_have() -> bool:
            return all(any(w.startswith(word) for w in words) for words in self.got.values())

        await soon(lambda: f"{word}: {self.got}", all_have)

    async def more_than(self, name: str, many: int) -> None:
        await soon(lambda: f"{many} deliveries to {name}", lambda: len(self.got[name]) > many)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.clients.values():
            await client.disconnect()


@asynccontextmanager
async def crowd(site: Site) -> AsyncIterator[Crowd]:
    made = Crowd(site)
    try:
        await made.read()
        yield made
    finally:
        await made.close()


def run(site: Site, story: Callable[[Crowd], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120), crowd(site) as it:
            await story(it)

    asyncio.run(bounded())


def test_nothing_goes_out_after_the_reply_that_has_taken_a_value_away(place: Site) -> None:
    async def story(it: Crowd) -> None:
        hr, boss, sender = [await it.client(name) for name in ("hr", "boss", "p1")]
        sent = 0
        stopping = False

        async def stream() -> None:
            nonlocal sent
            while not stopping:
                sent += 1
                await sender.publish("hall/signed", str(sent), qos=sent % 2)

        streaming = asyncio.create_task(stream())
        after: dict[str, list[tuple[int, int]]] = {name: [] for name in READERS}
        for name in READERS * 3:
            # Deliveries to it are under way.
            await hr.set_attribute("contract", name, "signed")
            before = len(it.got[name])
            await it.more_than(name, before + 20)
            await hr.set_attribute("contract", name, None)
            first = sent + 1
            while sent < first + 50:  # noqa: ASYNC110 (another task publishes)
                await asyncio.sleep(0.01)
            after[name].append((first, sent))
        stopping = True
        await streaming
        for name in READERS:
            await hr.set_attribute("contract", name, "signed", valid_s=60)
        await sender.publish("hall/signed", "the end", qos=1)
        await it.all_have("the end")
        for name in READERS:
            got = {int(word) for word in it.got[name] if word.isdecimal()}
            assert len(got) > 60
            for first, last in after[name]:
                assert not got & set(range(first, last + 1)), name

        with pytest.raises(Denied):
            await boss.set_attribute("contract", "r1", "signed")
        with pytest.raises(Denied):
            await hr.set_attribute("contract", "r1", "signed", valid_s=3601)
        assert {(row[0], row[1][0], row[2], row[4]) for row in await hr.attributes()} == {
            ("contract", name, "signed", "hr") for name in READERS
        }
        assert await boss.attributes() == []

    run(place, story)
    rows = until("the records", lambda: place.audit("attribute-changed", client="hr"))
    assert {row["subject"] for row in rows} == set(READERS)
    assert {row.get("value") for row in rows} == {'"signed"', None}


def test_what_comes_of_events_is_in_force_where_it_came_and_soon_everywhere(place: Site) -> None:
    async def story(it: Crowd) -> None:
        for number, name in enumerate(("p1", "p2")):
            sender = await it.client(name)
            await sender.publish("where/anna/1005", f"in {number}", qos=1)
            tried = 0

            async def tries(sender: Client = sender, number: int = number) -> None:
                nonlocal tried
                while True:
                    tried += 1
                    await sender.publish("hall/room", f"{number} {tried}", qos=1)
                    await asyncio.sleep(0.01)

            trying = asyncio.create_task(tries())
            first = f"{number} 1"
            await it.all_begin(f"{number} ")
            trying.cancel()
            await asyncio.gather(trying, return_exceptions=True)
            # A reader of the publisher's own worker has missed nothing.
            assert any(first in words for words in it.got.values())
            await sender.publish("where/anna/1003", f"out {number}", qos=1)
            for tries_left in range(100, -1, -1):
                late, free = f"late {number} {tries_left}", f"free {number} {tries_left}"
                await sender.publish("hall/room", late, qos=1)
                await sender.publish("hall/free", free, qos=1)
                await it.all_have(free)
                if all(late not in words for words in it.got.values()):
                    break
            assert tries_left > 0, "nobody has it any more"

    run(place, story)


LEAVES = """
import asyncio, os, sys
from sealmq.client import Options, Will
from sealmq.client.lent import lent_client

async def main():
    will = Will("where/anna/1005", b"gone", qos=1)
    await (await lent_client(sys.argv[1], "boss", options=Options(will=will))).connect()
    os._exit(0)

asyncio.run(main())
"""


def test_a_will_that_fires_is_an_event_too(place: Site) -> None:
    async def story(it: Crowd) -> None:
        sender = await it.client("p1")
        await sender.publish("where/anna/1003", "out", qos=1)
        left = await asyncio.create_subprocess_exec(sys.executable, "-c", LEAVES, str(place.path))
        assert await left.wait() == 0
        for number in range(2000):
            await sender.publish("hall/room", f"will {number}", qos=1)
            await asyncio.sleep(0.01)
            if all(any(w.startswith("will ") for w in words) for words in it.got.values()):
                return
        raise AssertionError(f"nobody has seen the will: {it.got}")

    run(place, story)


def test_the_command_tells_lists_and_takes_away(place: Site) -> None:
    at = (place.path, "--client", "hr")
    ran("attribute", "set", *at, "--name", "contract", "--of", "r1", "--value", "7", "--valid", "9")
    told = json.loads(ran("attribute", "list", *at, "--json"))["told"]
    mine = [row for row in told if row["subject"] == ["r1"]]
    assert [(row["name"], row["value"], row["by"]) for row in mine] == [("contract", 7, "hr")]
    ran("attribute", "set", *at, "--name", "contract", "--of", "r1", "--value", "7", "--text")
    words = ("--name", "contract", "--of", "r1")
    told = json.loads(ran("attribute", "set", *at, *words, "--value", "7", "--json"))
    assert told == {"name": "contract", "subject": ["r1"], "value": 7}
    explained = sealmq("explain", place.path, "deliver", "--client", "r1", "-t", "hall/signed")
    assert "attribute contract of r1: 7, until 2" in explained.stdout
    assert "told by hr" in explained.stdout
    ran("attribute", "unset", *at, "--name", "contract", "--of", "r1")
    assert not any("of r1" in line for line in ran("attribute", "list", *at).splitlines())
    done = sealmq("attribute", "set", *at, "--name", "room", "--of", "anna", "--value", "1")
    assert done.returncode == 12, done
    removed = sealmq("client", "remove", place.path, "hr")
    assert removed.returncode != 0
    assert "attributes.contract.by" in removed.stderr


@pytest.mark.full
def test_once_is_once_over_a_restart_and_explain_counts_nothing(place: Site) -> None:
    def explain() -> str:
        return sealmq("explain", place.path, "deliver", "--client", "r1", "-t", "hall/once").stdout

    publish(place, "p1", "hall/once", "nobody reads it, and it gets its label")
    assert explain() == explain()
    assert explain().startswith("allowed")
    assert "attribute got of r1: 0 within 3600 s" in explain()

    def delivered(first: str) -> list[list[str]]:
        """What each reader gets of three messages."""
        found: list[list[str]] = []

        async def story(it: Crowd) -> None:
            sender = await it.client("p1")
            for number in range(3):
                await sender.publish("hall/once", f"{first} {number}", qos=1)
            await sender.publish("hall/free", f"{first} end", qos=1)
            await it.all_have(f"{first} end")
            found.extend([w for w in words if w.startswith(first)] for words in it.got.values())

        run(place, story)
        return found

    assert delivered("a") == [["a 0", "a end"]] * 3
    until("it to be written", lambda: "got of r1: 1 within" in explain())
    assert explain().startswith("denied")
    place.down()
    place.up()
    assert delivered("b") == [["b end"]] * 3, "known after a restart"
    place.back("mediator", place.kill("mediator"))
    publish(place, "p1", "hall/once", "x")
    assert delivered("c") == [["c end"]] * 3, "not known after a kill"
    place.down()
    denied = place.audit("deliver-denied", rule="engine.unknown-attribute")
    assert {row["topic"] for row in denied} >= {"hall/once"}
