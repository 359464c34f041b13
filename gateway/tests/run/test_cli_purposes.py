"""`sealmq purposes` and `sealmq explain --purpose`: what the files alone say, up or down."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from families.factory import FACTORY
from sealmq.audit import Audit
from sealmq.audit.events import of_families
from sealmq.audit.reading import Told
from sealmq.cli import main as cli
from sealmq.families.purposes import records as rows
from sealmq.families.purposes.cli import report
from sealmq.families.purposes.store import Reservation
from sealmq.families.records import FamilyRecord, TopicLabel
from sealmq.site.layout import Layout, prepare
from sealmq.store import KeptSession, KeptSub, Store, StoreRecord
from sealmq_spec import purposes

FIELDS = of_families(["labels", "purposes"])
AT = 1_767_323_045_000
SHOWN = "2026-01-02 03:04:05Z"
TEMPERATURE = "machine/1/temperature"
PURPOSES = """
[policy]
order = ["labels", "purposes"]
[families.purposes]
stewards = ["public"]
[families.purposes.tree]
operation = ["control"]
service = ["repair", "inspection"]
control = ["inspection"]
ads = []
[families.purposes.reserve]
"machine/#" = { aip = ["service"], pip = ["ads"] }
[families.purposes.presubscribe]
m1-control-panel = { "machine/1/temperature" = "control" }
[[families.purposes.grant]]
filter = "machine/2/#"
clients = ["m2-control-panel"]
labels = ["m2-temp"]
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return made(tmp_path / "factory", FACTORY + PURPOSES)


def made(root: Path, text: str) -> Path:
    root.mkdir()
    (root / "sealmq.toml").write_text(text)
    prepare(Layout.of(root))
    return root


def keep(site: Path, *records: StoreRecord) -> Store:
    """As a mediator that has run, and still does; the caller closes it."""
    store = Store.open(Layout.of(site).mediator_db)
    asyncio.run(store.commit(records))
    return store


def reserved(
    filter: str, aip: Sequence[str], pip: Sequence[str] = (), by: str = "public", label: str = ""
) -> FamilyRecord:
    return rows.reservation(Reservation(filter, aip, pip, by, label), AT)


def sealmq(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str], str]:
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "internal error" not in err
    return code, out.splitlines(), err


