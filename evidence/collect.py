"""Runs a part and notes when, of which tree, and beside how much other work.

What a part has left is taken over at its end and not before: a run that fails or is interrupted
changes nothing that was there.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from bench_form import commit
from evidence.parts import Part, commands
from evidence.place import ROOT, RUNS, WORK, EvidenceError, put, shown

# How long what was interrupted may take to end what it started.
_GRACE_S = 60


def say(text: str) -> None:
    """A line of progress."""
    print(f"evidence: {text}", file=sys.stderr, flush=True)


def run(part: Part) -> None:
    """Measures it anew. EvidenceError; KeyboardInterrupt passes behind its processes' end."""
    work = WORK / part.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    note: dict[str, Any] = {
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": commit(*part.of),
        "command": part.command(),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    begin = time.monotonic()
    for number, words in enumerate(commands(part, work)):
        say(f"{part.name}: {' '.join(words[1:])}")
        told = work / (part.to[number] if part.to else f"said-{number + 1}.txt")
        with told.open("w", encoding="utf-8") as out:
            _one(words, out, part.minutes * 60)
    part.keep(work)
    note["seconds"] = round(time.monotonic() - begin)
    put(RUNS / f"{part.name}.json", json.dumps(note, indent=1) + "\n")
    say(f"{part.name}: done in {note['seconds']} s")


def _one(words: Sequence[str], out: IO[str], bound_s: float) -> None:
    """Its progress goes where ours does, its result into the file."""
    # The words are our own; a group of its own, so that its end is the end of all it started.
    child = subprocess.Popen(words, cwd=ROOT, stdout=out, start_new_session=True)  # noqa: S603
    try:
        code = child.wait(bound_s)
    except subprocess.TimeoutExpired as error:
        _end(child)
        raise EvidenceError(f"{words[1]} took more than {bound_s / 60:.0f} minutes") from error
    except BaseException:
        _end(child)
        raise
    if code:
        _kill(child.pid)
        raise EvidenceError(
            f"{' '.join(words[1:])} ended with {code}; what was there stays",
            f"what it said is in {shown(Path(out.name))}",
        )


def _end(child: subprocess.Popen[bytes]) -> None:
    """First it may end what it has started, then nothing of its group is left."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        say(f"it does not end within {_GRACE_S} s: killed")
    _kill(child.pid)
    child.wait()


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def noted(part: Part) -> dict[str, Any] | None:
    """What was noted of its last run; None: it never ran."""
    try:
        found: dict[str, Any] = json.loads((RUNS / f"{part.name}.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{part.name}: cannot read what was noted: {error}") from error
    return found
