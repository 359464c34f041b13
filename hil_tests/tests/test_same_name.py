"""A client is removed and another one gets its name: it inherits nothing that hung on the first."""

from __future__ import annotations

import json

import pytest

from running_site import Site, ran, sealmq, until

TEMPERATURE = "machine/1/temperature"


def reads_without_a_purpose(site: Site, within: int = 2) -> int:
    """27: it was allowed, or not refused within so many seconds; 12: it was refused."""
    words = ("sub", site.path, "--client", "nurse", "-t", TEMPERATURE, "-C", 1, "-W", within)
    return sealmq(*words).returncode


def shown(site: Site) -> tuple[list[str], list[str]]:
    """Who has presubscriptions, and by whom client's reservations were made."""
    said = json.loads(ran("purposes", "show", site.path, "--json"))
    made = [r["by"] for r in said["reservations"] if r["by"]]
    return [p["client"] for p in said["presubscriptions"] if p["by"]], made


@pytest.mark.parametrize("running", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_new_client_of_a_removed_ones_name_inherits_neither_presubscription_nor_reservation(
    closed_site: Site, running: bool
) -> None:
    site = closed_site
    site.toml.write_text(site.toml.read_text() + "\n[limits]\nrows = 2\n")
    site.enrol("nurse", "monitor")
    ran("presubscribe", site.path, "--client", "nurse", "-t", TEMPERATURE, "--purpose", "service")
    # As of the label monitor, on a topic that nobody has published to.
    ran("reserve", site.path, "--client", "nurse", "-t", "ward/bed", "--aip", "service")
    assert shown(site) == (["nurse"], ["nurse"])
    assert reads_without_a_purpose(site) == 27, "allowed, and nothing is published"
    if not running:
        site.down()
    old = next(line for line in site.toml.read_text().splitlines() if line.startswith("nurse ="))
    site.edit(old + "\n", "")
    ran("client", "add", site.path, "other", "--label", "monitor", "-o", site.path.parent / "o")
    file = site.path.parent / "second"
    ran("client", "add", site.path, "nurse", "--label", "monitor", "-o", file)
    if not running:
        site.up()
    until("the rows to be put right", lambda: shown(site) == ([], ["nurse (removed)"]))
    assert reads_without_a_purpose(site, 50) == 12
    # Its own counts, over a restart as well.
    ran("presubscribe", site.path, "--client", "nurse", "-t", TEMPERATURE, "--purpose", "service")
    assert reads_without_a_purpose(site) == 27
    site.down()
    site.up()
    assert reads_without_a_purpose(site) == 27
    assert shown(site) == (["nurse"], ["nurse (removed)"])
    # What the first one has made fills no bound of the second one's.
    reserve = ("reserve", site.path, "--client", "nurse", "--aip", "service", "-t")
    ran(*reserve, "ward/chair")
    done = sealmq(*reserve, "ward/lamp")
    assert done.returncode == 12
    assert "a client keeps 2 rows at most ([limits] rows)" in done.stderr