def as_json(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    code, [line], _ = sealmq(capsys, *words, "--json")
    assert code in (0, 1)
    said: dict[str, Any] = json.loads(line)
    return said


# --- show ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
def test_show_says_what_holds_and_who_said_it(
    site: Path, capsys: pytest.CaptureFixture[str], running: bool
) -> None:
    store = keep(
        site,
        reserved(TEMPERATURE, ["control"], by="m1-temp-sensor", label="m1-temp"),
        reserved("control-room/temperature", [], by="m1-temp-sensor", label="m1-temp"),
        rows.presubscription("monitor", "machine/#", "repair", "public", AT),
        rows.setting("mode", "fop", "public", AT),
    )
    if not running:
        store.close()
    code, lines, _ = sealmq(capsys, "purposes", "show", site)
    store.close()
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert code == 0
    for line in (
        f"mode fop (by public, {SHOWN}): filter on publish",
        "strict true: what nobody has reserved is for nobody",
        "stewards public",
        "ads\noperation\ncontrol\ninspection\nservice\ninspection\nrepair\n",
        "machine/# service ads sealmq.toml -",
        f"{TEMPERATURE} control m1-temp-sensor {SHOWN}",
        f"control-room/temperature (nothing) m1-temp-sensor {SHOWN} not counted: the topic is not "
        "m1-temp's any more",
        f"monitor machine/# repair public {SHOWN}",
        f"m1-control-panel {TEMPERATURE} control sealmq.toml -",
        "machine/2/# m2-control-panel m2-temp",
    ):
        assert line in text, text


def test_show_of_a_filter_shows_what_reaches_it(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(site, reserved("a/b", ["control"]), reserved("a/+", ["ads"]), reserved("c", [])).close()
    said = as_json(capsys, "purposes", "show", site, "a/b")
    assert [r["filter"] for r in said["reservations"]] == ["a/+", "a/b"]
    assert said["presubscriptions"] == []
    said = as_json(capsys, "purposes", "show", site, "#")
    assert [(r["filter"], r["by"], r["at_ms"]) for r in said["reservations"]] == [
        ("a/+", "public", AT),
        ("a/b", "public", AT),
        ("c", "public", AT),
        ("machine/#", "", None),
    ]
    assert said["purposes"] == ["ads", "control", "inspection", "operation", "repair", "service"]
    assert said["mode"] == {"value": "hybrid", "by": "", "at_ms": None}
    assert said["strict"]["value"] is True


def test_a_purpose_below_several_is_written_out_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = '[policy]\norder = ["labels", "purposes"]\n[families.purposes.tree]\n'
    tree += 'a = ["c"]\nb = ["c"]\nc = ["d"]\n"x/y" = []\n'
    site = made(tmp_path / "s", FACTORY + tree)
    lines = sealmq(capsys, "purposes", "show", site)[1]
    at = lines.index("purposes") + 1
    assert lines[at : lines.index("", at)] == [
        "  a",
        "    c",
        "      d",
        "  b",
        "    c (as above)",
        "  x",
        "    x/y",
    ]


def test_what_clients_wrote_cannot_move_the_terminal(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(site, reserved("a/\x1b[2J", ["\x1b[31m"])).close()
    code, lines, _ = sealmq(capsys, "purposes", "show", site)
    assert code == 0
    assert not any("\x1b" in line for line in lines)
    assert any("a/\\x1b[2J  \\x1b[31m" in line for line in lines)


# --- explain ------------------------------------------------------------------------------------


def test_explain_a_topic(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = purposes.access("machine/#", "repair")
    number = 7
    store = keep(
        site,
        reserved(TEMPERATURE, ["control"], ["repair"], by="m1-temp-sensor", label="m1-temp"),
        rows.presubscription("monitor", "machine/+/temperature", "inspection", "public", AT),
        rows.presubscription("m2-temp-sensor", "#", "control", "public", AT),
        KeptSession(number, "night", 1),
        KeptSub(number, "night", kept, 1, "machine/#"),
        KeptSub(number, "night", "control-room/#", 1, "control-room/#"),
    )
    code, lines, _ = sealmq(capsys, "purposes", "explain", site, TEMPERATURE)
    said = as_json(capsys, "purposes", "explain", site, TEMPERATURE)
    store.close()
    assert code == 0
    assert lines[0] == f"{TEMPERATURE}: label m1-temp; mode hybrid, strict"
    assert "together: for control, service, not for ads, repair" in lines
    uses = {u["purpose"]: (u["allowed"], u["under"]) for u in said["purposes"]}
    assert uses == {
        "ads": (False, ""),
        "control": (True, TEMPERATURE),
        "inspection": (True, uses["inspection"][1]),
        "operation": (False, ""),
        "repair": (False, ""),
        "service": (True, "machine/#"),
    }
    readers = {(r["client"], r["source"]): (r["purpose"], r["allowed"]) for r in said["readers"]}
    assert readers == {
        ("m1-control-panel", "presubscription"): ("control", True),
        ("monitor", "presubscription"): ("inspection", True),
        ("m2-temp-sensor", "presubscription"): ("control", False),
        ("number 7", "kept session night"): ("repair", False),
    }
    [denied] = [r for r in said["readers"] if r["client"] == "m2-temp-sensor"]
    assert denied["rule"] == "labels.deliver.above"
    opened = ["m1-temp-sensor", "m1-control-panel", "m1-arm-operator", "monitor", "root"]
    assert said["can_open"] == opened


@pytest.mark.parametrize(("strict", "words"), [(True, "for nobody"), (False, "for all")])
def test_explain_what_nobody_has_reserved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: bool, words: str
) -> None:
    text = PURPOSES.replace("[families.purposes]\n", f"[families.purposes]\nstrict = {strict}\n")
    site = made(tmp_path / "s", FACTORY + text.replace("True", "true").replace("False", "false"))
    lines = sealmq(capsys, "purposes", "explain", site, "hall")[1]
    assert f"nobody has reserved it: {words}" in lines
    said = as_json(capsys, "purposes", "explain", site, "hall")
    assert {u["allowed"] for u in said["purposes"]} == {not strict}


def test_explain_a_delivery_for_a_purpose(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = ("explain", site, "deliver", "--client", "monitor", "-t", TEMPERATURE)
    code, lines, _ = sealmq(capsys, *question, "--purpose", "repair")
    assert code == 0
    assert lines[0].startswith(f"allowed: monitor may read {TEMPERATURE} for repair")
    assert lines[1].startswith("rule labels.deliver.dominated: ")
    assert any("purposes.deliver.allowed" in line for line in lines[2:])
    said = as_json(capsys, *question, "--purpose", "repair")
    assert (said["allowed"], said["purpose"], said["under"]) == (True, "repair", "machine/#")

    code, lines, _ = sealmq(capsys, *question, "--purpose", "ads", "--filter", "+/1/#")
    assert code == 1
    assert lines[0].startswith(f"denied: monitor may not read {TEMPERATURE} for ads")
    assert lines[1].startswith("rule purposes.deliver.prohibited: ")
    assert any("ads is out" in line for line in lines)

    # Without a purpose it already fails at SUBSCRIBE, and the answer says so.
    said = as_json(capsys, *question)
    assert (said["allowed"], said["rule"]) == (False, "purposes.subscribe.no-purpose")
    assert said["asked"] == "subscribe"
    # A presubscription of exactly that filter is one.
    panel = ("explain", site, "deliver", "--client", "m1-control-panel", "-t", TEMPERATURE)
    said = as_json(capsys, *panel)
    assert (said["allowed"], said["rule"]) == (False, "purposes.subscribe.not-allowed")
    assert f"m1-control-panel subscribes to {TEMPERATURE} for control" in said["lines"]


def test_explain_a_subscription(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = ("explain", site, "subscribe", "--client", "monitor", "-t", "machine/#")
    code, lines, _ = sealmq(capsys, *question, "--purpose", "service")
    assert (code, lines[0].partition(" (")[0]) == (
        0,
        "allowed: monitor may subscribe to machine/# for service",
    )
    code, lines, _ = sealmq(capsys, *question, "--purpose", "servce")
    assert code == 1
    assert "did you mean service?" in lines[0]


def test_in_a_site_without_purposes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = made(tmp_path / "s", FACTORY)
    for words in (("show", site), ("explain", site, "a")):
        code, _, err = sealmq(capsys, "purposes", *words)
        assert code == 1
        assert 'hint: [policy] order = ["labels", "purposes"]' in err
    question = ("explain", site, "deliver", "--client", "monitor", "-t", TEMPERATURE)
    assert sealmq(capsys, *question, "--purpose", "ads")[0] == 2
    assert sealmq(capsys, *question, "--filter", "machine/#")[0] == 0
    assert as_json(capsys, "purposes", "report", site, "-t", "#", "--since", "1h")["rows"] == []


def test_explain_speaks_for_our_clients_at_a_site_that_reads_other_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = '[families.purposes.words]\nap = "!FOR"\nopen = "<"\nclose = ">"\n'
    text = PURPOSES.replace("[families.purposes]\n", "[families.purposes]\npublished = true\n")
    site = made(tmp_path / "s", FACTORY + text + words)
    question = ("explain", site, "deliver", "--client", "monitor", "-t", TEMPERATURE)
    assert as_json(capsys, *question, "--purpose", "repair")["allowed"]
    foreign = (
        "explain",
        site,
        "subscribe",
        "--client",
        "monitor",
        "-t",
        "!FOR/machine/PLUS/x<ads>",
    )
    answer = as_json(capsys, *foreign)
    assert (answer["allowed"], answer["rule"]) == (False, "purposes.subscribe.prohibited")


@pytest.mark.parametrize(
    "words",
    [
        ("purposes", "show", "SITE", "a#"),
        ("purposes", "show", "SITE", ""),
        ("purposes", "explain", "SITE", "machine/#"),
        ("purposes", "explain", "SITE", "\udc80"),
        ("purposes", "explain", "SITE"),
        ("purposes", "report", "SITE", "--topic", "#"),
        ("purposes", "report", "SITE", "--since", "1h"),
        ("purposes", "report", "SITE", "-t", "#", "--since", "yesterday"),
        ("purposes", "report", "SITE", "-t", "#", "--since", "1y"),
        ("purposes", "report", "SITE", "-t", "a#", "--since", "1h"),
        ("purposes", "report", "SITE", "-t", "#", "--since", "1h", "--until", "2h"),
        ("purposes", "report", "SITE", "-t", "#", "--since", "2999-01-01"),
        ("purposes", "report", "SITE", "-t", "#", "--since", "1h", "--json", "--csv"),
        ("purposes",),
        ("explain", "SITE", "publish", "--client", "monitor", "-t", "a", "--purpose", "ads"),
        ("explain", "SITE", "deliver", "--client", "monitor", "-t", "a", "--filter", "b"),
        ("explain", "SITE", "deliver", "--client", "monitor", "-t", "a", "--purpose", ""),
        ("explain", "SITE", "subscribe", "--client", "monitor", "-t", "a#"),
        ("explain", "SITE", "subscribe", "--client", "monitor", "-t", "a", "--filter", "a"),
    ],
)
def test_wrong_usage(
    site: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    given = [str(site) if word == "SITE" else word for word in words]
    code, lines, err = sealmq(capsys, *given)
    assert (code, lines) == (2, [])
    assert err.startswith("sealmq: ")


def test_a_site_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("show",), ("explain", "a"), ("report", "-t", "#", "--since", "1h")):
        verb, *more = words
        code, _, err = sealmq(capsys, "purposes", verb, tmp_path / "no", *more)
        assert code == 1
        assert "is no site" in err


# --- report -------------------------------------------------------------------------------------

MINUTE = 60_000
LATER = "; the present minute is written down when it is over"
NOON = 1_767_268_800_000  # 2026-01-01 12:00
EVIL = "machine/2/\x1b[2J\u202etemperature"


def opened(site: Path, now: Callable[[], int]) -> Audit:
    """Its mediator's log."""
    folder = Layout.of(site).audit("mediator")
    return Audit(folder, "mediator", 1, "00c0ffee", now=now, more=FIELDS)


def said(purpose: str, under: str) -> tuple[tuple[str, str], ...]:
    """What the family says of a delivery."""
    return (("purpose", purpose), ("under", under))


@pytest.fixture
def logged(site: Path) -> Path:
    """A morning's log: a reservation by a client beside that of sealmq.toml, one withdrawn."""
    now = [NOON]
    audit = opened(site, lambda: now[0])
    told = {"family": "purposes", "client": "m1-temp-sensor", "rule": "purposes.entitled.label"}
    audit.write("command", topic=TEMPERATURE, detail="reserve aip=control pip=", **told)
    for minute in range(3):
        now[0] = NOON + minute * MINUTE + 5
        # Else the log's own thread ends a minute, up to a second late: here and below.
        audit.part("none")
        for _ in range(minute + 1):
            audit.count_delivered("monitor", TEMPERATURE, "m1-temp", said("control", TEMPERATURE))
        audit.count_delivered("=monitor", EVIL, "m2-temp", said("repair", "machine/#"))
        audit.part("none")
    now[0] = NOON + 10 * MINUTE
    audit.write("command", topic=TEMPERATURE, detail="release", **told)
    audit.close()
    keep(site, TopicLabel("x", "m1-temp", "m1-temp-sensor", AT)).close()
    return site


def test_the_report(logged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("purposes", "report", logged, "--topic", "machine/#", "--since", "2026-01-01T12:00")
    code, lines, err = sealmq(capsys, *words)
    assert (code, err) == (0, "")
    assert lines[0] == "who got machine/#, since 2026-01-01 12:00Z"
    assert [line.split() for line in lines[2:5]] == [
        "CLIENT PURPOSE UNDER RESERVED BY AT TOPIC FIRST LAST MESSAGES".split(),
        "=monitor repair machine/# sealmq.toml - machine/2/\\x1b[2J\\u202etemperature "
        "2026-01-01 12:00Z 2026-01-01 12:02Z 3".split(),
        f"monitor control {TEMPERATURE} m1-temp-sensor 2026-01-01 12:00:00Z {TEMPERATURE} "
        "2026-01-01 12:00Z 2026-01-01 12:02Z 6".split(),
    ]
    assert lines[-1] == f"9 messages to 2 clients{LATER}"
    until = sealmq(capsys, *words, "--until", "2026-01-02")[1]
    assert until[-1] == "9 messages to 2 clients"


def test_the_report_of_a_part(logged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("purposes", "report", logged, "-t", TEMPERATURE, "--since", "2026-01-01T13:01+01:00")
    said = as_json(capsys, *words, "--until", "2026-01-01T12:02:00Z")
    [row] = said["rows"]
    assert (row["client"], row["count"], row["reserved_at_ms"]) == ("monitor", 2, NOON)
    assert (row["first_ms"], row["last_ms"]) == (NOON + MINUTE, NOON + MINUTE)
    assert row["topics"] == [TEMPERATURE]
    assert said["unreadable"] == 0
    lines = sealmq(capsys, *words[:4], "nobody/#", "--since", "2026-01-01")[1]
    assert lines == [f"nobody got nobody/#, since 2026-01-01 00:00Z{LATER}"]


def test_the_report_as_csv_is_safe_in_a_spreadsheet(
    logged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("purposes", "report", logged, "-t", "#", "--since", "2026-01-01", "--csv")
    code, lines, err = sealmq(capsys, *words, "--by-topic")
    assert code == 0
    assert "the log begins at 2026-01-01 12:00Z" in err
    first, *found = csv.reader(io.StringIO("\n".join(lines)))
    row = dict(zip(first, found[0], strict=True))
    assert (row["client"], row["reserved_by"], row["at"]) == ("'=monitor", "sealmq.toml", "")
    assert row["first"] == "2026-01-01T12:00:00Z"
    assert "machine/2/\\x1b[2J\\u202etemperature" in "".join(found[0] + found[1])
    assert all(c.isprintable() for c in "".join(lines))
    assert [r[-1] for r in found] == ["3", "6"]


def test_the_report_tells_what_it_could_not_read(
    logged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [segment] = Layout.of(logged).audit("mediator").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes() + b"torn\n" + b'{"half')
    words = ("purposes", "report", logged, "-t", "machine/#", "--since", "2026-01-01T12:00")
    code, lines, err = sealmq(capsys, *words)
    assert (code, lines[-1]) == (0, f"9 messages to 2 clients{LATER}")
    assert "2 of " in err
    assert "lines cannot be read" in err


@pytest.mark.parametrize("since", ["0001-01-01", "999999999w", "9999999s"])
def test_times_far_away(logged: Path, capsys: pytest.CaptureFixture[str], since: str) -> None:
    [segment] = Layout.of(logged).audit("mediator").glob("*.jsonl")
    text = segment.read_text()
    segment.write_text(text + text.replace(f'"minute_ms":{NOON}', f'"minute_ms":{1 << 60}'))
    words = ("purposes", "report", logged, "-t", "#", "--since", since)
    for form in ((), ("--csv",)):
        assert sealmq(capsys, *words, *form)[0] == 0


def test_what_only_the_store_knows_of_a_reservation(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log's beginning is gone; the store says who, unless it was made only later."""
    now = [AT + 2 * MINUTE]
    audit = opened(site, lambda: now[0])
    for under in ("a/#", "b/#", "c/#"):
        audit.count_delivered("monitor", under[0], "m1-temp", said("control", under))
    audit.close()
    later = rows.reservation(Reservation("b/#", ["control"], [], "public"), AT + 9 * MINUTE)
    keep(site, reserved("a/#", ["control"]), later).close()
    words = ("purposes", "report", site, "-t", "#", "--since", "2026-01-01")
    made = {row["under"]: row["reserved_by"] for row in as_json(capsys, *words)["rows"]}
    assert made == {"a/#": "public", "b/#": None, "c/#": None}
    assert any("(not in the log)" in line for line in sealmq(capsys, *words)[1])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "shown"), [(1.0, False), (3.0, True)])
def test_a_long_report_shows_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool
) -> None:
    screen = Terminal()
    now = [100.0]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("sealmq.families.purposes.cli.report.time.monotonic", lambda: now[0])
    with report.progress_bar(Told()) as progress:
        assert progress is not None
        now[0] += seconds
        progress(Told(done=50, size=100))
    assert ("reading the audit log" in screen.getvalue()) == shown
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with report.progress_bar(Told()) as progress:
        assert progress is None
