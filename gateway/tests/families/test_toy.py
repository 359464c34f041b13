"""A further family needs one folder and one word in the order, and no change of anything else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sealmq.families
from families.factory import FACTORY, Site
from families.toy import Toy
from sealmq.cli import acting
from sealmq.cli import main as cli
from sealmq.client.errors import refusal
from sealmq.families import registry
from sealmq.families.api import Family, FamilyRecord, Proposal, PutTlv, Verdict
from sealmq.families.attributes import Attribute
from sealmq.families.labels.family import Labels

TOPIC = "machine/1/temperature"
SENSOR = "m1-temp-sensor"


def opened(site: Site, is_open: bool) -> None:
    site.engine.take_attributes([Attribute("open", "", is_open, 1 << 50)])


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def site(toy: Toy) -> Site:
    made = Site(FACTORY + "[families.toy]\nlimit = 2\n", toy)
    opened(made, True)
    return made


def accepted(site: Site, client: str = SENSOR) -> None:
    site.conn(client).saw("accepted", TOPIC, site.now)


def test_it_counts_and_the_count_reaches_the_cached_verdict(site: Site, toy: Toy) -> None:
    got = site.publish(SENSOR, TOPIC)
    assert got.allow
    accepted(site)
    assert site.publish(SENSOR, TOPIC) is got, "below the limit nothing changes"
    accepted(site)
    refused = site.publish(SENSOR, TOPIC)
    assert (refused.allow, refused.rule) == (False, "toy.limit")
    assert site.engine.explain(site.conn(SENSOR), refused)[-1] == "2 of 2 messages are published"
    assert site.publish("m2-temp-sensor", "machine/2/temperature").allow


def test_it_reads_an_attribute(site: Site) -> None:
    opened(site, False)
    assert site.publish(SENSOR, TOPIC).rule == "toy.closed"


def test_it_sets_a_tlv_out_of_its_topic_encoding(site: Site) -> None:
    assert site.engine.tlvs == {40}
    assert site.engine.opens
    got = site.publish(SENSOR, f"~hot/{TOPIC}")
    assert (got.raw, got.topic) == (f"~hot/{TOPIC}", TOPIC)
    assert got.notes == {"toy": {"note": "hot"}}
    assert got.duties == (PutTlv(40, b"hot"),)
    assert site.publish(SENSOR, TOPIC).duties == (PutTlv(40, b""),)
    assert not site.publish("monitor", f"~hot/{TOPIC}").allow, "labels see the bare topic"
    new = site.conn(SENSOR).publish("~hot/new", 0, False, 1, 1)
    assert (new.label, new.topic) == ("m1-temp", "new")


def test_an_encoding_that_it_cannot_read_denies(site: Site) -> None:
    assert site.publish(SENSOR, "~oops").rule == "engine.parse"
    assert site.conn(SENSOR).parse("subscribe", "~oops") == ""
    assert site.conn(SENSOR).parse("subscribe", "~a/b/#") == "b/#"


def test_notes_of_subscriptions_reach_deliveries(site: Site) -> None:
    conn = site.conn("monitor")
    assert site.deliver("monitor", TOPIC, "m1-temp").allow
    loud, mute = (conn.subscribe(f"~{note}/machine/#", 0, 1) for note in ("loud", "mute"))
    assert loud.topic == mute.topic == "machine/#"
    conn.subscribed(loud, 0, 1)
    assert site.deliver("monitor", TOPIC, "m1-temp").allow
    conn.subscribed(mute, 0, 1)
    assert site.deliver("monitor", TOPIC, "m1-temp").rule == "toy.closed"
    assert not conn.unsubscribed("~mute/machine/#"), "the broker's one is still needed"
    assert site.deliver("monitor", TOPIC, "m1-temp").allow
    assert conn.unsubscribed("~loud/machine/#")


def test_its_command_changes_nothing_until_it_is_applied(site: Site) -> None:
    for _ in range(2):
        accepted(site)
    assert not site.publish(SENSOR, TOPIC).allow
    got = site.conn(SENSOR).command("toy", b"5", 1)
    assert isinstance(got, Proposal)
    assert got.records == (FamilyRecord("toy", SENSOR, b"5", SENSOR),)
    assert (got.audit, got.reply) == ({"detail": "limit 5"}, b"ok")
    assert not site.publish(SENSOR, TOPIC).allow
    site.engine.apply(got.records)
    assert site.publish(SENSOR, TOPIC).allow


@pytest.mark.parametrize(
    ("family", "body", "rule"),
    [
        ("toy", b"many", "toy.command"),
        ("labels", b"5", "engine.no-command"),
        ("nobody", b"5", "engine.no-family"),
    ],
)
def test_commands_that_are_refused(site: Site, family: str, body: bytes, rule: str) -> None:
    got = site.conn(SENSOR).command(family, body, 1)
    assert isinstance(got, Verdict)
    assert (got.allow, got.rule) == (False, rule)


@pytest.mark.parametrize(
    ("proposal", "rule"),
    [
        (Proposal((FamilyRecord("labels", "k", b""),)), "engine.bad-proposal"),
        (Proposal((), {"payload": "x"}), "engine.bad-proposal"),
        (None, "engine.bad-verdict"),
        (ZeroDivisionError(), "engine.exception"),
    ],
)
def test_what_a_command_may_not_propose(
    site: Site, toy: Toy, monkeypatch: pytest.MonkeyPatch, proposal: object, rule: str
) -> None:
    def command(*_: object) -> object:
        if isinstance(proposal, Exception):
            raise proposal
        return proposal

    monkeypatch.setattr(toy, "command", command)
    got = site.conn(SENSOR).command("toy", b"1", 1)
    assert isinstance(got, Verdict)
    assert (got.allow, got.rule) == (False, rule)


def test_its_records_come_back_at_a_start(toy: Toy) -> None:
    site = Site(FACTORY, toy)
    site.engine.load(site.config, [FamilyRecord("toy", SENSOR, b"0")])
    opened(site, True)
    toy.count[SENSOR] = 0
    assert site.publish(SENSOR, TOPIC).rule == "toy.limit"


def test_its_settings_change_live(site: Site) -> None:
    accepted(site)
    assert site.publish(SENSOR, TOPIC).allow
    site.reload(FACTORY + "[families.toy]\nlimit = 1\n")
    assert site.publish(SENSOR, TOPIC).rule == "toy.limit"


def test_it_sees_the_end_and_the_time(site: Site, toy: Toy) -> None:
    site.conn(SENSOR).close(1)
    site.engine.tick(1)
    assert (toy.gone, toy.ticks) == ([SENSOR], 1)


def test_what_fails_while_it_looks_on_harms_nobody(
    site: Site, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("defect")

    monkeypatch.setattr(toy, "see", broken)
    monkeypatch.setattr(toy, "tick", broken)
    accepted(site)
    site.engine.tick(1)
    assert [fault[:2] for fault in site.faults] == [("toy", "accepted"), ("toy", "tick")]
    assert site.publish(SENSOR, TOPIC).allow


def test_a_family_that_does_not_look_on_costs_nothing() -> None:
    assert not Site().engine.listens
    assert not Site().engine.parses
    assert not Site().engine.opens


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toy's folder lies among the families."""
    here = str(Path(__file__).parent)
    monkeypatch.setattr(sealmq.families, "__path__", [*sealmq.families.__path__, here])
    yield
    for name in [name for name in sys.modules if name.startswith("sealmq.families.toy")]:
        del sys.modules[name]


