"""The Grafana dashboard that is shipped: its queries, put to a real Prometheus of a real site."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port
from run.sites import sealmq, until
from run.test_run_metrics import get, watched
from run.test_run_real import RealSite, real
from sealmq.metrics import exposition
from sealmq.metrics.health import Health
from sealmq.metrics.totals import Told
from sealmq.run.status import ProcessStatus, Status

__all__ = ["real", "watched"]
_RATE = "$__rate_interval"
BOARD = Path(exposition.__file__).with_name("grafana.json")
GAUGES = (
    "journal_bytes journal_segments handover_labels handover_waiting set_aside stuck_sessions "
    "loop_lag_seconds publish_seconds publish_count log_ahead_seconds"
).split()


def queries() -> list[str]:
    found = json.loads(BOARD.read_bytes())
    return [one["expr"] for panel in found["panels"] for one in panel["targets"]]


def test_the_dashboard_asks_for_what_there_is_and_for_all_of_it() -> None:
    told = Told(
        "mediator", "0", 0, 0, {("delivered", ""): 1}, 1, 1, dict.fromkeys(GAUGES, 1.0), None
    )
    status = Status("x", (ProcessStatus("kg", ready=True),), True, True)
    said = exposition.text(Health((), status, (told,))).decode()
    there = set(re.findall(r"^(sealmq_[a-z_]+)", said, re.M))
    asked = {name for query in queries() for name in re.findall(r"sealmq_[a-z_]+", query)}
    assert asked <= there
    beside = {"build_info", "journal_segments", "handover_labels", "log_ahead_seconds"}
    assert there - asked == {f"sealmq_{name}" for name in beside}


@pytest.fixture
def prometheus(folder: Path) -> Iterator[tuple[Path, str, list[subprocess.Popen[bytes]]]]:
    """Debian's package `prometheus` (apt-get install --no-install-recommends prometheus)."""
    port = free_port()
    started: list[subprocess.Popen[bytes]] = []
    yield folder, f"127.0.0.1:{port}", started
    for one in started:
        one.terminate()
        one.wait(60)


@pytest.mark.full
def test_every_query_has_an_answer_of_a_real_prometheus(
    watched: tuple[RealSite, str],
    prometheus: tuple[Path, str, list[subprocess.Popen[bytes]]],
) -> None:
    site, url = watched
    folder, address, started = prometheus
    up = site.up().ready()
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: sealmq\n  static_configs:\n"
        f"  - targets: ['{url.removeprefix('http://')}']\n"
    )
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    started.append(
        subprocess.Popen([*words, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL)
    )
    until(lambda: _asked(address, "sealmq_healthy") != [], "the first scrape")
    words = [sys.executable, "-m", "sealmq.cli", "sub", str(site.root), "--client", "monitor"]
    started.append(subprocess.Popen([*words, "-t", "#"], stdout=subprocess.DEVNULL))
    left = queries()

    def all_answered() -> bool:
        # So that rates have something to count: what is taken, and what is refused.
        for topic in ("machine/1/temperature", "machine/2/temperature"):
            sealmq("pub", str(site.root), "--client", "m1-temp-sensor", "-t", topic,
                   "-m", "21.5", "-q", "1")  # fmt: skip
        left[:] = [one for one in left if not _asked(address, one.replace(_RATE, "30s"))]
        return not left

    try:
        until(all_answered, "an answer to each query")
    finally:
        assert left == []

    # A restart is one of its process alone, and its counters begin anew: rates go on after it.
    def seen(query: str) -> list[tuple[str, float]]:
        found = _asked(address, query)
        return sorted((one["metric"]["role"], float(one["value"][1])) for one in found)

    restarts = "changes(process_start_time_seconds[10m])"
    assert seen(restarts) == [("kg", 0), ("mediator", 0)]
    os.kill(site.row("mediator")["pid"], signal.SIGKILL)
    until(lambda: "mediator is ready again" in up.err.read_text(), "its restart")
    until(lambda: seen(restarts) == [("kg", 0), ("mediator", 1)], "its new start time")
    # The reader comes back, once; before there were publishers too.
    resets = 'resets(sealmq_events_total{event="connect"}[10m])'
    until(lambda: seen(resets) == [("mediator", 1)], "its new counts")
    assert up.end() == 0


def _asked(address: str, query: str) -> list[Any]:
    try:
        code, body = get(
            f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        )
    except OSError:
        return []
    if code == 503:  # it is starting
        return []
    assert code == 200, (query, body)
    found: list[Any] = json.loads(body)["data"]["result"]
    return found
