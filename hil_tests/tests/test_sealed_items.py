"""Claim 36, in a started site with two workers and Mosquitto: what a publisher says in items is for
the mediators alone, and a family judges each delivery by it; after a restore, too. And what a
family tells clients that have not asked.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from installed_family import installed
from running_site import Site, program, ran, sealmq, until

FAMILY = """\
from sealmq.families.api import (
    AtQos, Family, FamilyRecord, Proposal, PutTlv, SealToGrant, allow, deny,
)
from sealmq.families.manifest import Manifest, Puts, Ref


class Speeds(Family):
    name = "speeds"
    rules = {
        "speeds.yes": "Fast enough.",
        "speeds.slow": "Too slow.",
        "speeds.none": "No speed is said.",
    }
    tlvs = frozenset({40})
    duties = {
        "publish": frozenset({PutTlv, SealToGrant}),
        "deliver": frozenset({AtQos}),
    }

    def __init__(self):
        self.said = {}

    def connect(self, ask):
        return allow("speeds.yes", "yes")

    subscribe = connect

    def publish(self, ask):
        items = [PutTlv(40, value) for kind, value in ask.tlv.items() if kind == 40]
        own = SealToGrant("speeds", "mediators")
        return allow("speeds.yes", "yes", duties=(*items, own))

    def deliver(self, ask):
        if not ask.label:
            return allow("speeds.yes", "a public record")
        if ask.grant != ("speeds", "mediators") or 40 not in ask.tlv:
            return deny("speeds.none", "no speed")
        if int(ask.tlv[40]) <= 50:
            return deny("speeds.slow", "slow")
        return allow("speeds.yes", "fast")

    def command(self, who, body, now_ms):
        name, _, said = body.decode().partition(" ")
        row = FamilyRecord("speeds", name, said.encode())
        return Proposal((row,), {"detail": "told"}, b"ok", tells=((name, said.encode()),))

    def apply(self, records):
        for record in records:
            self.said[record.key] = record.value
        return ()

    def greet(self, who):
        return self.said.get(who.client, b"")


MANIFEST = Manifest(
    "speeds",
    Ref(":Speeds"),
    ("labels",),
    commands={"tell": Ref("tell")},
    puts=Puts("speed", "KMH", "the speed", Ref("items:items")),
    kg_part=Ref("kg_part"),
)
"""
KG_PART = """\
def grants(config):
    return {"mediators": []}
"""
ITEMS = """\
from sealmq_spec.errors import Malformed


def items(values):
    if len(values) != 1 or not values[0].isdecimal():
        raise Malformed("one speed, in digits")
    return {40: values[0].encode()}
"""
TELL = """\
from sealmq.cli.acting import act, add_who, asking_client, check_who


def add(sub):
    parser = sub.add_parser("tell", help="tell a client something")
    add_who(parser)
    parser.add_argument("--to", required=True)
    parser.add_argument("--said", required=True)
    parser.set_defaults(timeout=10.0)


def run(args):
    check_who(args)
    return act(ask(args))


async def ask(args):
    async with await asking_client(args) as client:
        print((await client.command("speeds", f"{args.to} {args.said}".encode())).decode())
    return 0
"""
TOPIC = "machine/1/temperature"


class Sub:
    """`sealmq sub` of a client."""

    def __init__(self, site: Site, folder: Path, client: str, *flags: str) -> None:
        n = len(list(folder.glob("*.out")))
        self.out, self.err = folder / f"{n}.out", folder / f"{n}.err"
        words = ["sub", str(site.path), "--client", client, "-t", "machine/#", "-d", *flags]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen([program(), *words], stdout=out, stderr=err)
        until("the subscription", lambda: "subscribed: " in self.err.read_text())

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def has(self, message: str) -> bool:
        return message in self.lines()

    def told(self, said: str) -> bool:
        return f"news of speeds: {said}" in self.err.read_text()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("items")
    made = Site(folder)
    made.edit("[mediator]\n", "[mediator]\nworkers = 2\n")
    made.edit('order = ["labels"]\n', 'order = ["labels", "speeds"]\n')
    with installed(folder, "speeds", FAMILY, kg_part=KG_PART, items=ITEMS, tell=TELL):
        made.up("--broker", "mosquitto")
        try:
            yield made
        finally:
            made.down()


def publish(site: Site, message: str, *flags: object) -> None:
    ran("pub", site.path, "--client", "m1-temp-sensor", "-t", TOPIC, "-m", message, *flags)


def grant(site: Site) -> int:
    with sqlite3.connect(f"file:{site.path}/state/kg/kg.db?mode=ro", uri=True) as db:
        ((number,),) = db.execute("SELECT number FROM grants").fetchall()
    return int(number)


def test_each_delivery_is_judged_by_items_that_no_reader_gets(site: Site, tmp_path: Path) -> None:
    subs = [Sub(site, tmp_path, name) for name in ("monitor", "m1-control-panel")]
    publish(site, "slow", "--speed", "12", "-q", "1")
    publish(site, "none")
    publish(site, "fast", "--speed", "57", "-q", "1")
    for sub in subs:
        until("the fast one", partial(sub.has, "fast"))
        assert sub.lines() == ["fast"]
        sub.end()
    done = sealmq("pub", site.path, "--client", "m1-temp-sensor", "-t", TOPIC, "-m", "x", "--speed",
                  "fast")  # fmt: skip
    assert done.returncode != 0
    assert "one speed, in digits" in done.stderr


def test_retained_it_is_judged_by_them_also_after_a_restore_under_another_grant(
    site: Site, tmp_path: Path
) -> None:
    publish(site, "kept", "--speed", "57", "-r", "--life", "255")
    number = grant(site)
    ran("backup", site.path, tmp_path / "old")
    assert site.down() == 0
    ran("restore", site.path, tmp_path / "old")
    site.up("--broker", "mosquitto")
    assert grant(site) != number
    sub = Sub(site, tmp_path, "monitor")
    until("the retained one", lambda: "kept" in sub.lines())
    publish(site, "new", "--speed", "58")
    until("a new one", lambda: "new" in sub.lines())
    publish(site, "slow", "--speed", "3", "-r", "--life", "255")
    publish(site, "last", "--speed", "58")
    until("the last one", lambda: "last" in sub.lines())
    assert sub.lines() == ["kept", "new", "last"]
    sub.end()


def test_a_family_tells_clients_at_once_at_either_worker_and_again_at_their_next_connect(
    site: Site, tmp_path: Path
) -> None:
    subs = {name: Sub(site, tmp_path, name) for name in ("monitor", "m1-control-panel")}
    for name, sub in subs.items():
        said = f"opened for {name}"
        ran("tell", site.path, "--client", "m1-temp-sensor", "--to", name, "--said", said)
        until("the news", partial(sub.told, said))
        sub.end()
    assert "control-panel" not in subs["monitor"].err.read_text()
    again = Sub(site, tmp_path, "monitor")
    until("the greeting", lambda: "news of speeds: opened for monitor" in again.err.read_text())
    again.end()
