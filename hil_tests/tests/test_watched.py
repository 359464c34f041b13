"""/healthz of a site that serves, under what befalls a gateway: its disk full, its clock wrong.

A Raspberry Pi has no clock of its own: it begins in 1970, or where it stopped, and is set once it
has a network.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.shim import Shim
from free_ports import free_port
from running_site import SEALMQ, Site, ran, sealmq, until
from test_attacks_full_disk import Disk, disk

__all__ = ["disk"]
pytestmark = pytest.mark.full
TOPIC = "machine/1/temperature"
HOUR = 3600.0


class Watched(Site):
    """A site with /healthz, whose clock is ours to set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port_of_metrics = free_port()
        table = f'\n[metrics]\nlisten = "127.0.0.1:{self.port_of_metrics}"\n'
        self.toml.write_text(self.toml.read_text() + table)
        # Files have the times that they really have.
        nothing = folder / "nothing"
        nothing.mkdir()
        self.shim = Shim(folder, nothing)
        self._running: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        with self._log.open("a") as log:
            self._running = subprocess.Popen(
                [str(SEALMQ), "up", str(self.path), "--broker", "mosquitto"],
                env=self.shim.environment(),
                stdout=log,
                stderr=log,
            )
        until("it to serve", lambda: sealmq("status", self.path).returncode == 0, 90)

    def end(self) -> None:
        if self._running is not None:
            self._running.terminate()
            assert self._running.wait(60) == 0, self.log()
            self._running = None

    def power_cut(self) -> None:
        """All processes end at once, and the broker has saved nothing since it began."""
        assert self._running is not None
        status = json.loads(sealmq("status", self.path, "--json").stdout)
        os.kill(self._running.pid, signal.SIGSTOP)  # it starts nothing again
        for process in status["processes"]:
            os.kill(int(process["pid"]), signal.SIGKILL)
        self._running.kill()
        self._running.wait()
        self._running = None

    def problems(self) -> list[str]:
        url = f"http://127.0.0.1:{self.port_of_metrics}/healthz"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                told: dict[str, Any] = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                told = json.loads(error.read())
        except OSError as error:
            return [f"nobody answers: {error}"]
        return list(told["problems"])

    def says(self, *words: str) -> None:
        """All of these, and nothing else."""

        def fits() -> bool:
            found = self.problems()
            return all(any(w in text for text in found) for w in words) and all(
                any(w in text for w in words) for text in found
            )

        until(f"/healthz to say {words}, it says {self.problems()}", fits)

    def noticed(self) -> None:
        """The mediator has seen that the clock was set (it looks once a second), and lets clients
        in again: kept sessions that the broker has ended are opened first.
        """
        until("the clock to be looked at", lambda: "clients connect anew" in self.log())
        words = ("--client", "m1-temp-sensor", "-t", TOPIC, "-m", "noticed")
        until("clients to be let in", lambda: sealmq("pub", self.path, *words).returncode == 0)

    def carries(self, message: str) -> None:
        """A publish of QoS 1 is accepted, and its retained message read."""
        words = ("-t", TOPIC, "-m", message, "-q", 1, "-r")
        ran("pub", self.path, "--client", "m1-temp-sensor", *words)
        out = ran("sub", self.path, "--client", "monitor", "-t", TOPIC, "-C", 1, "-W", 30)
        assert out == f"{message}\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("boot", ["1970", "before the last stop"])
def test_a_clock_that_is_wrong_at_boot_is_said_until_it_is_set_and_messages_flow(
    site: Watched, boot: str
) -> None:
    site.begin()
    site.carries("before")
    site.says()
    site.end()
    site.shim.clock(1000 - time.time() if boot == "1970" else -HOUR)
    site.begin()
    site.says("the clock is wrong")
    site.carries("with a wrong clock")
    site.shim.clock(0)  # a network, and NTP
    site.says()
    site.noticed()
    site.carries("set")
    assert ran("audit", "verify", site.path).count("as it was written") == 2
    site.end()
    site.begin()
    site.says()
    site.carries("again")
    assert ran("audit", "verify", site.path).count("as it was written") == 2


@pytest.mark.parametrize("boot", ["1970", "before the last stop"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_acknowledged_before_a_power_cut_comes_once_when_a_wrong_clock_is_set(
    site: Watched, boot: str, qos: int
) -> None:
    """The broker had saved nothing of it; its reader has a session that is kept."""
    site.begin()
    kept = ("-t", TOPIC, "-i", "kept", "-c", "-q", 2)
    assert sealmq("sub", site.path, "--client", "monitor", *kept, "-W", 3).returncode == 27
    words = ("-t", TOPIC, "-m", "acknowledged", "-q", qos)
    ran("pub", site.path, "--client", "m1-temp-sensor", *words)
    site.power_cut()
    site.shim.clock(1000 - time.time() if boot == "1970" else -HOUR)
    site.begin()
    site.says("the clock is wrong")
    assert "lies ahead of the clock" in site.log()
    # Fresh messages flow meanwhile.
    ran("pub", site.path, "--client", "m1-temp-sensor", "-t", TOPIC, "-m", "wrong", "-q", 1)
    site.shim.clock(0)
    site.noticed()
    until("it to be published", lambda: site.log().count("messages published again") == 2)
    until("clients to be let in", lambda: sealmq("status", site.path).returncode == 0)
    site.says()
    done = sealmq("sub", site.path, "--client", "monitor", *kept, "-d", "-W", 5)
    assert done.stdout.splitlines().count("acknowledged") == 1, done.stderr + site.log()
    again = sealmq("sub", site.path, "--client", "monitor", *kept, "-W", 3).stdout
    assert "acknowledged" not in again


def test_a_clock_that_is_set_back_while_it_runs_is_said(site: Watched) -> None:
    site.begin()
    site.carries("before")
    site.says()
    site.shim.clock(-HOUR)
    site.says("the clock is wrong", "the clock was set by -3600 s")
    site.noticed()
    site.carries("an hour earlier")


def test_a_disk_that_is_full_is_said_until_there_is_room(disk: Disk) -> None:
    folder = disk.path / "made"
    folder.mkdir()
    site = Watched(folder)
    try:
        site.begin()
        site.says()
        disk.fill()
        until("word of the disk", lambda: "the disk is full" in site.problems())
        disk.free()
        site.says()
        site.carries("room again")
    finally:
        site.end()


def test_a_supervisor_that_is_killed_is_said(site: Watched) -> None:
    site.begin()
    site.says()
    assert site._running is not None
    site._running.kill()
    site._running.wait()
    site._running = None
    until("word of it", lambda: any("`sealmq up` has ended" in text for text in site.problems()))
    site.begin()
    until("the next one's word", lambda: site.problems() == [], 60)
