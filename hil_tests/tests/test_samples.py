"""Each sample of each page is run as it stands there: those for a board on a virtual board with
real MicroPython, brought there by `sealmq board` (NVS) and by hand with mpremote (files), against a
running site as `sealmq init` makes it, which is closed: order of labels, purposes, strict.

A sample that nobody runs fails the first tests here: it belongs into a table below.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pages import Sample, samples
from running_site import ROOT, Site, program, sealmq, until
from sealmq_hil.behaviours import power_loss
from sealmq_hil.line import Line
from sealmq_vboard.board import VirtualBoard
from test_board_life import WIFI, virtual

# Boards take their time to start on a busy machine.
PATIENCE_S = 120.0
ROLES = "m1-temp"  # what the samples' board is: it measures machine 1's temperature
PYTHON = samples("python")
CONSOLE = samples("console")


class Device:
    """A board with one sample as its main.py, its console, and the site around it."""

    def __init__(self, made: VirtualBoard, line: Line, site: Site, name: str) -> None:
        self.made = made
        self.site = site
        self.name = name
        self._line = line
        self._since = time.monotonic()

    def start(self) -> None:
        """From its beginning."""
        self._since = time.monotonic()
        assert self.made.ctl({"do": "reset"})["ok"]

    def said(self, pattern: str) -> bool:
        return bool(self._line.since(self._since, pattern))

    def says(self, pattern: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Waits for a line of it."""

        def look() -> bool:
            meanwhile()
            return self.said(pattern)

        try:
            until(f"{pattern!r} of the board", look, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._line.tail(15)}") from None

    def sends(self, topic: str, text: str) -> None:
        """A message of another client, with the board's label."""
        words = ("--client", "m1-temp-sensor", "-t", topic, "-m", text, "-q", 1)
        done = sealmq("pub", self.site.path, *words)
        assert done.returncode == 0, done.stderr

    def published(self) -> None:
        """What it measures reaches who is above it and has a purpose."""
        words = ["--client", "monitor", "--purpose", "service", "-t", "machine/1/temperature"]
        command = [program(), "sub", str(self.site.path), *words, "-C", "1"]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(1)
            for _ in range(6):
                self.start()
                try:
                    out, _ = reader.communicate(timeout=PATIENCE_S / 6)
                except subprocess.TimeoutExpired:
                    continue
                assert out == "21.5\n"
                return
            raise AssertionError(f"no reading: {self._line.tail(15)}")
        finally:
            reader.terminate()
            reader.communicate()


def publishes_and_receives(board: Device) -> None:
    board.published()
    heard = r"machine/1/temperature b'22'"
    board.says(heard, lambda: board.sends("machine/1/temperature", "22"))


def says_what_its_data_is_for(board: Device) -> None:
    board.start()
    board.says("machine/1/target b'19'", lambda: board.sends("machine/1/target", "19"))
    # It has come to its end, which takes the reservation back.
    board.says("MicroPython v")
    history = ("purposes", "history", board.site.path, "--topic", "machine/1/temperature", "--json")
    until("its history", lambda: sealmq(*history).stdout.count(board.name) >= 2)


def lives(board: Device) -> None:
    board.published()
    board.says("^up")
    board.says("machine/1/target b'20'", lambda: board.sends("machine/1/target", "20"))
    words = ("--client", "monitor", "--purpose", "service", "-t", "machine/1/state", "-C", 1)
    assert sealmq("sub", board.site.path, *words).stdout == "here\n"
    assert not board.said("^message")


def sleeps(board: Device) -> None:
    board.published()
    until("it to sleep", lambda: board.made.ctl({"do": "status"})["child"]["asleep"], PATIENCE_S)


BOARD: dict[str, Callable[[Device], None]] = {
    "README.md: On a board": publishes_and_receives,
    "firmware/README.md: SealMQ on MicroPython": publishes_and_receives,
    "firmware/README.md: asyncio": publishes_and_receives,
    "firmware/README.md: Purposes": says_what_its_data_is_for,
    "firmware/README.md: A device that lives": lives,
    "firmware/README.md: On a battery": sleeps,
}


def reserves_and_subscribes(sample: Sample, site: Site, folder: Path) -> None:
    """A client that may reserve what the sample reserves, and may read what it reads."""
    site.enrol("sensor", "m1-temp").rename(folder / "sensor.json")
    site.toml.write_text(
        site.toml.read_text()
        + '\n[[families.purposes.grant]]\nfilter = "machine/1/#"\nclients = ["sensor"]\n'
    )
    assert sealmq("reload", site.path).returncode == 0
    body = "".join(f"    {line}\n" for line in sample.text.splitlines())
    script = f"import asyncio\nfrom sealmq.client import Client\nasync def main():\n{body}"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}asyncio.run(main())"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def is_the_behaviour_that_the_rig_runs(sample: Sample, site: Site, folder: Path) -> None:
    assert inspect.getsource(power_loss._run) == sample.text


