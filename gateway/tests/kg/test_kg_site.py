"""A whole site through its processes: clients publish, a backup is made, more happens, the store is
lost and restored, twice; all that is honest works again and nothing is issued a second time.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port
from run.sites import Site, Up
from sealmq.cli.main import main
from sealmq.client import Client, ConnectionLost, ConnectRefused
from sealmq.kglink import KgClient
from sealmq.store import Reader
from sealmq_spec.errors import Denied
from sealmq_spec.records import get_manifest, get_record

WAIT_S = 60
TOPIC = "machine/1/temperature"


class Issued:
    """All that the site was seen to issue. `place` never stands for another value."""

    def __init__(self) -> None:
        self.seen: dict[tuple[Any, ...], object] = {}
        self.kseqs: list[int] = []
        self.highest: dict[tuple[Any, ...], int] = {}

    def only(self, value: object, *place: Any) -> None:
        assert self.seen.setdefault(place, value) == value, f"{place} again"

    def rises(self, number: int, *place: Any) -> None:
        assert number >= self.highest.get(place, 0), f"{place}: {number} is lower than it was"
        self.highest[place] = number

    def snapshot(self, whole: dict[str, Any]) -> None:
        self.rises(whole["kseq"], "kseq")
        for label in whole["labels"]:
            self.only(label["name"], "label", label["number"])
            self.only(label["ek"], "epoch", label["number"], label["epoch"])
            self.rises(label["epoch"], "epoch of", label["name"])
        for client in whole["clients"]:
            self.only(client["name"], "client", client["number"])
            for link in client["links"]:
                self.only(link["km"], "gen", client["number"], link["gen"])
        for text in whole["records"]:
            packet = bytes.fromhex(text)
            get_record(packet)
            self.only(text, "order", packet[102:114])
            for kid in (packet[14:22], packet[22:30]):
                self.only(text, "kid", kid)
        for text in whole["manifests"]:
            get_manifest(bytes.fromhex(text))
            self.only(text, "order", bytes.fromhex(text)[16:28])


class Plant:
    """The site, its clients' files, and what was issued."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.folder, root, key = folder, folder / "site", folder / "site.key"
        words = ["--example", "factory", "--key-file", str(key), "--listen", f"127.0.0.1:{port}"]
        words += ["--policy", "labels"]
        assert main(["init", str(root), *words]) == 0
        self.site, self.root = Site(root, key), str(root)
        self.issued = Issued()
        self.drawn = 0

    def up(self) -> Up:
        made = Up.start(self.site, ["-m", "sealmq.cli", "up", self.root], {})
        self.site.ups.append(made)
        return made.ready()

    def run(self, *words: str, code: int = 0) -> None:
        at = 1 if words[0] in ("backup", "restore") else 2
        assert main([*words[:at], self.root, *words[at:]]) == code

    def enrol(self, name: str, label: str, file: str) -> Path:
        path = self.folder / file
        self.run("client", "add", name, "--label", label, "-o", str(path))
        return path

    def collect(self) -> None:
        """Look at everything, and draw an instance number besides."""
        reader = Reader.open_readonly(self.site.root / "state" / "mediator" / "mediator.db")
        store = reader.identity
        reader.close()

        async def ask() -> None:
            async with await KgClient.connect(self.site.root / "run" / "kg" / "kg.sock") as kg:
                self.issued.snapshot(await kg.snapshot())
                self.drawn += 1
                self.issued.only(self.drawn, "inst", (await kg.hello(1, store)).inst)
                self.issued.only(f"kg {len(self.site.ups)}", "inst", (await kg.status())["inst"])

        asyncio.run(ask())

    def insts_of_the_log(self) -> list[tuple[str, int]]:
        """(role, inst) of every start there was."""
        out = []
        for role in ("kg", "mediator"):
            for path in sorted((self.site.root / "audit" / role).iterdir()):
                for line in path.read_text().splitlines():
                    record = json.loads(line)
                    if record["event"] == "start":
                        out.append((role, record["inst"]))
        return out


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    plant = Plant(tmp_path)
    yield plant
    for up in plant.site.ups:
        up.end()


