"""A board's life at a running site, by the operator's commands: provisioned, read, updated, rolled
back, wiped. The board is a virtual one; mpremote, MicroPython and the site are real."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pages import samples
from running_site import ROOT, Site, sealmq, until
from sealmq_vboard import folder as folders
from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.chips import CHIPS
from sealmq_vboard.firmware_image import firmware

NAME = "m1-temp-sensor"
TOPIC = "machine/1/temperature"
WIFI = {"ssid": "workshop", "key": "only for this test"}
ARCH = {64: "x64", 32: "x86"}


@contextmanager
def virtual(folder: Path, bits: int) -> Iterator[VirtualBoard]:
    """A board that runs MicroPython and has nothing else yet."""
    folders.create(folder, folders.Setup("esp32", bits, "02:00:00:00:00:01", wifi=[WIFI]))
    chip = CHIPS["esp32"]
    with (folder / "flash.bin").open("r+b") as file:
        file.seek(chip.bootloader)
        file.write(firmware(chip))
    made = VirtualBoard(folder, pty=True)
    made.start()
    try:
        yield made
    finally:
        made.stop()


class Board:
    """The operator's commands for one board."""

    def __init__(self, made: VirtualBoard, secret: str) -> None:
        self.made = made
        self._secret = secret

    def run(self, name: str, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sealmq_board", name, "--port", str(self.made.pty)]
        try:
            done = subprocess.run(
                [*command, *map(str, words)],
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{name}: {error.stdout!r} {error.stderr!r}") from None
        assert done.returncode == code, done.stdout + done.stderr
        for secret in (self._secret, WIFI["key"]):
            assert secret not in done.stdout + done.stderr
        return done

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("info", "--json").stdout)
        return found

    def image(self) -> bytes:
        return (self.made.folder / "flash.bin").read_bytes()


def client_set(folder: Path, bits: int, note: str, breaks: str = "") -> Path:
    """Sets as built, with a file more; `breaks`: with one that is rubbish."""
    target = folder / ARCH[bits]
    shutil.copytree(ROOT / "build" / "firmware" / ARCH[bits], target)
    (target / "note").write_text(note)
    if breaks:
        with (target / "sealmq_device" / breaks).open("r+b") as file:
            file.write(bytes(16))
    return folder


def reading(site: Site) -> str:
    """The next one that the site gives to who may read it."""
    done = sealmq("sub", site.path, "--client", "monitor", "-t", TOPIC, "-C", "1", timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.full
@pytest.mark.parametrize("bits", [64, 32])
def test_from_nothing_to_wiped(bits: int, site: Site, tmp_path: Path) -> None:
    site.up()
    file = site.enrol(NAME, "m1-temp")
    secret = json.loads(file.read_bytes())["ps"]
    wifi = tmp_path / "wifi.json"
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    with virtual(tmp_path / "board", bits) as made:
        board = Board(made, secret)
        board.run("provision", "--enrolment", file, "--wifi", wifi, "--topic", TOPIC, "--every", 1)
        assert reading(site).isdecimal()
        before = board.info()
        assert (before["client"]["name"], before["slot"]) == (NAME, "a")

        # One that connects is kept.
        good = client_set(tmp_path / "good", bits, "another one")
        told = board.run("update", "--files", good, "--wait", 60, "--json")
        kept = json.loads(told.stdout)
        assert (kept["outcome"], kept["code"]) == ("confirmed", 0)
        assert "slot confirmed b" in told.stderr
        after = board.info()
        assert (after["slot"], after["version"]) == ("b", kept["version"])
        assert after["version"] != before["version"]
        assert reading(site).isdecimal()
        again = json.loads(board.run("update", "--files", good, "--json").stdout)
        assert again["outcome"] == "same"

        # One whose program ends: its starts are counted, and the one before goes on.
        bad = client_set(tmp_path / "bad", bits, "a third", breaks="living.mpyz")
        told = board.run("update", "--files", bad, "--tries", 2, "--wait", 60, "--json", code=3)
        assert json.loads(told.stdout)["outcome"] == "rolled back"
        assert told.stderr.count(": failed ") == 2
        info = board.info()
        assert (info["slot"], info["version"]) == ("b", kept["version"])
        assert info["rolled_back"].startswith("a: ")
        assert reading(site).isdecimal()

        # One that is well, but has no session in its time.
        site.down()
        third = client_set(tmp_path / "third", bits, "a fourth")
        told = board.run("update", "--files", third, "--tries", 1, "--wait", 5, "--json", code=3)
        assert "no session in 5 s" in json.loads(told.stdout)["text"]
        assert board.info()["version"] == kept["version"]
        site.up()
        board.run("reset")  # which it need not be; by itself it comes within a minute
        assert reading(site).isdecimal()

        # It leaves: nothing of it is in the flash, and its client is shut out.
        assert secret.encode() in board.image()
        board.run("wipe", "--site", site.path, "--yes")
        image = board.image()
        for gone in (secret.encode(), bytes.fromhex(secret), WIFI["key"].encode()):
            assert gone not in image
        until("its client to be disabled", lambda: disabled(site))
        # The old enrolment is of no use any more.
        board.run("provision", "--enrolment", file, "--wifi", wifi, "--topic", TOPIC)
        board.run("logs", "--until", "sealmq: down Denied", "--timeout", 90)


def disabled(site: Site) -> bool:
    """Whether the site says so."""
    listed = sealmq("client", "list", site.path).stdout
    return any(line.split()[1] == NAME and "disabled" in line for line in listed.splitlines())


def test_a_board_that_sleeps_takes_an_update_at_its_wakes(site: Site, tmp_path: Path) -> None:
    """The README's program, which knows nothing of trials: the client itself confirms one."""
    site.up()
    file = site.enrol(NAME, "m1-temp")
    secret = json.loads(file.read_bytes())["ps"]
    wifi = tmp_path / "wifi.json"
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    main = tmp_path / "main.py"
    program = samples("python")["firmware/README.md: On a battery"].text
    assert "sleep(300)" in program
    main.write_text(program.replace("sleep(300)", "sleep(5)"))
    with virtual(tmp_path / "board", 64) as made:
        board = Board(made, secret)
        board.run("provision", "--enrolment", file, "--wifi", wifi, "--main", main)
        assert reading(site) == "21.5"
        before = board.info()
        good = client_set(tmp_path / "good", 64, "another one")
        told = board.run("update", "--files", good, "--wait", 60, "--json")
        assert json.loads(told.stdout)["outcome"] == "confirmed"
        assert reading(site) == "21.5"
        after = board.info()
        assert (after["slot"], before["slot"]) == ("b", "a")
        assert after["version"] != before["version"]