@pytest.mark.usefixtures("folder")
def test_one_folder_and_one_word_add_it() -> None:
    families = registry.load(["labels", "toy"])
    assert [family.name for family in families] == ["labels", "toy"]
    assert all(isinstance(family, Family) for family in families)
    assert isinstance(families[0], Labels)


@pytest.mark.usefixtures("folder")
def test_its_command_and_its_hints_come_with_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["toy", "hello"]) == 0
    assert capsys.readouterr().out == "toy: hello\n"
    error = refusal("publish", "a", 5, "toy.limit", "2 messages")
    assert acting.told(error).hint == "wait until tomorrow"
    with pytest.raises(registry.WrongOrder, match="toy stands on labels, which comes after it"):
        registry.load(["toy", "labels"])


def test_without_its_folder_there_is_no_such_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["toy", "hello"]) == 2
    assert "toy" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["unheard-of", "toy", "api", "engine", "../x", "labels.rules", ""])
def test_an_order_that_names_no_family_is_refused(name: str) -> None:
    with pytest.raises(registry.UnknownFamily) as caught:
        registry.load([name])
    assert caught.value.hint


PURE = """
import sys
before = set(sys.modules)
import sealmq.families
sealmq.families.__path__.append(sys.argv[1])
from sealmq.families import registry, engine
engine.Engine(registry.load(["labels", "toy"]))
print(*sorted(set(sys.modules) - before))
"""


def test_what_the_mediator_loads_holds_nothing_of_the_key_generator_and_does_no_io() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", PURE, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    loaded = set(done.stdout.split())
    assert "sealmq.families.toy" in loaded
    assert not {name for name in loaded if name.startswith("sealmq.kg")}
    assert not loaded & {"asyncio", "socket", "sqlite3", "sqlalchemy", "subprocess", "threading"}
