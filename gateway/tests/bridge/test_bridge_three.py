"""Three real sites in a row, b1 and b3 no neighbours: what b2 hands on and cannot read. One row for
all tests, in their order: the last one takes b3 out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bridge.graph import Graph, hearing, publish
from bridge.joined import LIFE, Joined, client, standing
from bridge.pair import written
from run.sites import command, sealmq, until

GATEWAY = Path(__file__).parents[2]
BOILER = "@b1/boiler"


@pytest.fixture(scope="module")
def row() -> Iterator[Graph]:
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        links = [("b1", "b2"), ("b2", "b3")]
        # It keeps what is published while its bridge begins anew.
        graph = Graph(Path(name), links, "b3", mosquitto=("b1",)).make()
        try:
            yield graph.up()
        finally:
            graph.end()


def test_a_message_travels_over_a_site_that_has_no_key(row: Graph) -> None:
    async def scene() -> None:
        async with hearing(row) as heard:
            await publish(row, ["a", "b", "c"])
            assert await heard.until(lambda texts: len(texts) >= 3) == ["a", "b", "c"]
            assert [m.topic for m in heard.messages] == [f"@b1/boiler/{x}" for x in "abc"]
            assert {m.label for m in heard.messages} == {"heat@b1"}

    asyncio.run(scene())
    assert row.dropped() == set()


def test_what_waits_at_the_site_between_is_on_its_disk_and_sealed(row: Graph) -> None:
    async def scene() -> None:
        async with hearing(row) as heard:
            _cut(row)
            await publish(row, ["words-that-b2-must-not-see"])
            between = row.sites["b2"].root / "state" / "bridge"

            def on_disk() -> bytes:
                return b"".join(p.read_bytes() for p in between.iterdir())

            until(lambda: row.sites["b2"].waiting("b3") == 1, "the message to wait at b2")
            # It counts from the moment on that it is in memory.
            until(lambda: b"boiler/words" in on_disk(), "the topic")
            held = on_disk()
            assert b"words-that" not in held.replace(b"boiler/words-that", b""), "not the payload"
            os.kill(row.sites["b2"].pid(), signal.SIGKILL)
            row.cables["b2", "b3"].mend()
            await heard.until(lambda texts: texts == ["words-that-b2-must-not-see"])

    asyncio.run(scene())
    row.joined()
    assert row.dropped() == set()


def test_what_is_cleared_at_one_end_is_cleared_at_the_other_though_the_site_between_was_killed(
    row: Graph,
) -> None:
    async def retained(marker: str) -> set[str]:
        return await standing(partial(hearing, row), lambda text: publish(row, [text]), marker)

    async def scene() -> None:
        async with client(row.sites["b1"], "boiler") as boiler:
            await boiler.publish("boiler/state", "on", qos=1, life=255, retain=True)
            assert await retained("first") == {"on"}
            _cut(row)
            await boiler.clear("boiler/state", qos=1, life=LIFE)
            until(lambda: row.sites["b2"].waiting("b3") == 1, "the clear to wait at b2")
            os.kill(row.sites["b2"].pid(), signal.SIGKILL)
            row.cables["b2", "b3"].mend()
            assert await retained("second") == set()

    asyncio.run(scene())
    row.joined()
    assert row.dropped() == set()


def _cut(row: Graph) -> None:
    """Cut the line between b2 and b3. An acknowledgement on it would be lost, and its message would
    be counted among those that wait.
    """
    until(lambda: row.sites["b2"].waiting("b3") == 0, "b3 to have acknowledged what came before")
    row.cables["b2", "b3"].cut()


def test_the_pages_commands_do_what_they_say(row: Graph) -> None:
    def told(page: str) -> list[list[str]]:
        lines = re.findall(r"`(sealmq [^`]+)` \|", (GATEWAY / page).read_text())
        return [shlex.split(line)[1:] for line in lines]

    prints = {n: command("peer", "fingerprint", str(s.root)) for n, s in row.sites.items()}
    roots = {name: str(site.root) for name, site in row.sites.items()}
    for words in (lines := told("BRIDGE.md")):
        other = prints[words[3]].strip()
        given = [other if word.startswith("SHA256:") else word for word in words]
        command(*given[:2], roots[words[2]], *given[3:])
    assert len(lines) == 4
    until(lambda: all(x == "up" for x in row.sites["b2"].lines().values()), "the lines again")
    row.joined()
    lines = [words for words in told("TRUST.md") if words[2:3] == ["b6"]]
    assert [words[1] for words in lines] == ["show", "paths", "explain", "token"]
    for words in lines:
        given = ["b2" if word == "b4" else word for word in words]
        assert "b1" in command(*given[:2], roots["b3"], *given[3:])


def test_the_commands_say_what_the_bridge_knows(row: Graph) -> None:
    b3 = str(row.sites["b3"].root)
    shown = json.loads(command("trust", "show", b3, "--json"))["live"]
    assert (shown["neighbours"], shown["blocked"]) == (["b2"], [])
    assert shown["ratings"]["b2"] >= 0.5
    [token] = [one for one in shown["tokens"] if one["client"] == "boiler"]
    assert (token["issuer"], token["publish"]) == ("b1", ["boiler/#"])
    assert f"{BOILER}: {token['id']}, signed by b1" in command("trust", "show", b3)
    assert "b1: 0.5" in command("trust", "paths", b3, "--token", BOILER)
    message = ("--from", "b2", "--topic", "boiler/1")
    said = command("trust", "explain", b3, "--token", token["id"], *message)
    assert "b3 accepts the token of b1's client" in said
    assert "boiler/1 by b2 is taken (trust.message." in said
    assert said.splitlines()[-1].endswith(", 1 needed); it goes on to: no neighbour")
    refused = sealmq("trust", "explain", b3, "--token", BOILER, "--from", "b9", "--topic", "x")
    assert refused.returncode == 1
    assert "x by b9 is refused: 'b9' is no neighbour" in refused.stdout
    signed = command("trust", "token", b3, "--token", BOILER)
    assert f"token {token['id']} of boiler at b1" in signed
    assert "signed by b1" in signed
    assert "bridge" in command("status", str(row.sites["b2"].root))


def test_what_a_reader_says_reaches_the_bridge_by_the_mediator(row: Graph) -> None:
    async def scene() -> None:
        async with hearing(row) as heard:
            await publish(row, ["x", "y"])
            await heard.until(lambda texts: len(texts) == 2)
            for message in heard.messages:
                await heard.client.feedback(message, good=True)

    asyncio.run(scene())
    b3 = row.sites["b3"]
    until(lambda: b3.asked("show")["votes"] == {"good": 2, "bad": 0}, "both to count")
    assert "2 good, 0 bad" in command("trust", "show", str(b3.root))
    assert "panel" in command("trust", "report", str(b3.root))


def test_a_label_that_is_imported_after_its_keys_were_given_has_them_at_once(row: Graph) -> None:
    """No line begins anew for it, no key of b1's is new, and b1 sends its keys before its first
    message under the label alone."""
    b1, b3 = (row.sites[name] for name in ("b1", "b3"))

    async def published(text: str) -> None:
        async with client(b1, "mill") as mill:
            await mill.publish(f"boiler/{text}", text, qos=1, life=LIFE)

    token = '\n[families.trust.tokens.mill]\npublish = ["boiler/#"]\n'
    written(b1, "plant = []", 'mill = { label = "plant" }', token)
    begun = len(b1.events("bridge-up"))
    _far(b1, b3, "--export", "heat", "--export", "plant")
    until(lambda: len(b1.events("bridge-up")) > begun, "b1's bridge to go by it")
    row.joined()
    asyncio.run(published("early"))
    lines = (b1, "b2"), (row.sites["b2"], "b3")
    until(lambda: all(at.waiting(to) == 0 for at, to in lines), "b3 to have taken it")

    _far(b3, b1, "--import", "heat", "--import", "plant")
    path = b3.root / "sealmq.toml"
    path.write_text(path.read_text().replace('["heat@b1"]', '["heat@b1", "plant@b1"]'))
    command("reload", str(b3.root))
    row.joined()

    async def scene() -> None:
        async with hearing(row) as heard:
            await published("late")
            assert await heard.until(lambda texts: texts != []) == ["late"]
            assert heard.messages[0].label == "plant@b1"

    asyncio.run(scene())
    assert row.dropped() == set()


def _far(site: Joined, other: Joined, *words: str) -> None:
    theirs = command("peer", "fingerprint", str(other.root)).strip()
    command(
        "peer", "add", str(site.root), other.root.name, "--far", "--fingerprint", theirs, *words
    )


def test_who_was_taken_out_and_kept_everything_reads_nothing_new_though_it_is_handed_on(
    row: Graph,
) -> None:
    b1 = str(row.sites["b1"].root)
    command("peer", "add", b1, "b9", "--far", "--fingerprint", "ab" * 32, "--export", "heat")

    async def scene() -> None:
        async with hearing(row) as heard:
            await publish(row, ["before"])
            await heard.until(lambda texts: texts == ["before"])
            assert sealmq("peer", "remove", b1, "b3").returncode == 0
            await publish(row, ["after"])  # it leaves, for b9, and b2 hands it on to b3
            until(lambda: "boiler/after" in row.sites["b3"].dropped(), "b3 to give it up")
            assert heard.texts == ["before"]

    asyncio.run(scene())
    [why] = [
        one["reason"]
        for one in row.sites["b3"].events("bridge-dropped")
        if one["topic"].endswith("after")
    ]
    assert "epoch" in why, why
