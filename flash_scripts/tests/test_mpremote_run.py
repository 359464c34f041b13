"""mpremote as a program of its own: what it is given, what becomes of secrets, what errors mean.

A module in its place shows what it was given; the real one is run by test_provision.py.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sealmq_board import errors, mpremote_run
from sealmq_board.enrolment import parsed
from sealmq_board.errors import BoardError
from sealmq_board.mpremote_run import Copy, Run, program
from sealmq_board.ports import Port

SECRET = "5e" * 32
ENROLMENT = {
    "sealmq": 1,
    "site": "01020304",
    "client": 9,
    "name": "t1",
    "ps": SECRET,
    "mediator": {"number": 1, "host": "127.0.0.1", "port": 1883},
}

FAKE = """
import json, os, sys, time
place = os.environ["FAKE"]
seen = {"words": sys.argv[1:], "env": dict(os.environ), "files": {}}
for word in sys.argv[1:]:
    if os.path.isfile(word):
        with open(word, errors="replace") as f:
            text = f.read()
        folder = os.path.dirname(word)
        seen["files"][word] = [oct(os.stat(word).st_mode), oct(os.stat(folder).st_mode), text]
number = len(os.listdir(place))
with open(place + "/.draft", "w") as f:
    json.dump(seen, f)
os.rename(place + "/.draft", "%s/%d.json" % (place, number))
with open(place + "/../answer.py") as f:
    exec(f.read())
"""

# As on_board/look.py answers, of a board that has nothing yet.
SAY = """
M = "\\x1esealmq "
def say(**a):
    print(M + json.dumps(a), end="\\r\\n")
"""
LOOK = (
    SAY
    + """
if number == 0:
    say(name="micropython", version="1.25.0", mpy=2822, machine="fake", platform="esp32", id="01")
    say(free=1, size=2)
    say(enrolment=None, enrolled=False, wifi=False, mediator="", state=False, boot=0)
    say(programs={})
    sys.exit()
