"""Runs targets under libFuzzer, each in a process of its own, and says how far they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .target import load

# libFuzzer's lines: #524288 pulse  cov: 812 ft: 2961 corp: ...
_LINE = re.compile(r"#(\d+)\s+(\w+)\s+cov: (\d+)")
_DONE = re.compile(r"Done (\d+) runs")
_SHM = Path("/dev/shm")  # noqa: S108 - only folders that mkdtemp makes there
_TAIL = 60


@dataclass(frozen=True)
class Limits:
    """inputs: how many; timeout_s: for one input, wall time; rss_mb: of the whole process.

    seed: the same inputs again, as far as a target does the same with them; 0: new ground.
    """

    inputs: int
    timeout_s: int = 30
    rss_mb: int = 640
    seed: int = 0


@dataclass
class Run:
    """How one target ended. `found`: the input that breaks it; `text`: the end of the output."""

    name: str
    inputs: int = 0
    edges: int = 0
    code: int = 0
    found: Path | None = None
    text: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """It has tried all its inputs, and none broke it."""
        return self.code == 0 and self.found is None


def run(name: str, folder: Path, limits: Limits, say: Callable[[str], None]) -> Run:
    """Tries `limits.inputs` inputs, beginning with the seeds and the corpus of earlier runs."""
    corpus, found = folder / name / "corpus", folder / name / "found"
    for path in (corpus, found):
        path.mkdir(parents=True, exist_ok=True)
    with _scratch() as scratch:
        longest, dictionary = _seeded(name, scratch)
        command = [
            sys.executable, "-m", "fuzz.single", name, f"-runs={limits.inputs}",
            f"-timeout={limits.timeout_s}", f"-rss_limit_mb={limits.rss_mb}",
            f"-seed={limits.seed}", f"-max_len={longest}", *dictionary,
            f"-artifact_prefix={found}/",
            str(corpus), str(scratch / "seeds"),
        ]  # fmt: skip
        # What is compared in between (clocks, addresses), the order of sets and the corpus on disk,
        # read again each second, steer as well.
        fixed = {"PYTHONHASHSEED": str(limits.seed)} if limits.seed else {}
        command[4:4] = ["-use_cmp=0", "-reload=0"] if limits.seed else []
        return _watched(name, command, {"TMPDIR": str(scratch), **fixed}, found, say)


def _watched(
    name: str, command: list[str], env: dict[str, str], found: Path, say: Callable[[str], None]
) -> Run:
    before = set(found.iterdir())
    done = Run(name)
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
        command,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        for line in process.stdout or ():
            done.text = [*done.text[1 - _TAIL :], line.rstrip("\n")]
            seen = _LINE.search(line)
            if seen:
                done.inputs, done.edges = int(seen[1]), int(seen[3])
                if seen[2] in ("pulse", "INITED", "DONE"):
                    say(f"fuzz: {name}: {done.inputs:,} inputs, {done.edges:,} edges")
            elif seen := _DONE.search(line):
                done.inputs = int(seen[1])
    finally:
        if sys.exc_info()[0]:
            process.kill()
        done.code = process.wait()
    new = sorted(set(found.iterdir()) - before)
    done.found = new[0] if new else None
    return done


def _seeded(name: str, scratch: Path) -> tuple[int, list[str]]:
    """Writes seeds and dictionary; the longest input, and the argument that names the latter."""
    target = load(name)
    try:
        seeds = scratch / "seeds"
        seeds.mkdir()
        for number, seed in enumerate(target.seeds()):
            (seeds / f"{number:04}").write_bytes(seed)
        words = scratch / "words"
        escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
        words.write_text("".join(f'"{word}"\n' for word in escaped))
        return target.longest, [f"-dict={words}"] if target.words else []
    finally:
        target.close()


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder in memory, for what a target writes."""
    folder = tempfile.mkdtemp(prefix="sealmq-fuzz-", dir=_SHM if _SHM.is_dir() else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
