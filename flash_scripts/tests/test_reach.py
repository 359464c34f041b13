"""A board in trouble, and one that sleeps, can be reached: by mpremote as anybody runs it, and by
`sealmq board`. The board is a virtual one; MicroPython, mpremote and what runs on it are real."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sealmq_vboard import folder as folders
from sealmq_vboard.board import VirtualBoard

import board_things
from living_board import Living, living_board, until
from sealmq_board import client_files
from sealmq_board.console import Console
from sealmq_board.on_board import look
from sealmq_board.ports import Port

NOWHERE = {"mediator": {"number": 1, "host": "127.0.0.1", "port": 1}}
MENDED = "def measure():\n    return 20\n"
# As in firmware/README.md, with less sleep.
SLEEPS = """
from sealmq_device.sleeping import Sleeper
from sealmq_device.wlan import Wlan

board = Sleeper(wlan=Wlan(), budget=20, timeout=5)
board.publish("machine/1/temperature", "21.5", qos=1)
board.sleep(4)
"""


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Living]:
    with living_board(tmp_path / "board") as made:
        yield made


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    """A client that publishes what an operator's app.py measures. Shared: each test puts its own
    there, and a board that could not take it would be what these tests look for.
    """
    folder = tmp_path_factory.mktemp("measuring")
    with living_board(folder / "board") as made:
        provisioned(made, folder, "--topic", "a/b", "--every", "0.3")
        yield made


def provisioned(board: Living, folder: Path, *words: object) -> None:
    """A client whose mediator is nowhere; it is left at its REPL."""
    file = board_things.enrolment(folder, 7, NOWHERE)
    said = ("--enrolment", file, "--wifi", board_things.wifi(folder), "--no-start", *words)
    board.well("provision", *said)


def mpremote(board: Living, *words: object) -> str:
    """As anybody runs it."""
    command = [sys.executable, "-m", "mpremote", "connect", board.port, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def put(board: Living, folder: Path, name: str, text: str) -> None:
    """A file of the operator's goes there by mpremote."""
    (folder / name).write_text(text)
    mpremote(board, "cp", folder / name, f":{name}")


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("def measure():\n    return [20.5]\n", "no reading TypeError measure() returned list"),
        pytest.param(
            "def measure():\n    return object()\n",
            "no reading TypeError measure() returned object",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "def measure():\n    return b'x' * 5000\n",
            "no reading TooLarge",
            marks=pytest.mark.full,
        ),
        ("def measure(:\n", "no reading SyntaxError"),
        pytest.param("x = 1\n", "no reading ImportError", marks=pytest.mark.full),
        pytest.param(
            "import nothing_of_that_name\n", "no reading ImportError", marks=pytest.mark.full
        ),
        pytest.param("1 / 0\n", "no reading ZeroDivisionError", marks=pytest.mark.full),
        ("import sys\nsys.exit()\n", "no reading SystemExit"),
        pytest.param(
            "def measure():\n    raise SystemExit\n",
            "no reading SystemExit",
            marks=pytest.mark.full,
        ),
        ("def measure():\n    return bytearray(10_000_000)\n", "no reading MemoryError"),
    ],
)
def test_what_a_program_does_wrong_is_told_and_does_not_end_it(
    app: str, says: str, measuring: Living, tmp_path: Path
) -> None:
    board = measuring
    put(board, tmp_path, "app.py", app)
    board.says(says, "--reset")
    boots = board.status()["boots"]
    board.says(says)
    assert board.status()["boots"] == boots
    # The file is mended where it stands, and is read anew.
    put(board, tmp_path, "app.py", MENDED)
    assert "no reading" not in board.says("sealmq: down", "--reset")


@pytest.mark.parametrize(
    "app",
    [
        "while True:\n    pass\n",
        pytest.param(
            "import time\ndef measure():\n    while True:\n        time.sleep(1)\n",
            marks=pytest.mark.full,
        ),
        pytest.param("def measure():\n    return 20.5\n", marks=pytest.mark.full),
    ],
)
def test_a_board_whose_program_hangs_is_reached_by_mpremote_and_by_sealmq_board(
    app: str, measuring: Living, tmp_path: Path
) -> None:
    board = measuring
    put(board, tmp_path, "app.py", app)
    board.says("sealmq: boot", "--reset")
    put(board, tmp_path, "app.py", MENDED)
    put(board, tmp_path, "app.py", app)
    board.says("sealmq: boot", "--reset")
    assert board.info()["client"]["name"] == "m7"


# Programs in place of main.py that nobody could stop: what they do begins at once.
STUBBORN = {
    "takes no Ctrl-C": "import micropython\nmicropython.kbd_intr(-1)\nwhile True:\n    pass\n",
    "swallows it": "while True:\n    try:\n        while True:\n            pass\n"
    "    except BaseException:\n        pass\n",
    "starts again at once": "import machine\nmachine.reset()\n",
}