def a_board_starts_and_stops(sample: Sample, site: Site, folder: Path) -> None:
    with virtual(folder / "board", 64):
        pass
    names: dict[str, Any] = {"folder": folder / "board", "VirtualBoard": VirtualBoard}
    exec(compile(sample.text, sample.key, "exec"), names)  # noqa: S102 - our own page
    assert names["board"].pty.startswith("/dev/pts/")


HOST: dict[str, Callable[[Sample, Site, Path], None]] = {
    "gateway/PURPOSES.md: As a library": reserves_and_subscribes,
    "hil_tests/README.md: How it is made": is_the_behaviour_that_the_rig_runs,
    "hil_tests/sealmq_vboard/README.md: What a test does to it": a_board_starts_and_stops,
}

# Those that a test elsewhere runs: which.
LIBRARY = "test_readme.py::test_the_library_s_samples_run_as_they_stand_and_wait_for_a_gateway_that_is_not_up"  # noqa: E501
ELSEWHERE = {
    "gateway/BLINDED.md: As a library": "test_blinded_page.py::test_the_page_as_it_stands",
    "gateway/BLINDED.md: As a library 2": "test_blinded_page.py::"
    "test_a_board_publishes_under_a_policy_id",
    "gateway/FAMILIES.md: A toy": "test_families_page.py::"
    "test_the_toy_of_the_page_judges_in_a_started_site",
    "gateway/FAMILIES.md: A toy with a row and a command": "test_families_page.py::"
    "test_the_toy_with_rows_and_a_command_judges_in_a_started_site",
    "gateway/FAMILIES.md: A toy with a row and a command 2": "test_families_page.py::"
    "test_the_toy_with_rows_and_a_command_judges_in_a_started_site",
    "gateway/OWNERS.md: As a library": "test_owners_page.py::test_the_page_as_it_stands",
    "gateway/OWNERS.md: As a library 2": "test_owners_page.py::"
    "test_a_badge_asserts_and_retracts_on_a_board",
    "gateway/README.md: As a library": LIBRARY,
    "gateway/README.md: As a library 2": LIBRARY,
}


def test_each_python_sample_of_each_page_is_run() -> None:
    assert sorted([*BOARD, *HOST, *ELSEWHERE]) == sorted(PYTHON)


def provisioned(made: VirtualBoard, main: Path, file: Path, wifi: Path) -> None:
    """As flash_scripts/README.md says: into NVS."""
    words = ["--enrolment", file, "--wifi", wifi, "--main", main, "--no-start"]
    board(made, "sealmq_board", "provision", "--port", made.pty, *words)


def by_hand(made: VirtualBoard, main: Path, file: Path, wifi: Path) -> None:
    """As firmware/README.md says: into files, by the lines of "What ships"."""
    replaced = {
        "build/firmware/display/xtensawin": str(ROOT / "build" / "firmware" / "x64"),
        "thermometer.sealmq.json": str(file),
        " wifi.json ": f" {wifi} ",
        " main.py ": f" {main} ",
    }
    for line in CONSOLE["firmware/README.md: What ships"].text.splitlines():
        typed = line.removeprefix("$ ").partition("#")[0]
        for old, new in replaced.items():
            typed = typed.replace(old, new)
        tool, *words = typed.split()
        if "main.py" in line:
            words[-1] = ":main.py"
        if "wifi.json" in line:
            words[-1] = ":wifi.json"
        assert tool == "mpremote"
        board(made, tool, "connect", made.pty, *words)


def board(made: VirtualBoard, module: str, *words: object) -> None:
    """A program on this host with the board's port."""
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# What a sample does once it is there is the same for both: in `make test` one is brought by hand,
# and two are tried.
WAYS = [
    pytest.param(key, way, marks=[pytest.mark.full] if number > (way is provisioned) else [])
    for number, key in enumerate(BOARD)
    for way in (provisioned, by_hand)
]


@pytest.mark.parametrize(("key", "way"), WAYS)
def test_a_board_s_sample_runs_as_it_stands_whichever_way_it_was_brought_there(
    key: str,
    way: Callable[[VirtualBoard, Path, Path, Path], None],
    shared_closed_site: Site,
    tmp_path: Path,
) -> None:
    said = shared_closed_site.toml.read_text()
    assert 'order = ["labels", "purposes"]' in said
    assert "strict = true" in said
    main = tmp_path / "main.py"
    main.write_text(PYTHON[key].text)
    wifi = tmp_path / "wifi.json"
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    name = f"board-{list(BOARD).index(key)}-{way.__name__}"
    file = shared_closed_site.enrol(name, ROLES)
    with virtual(tmp_path / "board", 64) as made:
        way(made, main, file, wifi)
        line = Line(lambda: str(made.pty))
        line.open()
        try:
            BOARD[key](Device(made, line, shared_closed_site, name))
        finally:
            line.close()


@pytest.mark.parametrize("key", HOST)
def test_a_host_s_sample_runs_as_it_stands(
    key: str, shared_closed_site: Site, tmp_path: Path
) -> None:
    HOST[key](PYTHON[key], shared_closed_site, tmp_path)