async def heard(reader: Client, sender: Client, text: str) -> None:
    """One message all the way."""
    await sender.publish(TOPIC, text, qos=1, within=WAIT_S)
    async with asyncio.timeout(WAIT_S):
        async for message in reader.messages():
            if message.payload == text.encode():
                return


def talk(plant: Plant, sender: Path, text: str) -> None:
    """The monitor hears what this sender says; both keep what they hold in their files."""

    async def run() -> None:
        monitor = plant.folder / "monitor.json"
        async with Client.from_enrolment(monitor, f"{monitor}.state") as reader:
            await reader.subscribe(TOPIC, qos=1, within=WAIT_S)
            async with Client.from_enrolment(sender, f"{sender}.state") as client:
                await heard(reader, client, text)

    asyncio.run(run())


def is_out(enrolment: Path) -> bool:
    """Whether that client is refused. With a wrong secret quarantine ends without a word."""

    async def run() -> None:
        async with asyncio.timeout(WAIT_S):
            client = Client.from_enrolment(enrolment, f"{enrolment}.state")
            await client.connect(within=0)
            await client.disconnect()

    try:
        asyncio.run(run())
    except (ConnectRefused, ConnectionLost, Denied):
        return True
    return False


def put_out(enrolment: Path) -> bool:
    """The same, once the mediator has heard of it."""
    end = time.monotonic() + WAIT_S
    while not is_out(enrolment):
        if time.monotonic() > end:
            return False
    return True


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.full)])
def test_lost_and_restored(times: int, plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    folder, saved = plant.folder, str(plant.folder / "backup")
    up = plant.up()
    sensor = plant.enrol("m1-temp-sensor", "m1-temp", "sensor.json")
    plant.enrol("monitor", "monitor", "monitor.json")
    other = plant.enrol("m2-temp-sensor", "m2-temp", "other.json")
    thief = plant.enrol("m1-arm-operator", "m1-arm", "thief.json")
    talk(plant, sensor, "before")
    assert not is_out(thief)
    assert not is_out(other)
    plant.run("backup", saved)
    plant.collect()

    # what the backup does not know of
    late = plant.enrol("late", "m1-temp", "late.json")
    talk(plant, late, "added")
    plant.run("client", "rotate", "m2-temp-sensor", "-o", str(folder / "rotated.json"))
    assert put_out(other)
    assert not is_out(folder / "rotated.json")
    plant.run("client", "disable", "m1-arm-operator")
    assert put_out(thief)
    assert main(["rekey", plant.root, "--label", "m1-temp", "--handover", "5"]) == 0
    talk(plant, sensor, "rekeyed")
    plant.collect()
    plant.run("restore", saved, code=1)
    assert f"{plant.root} is up already" in capsys.readouterr().err
    assert up.end() == 0

    db = plant.site.root / "state" / "kg" / "kg.db"
    for round_ in range(times):
        if round_:  # the second time the store is past reading
            db.write_bytes(b"\0" * 8192)
        capsys.readouterr()
        plant.run("restore", saved)
        said = capsys.readouterr().out
        assert "all 10 labels have new epochs" in said
        assert "out, as sealmq.toml or `sealmq client disable` says: m1-arm-operator" in said
        for name in ("late", "m2-temp-sensor"):
            assert f"sealmq client add {plant.root} {name}" in said
        up = plant.up()
        plant.collect()
        # with what they hold; the sensor has a generation that the backup does not know
        talk(plant, sensor, f"restored {round_}")
        for gone in (thief, other, late, folder / "rotated.json"):
            assert put_out(gone)
        again = plant.enrol("late", "m1-temp", f"late-{round_}.json")
        talk(plant, again, f"late {round_}")
        late = again
        assert not is_out(plant.enrol("m2-temp-sensor", "m2-temp", f"other-{round_}.json"))
        plant.collect()
        assert up.end() == 0

    logged = plant.insts_of_the_log()
    assert len(set(logged)) == len(logged) == 2 + 2 * times
    events = "".join(p.read_text() for p in (plant.site.root / "audit" / "kg").iterdir())
    assert events.count('"keys-restored"') == times
    assert sqlite3.connect(db).execute("PRAGMA integrity_check").fetchone() == ("ok",)
