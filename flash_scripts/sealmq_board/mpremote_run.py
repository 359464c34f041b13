"""Work on a board that runs MicroPython, by mpremote as a program of its own.

Scripts of on_board/ and files go there in one session. What a script is given, secrets among it,
lies in a file of mode 0600 meanwhile (private.py) and never in a command line. Scripts answer with
a JSON object a line. The board's program is interrupted and has to be started again: console.py.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from . import private
from .console import Console
from .errors import BoardError, NoAnswer, plain
from .ports import Port
from .programs import Programs

SCRIPTS = Path(__file__).with_name("on_board")
MARK = "\x1esealmq "
# A script that hashes a slot says nothing meanwhile, nor does a file that is copied; a slow line
# carries some 5 kB a second.
_SILENT_S = 20.0
_BYTES_A_SECOND = 1500
_NO_CODE = re.compile(r"\s*(#.*)?$")
_STARTED = re.compile(rb"(?m)^(rst:0x|ESP-ROM:|sealmq: boot )")
# A board that starts may miss the first interruption.
_ATTEMPTS = 2

_programs = Programs()

Answer = dict[str, Any]


class NoMemory(BoardError):
    """The board had too little memory left for a script, or started again meanwhile."""


class Run(NamedTuple):
    """A script of on_board/ and what its main() is given: literals that both languages read."""

    script: str
    args: Answer = {}  # noqa: RUF012


class Copy(NamedTuple):
    """Files, by where they go on the board; their folders are there."""

    files: dict[str, bytes]


def work(port: Port, steps: list[Run | Copy]) -> list[Answer]:
    """Do the steps; what the scripts answered. BoardError: the first that failed."""
    # Its program is stopped and left in memory, since starting MicroPython again would count as a
    # start where a client is on trial. Where that leaves too little memory, it is started again.
    soft = False
    attempt = 0
    while True:
        attempt += 1
        _catch(port)
        try:
            return _work(port, steps, soft)
        except NoMemory:
            if soft:
                raise
            soft = True
        except NoAnswer:
            if attempt >= _ATTEMPTS:
                raise


# Until it has stopped its program: at once, or at its next wake.
def _catch(port: Port) -> None:
    if port.patience > 0:
        with Console(port) as console:
            console.catch(stopped)


def first(answers: list[Answer], key: str) -> Answer:
    """The answer that has this member; {} when there is none."""
    return next((answer for answer in answers if key in answer), {})


def _work(port: Port, steps: list[Run | Copy], soft: bool) -> list[Answer]:
    with private.folder() as folder:
        words, patience = _words(steps, folder)
        how = ["soft-reset"] if soft else ["resume"]
        command = [sys.executable, "-P", "-m", "mpremote", "connect", port.url, *how, *words]
        process = _started(command)
        try:
            out = _followed(process, patience)
        finally:
            # Also on Ctrl-C: before the folder goes that it reads from.
            _programs.ended(process)
            process.kill()
            process.communicate()
    if out is None:
        raise BoardError(
            f"{port.name}: the board stopped answering (waited {patience:.0f} s)",
            hint="check its power, then run it again: it goes on where this one ended",
        )
    if _STARTED.search(out):
        raise NoMemory(
            f"{port.name}: the board started again in the middle",
            hint="check its power, then run it again: it goes on where this one ended",
        )
    text = out.decode("utf-8", "replace")
    answers = _answers(text)
    if process.returncode:
        raise _error(port, answers, text)
    return answers


# What it prints, to its end or until the board has started again and talks of something else; None
# when it says nothing for so long. mpremote itself waits for ever for a board that has died.
def _followed(process: subprocess.Popen[bytes], patience: float) -> bytes | None:
    out = b""
    if process.stdout is None:
        return out
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(patience):
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                process.wait()
                return out
            out += piece
            if _STARTED.search(out):
                return out
    return None


def stop() -> None:
    """From another thread: ends what runs, and starts nothing more."""
    _programs.stop(signal.SIGKILL)


def stopped() -> bool:
    """Whether stop() was called."""
    return _programs.stopped


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    process = _programs.start(command, {})
    if process is None:
        raise BoardError("stopped")
    return process


# mpremote's words for the steps, files made for them; and how long it may be silent.
def _words(steps: list[Run | Copy], folder: Path) -> tuple[list[str], float]:
    words: list[str] = []
    patience = _SILENT_S
    for number, step in enumerate(steps):
        if words:
            words.append("+")
        if isinstance(step, Run):
            path = folder / f"{number}.py"
            private.write(path, program(step).encode())
            words += ["run", str(path)]
            continue
        at = folder / str(number)
        at.mkdir(mode=0o700)
        first_one = True
        for count, (there, content) in enumerate(step.files.items()):
            private.write(at / str(count), content)
            words += ([] if first_one else ["+"]) + ["cp", str(at / str(count)), f":{there}"]
            first_one = False
            patience = max(patience, _SILENT_S + len(content) / _BYTES_A_SECOND)
    return words, patience


def program(step: Run) -> str:
    """The text that runs on the board."""
    common = (SCRIPTS / "common.py").read_text(encoding="utf-8")
    script = (SCRIPTS / f"{step.script}.py").read_text(encoding="utf-8")
    script = re.sub(r"^from \.common import .*$", "", script, flags=re.MULTILINE)
    # It lies in the board's memory whole: without comments and empty lines.
    lines = [line for line in f"{common}\n{script}".splitlines() if not _NO_CODE.match(line)]
    code = "\n".join(lines)
    return (
        f"{code}\ntry:\n    main({step.args!r})\nexcept Exception as error:\n"
        "    say(error=type(error).__name__, text=str(error))\n    raise\n"
    )


def _answers(out: str) -> list[Answer]:
    found = []
    for line in out.split("\n"):
        _, mark, text = line.partition(MARK)
        if mark:
            try:
                found.append(_plain(json.loads(text)))
            except (ValueError, RecursionError):
                raise BoardError(
                    "what the board answers does not arrive whole",
                    hint="another program reads the same port, or the cable is bad",
                ) from None
    return [answer for answer in found if isinstance(answer, dict)]


def _plain(said: Any) -> Any:
    if isinstance(said, str):
        return plain(said)
    if isinstance(said, list):
        return [_plain(each) for each in said]
    if isinstance(said, dict):
        return {plain(key): _plain(each) for key, each in said.items()}
    return said


def _full(port: Port) -> BoardError:
    return BoardError(
        f"{port.name}: the board's file system is full",
        hint=f"remove files of yours: mpremote connect {port.url} ls, then rm",
    )


# mpremote's words and the board's, in ours. Only a script's own answer is told of what it did:
# around it may stand anything.
def _error(port: Port, answers: list[Answer], text: str) -> BoardError:
    failed = first(answers, "error")
    if failed:
        kind, why = str(failed["error"]), str(failed.get("text", ""))
        hint = None
        if kind == "MemoryError":
            return NoMemory(f"{port.name}: the board is out of memory", hint="sealmq board reset")
        if why.startswith(("[Errno 28]", "28")):
            return _full(port)
        if kind == "ImportError":
            hint = "this board has no MicroPython for an ESP32, or was not provisioned"
        return BoardError(f"{port.name}: the board says {kind} {why}".rstrip(), hint=hint)
    if "No space left on device" in text or "ENOSPC" in text:
        return _full(port)
    if "failed to access" in text or "could not open port" in text:
        away = "nobody answers there" if "://" in port.url else "the port is busy or not yours"
        return BoardError(f"{port.name}: {away}", hint=port.hint)
    if "could not enter raw repl" in text or "could not exec" in text:
        return NoAnswer(
            f"{port.name}: no MicroPython answers",
            hint="press the board's reset button and run it again; a new board wants "
            "`sealmq board flash` first",
        )
    if "MemoryError" in text:
        return NoMemory(f"{port.name}: the board is out of memory", hint="sealmq board reset")
    if any(word in text for word in ("disconnected", "Input/output", "SerialException", "EIO")):
        return NoAnswer(
            f"{port.name}: the connection broke",
            hint="check cable and power, then run it again: it goes on where this one ended",
        )
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "no word")
    return NoAnswer(f"{port.name}: mpremote failed: {last.strip()[:200]}", hint="run it again")
