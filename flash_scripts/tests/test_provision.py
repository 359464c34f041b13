"""`sealmq board provision`, `info`, `logs`, `reset`, `wipe`: real mpremote, real MicroPython."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import board_things
from living_board import Living, living_board, until
from sealmq_board import client_files

# Programs and erases that a board from nothing takes are more.
_WRITES = 700
TOPIC = ("--topic", "machine/1/t")
APP = {"topic": "", "every": 10, "qos": 1, "subscribe": "", "purpose": ""}


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Living]:
    with living_board(tmp_path / "board") as made:
        yield made


@pytest.mark.parametrize("bits", [32, pytest.param(64, marks=pytest.mark.full)])
def test_a_board_from_nothing_to_a_client(bits: int, tmp_path: Path) -> None:
    file = board_things.enrolment(tmp_path)
    wifi = board_things.wifi(tmp_path)
    with living_board(tmp_path / "board", bits) as board:
        assert board.info()["client"] is None
        said = board.well("provision", "--enrolment", file, "--wifi", wifi, *TOPIC)
        assert re.search(r"m7; \d\d files written, in NVS: wifi, enrolment", said)
        # Its mediator is nowhere; all before that is as it should be.
        said = board.says("sealmq: down", "--reset")
        assert "sealmq: boot slot=a ver=" in said
        assert "sealmq: wifi up ip=" in said
        nvs = board.nvs()
        assert nvs["enrolment"] == file.read_bytes()
        assert json.loads(nvs["wifi"]) == json.loads(wifi.read_bytes())
        about = board.info("--no-start")
        assert about["client"] == {"client": 7, "name": "m7", "site": board_things.SITE}
        arch = "x64" if bits == 64 else "x86"
        manifest = client_files.manifest(client_files.client_set("everything", arch))
        assert (about["slot"], about["version"]) == ("a", client_files.version(manifest))
        assert (about["wifi"], about["trial"], about["rolled_back"]) == (True, None, None)
        assert about["app"] == APP | {"topic": "machine/1/t"}
        # Once more: nothing is written, and what is given new is all that changes.
        before = board.writes()
        said = board.well("provision", "--enrolment", file, "--wifi", wifi, "--no-start")
        assert "m7; 0 files written, in NVS: nothing new" in said
        assert board.writes() == before
        board.well("provision", "--mediator", "10.0.0.9:1884", "--every", "2.5", "--no-start")
        assert board.nvs()["mediator"] == b"10.0.0.9:1884"
        assert board.nvs()["enrolment"] == file.read_bytes()
        about = board.info()
        assert about["mediator"] == "10.0.0.9:1884"
        assert about["app"] == APP | {"topic": "machine/1/t", "every": 2.5}


def test_who_is_not_asked_is_not_overwritten(board: Living, tmp_path: Path) -> None:
    one, two = board_things.enrolment(tmp_path), board_things.enrolment(tmp_path, 8)
    refused = board.run("provision", *TOPIC)
    assert refused.returncode == 2
    assert "is no client yet" in refused.stderr
    board.well("provision", "--enrolment", one, *TOPIC, "--no-start")
    refused = board.run("provision", "--enrolment", two)
    assert refused.returncode == 1
    assert "the board is the client m7" in refused.stderr
    assert board.nvs()["enrolment"] == one.read_bytes()
    # The same client with a new secret is no other client; its old keys go.
    put_state(board)
    rotated = board_things.enrolment(tmp_path, 7, {"ps": "77" * 32})
    board.well("provision", "--enrolment", rotated, "--no-start")
    assert board.nvs()["enrolment"] == rotated.read_bytes()
    assert "state" not in board.nvs()
    assert board.nvs()["boot"] == 12
    put_state(board)
    board.well("provision", "--enrolment", two, "--replace", "--no-start")
    assert board.nvs()["enrolment"] == two.read_bytes()
    assert "state" not in board.nvs()
    # The counter never falls.
    assert board.nvs()["boot"] == 12
    # Somebody's program.
    execute(board, "f = open('/main.py', 'w'); f.write('print(1)'); f.close()")
    refused = board.run("provision", *TOPIC)
    assert refused.returncode == 1
    assert "a program of its own (main.py)" in refused.stderr
    assert "mpremote cp" in refused.stderr
    board.well("provision", *TOPIC, "--replace", "--no-start")


def test_a_board_that_goes_to_another_site_forgets_the_address_of_the_first(
    board: Living, tmp_path: Path
) -> None:
    one = board_things.enrolment(tmp_path)
    at = ("--mediator", "10.0.0.9:1884")
    board.well("provision", "--enrolment", one, *TOPIC, *at, "--no-start")
    # A new secret at the same site: the mediator is where it was.
    rotated = board_things.enrolment(tmp_path, 7, {"ps": "77" * 32})
    board.well("provision", "--enrolment", rotated, "--no-start")
    assert board.nvs()["mediator"] == b"10.0.0.9:1884"
    other = board_things.enrolment(tmp_path, 7, {"site": "0a0b0c0e"})
    board.well("provision", "--enrolment", other, "--replace", "--no-start")
    assert "mediator" not in board.nvs()
    assert board.info()["mediator"] == ""


@pytest.mark.parametrize("text", ["def read(:", "x = 1"])
def test_a_board_whose_files_are_broken_is_mended(text: str, board: Living, tmp_path: Path) -> None:
    """Copied by hand and cut off, say: what is loaded of it is none either."""
    file, _ = board_things.enrolment(tmp_path), board_things.wifi(tmp_path)
    execute(board, f"f = open('/sealmq_slots.py', 'w'); f.write({text!r}); f.close()")
    execute(board, "f = open('/boot.py', 'w'); f.write('import sealmq_slots'); f.close()")
    execute(board, "f = open('/app.json', 'w'); f.write('[1]'); f.close()")
    board.well("reset")
    assert board.info()["app"] is None
    board.well("info", "--no-start")
    whole(board, file)


def execute(board: Living, text: str) -> None:
    """A line on the board, by mpremote as anybody runs it."""
    words = ["-m", "mpremote", "connect", board.port, "resume", "exec", text]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def put_state(board: Living) -> None:
    """As a board that has been connected has them."""
    execute(
        board,
        "import esp32\nn = esp32.NVS('sealmq')\nn.set_blob('state', b'keys' * 30)\n"
        "n.set_i32('boot', 12)\nn.commit()",
    )
    assert board.nvs()["state"] == b"keys" * 30


def cut(board: Living, file: Path, wifi: Path, after: int, seed: int) -> bool:
    """Provision with the power going at that write; whether it went. Who sees the board die does
    not wait for what the program says to that."""
    board.ctl(do="cut", after=after, inside=True, seed=seed)
    work = board.start("provision", "--enrolment", file, "--wifi", wifi, *TOPIC)
    until("an end", lambda: work.poll() is not None or board.status()["mode"] == "off")
    fell = bool(board.status()["mode"] == "off")
    work.send_signal(signal.SIGINT)
    _, err = work.communicate(timeout=60)
    assert work.returncode == 130 if fell else work.returncode in (0, 130), err
    board.power_back()
    return fell


def whole(board: Living, file: Path) -> None:
    """It goes to its end, and the board is the client."""
    board.well("provision", "--enrolment", file, "--wifi", file.with_name("wifi.json"), *TOPIC)
    assert "sealmq: boot slot=a ver=" in board.says("sealmq: boot", "--reset")
    assert board.nvs()["enrolment"] == file.read_bytes()


@pytest.mark.parametrize(("seed", "cuts"), [(1, 1), pytest.param(2, 40, marks=pytest.mark.full)])
def test_cut_off_anywhere_it_can_be_done_again(seed: int, cuts: int, tmp_path: Path) -> None:
    """One board; the power fails while it is provisioned, again and again, each time later or
    earlier, and then it does not."""
    draw = random.Random(seed)
    file = board_things.enrolment(tmp_path)
    wifi = board_things.wifi(tmp_path)
    fell = 0
    for number in range(cuts):
        place = tmp_path / f"board{number}"
        with living_board(place) as board:
            # Twice, so that one falls into what the first left behind.
            for _ in range(2):
                fell += cut(board, file, wifi, draw.randrange(_WRITES), draw.randrange(1 << 30))
            whole(board, file)
        shutil.rmtree(place)
    assert fell >= cuts


def test_logs_and_reset(board: Living, tmp_path: Path) -> None:
    nowhere = {"mediator": {"number": 1, "host": "127.0.0.1", "port": 1}}
    file = board_things.enrolment(tmp_path, 7, nowhere)
    wifi = board_things.wifi(tmp_path)
    board.well("provision", "--enrolment", file, "--wifi", wifi, *TOPIC)
    boots = board.status()["boots"]
    said = board.well("logs", "--lines", "2", "--time")
    assert len(said.splitlines()) == 2
    missed = board.run("logs", "--until", "never", "--timeout", "0.5")
    assert missed.returncode == 1
    assert "did not come" in missed.stderr
    # Looking on resets nothing and stops nothing.
    assert board.status()["boots"] == boots
    assert board.run("logs", "--lines", "0").returncode == 2
    board.well("reset")
    assert board.status()["boots"] == boots + 1
    board.well("reset", "--soft")
    assert board.status()["boots"] == boots + 1
    # The program runs again.
    board.says("sealmq: down")


def test_what_is_wiped_is_in_no_bit_of_the_flash(board: Living, tmp_path: Path) -> None:
    for number in (7, 8):
        file = board_things.enrolment(tmp_path, number)
        wifi = board_things.wifi(tmp_path)
        board.well("provision", "--enrolment", file, "--wifi", wifi, *TOPIC, "--replace")
    execute(board, "f = open('/mine', 'w'); f.write('found ' * 100 + 'me'); f.close()")
    needles = [
        *(board_things.SECRET[:-2].encode() + end for end in (b"07", b"08")),
        board_things.WIFI_KEY.encode(),
        b"found found me",
        b"10.1.2.3",
    ]
    image = board.image()
    assert all(needle in image for needle in needles)
    refused = board.run("wipe", "--keep-enabled")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    # Without saying what becomes of the client it is a wrong command line.
    assert board.run("wipe", "--yes").returncode == 2
    assert board.run("wipe", "--yes", "--keep-enabled", "--client", "m7").returncode == 1
    # A site of its own, and none where somebody else may have that name.
    other = tmp_path / "other"
    words: list[str | Path] = ["init", other, "--key-file", tmp_path / "other.key"]
    subprocess.run([sys.executable, "-m", "sealmq.cli", *words], check=True, capture_output=True)
    refused = board.run("wipe", "--site", other, "--yes")
    assert refused.returncode == 1
    assert f"the board is of site {board_things.SITE}, {other} is " in refused.stderr
    assert board.image() == image
    said = json.loads(board.well("wipe", "--keep-enabled", "--yes", "--json"))
    assert said["erased"] == {"nvs": 0x6000, "vfs": 0x200000}
    image = board.image()
    assert [needle for needle in needles if needle in image] == []
    # MicroPython is still there.
    about = board.info()
    assert (about["client"], about["boot"], about["wifi"]) == (None, 0, False)
    # It is nobody's now.
    refused = board.run("wipe", "--site", tmp_path, "--yes")
    assert refused.returncode == 1
    assert "does not say whose it is" in refused.stderr
    assert "its client, if it had one, is still" in board.well("wipe", "--keep-enabled", "--yes")


def test_a_full_file_system_is_told_as_such(board: Living, tmp_path: Path) -> None:
    execute(
        board,
        "f = open('/mine', 'w')\nfor _ in range(485): f.write('x' * 4096)\nf.close()",
    )
    file, wifi = board_things.enrolment(tmp_path), board_things.wifi(tmp_path)
    refused = board.run("provision", "--enrolment", file, "--wifi", wifi, *TOPIC)
    assert refused.returncode == 1
    assert "the board's file system is full" in refused.stderr
    assert "run it again" not in refused.stderr
    assert 0 <= board.info("--no-start")["free"] < 0x200000
    execute(board, "import os; os.remove('/mine')")
    whole(board, file)