"""
)


class Fake:
    """A module mpremote that does what `answer` says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.mkdir()
        (folder / "mpremote.py").write_text(FAKE)
        (folder / "run").mkdir(mode=0o700)
        self.port = folder / "port"
        self.port.touch()
        self.enrolment = folder / "t1.json"
        self.enrolment.write_text(json.dumps(ENROLMENT))
        self.enrolment.chmod(0o600)

    def start(self, answer: str, *words: object) -> subprocess.Popen[str]:
        (self.folder / "answer.py").write_text(answer)
        env = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "FAKE": str(self.calls),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
        }
        command = [sys.executable, "-m", "sealmq_board", *map(str, words)]
        return subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def provision(self, answer: str) -> subprocess.Popen[str]:
        words = ("--enrolment", self.enrolment, "--topic", "x/y", "--no-start", "--patience", 0)
        return self.start(answer, "provision", "--port", self.port, *words)

    def seen(self) -> list[dict[str, Any]]:
        return [json.loads(p.read_text()) for p in sorted(self.calls.glob("*.json"))]

    def left(self) -> list[Path]:
        return list((self.folder / "run").rglob("*"))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def until(look: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not look():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_secret_is_in_files_of_its_owner_alone(fake: Fake) -> None:
    answer = LOOK + 'say(written="enrolment")\nsay(secrets=True)\n'
    done = fake.provision(answer)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    calls = fake.seen()
    assert len(calls) == 2
    holders = []
    for call in calls:
        assert SECRET not in json.dumps(call["words"])
        assert SECRET not in json.dumps(call["env"])
        for path, (mode, folder, text) in call["files"].items():
            if path == str(fake.port):
                continue
            assert (mode[-3:], folder[-3:]) == ("600", "700")
            assert path.startswith(str(fake.folder / "run"))
            if SECRET in text:
                holders.append(path)
    assert len(holders) == 1
    assert fake.left() == []
    assert SECRET not in out + err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_is_gone_behind_an_interruption(fake: Fake, number: int) -> None:
    work = fake.provision(LOOK + "time.sleep(600)")
    until(lambda: len(fake.seen()) == 2)
    assert any(SECRET in text for *_, text in fake.seen()[1]["files"].values())
    work.send_signal(number)
    out, err = work.communicate(timeout=60)
    assert work.returncode == (130 if number == signal.SIGINT else 143)
    assert fake.left() == []
    assert SECRET not in out + err


def test_what_a_kill_leaves_goes_with_the_next_run(fake: Fake) -> None:
    work = fake.provision(LOOK + "time.sleep(2)")
    until(lambda: len(fake.seen()) == 2)
    work.kill()
    work.communicate(timeout=60)
    assert fake.left()
    for call in fake.calls.glob("*.json"):
        call.unlink()
    work = fake.provision(LOOK + "sys.exit(1)")
    work.communicate(timeout=60)
    assert fake.left() == []


@pytest.fixture
def inside(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """work() of this process runs it as well."""
    monkeypatch.setenv("PYTHONPATH", str(fake.folder))
    monkeypatch.setenv("FAKE", str(fake.calls))
    return fake


def erase(fake: Fake, answer: str) -> list[mpremote_run.Answer]:
    (fake.folder / "answer.py").write_text(SAY + answer)
    return mpremote_run.work(Port("one", str(fake.port)), [Run("erase")])


def test_a_board_that_dies_is_not_waited_for_for_ever(
    inside: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mpremote would."""
    monkeypatch.setattr(mpremote_run, "_SILENT_S", 1.0)
    with pytest.raises(BoardError, match="stopped answering"):
        erase(inside, "time.sleep(600)")


def test_a_board_that_starts_again_is_asked_once_more(inside: Fake) -> None:
    """mpremote would wait for ever here, too, and the board would talk on and on."""
    answer = "print('rst:0xc (SW_CPU_RESET)')\nwhile True: print('and on'); time.sleep(0.1)\n"
    with pytest.raises(BoardError, match="started again in the middle"):
        erase(inside, answer)
    assert ["soft-reset" in call["words"] for call in inside.seen()] == [False, True]


def test_where_memory_is_short_the_program_is_not_kept(inside: Fake) -> None:
    answer = 'say(wiped=True) if "soft-reset" in sys.argv else say(error="MemoryError")\n'
    assert erase(inside, answer + 'sys.exit("resume" in sys.argv)') == [{"wiped": True}]
    assert len(inside.seen()) == 2
    with pytest.raises(mpremote_run.NoMemory):
        erase(inside, "sys.exit('MemoryError: memory allocation failed')")


ERRORS = (
    ('print("mpremote: failed to access /dev/x (it may be in use)"); sys.exit(1)', "busy", "group"),
    ('print("mpremote: could not enter raw repl"); sys.exit(1)', "no MicroPython", "reset button"),
    ('sys.exit("OSError: [Errno 5] Input/output")', "broke", "cable"),
    ('say(error="MemoryError", text=""); sys.exit(1)', "out of memory", "board reset"),
    ('say(error="OSError", text="28"); sys.exit(1)', "file system is full", "remove files"),
    ('say(error="ImportError", text="no esp32"); sys.exit(1)', "ImportError", "MicroPython for"),
    ('print(M + "{secr"); sys.exit(1)', "arrive whole", "cable"),
    ('print(M + "[" * 4000 + "]" * 4000)', "arrive whole", "cable"),
    ("sys.exit('it thinks otherwise')", "it thinks otherwise", "again"),
)  # fmt: skip


@pytest.mark.parametrize(("answer", "text", "hint"), ERRORS)
def test_errors_are_told_with_a_hint(inside: Fake, answer: str, text: str, hint: str) -> None:
    with pytest.raises(BoardError) as raised:
        erase(inside, answer)
    assert str(raised.value).startswith("one: ") or "arrive whole" in text
    assert text in str(raised.value)
    assert hint in (raised.value.hint or "")


def test_a_script_is_what_both_languages_read() -> None:
    for script in ("look", "place", "finish", "rename", "secrets", "erase"):
        args = {"raw": b"\x00\xff'\"", "text": "ä\n", "n": -1, "no": None, "all": [True, ("a", 1)]}
        text = program(Run(script, args))
        assert "import common" not in text
        tree = ast.parse(text)
        call = next(
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "main"
        )
        assert ast.literal_eval(call.args[0]) == args


def test_a_copy_names_no_file_of_this_host_on_the_board() -> None:
    step = Copy({"/main.py.new": b"x"})
    assert list(step.files) == ["/main.py.new"]


@pytest.mark.parametrize(
    ("architecture", "version", "wrong"),
    [
        (4, "1.25.0", "MicroPython 1.25.0 on an RP2040; 1.26 or later"),
        (4, "1.26.0", "armv6m"),
        (7, "1.25.0", "armv6m"),
        (7, "1.23.0", "MicroPython 1.23.0; 1.24 or later"),
        (9, "1.27.0", "no client for its native code (architecture 9)"),
    ],
)
def test_a_pico_w_gets_files_for_its_processor(
    architecture: int, version: str, wrong: str, fake: Fake
) -> None:
    """From the version of MicroPython on whose compiler can make them; other Cortex-M from any."""
    mpy = architecture << 10 | 3 << 8 | 6
    look = LOOK.replace("mpy=2822", f"mpy={mpy}").replace('"esp32"', '"rp2"')
    look = look.replace("1.25.0", version)
    words = (
        "--enrolment",
        fake.enrolment,
        "--topic",
        "x/y",
        "--files",
        fake.folder / "none",
        "--patience",
        0,
    )
    running = fake.start(look, "provision", "--port", fake.port, *words)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 1
    assert wrong in said
    if "or later" in wrong:
        assert "hold BOOTSEL while you plug it in" in said


def test_what_a_board_says_moves_nothing_at_a_terminal() -> None:
    """Whoever has made it may have it call itself anything."""
    name = "m1\x1b[2J\x9bm\r\n"
    said = {"enrolment": {"name": name, "client": 7}, "last": ["\x07", None], "gr\u00fcn": True}
    [answer] = mpremote_run._answers(mpremote_run.MARK + json.dumps(said))
    assert answer == {
        "enrolment": {"name": "m1?[2J?m??", "client": 7},
        "last": ["?", None],
        "gr\u00fcn": True,
    }
    assert errors.words(BoardError(f"the board says {name}"))[0] == "the board says m1?[2J?m"
    held = {"sealmq": 1, "site": "0a0b0c0d", "client": 7, "ps": SECRET, "name": name}
    mediator = {"number": 1, "host": "h", "port": 1}
    raw = json.dumps(held | {"mediator": mediator}).encode()
    assert parsed(raw).name == "m1?[2J?m??"
    with pytest.raises(ValueError, match="not JSON"):
        parsed(b"[" * 4000)
