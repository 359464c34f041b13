"""A site in which data is read for purposes, and what `sealmq purposes report` says of it.

`python spark/tests/officer_scene.py` records spark/tests/data/officer anew, with the present
gateway: real segments of three minutes, for tests that cannot wait for a site.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "hil_tests/tests")]

from running_site import SEALMQ, Site, sealmq, until

RECORDED = Path(__file__).with_name("data") / "officer"
TEMPERATURE = "machine/1/temperature"
ROOM = "control-room/temperature"


def play(site: Site, folder: Path) -> None:
    """Readings for three purposes, under reservations of the site and of a client; denials."""
    temperature = _reading(site, folder, "machine/#", "maintenance", 4)
    _publish(site, "m1-temp-sensor", TEMPERATURE, 2)
    _publish(site, "m2-temp-sensor", "machine/2/temperature", 1)
    own = ("reserve", site.path, "--client", "m1-temp-sensor", "-t", TEMPERATURE)
    _well(*own, "--none", "--pip", "service")  # maintenance is below service
    _publish(site, "m1-temp-sensor", TEMPERATURE, 3)
    _well(*own, "--aip", "analytics")
    energy = _reading(site, folder, TEMPERATURE, "energy", 1)
    _publish(site, "m1-temp-sensor", TEMPERATURE, 1)
    _ended(energy)
    _well(*own, "--remove")
    _publish(site, "m1-temp-sensor", TEMPERATURE, 1)
    _ended(temperature)
    room = _reading(site, folder, "control-room/#", "control", 2)
    _publish(site, "control-room-temp-sensor", ROOM, 2)
    _ended(room)
    refused = sealmq("sub", site.path, "--client", "monitor", "-t", "machine/#", "-W", "5")
    assert refused.returncode == 12, refused.stderr
    refused = sealmq("pub", site.path, "--client", "m2-temp-sensor", "-t", TEMPERATURE, "-m", "x")
    assert refused.returncode == 12, refused.stderr


def report(site: Path, topic: str) -> list[dict[str, Any]]:
    """The rows that `sealmq purposes report` has about a filter."""
    span = ("--since", "2026-01-01", "--until", "2100-01-01")
    words = ("purposes", "report", site, "--topic", topic, *span, "--by-topic", "--json")
    done = sealmq(*words)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["unreadable"], said["notes"][1:]) == (0, [])
    return list(said["rows"])


# It ends by itself when `count` messages have come.
def _reading(site: Site, folder: Path, topic: str, purpose: str, count: int) -> Any:
    told = Path(tempfile.mkdtemp(dir=folder)) / "sub.err"
    words = ["sub", str(site.path), "--client", "monitor", "-d", "-C", str(count)]
    with told.open("w") as err:
        process = subprocess.Popen(
            [str(SEALMQ), *words, "-t", topic, "--purpose", purpose],
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
    until(f"{topic} for {purpose}", lambda: "subscribed: " in told.read_text())
    return process


def _ended(process: Any) -> None:
    assert process.wait(60) == 0


def _publish(site: Site, client: str, topic: str, count: int) -> None:
    for n in range(count):
        _well("pub", site.path, "--client", client, "-t", topic, "-m", n)


def _well(*words: object) -> None:
    done = sealmq(*words)
    assert done.returncode == 0, done.stderr


def _record() -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), policy="purposes")
        site.up()
        for _ in range(3):
            play(site, Path(folder))
            time.sleep(61)
        site.down()
        shutil.rmtree(RECORDED, ignore_errors=True)
        RECORDED.mkdir(parents=True)
        for path in (site.path / "audit/mediator").glob("*.jsonl"):
            shutil.copy(path, RECORDED)


if __name__ == "__main__":
    _record()
