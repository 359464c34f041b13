"""Reports over made-up logs, each in a process of its own and checked against what is known."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import generator
import scale_fit as fit
from scale_cluster import MEMORY, environment, family, outside
from scale_plan import BenchError, TimeOver
from scale_truth import differences
from spark_tally import Tally

_LOOK_S = 2.0


@dataclass
class Bench:
    """folder: for logs and reports, emptied behind it. until: by time.monotonic()."""

    folder: Path
    sizes: Sequence[int]
    rounds: int
    seed: int
    until: float
    quiet: bool = False
    samples: list[dict[str, Any]] = field(default_factory=list)
    rows: list[fit.Row] = field(default_factory=list)
    truth: dict[int, Tally] = field(default_factory=dict)
    sums: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """On stderr, with what is left of the time."""
        if not self.quiet:
            left = max(0.0, self.until - time.monotonic()) / 60
            print(f"scale: [{left:5.1f} min left] {text}", file=sys.stderr, flush=True)

    def logs(self, lines: int) -> Path:
        """The folder with about so many lines, generated once."""
        folder = self.folder / f"logs-{lines}"
        if lines not in self.truth:
            began = time.monotonic()
            # Small logs of a few days too.
            per_day = min(generator.PER_DAY, lines // 2)
            workers = os.cpu_count() or 1
            self.truth[lines] = generator.generate(
                folder, lines, seed=str(self.seed), per_day=per_day, workers=workers
            )
            seconds = time.monotonic() - began
            self.say(f"{lines:,} lines generated in {seconds:.0f} s")
        return folder

    def run(
        self,
        lines: int,
        master: str,
        *asked: str,
        pids: Sequence[int] = (),
        logs: Sequence[Path] = (),
        out: Path | None = None,
    ) -> dict[str, Any]:
        """A report in a process of its own; its folder is gone after it. logs: these, instead of
        those with so many lines. out: a folder that stays, and may be there from the last time."""
        logs = logs or [self.logs(lines)]
        found = self._child("scale_run.py", logs, lines, master, asked, pids, out)
        tally = self.truth[lines]
        found["lines"] = tally.lines
        found["bytes"] = {
            "logs": tally.bytes,
            "report": found["out"],
            "audit": found["kept"]["audit"],
        }
        return found

    def beside(self, lines: int, master: str, *asked: str) -> tuple[float, float]:
        """CPU of a report over the audit log alone and of the plain job (scale_plain.py) over the
        same lines, in seconds, from Java's start on."""
        logs = [self.logs(lines) / "audit"]
        ours = self._child("scale_run.py", logs, lines, master)
        plain = self._child("scale_plain.py", logs, lines, master, asked)
        read = ours["summary"]["lines"] + ours["summary"]["quarantined"]
        if not 0 < plain["lines"] <= read:
            raise BenchError(f"{lines} lines: the plain job has {plain['lines']} of {read}")
        return ours["whole"], plain["cpu"]

    def _child(
        self,
        script: str,
        logs: Sequence[Path],
        lines: int,
        master: str,
        asked: Sequence[str] = (),
        pids: Sequence[int] = (),
        kept: Path | None = None,
    ) -> dict[str, Any]:
        """What it prints. asked: its flags. kept: as `out` of `run`."""
        out, scratch = kept or self.folder / "out", self.folder / "scratch"
        gone = [scratch] if kept is not None else [scratch, out]
        for old in gone:
            shutil.rmtree(old, ignore_errors=True)
        scratch.mkdir(parents=True)
        command = [sys.executable, str(Path(__file__).with_name(script))]
        command += ["--logs", *map(str, logs)]
        for name, value in (("out", out), ("scratch", scratch)):
            command += [f"--{name}", str(value)]
        command += ["--master", master, "--memory", MEMORY, *(f"--{each}" for each in asked)]
        with (scratch / "stdout").open("wb") as told, (scratch / "stderr").open("wb") as said:
            process = subprocess.Popen(  # noqa: S603 - our own script
                command, stdout=told, stderr=said, env=environment(scratch), start_new_session=True
            )
            try:
                self._watched(process, pids)
            finally:
                _end(process)
        if process.returncode:
            # Without the frames of Java's stack, of which there may be hundreds.
            printed = (scratch / "stderr").read_text(errors="replace").splitlines()
            words = [line for line in printed if not line.startswith("\t")]
            raise BenchError(f"{lines} lines: {' | '.join(words[-12:])[-2000:]}")
        found: dict[str, Any] = json.loads((scratch / "stdout").read_text())
        for old in gone:
            shutil.rmtree(old, ignore_errors=True)
        return found

    def _watched(self, process: subprocess.Popen[bytes], pids: Sequence[int]) -> None:
        """Until it ends. Nothing of it may be reached from another machine."""
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                return
            if time.monotonic() > self.until:
                raise TimeOver("the time is over")
            seen = outside(family([process.pid, *pids]))
            if seen:
                raise BenchError(f"something listens beyond loopback: {', '.join(seen)}")

    def checked(self, lines: int, found: Mapping[str, Any], name: str) -> None:
        """BenchError: the report is wrong, or other than that of another master."""
        wrong = differences(self.truth[lines], found)
        if wrong:
            raise BenchError(f"{name}, {lines} lines: the report is wrong: {'; '.join(wrong)}")
        sums = self.sums.setdefault(lines, found["checksums"])
        if sums != found["checksums"]:
            other = [each for each in sums if sums[each] != found["checksums"].get(each)]
            raise BenchError(f"{name}, {lines} lines: other checksums of {', '.join(other)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Java is in the same group, which this bench has made."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