@pytest.mark.parametrize(
    "name",
    ["takes no Ctrl-C"]
    + [pytest.param(n, marks=pytest.mark.full) for n in ("swallows it", "starts again at once")],
)
def test_after_a_reset_a_board_is_reached_whatever_its_program_does(
    name: str, board: Living, tmp_path: Path
) -> None:
    provisioned(board, tmp_path)
    put(board, tmp_path, "main.py", f"import sealmq_slots\n{STUBBORN[name]}")
    board.ctl(do="reset")
    work = board.start("info", "--no-start")
    until("an end", lambda: work.poll() is not None or pressed(board))
    out, err = work.communicate(timeout=60)
    assert work.returncode == 0, err
    assert "m7 (number 7" in out
    put(board, tmp_path, "main.py", "import sealmq_slots\nprint('mended')\n")
    board.says("mended", "--reset")


# Somebody presses its reset button now and then while the tool waits.
def pressed(board: Living) -> bool:
    time.sleep(4)
    board.ctl(do="reset")
    return False


def test_ctrl_c_after_a_reset_leads_to_the_repl_and_uses_up_no_start_of_a_trial(
    board: Living, tmp_path: Path
) -> None:
    provisioned(board, tmp_path, "--topic", "a/b")
    with Console(Port("it", board.port)) as console:
        board.ctl(do="reset")
        for line in console.lines(60):
            if line and line.startswith("sealmq: Ctrl-C within"):
                console.write(b"\x03")
                break
    found = mpremote(board, "resume", "exec", "import sys; print('sealmq_slots' in sys.modules)")
    assert found.strip() == "False"


def asleep(board: Living) -> bool:
    return bool(board.status()["child"]["asleep"])


def test_a_board_that_sleeps_is_caught_at_its_next_wake_and_held(
    board: Living, tmp_path: Path
) -> None:
    main = tmp_path / "sleeps.py"
    main.write_text(SLEEPS)
    provisioned(board, tmp_path, "--main", main)
    board.well("reset")
    until("it to sleep", lambda: asleep(board))
    told = board.run("info")
    assert told.returncode == 0, told.stderr
    assert "m7 (number 7" in told.stdout
    # It goes on as it was, and is given another mediator; its program stays its own.
    until("it to sleep", lambda: asleep(board))
    board.well("provision", "--mediator", "127.0.0.1:2")
    assert board.nvs()["mediator"] == b"127.0.0.1:2"
    until("it to sleep", lambda: asleep(board))
    told = board.run("reset")
    assert (told.returncode, told.stdout) == (0, f"{board.port}: starts again\n")
    # Held until it is released: mpremote finds it as any other.
    until("it to sleep", lambda: asleep(board))
    board.well("info", "--no-start")
    assert "main.py" in mpremote(board, "ls")
    boots = board.status()["boots"]
    assert mpremote(board, "cat", ":main.py").replace("\r", "") == SLEEPS
    assert board.status()["boots"] == boots
    board.well("reset")
    until("it to sleep", lambda: asleep(board))


def test_a_board_that_sleeps_for_long_is_told_of_and_its_reset_button_wakes_it(
    board: Living, tmp_path: Path
) -> None:
    main = tmp_path / "sleeps.py"
    main.write_text(SLEEPS.replace("sleep(4)", "sleep(3600)"))
    provisioned(board, tmp_path, "--main", main)
    board.well("reset")
    until("it to sleep", lambda: asleep(board))
    told = board.run("info", "--patience", "1")
    assert told.returncode == 1
    assert "no MicroPython answers (waited 1 s)" in told.stderr
    assert "--patience SECONDS" in told.stderr
    work = board.start("info")
    until("an end", lambda: work.poll() is not None or pressed(board))
    out, err = work.communicate(timeout=60)
    assert work.returncode == 0, err
    assert "m7 (number 7" in out


def test_the_tool_waits_for_a_board_that_never_answers_as_long_as_it_was_told(
    tmp_path: Path,
) -> None:
    with living_board(tmp_path / "board") as board:
        board.ctl(do="power", on=False)
        for name in ("info", "reset", "update"):
            told = board.run(name, "--patience", "6")
            assert told.returncode == 1
            assert "no MicroPython answers (waited 6 s)" in told.stderr
            assert "waits up to 6 s for its next wake" in told.stderr


def test_a_reset_pin_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    folders.create(tmp_path / "board", folders.Setup("esp32", 64, "02:00:00:00:00:01"))
    made = VirtualBoard(tmp_path / "board", pty=False, rfc2217=0)
    made.start()
    try:
        assert made.url_rfc2217 is not None
        made.ctl({"do": "power", "on": False})
        done = board_things.command("reset", "--port", made.url_rfc2217)
    finally:
        made.stop()
    assert done.returncode == 1
    assert "its reset pin was pulled, and it says nothing" in done.stderr
    assert "starts again" not in done.stdout


def test_a_main_of_ours_is_known_by_how_it_begins() -> None:
    assert (client_files.BOARD / "main.py").read_bytes().startswith(look.OURS)
