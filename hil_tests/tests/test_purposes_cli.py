"""Consent given and withdrawn on the command line, in a site as `sealmq init` makes it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from running_site import SEALMQ, Site, sealmq, until

TEMPERATURE = "machine/1/temperature"
ROOM = "control-room/temperature"


class Reading:
    """A `sealmq sub` that is subscribed."""

    def __init__(self, site: Site, folder: Path, *flags: str) -> None:
        self.out, self.err = folder / f"{len(list(folder.iterdir()))}.out", folder / "sub.err"
        words = ["sub", str(site.path), "--client", "monitor", "-v", "-d", *flags]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen([str(SEALMQ), *words], stdout=out, stderr=err)
        until("the subscription", lambda: "subscribed: " in self.err.read_text())

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, policy="purposes")
    site.up()
    yield site
    site.down()


def well(*words: object) -> str:
    done = sealmq(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(*words: object) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(sealmq(*words, "--json").stdout)
    return said


def publish(site: Site, client: str, topic: str, message: str) -> None:
    well("pub", site.path, "--client", client, "-t", topic, "-m", message)


def test_consent_from_the_first_reading_to_the_officers_report(
    closed: Site, tmp_path: Path
) -> None:
    path, folder = closed.path, tmp_path / "out"
    folder.mkdir()
    reading = Reading(closed, folder, "-t", "machine/#", "--purpose", "maintenance")
    publish(closed, "m1-temp-sensor", TEMPERATURE, "1")
    until("the first reading", lambda: reading.lines() == [f"{TEMPERATURE} 1"])

    # Somebody else's word does not count, its owner's does, at once.
    withdrawn = ("-t", TEMPERATURE, "--none", "--pip", "service")
    done = sealmq("reserve", path, "--client", "m2-temp-sensor", *withdrawn)
    assert done.returncode == 12
    assert "purposes.entitled.other-label" in done.stderr
    assert "[[families.purposes.grant]]" in done.stderr
    well("reserve", path, "--client", "m1-temp-sensor", *withdrawn)
    publish(closed, "m1-temp-sensor", TEMPERATURE, "2")
    publish(closed, "m2-temp-sensor", "machine/2/temperature", "other")
    until("the other machine's", lambda: len(reading.lines()) == 2)
    question = ("explain", path, "deliver", "--client", "monitor", "-t", TEMPERATURE)
    said = told(*question, "--purpose", "maintenance", "--filter", "machine/#")
    assert (said["allowed"], said["rule"]) == (False, "purposes.deliver.prohibited")
    well("reserve", path, "--client", "m1-temp-sensor", "-t", TEMPERATURE, "--remove")
    publish(closed, "m1-temp-sensor", TEMPERATURE, "3")
    until("the reading behind the consent", lambda: f"{TEMPERATURE} 3" in reading.lines())
    assert f"{TEMPERATURE} 2" not in reading.lines()
    reading.end()

    # A filter without a purpose has one as soon as a steward has said it.
    done = sealmq("sub", path, "--client", "monitor", "-t", "control-room/#", "-W", "5")
    assert done.returncode == 12
    assert "hint: --purpose PURPOSE" in done.stderr
    said_for = ("--for", "monitor", "-t", "control-room/#", "--purpose", "control")
    assert sealmq("presubscribe", path, "--client", "m1-temp-sensor", *said_for).returncode == 12
    well("presubscribe", path, "--client", "officer", *said_for)
    reading = Reading(closed, folder, "-t", "control-room/#")
    publish(closed, "control-room-temp-sensor", ROOM, "20")
    until("the control room's", lambda: reading.lines() == [f"{ROOM} 20"])
    reading.end()

    # What only this client allows, is reported as its own.
    own = ("reserve", path, "--client", "m1-temp-sensor", "-t", TEMPERATURE)
    assert well(*own, "--aip", "analytics") == f"{TEMPERATURE}: for analytics\n"
    reading = Reading(closed, folder, "-t", TEMPERATURE, "--purpose", "energy")
    publish(closed, "m1-temp-sensor", TEMPERATURE, "4")
    until("the reading", lambda: bool(reading.lines()))
    reading.end()
    well(*own, "--remove")

    well("purposes", "set", path, "--client", "officer", "--mode", "fop")
    mode = told("purposes", "show", path)["mode"]
    assert (mode["value"], mode["by"]) == ("fop", "officer")

    # What is counted is written down when its minute is over, or at the end.
    closed.down()
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
    lines = well("purposes", "report", path, "--topic", "#", "--since", "1h").splitlines()
    assert lines[-1].startswith("5 messages to one client; ")
