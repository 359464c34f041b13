"""`sealmq explain` and `sealmq topic list`: the mediator's own judgement, from the files alone."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from families.factory import FACTORY
from sealmq.cli import main as cli
from sealmq.families.records import FamilyRecord, TopicLabel, TopicReset
from sealmq.site.layout import Layout, prepare
from sealmq.store import Store

AT = 1_767_323_045_000


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "factory"
    root.mkdir()
    (root / "sealmq.toml").write_text(FACTORY)
    prepare(Layout.of(root))
    return root


@pytest.fixture
def store(site: Path) -> Store:
    """As a mediator that has run; the caller closes it."""
    made = Store.open(Layout.of(site).mediator_db)
    rows = [TopicLabel("machine/1/humidity", "m1-temp", "m1-temp-sensor", AT)]
    asyncio.run(made.commit(rows))
    return made


def sealmq(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str], str]:
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_a_denied_publish(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = ("publish", "--client", "m1-temp-sensor", "-t", "machine/1/arm/angle")
    assert sealmq(capsys, "explain", site, *question) == (
        1,
        [
            "denied: m1-temp-sensor may not publish on machine/1/arm/angle "
            "(the topic has m1-ctrl, the client m1-temp)",
            "rule labels.publish.other-label: The topic has another label than the client; only "
            "equal labels may publish. machine/1/arm/angle has the label m1-ctrl, fixed in "
            "sealmq.toml",
        ],
        "",
    )


def test_an_allowed_delivery(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = ("deliver", "--client", "monitor", "-t", "machine/1/temperature")
    code, lines, _ = sealmq(capsys, "explain", site, *question)
    assert code == 0
    assert lines[0] == (
        "allowed: monitor may read machine/1/temperature (monitor is at or above m1-temp)"
    )
    assert len(lines) == 2


@pytest.mark.parametrize("running", [True, False])
def test_what_was_learned_counts_whether_the_gateway_runs_or_not(
    site: Path, store: Store, capsys: pytest.CaptureFixture[str], running: bool
) -> None:
    if not running:
        store.close()
    for question, client, code, rule in (
        ("publish", "m1-temp-sensor", 0, "labels.publish.same-label"),
        ("publish", "m1-control-panel", 1, "labels.publish.other-label"),
        ("deliver", "m1-control-panel", 0, "labels.deliver.dominated"),
        ("deliver", "m2-temp-sensor", 1, "labels.deliver.above"),
    ):
        words = ("explain", site, question, "--client", client, "-t", "machine/1/humidity")
        got, lines, _ = sealmq(capsys, *words, "--json")
        said = json.loads(lines[0])
        assert (got, said["rule"], said["allowed"]) == (code, rule, code == 0)
        assert said["topic_label"] == "m1-temp"
        assert "m1-temp-sensor's publish" in " ".join(said["lines"])
    store.close()


def test_explain_changes_nothing(
    site: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.close()
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    words = ("explain", site, "publish", "--client", "m1-temp-sensor", "-t", "new", "--json")
    code, lines, _ = sealmq(capsys, *words)
    said = json.loads(lines[0])
    assert (code, said["becomes"], said["topic_label"]) == (0, "m1-temp", None)
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before


def test_an_unlabelled_topic_delivers_nothing(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("explain", site, "deliver", "--client", "monitor", "-t", "new")
    code, lines, _ = sealmq(capsys, *words)
    assert code == 1
    assert "rule labels.deliver.unlabelled" in lines[1]


def test_an_unknown_client_is_denied_with_the_one_that_was_meant(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("explain", site, "publish", "--client", "monitr", "-t", "new")
    code, lines, _ = sealmq(capsys, *words)
    assert code == 1
    assert lines[1].startswith("rule labels.client.unknown: ")
    assert lines[1].endswith("did you mean monitor?")


def test_policy_off_is_said_loudly(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml = site / "sealmq.toml"
    toml.write_text(toml.read_text() + "[policy]\nenforce = false\n")
    words = ("explain", site, "publish", "--client", "off", "-t", "new")
    code, lines, _ = sealmq(capsys, *words)
    assert code == 0
    assert lines[0].startswith("allowed, but only because the policy is off: off may publish")
    assert "POLICY IS OFF" in lines[1]
    assert "labels.client.disabled" in lines[1]


@pytest.mark.parametrize(
    "words",
    [
        ("deliver", "--client", "monitor", "-t", "machine/#"),
        ("deliver", "--client", "monitor"),
        ("read", "--client", "monitor", "-t", "x"),
        ("publish", "-t", "x"),
    ],
)
def test_wrong_usage(
    site: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, lines, err = sealmq(capsys, "explain", site, *words)
    assert (code, lines) == (2, [])
    assert err.startswith("sealmq: ")
    assert "hint: " in err


def test_an_order_with_an_unknown_family_is_told(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = site / "sealmq.toml"
    toml.write_text(toml.read_text() + '[policy]\norder = ["lables"]\n')
    code, _, err = sealmq(capsys, "topic", "list", site)
    assert code == 1
    assert "'lables'" in err
    assert "Traceback" not in err


def test_topics_with_their_labels_and_where_they_come_from(
    site: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [TopicLabel("machine/1/temperature", "monitor", "monitor", 5)]
    rows.append(TopicLabel("z\x1b[2J", "m1-temp", "m1-temp-sensor", AT))
    asyncio.run(store.commit(rows))
    store.close()
    code, lines, _ = sealmq(capsys, "topic", "list", site)
    assert code == 0
    table = [line.split() for line in lines]
    assert table[0] == ["TOPIC", "LABEL", "FROM", "SINCE"]
    assert ["machine/1/temperature", "m1-temp", "sealmq.toml", "-"] in table
    learned = ["machine/1/humidity", "m1-temp", "m1-temp-sensor", "2026-01-02", "03:04:05Z"]
    assert learned in table
    assert table[-1][0] == "z\\x1b[2J"
    assert len(table) == 1 + 7 + 2
    code, lines, _ = sealmq(capsys, "topic", "list", site, "--json")
    topics = {row["topic"]: row for row in json.loads(lines[0])["topics"]}
    assert topics["machine/1/humidity"] == {
        "topic": "machine/1/humidity",
        "label": "m1-temp",
        "fixed": False,
        "client": "m1-temp-sensor",
        "at_ms": AT,
    }
    assert topics["machine/1/temperature"]["fixed"]


def test_a_topic_that_is_to_be_forgotten_is_not_listed(
    site: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = site / "sealmq.toml"
    toml.write_text(toml.read_text() + '"machine/1/humidity" = "none"\n')
    assert not any("humidity" in line for line in sealmq(capsys, "topic", "list", site)[1])
    relabelled = TopicLabel("machine/1/humidity", "monitor", "monitor", AT)
    asyncio.run(store.commit([TopicReset("machine/1/humidity"), relabelled]))
    store.close()
    table = [line.split()[:3] for line in sealmq(capsys, "topic", "list", site)[1]]
    assert ["machine/1/humidity", "monitor", "monitor"] in table


def test_a_store_that_cannot_be_read_says_who_can(
    site: Path, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not str(path).endswith(".db") and access(path, mode)
    )
    code, _, err = sealmq(capsys, "topic", "list", site)
    assert code == 1
    assert "cannot be read" in err
    assert "hint: " in err


FROM = """
[policy]
order = ["labels", "allowlist"]
[[families.allowlist.rule]]
read = ["machine/#"]
from = ["m1-temp-sensor"]
"""


def test_a_delivery_by_a_rule_that_names_senders(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "sealmq.toml").write_text(FACTORY + FROM)
    question = ("explain", site, "deliver", "--client", "monitor", "-t", "machine/1/temperature")
    code, lines, _ = sealmq(capsys, *question)
    assert code == 0
    assert "  only messages of m1-temp-sensor" in lines
    code, lines, _ = sealmq(capsys, *question, "--json")
    said = json.loads(lines[0])
    assert (said["from"], said["senders"]) == (None, ["m1-temp-sensor"])
    code, lines, _ = sealmq(capsys, *question, "--from", "m1-temp-sensor")
    assert code == 0
    assert lines[0].startswith(
        "allowed: monitor may read machine/1/temperature from m1-temp-sensor"
    )
    code, lines, _ = sealmq(capsys, *question, "--from", "monitor")
    assert code == 1
    assert lines[:2] == [
        "denied: monitor may not read machine/1/temperature from monitor (no rule lets this "
        "client read what this sender publishes there)",
        "rule allowlist.deliver.other-sender: No rule lets the client read what this sender "
        "publishes there",
    ]
    code, lines, _ = sealmq(capsys, *question, "--from", "monitor", "--json")
    said = json.loads(lines[0])
    assert (code, said["rule"], said["senders"]) == (1, "allowlist.deliver.other-sender", None)
    code, _, err = sealmq(capsys, *question, "--from", "monitr")
    assert (code, "did you mean monitor?" in err) == (2, True)
    question = ("explain", site, "subscribe", "--client", "monitor", "-t", "machine/#")
    code, _, err = sealmq(capsys, *question, "--from", "monitor")
    assert (code, "subscribe with --from" in err) == (2, True)


TIMES = """
[policy]
order = ["labels", "allowlist"]
[attributes.contract]
source = "file"
path = "contract.toml"
[attributes.time]
source = "time"
zone = "Europe/Berlin"
[[families.allowlist.rule]]
publish = ["#"]
when = [
  { attribute = "contract", is = "signed" },
  { attribute = "time", weekdays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] },
]
"""


def test_the_attributes_that_were_looked_at_are_shown_as_their_sources_say_them(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "sealmq.toml").write_text(FACTORY + TIMES)
    file = site / "contract.toml"
    words = ("explain", site, "publish", "--client", "m1-temp-sensor", "-t")
    question = (*words, "machine/1/temperature")

    code, lines, _ = sealmq(capsys, *question)
    assert code == 1
    assert "  attribute contract of m1-temp-sensor: unknown" in lines
    assert any("the source of contract says nothing now (it cannot be read" in x for x in lines)

    row = '[m1-temp-sensor]\nvalue = "signed"\nuntil = '
    file.write_text(row + "2099-01-01T00:00:00Z\n")
    code, lines, _ = sealmq(capsys, *question)
    assert code == 0
    said = "  attribute contract of m1-temp-sensor: signed, until 2099-01-01T00:00:00Z"
    assert said in lines
    assert any(x.startswith("  attribute time: ") and x.endswith("Europe/Berlin") for x in lines)
    assert any(x.startswith("  another answer may come from 20") for x in lines)

    file.write_text(row + "2001-01-01T00:00:00Z\n")
    code, lines, _ = sealmq(capsys, *question)
    assert code == 1
    assert f"{said.replace('2099', '2001')}, which is over" in lines

    answer = json.loads(sealmq(capsys, *question, "--json")[1][0])
    assert answer["attributes"] == [
        {"name": "contract", "subject": "m1-temp-sensor", "value": "signed", "until": 978307200000}
    ]
    assert answer["until"] is None


SOURCES = """
[policy]
order = ["labels", "allowlist"]
[attributes.day]
source = "calendar"
zone = "UTC"
else = "REST"
[attributes.day.hours]
ALWAYS = { weekdays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] }
[attributes.badge]
source = "client"
by = ["monitor"]
of = "subscriber"
valid = "1d"
[attributes.room]
source = "events"
family = "allowlist"
of = "subscriber"
valid = "1d"
[attributes.got]
source = "count"
of = "subscriber"
window = "1h"
[[families.allowlist.rule]]
read = ["#"]
when = [
  { attribute = "day", is = "ALWAYS" },
  { attribute = "badge", is = "in" },
  { attribute = "got", below = 2 },
  { attribute = "room", is = "1005" },
]
"""


def test_what_clients_told_and_what_was_counted_is_shown_and_nothing_counts_by_that(
    site: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "sealmq.toml").write_text(FACTORY + SOURCES)
    now = time.time_ns() // 1_000_000
    told = {"value": "in", "until": now + 60_000, "by": "monitor", "at": now}
    panel = "m1-control-panel"
    rows = [
        FamilyRecord("attributes", f"badge\x1f{panel}", json.dumps(told).encode()),
        FamilyRecord("engine.counts", f"got\x1f{panel}", f"[[{now},1]]".encode()),
    ]
    asyncio.run(store.commit(rows))
    question = ("explain", site, "deliver", "--client", panel, "-t", "machine/1/humidity")
    code, lines, _ = sealmq(capsys, *question)
    assert code == 1
    day = next(x for x in lines if x.startswith("  attribute day: "))
    assert day.startswith("  attribute day: ALWAYS (")
    assert " in UTC), until 20" in day
    badge = next(x for x in lines if "badge of" in x)
    assert badge.startswith(f"  attribute badge of {panel}: in, until 20")
    assert badge.endswith(", told by monitor")
    count = f"  attribute got of {panel}: 1 within 3600 s"
    assert count in lines
    room = "unknown here: a mediator that runs knows what it derived from events"
    assert f"  attribute room of {panel}: {room}" in lines
    assert sealmq(capsys, *question)[1] == lines
    code, lines, _ = sealmq(capsys, "attribute", "list", site)
    assert code == 0
    assert [x.partition(": ")[0] for x in lines] == [
        "day (calendar)", f"badge of {panel} (client)", "room (events)", f"got of {panel} (count)",
    ]  # fmt: skip
    assert lines[1].endswith(", told by monitor")
    [row] = json.loads(sealmq(capsys, "attribute", "list", site, "--name", "got", "--json")[1][0])[
        "attributes"
    ]
    assert row == {"name": "got", "source": "count", "subject": [panel], "said": "1 within 3600 s"}
    code, _, err = sealmq(capsys, "attribute", "list", site, "--name", "gott")
    assert (code, "did you mean got?" in err) == (2, True)
    told = json.loads(sealmq(capsys, *question, "--json")[1][0])
    values = {row["name"]: row["value"] for row in told["attributes"]}
    assert values == {"day": "ALWAYS", "badge": "in", "got": 1, "room": None}
    assert [r.value for r in store.rows("engine.counts")] == [rows[1].value]
    other = ("explain", site, "deliver", "--client", "monitor", "-t", "machine/1/humidity")
    assert (
        "  attribute badge of monitor: unknown: nobody of monitor has told it"
        in (sealmq(capsys, *other)[1])
    )
    store.close()


@pytest.fixture
def joined(site: Path) -> Path:
    """It imports two labels of a peer; the reader has one of them."""
    path = site / "sealmq.toml"
    path.write_text(
        path.read_text().replace(
            "[clients]\n", '[clients]\nguest = { label = "heat@north", kind = "app" }\n', 1
        )
        + f'[peers.north]\nfingerprint = "{"ab" * 32}"\naddress = "127.0.0.1:1"\n'
        'import = ["heat", "water"]\n'
    )
    return site


@pytest.mark.parametrize(
    ("who", "topic", "code", "says"),
    [
        ("guest", "@north/a", 0, "heat@north is at or above heat@north"),
        ("monitor", "@north/a", 1, "the message has water@north, the client monitor"),
        ("guest", "@north/a", 0, "have heat@north or water@north; one that is allowed is enough"),
        ("guest", "@nroth/a", 1, "there is no peer 'nroth'. did you mean @north/...?"),
    ],
)
def test_a_peers_message_brings_its_label(
    joined: Path, capsys: pytest.CaptureFixture[str], who: str, topic: str, code: int, says: str
) -> None:
    got, out, _ = sealmq(capsys, "explain", joined, "deliver", "--client", who, "-t", topic)
    assert got == code, out
    assert says in "\n".join(out)
