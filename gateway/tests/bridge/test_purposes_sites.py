"""Two real sites with purposes, joined as their operators do it: what is said in sealmq.toml and by
clients about topics of the other site counts, or is refused. One pair, the tests in their order.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from bridge.joined import LIFE, client
from bridge.pair import Pair, join, joined, line, ran, two_sites, up, written
from run.sites import Site, sealmq, until
from sealmq.client import Client
from sealmq.client.errors import Refused

TREE = '[families.purposes.tree]\noperation = []\nservice = ["inspection"]\n'
RESERVED = '"heat/#" = { aip = ["operation", "service"] }'
TO_SOUTH = '"heat.to.south" = { "#" = "service" }'

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with two_sites() as sites:
        for site in sites.values():
            path = site.root / "sealmq.toml"
            order = re.sub(r"(?m)^order = .*$", 'order = ["labels", "purposes"]', path.read_text())
            path.write_text(order)
        steward = 'officer = { label = "bottom", kind = "app" }\n'
        common = f'[families.purposes]\nstrict = true\nstewards = ["officer"]\n{TREE}'
        written(
            sites["north"],
            "heat = []\nfuel = []",
            f'boiler = {{ label = "heat" }}\ntank = {{ label = "fuel" }}\n{steward}',
            f"{common}[families.purposes.reserve]\n{RESERVED}\n"
            '"tank/#" = { aip = ["service"] }\n'
            "[families.purposes.presubscribe]\n",
        )
        tables = "[families.purposes.reserve]\n[families.purposes.presubscribe]\n"
        written(sites["south"], "", steward, common + tables)
        join(sites, "heat")
        for one, peer, way in (("north", "south", "--export"), ("south", "north", "--import")):
            ran("peer", "add", str(sites[one].root), peer, way, "heat", way, "fuel")
        panel = 'panel = { label = "heat@north", kind = "app" }'
        written(sites["south"], "", panel + '\ngauge = { label = "fuel@north", kind = "app" }')
        row(sites["north"], "presubscribe", '"fuel.to.south" = { "#" = "service" }')
        up(sites)
        yield sites


def row(site: Site, table: str, line: str, instead: str = "") -> None:
    """A row of a purposes' table, in the place of another one or as a new one."""
    path = site.root / "sealmq.toml"
    text, head = path.read_text(), f"[families.purposes.{table}]\n"
    old = f"{instead}\n" if instead else head
    assert text.count(old) == 1
    path.write_text(text.replace(old, f"{line}\n" if instead else f"{head}{line}\n"))


def says(pair: Pair, site: str, table: str, line: str, instead: str = "") -> None:
    """Live."""
    row(pair[site], table, line, instead)
    ran("reload", str(pair[site].root))


async def publish(pair: Pair, text: str, who: str = "boiler", topic: str = "heat/1") -> None:
    async with client(pair["north"], who) as sender:
        await sender.publish(topic, text, qos=1, life=LIFE)


async def heard(reader: Client) -> tuple[str, str]:
    async with asyncio.timeout(20):
        message = await reader.receive()
    return message.topic, message.payload.decode()


def said(site: str, pair: Pair, *words: str) -> str:
    """What a command is refused with."""
    done = sealmq(words[0], str(pair[site].root), *words[1:])
    assert done.returncode == 12, done
    return done.stderr


def test_a_label_without_a_purpose_stays_here_and_stops_no_other(pair: Pair) -> None:
    begins = "up; heat does not go there: subscription to # refused by rule purposes.subscribe."
    until(lambda: line(pair["north"]).startswith(begins), "the line, and the reason")
    until(lambda: line(pair["south"]) == "up", "the other end")
    says(pair, "south", "reserve", '"@north/#" = { aip = ["service"] }')

    async def scene() -> None:
        async with client(pair["south"], "gauge") as gauge:
            await gauge.subscribe("@north/#", qos=1, purpose="service")
            await publish(pair, "half full", "tank", "tank/1")
            assert await heard(gauge) == ("@north/tank/1", "half full")

    asyncio.run(scene())
    says(pair, "north", "presubscribe", TO_SOUTH)
    joined(pair)


def test_a_reader_reads_for_what_the_importer_reserves_and_for_nothing_else(pair: Pair) -> None:
    async def scene() -> None:
        async with client(pair["south"], "panel") as panel:
            for purpose, rule in (("operation", "not-allowed"), (None, "no-purpose")):
                with pytest.raises(Refused) as caught:
                    await panel.subscribe("@north/#", qos=1, purpose=purpose)
                assert caught.value.rule == f"purposes.subscribe.{rule}"
            await panel.subscribe("@north/heat/+", qos=1, purpose="inspection")
            await publish(pair, "70")
            assert await heard(panel) == ("@north/heat/1", "70")

    asyncio.run(scene())


def test_a_presubscription_of_the_importer_serves_who_names_no_purpose(pair: Pair) -> None:
    says(pair, "south", "presubscribe", 'panel = { "@north/heat/#" = "service" }')

    async def scene() -> None:
        async with client(pair["south"], "panel") as panel:
            await panel.subscribe("@north/heat/#", qos=1)
            await publish(pair, "71")
            assert await heard(panel) == ("@north/heat/1", "71")

    asyncio.run(scene())


def test_both_sites_forbid_while_a_reader_reads(pair: Pair) -> None:
    allowed, forbidden = '{ aip = ["service"] }', '{ aip = ["service"], pip = ["service"] }'

    async def scene() -> None:
        async with client(pair["south"], "panel") as panel:
            await panel.subscribe("@north/#", qos=1, purpose="service")
            await publish(pair, "a")
            here = f'"@north/#" = {allowed}', f'"@north/#" = {forbidden}'
            there = RESERVED, f'"heat/#" = {forbidden}'
            assert (await heard(panel))[1] == "a"
            for site, (open_, closed), word in (("south", here, "b"), ("north", there, "c")):
                says(pair, site, "reserve", closed, open_)
                await publish(pair, f"not {word}")
                # Another label, so that what was withheld would have come before.
                await asyncio.sleep(1)
                says(pair, site, "reserve", open_, closed)
                await publish(pair, word)
                assert (await heard(panel))[1] == word

    asyncio.run(scene())


def test_clients_reserve_and_presubscribe_nothing_there_and_are_told_who_does(pair: Pair) -> None:
    why = "the filter begins with $, ! or @; of other sites' topics sealmq.toml alone says it: "
    reserve = '[families.purposes.reserve] "@north/#" = { aip = ["PURPOSE"] }'
    for who in ("panel", "officer"):
        text = said("south", pair, "reserve", "--client", who, "-t", "@north/#", "--aip", "service")
        assert why + reserve in text
    text = said(
        "south", pair, "presubscribe", "--client", "officer", "--for", "panel", "-t", "@north/#",
        "--purpose", "service",
    )  # fmt: skip
    assert why + '[families.purposes.presubscribe] "panel" = { "@north/#" = "PURPOSE" }' in text
