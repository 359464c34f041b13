"""A started site under the allowlist, and the report over its audit logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from running_site import Reading, Site, publish, ran, sealmq, until

SENSOR, TEMP = "m1-temp-sensor", "machine/1/temperature"


@pytest.mark.full
def test_the_report_counts_what_rules_let_through_and_what_they_refuse(tmp_path: Path) -> None:
    site = Site(tmp_path, policy="allowlist")
    site.up()
    try:
        monitor = Reading(site, tmp_path, "-t", "machine/#")
        publish(site, SENSOR, TEMP, "21", "-q", 1)
        until("the message", lambda: monitor.lines() == [f"{TEMP} 21"])
        monitor.end()
        for _ in range(2):
            words = ("pub", site.path, "--client", SENSOR, "-t", "machine/9/x", "-m", "1", "-q", 1)
            assert sealmq(*words).returncode != 0
        assert sealmq("sub", site.path, "--client", SENSOR, "-t", TEMP, "-W", 1).returncode != 0
    finally:
        site.down()
    report = tmp_path / "report"
    summary = json.loads(ran("report", site.path / "audit", "--out", report, "--json"))
    assert (summary["quarantined"], summary["reasons"]) == (0, {})
    found = {name: summary["headline"][name] for name in ("denied", "disclosed", "unenforced")}
    assert found == {"denied": 3, "disclosed": 1, "unenforced": 0}
    page = (report / "report.html").read_text()
    assert "allowlist.publish.not-allowed" in page
    assert "allowlist.subscribe.not-allowed" in page
