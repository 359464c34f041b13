"""Claim 28: with a full disk, consent is withdrawn and a client is put out all the same.

The site lies on a file system of its own (tmpfs), which is filled to its last block.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from running_site import Reading, Site, publish, ran, sealmq, until

MIB = 1024 * 1024
TEMPERATURE, OTHER = "machine/1/temperature", "machine/2/temperature"


class Disk:
    """A small file system, and how full it is."""

    def __init__(self, path: Path) -> None:
        self.path, self._filler = path, path / "filler"
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"this test mounts a tmpfs, which takes root: {done.stderr.strip()}")

    def fill(self) -> None:
        """To the last block, also of what is given free for some seconds."""
        with self._filler.open("ab", buffering=0) as file:
            for _ in range(30):
                for size in (MIB, 4096, 1):
                    try:
                        while file.write(b"x" * size):
                            pass
                    except OSError:
                        continue
                time.sleep(0.1)
        assert shutil.disk_usage(self.path).free < 4096

    def free(self) -> None:
        """There is space again."""
        self._filler.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def site(disk: Disk) -> Iterator[Site]:
    folder = disk.path / "made"
    folder.mkdir()
    made = Site(folder, policy="purposes")
    made.up("--broker", "mosquitto")
    yield made
    made.down()


def test_with_a_full_disk_consent_is_withdrawn_and_a_client_put_out(
    site: Site, disk: Disk, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    reading = Reading(site, tmp_path / "out", "-t", "machine/#", "--purpose", "maintenance")
    try:
        publish(site, "m1-temp-sensor", TEMPERATURE, "1")
        until("the first reading", lambda: reading.lines() == [f"{TEMPERATURE} 1"])
        disk.fill()

        withdrawn = ("-t", TEMPERATURE, "--none", "--pip", "service")
        ran("reserve", site.path, "--client", "m1-temp-sensor", *withdrawn)
        publish(site, "m1-temp-sensor", TEMPERATURE, "2")
        publish(site, "m2-temp-sensor", OTHER, "3")
        until("the other machine's", lambda: len(reading.lines()) > 1)
        assert reading.lines()[1:] == [f"{OTHER} 3"]
        until("its record", lambda: site.audit("command", client="m1-temp-sensor"))
        disk.fill()
        ran("reserve", site.path, "--client", "m1-temp-sensor", "-t", TEMPERATURE, "--remove")
        until("its record", lambda: len(site.audit("command", client="m1-temp-sensor")) == 2)

        disk.fill()
        ran("client", "disable", site.path, "monitor")
        until("its end", lambda: reading.process.poll() is not None)
        until("the record", lambda: site.audit("client-left", client="monitor"))
        assert site.audit("epoch")
        assert not sealmq("pub", site.path, "--client", "monitor", "-t", "x", "-m", "x").stdout
    finally:
        reading.process.kill()
        reading.process.wait()

    disk.free()
    site.enrol("later", "m1-temp")
    publish(site, "m1-temp-sensor", "machine/1/new", "4")
    until("a new topic", lambda: site.audit("topic-labelled", topic="machine/1/new"))


def test_with_a_full_disk_a_client_is_put_out_of_a_site_that_is_down(
    site: Site, disk: Disk
) -> None:
    assert site.down() == 0
    disk.fill()
    ran("client", "disable", site.path, "monitor")
    disk.free()
    site.up("--broker", "mosquitto")
    told = sealmq("pub", site.path, "--client", "monitor", "-t", "x", "-m", "x")
    assert told.returncode != 0
    assert "disabled" in told.stderr


def test_with_a_full_disk_what_grows_is_refused_and_goes_on_when_there_is_space(
    site: Site, disk: Disk
) -> None:
    disk.fill()
    words = ("pub", site.path, "--client", "m1-temp-sensor", "-t", "machine/1/new", "-m", "x")
    done = sealmq(*words, "-q", "1")
    assert done.returncode != 0
    assert "mediator.publish.unavailable" in done.stderr, done.stderr
    allowed = ("-t", TEMPERATURE, "--aip", "service")
    done = sealmq("reserve", site.path, "--client", "m1-temp-sensor", *allowed)
    assert done.returncode != 0
    assert "mediator.command.unavailable" in done.stderr, done.stderr
    until("the reason", lambda: site.audit("store-unavailable"))
    assert "the disk is full" in site.audit("store-unavailable")[0]["reason"]
    disk.free()
    ran(*words, "-q", "1")
    ran("reserve", site.path, "--client", "m1-temp-sensor", *allowed)


def test_revocation_and_withdrawal_survive_the_end_of_the_processes(site: Site, disk: Disk) -> None:
    disk.fill()
    withdrawn = ("-t", TEMPERATURE, "--none", "--pip", "service")
    ran("reserve", site.path, "--client", "m1-temp-sensor", *withdrawn)
    ran("client", "disable", site.path, "monitor")
    for role in ("mediator", "kg"):
        site.back(role, site.kill(role))
    question = ("explain", site.path, "deliver", "--client", "m1-control-panel", "-t", TEMPERATURE)
    said = sealmq(*question, "--purpose", "maintenance")
    assert "pip" in said.stdout or "prohibit" in said.stdout, said.stdout
    told = sealmq("pub", site.path, "--client", "monitor", "-t", "x", "-m", "x")
    assert told.returncode != 0
    assert "disabled" in told.stderr
