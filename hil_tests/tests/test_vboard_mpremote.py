"""The unmodified mpremote at a virtual board: over a pseudo-terminal, TCP and RFC 2217."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from vboard_mp import Line, booted, mpremote

PORTS = ("pty", "url_tcp", "url_rfc2217")
MAIN = "import time\nprint('main runs')\nwhile True:\n    time.sleep(1)\n"


@pytest.fixture(scope="module", params=[pytest.param(64, marks=pytest.mark.full), 32])
def board(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Line]:
    """A board a width, whose main.py never ends: mpremote has to interrupt it."""
    files = {"/main.py": MAIN}
    folder = tmp_path_factory.mktemp("mpremote") / "board"
    with booted(folder, request.param, files, pty=True, rfc2217=0) as line:
        line.until(b"main runs\r\n")
        line.close()
        yield line


@pytest.mark.parametrize("port", PORTS)
def test_exec_run_and_errors(board: Line, port: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint('script', sys.platform, __name__)\n" + "# long\n" * 300)
    where = getattr(board.board, port)
    said = mpremote(where, "exec", "print(6 * 7)", "run", str(script), "eval", "'a' + 'b'")
    assert said == "42\nscript esp32 __main__\nab\n"
    said = mpremote(where, "resume", "exec", "def f():\n  raise ValueError(3)\nf()", fails=True)
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith('  File "<stdin>", line 2, in f\nValueError: 3\n')


def test_files(board: Line, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "one.txt").write_text("one\n")
    big = random.Random(4).randbytes(5000)
    (tree / "big.bin").write_bytes(big)
    port, back = board.board.pty, tmp_path / "back"
    said = mpremote(port, "fs", "cp", "-r", str(tree), ":", "+", "fs", "sha256sum", "tree/big.bin")
    assert hashlib.sha256(big).hexdigest() in said
    said = mpremote(port, "resume", "fs", "mkdir", "made", "+", "ls", "+", "ls", "tree/a/b")
    assert "           0 made/\n" in said
    assert "           0 tree/\n" in said
    assert "           4 one.txt\n" in said
    words = ("cat", ":tree/a/b/one.txt", "+", "cp", ":tree/big.bin", str(back))
    assert mpremote(port, "resume", "fs", *words).startswith("one\n")
    assert back.read_bytes() == big
    said = mpremote(port, "resume", "fs", "rm", "-r", ":tree", "+", "rmdir", "made", "+", "ls", ":")
    assert said.split()[-2:] == [str(len(MAIN)), "main.py"]
    said = mpremote(port, "resume", "fs", "ls", ":tree", fails=True)
    assert "No such file or directory" in said


def test_resets(board: Line) -> None:
    port = board.board.url_tcp
    before = board.board.ctl({"do": "status"})["boots"]
    cause = "import machine; print(machine.reset_cause())"
    mpremote(port, "exec", "x = 1; import machine; machine.RTC().memory(b'kept')")
    assert mpremote(port, "resume", "exec", "print(x)") == "1\n"
    assert mpremote(port, "soft-reset", "exec", f"{cause}; print('x' in globals())") == "5\nFalse\n"
    assert board.board.ctl({"do": "status"})["boots"] == before
    mpremote(port, "reset")
    said = mpremote(port, "resume", "exec", f"{cause}; print(machine.RTC().memory())")
    assert said == "2\nb'kept'\n"
    assert board.board.ctl({"do": "status"})["boots"] == before + 1


@pytest.mark.parametrize("port", PORTS)
def test_a_mounted_folder(board: Line, port: str, tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("print('imported')\nvalue = 5\n")
    (tmp_path / "data").write_bytes(bytes(range(256)))
    said = mpremote(
        getattr(board.board, port), "mount", str(tmp_path), "exec",
        "import mod, os; print(mod.value, sorted(os.listdir()), open('data', 'rb').read() =="
        " bytes(range(256))); open('new', 'w').write('from the board')",
    )  # fmt: skip
    assert "imported\n5 ['data', 'mod.py'] True\n" in said
    assert (tmp_path / "new").read_text() == "from the board"


def test_the_clock_and_the_disk(board: Line) -> None:
    said = mpremote(board.board.pty, "rtc", "--set", "rtc", "df")
    assert "(20" in said
    assert " 2097152 " in said
