"""Consent given and withdrawn on the command line, in a site as `sealmq init` makes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from running_site import Reading, Site, publish, ran, sealmq, until

TEMPERATURE = "machine/1/temperature"
ROOM = "control-room/temperature"


def told(*words: object) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(sealmq(*words, "--json").stdout)
    return said


def test_consent_from_the_first_reading_to_the_officers_report(
    closed_site: Site, tmp_path: Path
) -> None:
    path, folder = closed_site.path, tmp_path / "out"
    folder.mkdir()
    reading = Reading(closed_site, folder, "-t", "machine/#", "--purpose", "maintenance")
    publish(closed_site, "m1-temp-sensor", TEMPERATURE, "1")
    until("the first reading", lambda: reading.lines() == [f"{TEMPERATURE} 1"])

    # Somebody else's word does not count, its owner's does, at once.
    withdrawn = ("-t", TEMPERATURE, "--none", "--pip", "service")
    done = sealmq("reserve", path, "--client", "m2-temp-sensor", *withdrawn)
    assert done.returncode == 12
    assert "purposes.entitled.other-label" in done.stderr
    assert "[[families.purposes.grant]]" in done.stderr
    ran("reserve", path, "--client", "m1-temp-sensor", *withdrawn)
    publish(closed_site, "m1-temp-sensor", TEMPERATURE, "2")
    publish(closed_site, "m2-temp-sensor", "machine/2/temperature", "other")
    until("the other machine's", lambda: len(reading.lines()) == 2)
    question = ("explain", path, "deliver", "--client", "monitor", "-t", TEMPERATURE)
    said = told(*question, "--purpose", "maintenance", "--filter", "machine/#")
    assert (said["allowed"], said["rule"]) == (False, "purposes.deliver.prohibited")
    ran("reserve", path, "--client", "m1-temp-sensor", "-t", TEMPERATURE, "--remove")
    publish(closed_site, "m1-temp-sensor", TEMPERATURE, "3")
    until("the reading behind the consent", lambda: f"{TEMPERATURE} 3" in reading.lines())
    assert f"{TEMPERATURE} 2" not in reading.lines()
    reading.end()

    # A filter without a purpose has one as soon as a steward has said it.
    done = sealmq("sub", path, "--client", "monitor", "-t", "control-room/#", "-W", "5")
    assert done.returncode == 12
    assert "hint: --purpose PURPOSE" in done.stderr
    said_for = ("--for", "monitor", "-t", "control-room/#", "--purpose", "control")
    assert sealmq("presubscribe", path, "--client", "m1-temp-sensor", *said_for).returncode == 12
    ran("presubscribe", path, "--client", "officer", *said_for)
    reading = Reading(closed_site, folder, "-t", "control-room/#")
    publish(closed_site, "control-room-temp-sensor", ROOM, "20")
    until("the control room's", lambda: reading.lines() == [f"{ROOM} 20"])
    reading.end()

    # What only this client allows, is reported as its own.
    own = ("reserve", path, "--client", "m1-temp-sensor", "-t", TEMPERATURE)
    assert ran(*own, "--aip", "analytics") == f"{TEMPERATURE}: for analytics\n"
    reading = Reading(closed_site, folder, "-t", TEMPERATURE, "--purpose", "energy")
    publish(closed_site, "m1-temp-sensor", TEMPERATURE, "4")
    until("the reading", lambda: bool(reading.lines()))
    reading.end()
    ran(*own, "--remove")

    ran("purposes", "set", path, "--client", "officer", "--mode", "fop")
    mode = told("purposes", "show", path)["mode"]
    assert (mode["value"], mode["by"]) == ("fop", "officer")

    # What is counted is written down when its minute is over, or at the end.
    closed_site.down()
    report = told("purposes", "report", path, "--topic", "#", "--since", "1h")
    rows = {(r["client"], r["purpose"], r["under"]): r for r in report["rows"]}
    assert {key: row["count"] for key, row in rows.items()} == {
        ("monitor", "maintenance", "machine/#"): 3,
        ("monitor", "control", "control-room/#"): 1,
        ("monitor", "energy", TEMPERATURE): 1,
    }
    by = {under: row["reserved_by"] for (_, _, under), row in rows.items()}
    assert by == {"machine/#": "", "control-room/#": "", TEMPERATURE: "m1-temp-sensor"}
    assert report["unreadable"] == 0
    lines = ran("purposes", "report", path, "--topic", "#", "--since", "1h").splitlines()
    assert lines[-1].startswith("5 messages to one client; ")
