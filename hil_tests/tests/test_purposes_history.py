"""A withdrawal is proved from the command line: when, by whom, and what was withheld since."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from running_site import Site, program, sealmq, until

TOPIC = "hall/temperature"


def test_what_was_delivered_before_a_withdrawal_and_withheld_after_it_is_told_to_the_message(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, policy="purposes")
    site.up()
    begun = time.time_ns() // 1_000_000

    def act(*words: object) -> None:
        done = sealmq(words[0], site.path, "--client", "m1-temp-sensor", "-t", TOPIC, *words[1:])
        assert done.returncode == 0, done.stderr

    def changes(*more: object) -> list[dict[str, Any]]:
        done = sealmq("purposes", "history", site.path, "-t", TOPIC, "--json", *more)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["changes"]
        return found

    def withheld() -> int:
        return sum(row["count"] for row in site.audit("deliver-denied", topic=TOPIC))

    reader = None
    try:
        act("reserve", "--aip", "service")
        log = tmp_path / "monitor.log"
        with log.open("w") as to:
            words = ("sub", str(site.path), "--client", "monitor", "-t", TOPIC, "-d")
            reader = subprocess.Popen(
                [program(), *words, "--purpose", "service"], stdout=to, stderr=to
            )
        until("the reader", lambda: "subscribed" in log.read_text())
        for n in range(3):
            act("pub", "-m", n, "-q", 1)
        until("three messages", lambda: len(log.read_text().splitlines()) == 4)
        act("reserve", "--remove")
        for n in range(2):
            act("pub", "-m", n, "-q", 1)
    finally:
        site.down()
        if reader is not None:
            reader.terminate()
            reader.wait()
    # By this reports name the site.
    assert site.audit("start", role="mediator")[0]["name"] == site.path.name
    made, gone = changes()
    assert (made["change"], gone["change"]) == ("reserve", "release")
    assert made["until_ms"] == gone["at_ms"]
    assert begun < made["at_ms"] < gone["at_ms"] < time.time_ns() // 1_000_000
    assert gone["by"] == "m1-temp-sensor"
    assert gone["rule"] == "purposes.entitled.label"
    assert gone["before"] == made["since"] == {"delivered": 3, "under": 3, "withheld": 0}
    assert gone["since"] == {"delivered": 0, "under": 0, "withheld": withheld()}
    assert withheld() == 2
    denied = site.audit("deliver-denied", topic=TOPIC, client="monitor")
    assert {row["purpose"] for row in denied} == {"service"}
    assert changes("--since", "1h") == [made, gone]
    assert changes("--until", "1h") == []
    told = sealmq("purposes", "history", site.path).stdout.splitlines()
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(gone["at_ms"] / 1000))
    assert told[-1].startswith(f"{at}.{gone['at_ms'] % 1000:03}Z  release")
    assert told[-1].split()[-3:] == ["3", "0", "2"]
