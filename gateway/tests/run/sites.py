"""Sites of fake processes, and `sealmq up` of them as a real process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sealmq_forks
from sealmq.cli.main import main

FAKES = Path(__file__).parent / "fakes"
WAIT_S = 60.0
_PATH = (str(FAKES.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")]))


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until it is so; fail, saying what, when it never is. The longer it has taken, the more
    seldom it is looked at: a look may be a command.
    """
    begin = time.monotonic()
    while not true():
        passed = time.monotonic() - begin
        assert passed < WAIT_S, f"waited in vain: {what}"
        time.sleep(0.02 + min(0.25, passed / 5))


@dataclass
class Site:
    """A site folder, its key beside it, and the `up` processes that the test has started."""

    root: Path
    key: Path
    ups: list[Up] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, more: str = "", name: str = "site") -> Site:
        root, key = folder / name, folder / f"{name}.key"
        (root / "state").mkdir(parents=True)
        (root / "state" / "salt").write_bytes(secrets.token_bytes(16))
        key.touch(0o600)
        key.write_text(secrets.token_hex(32))
        (root / "sealmq.toml").write_text(
            f'[site]\nname = "{name}"\nid = "01020304"\nkey_file = "{key}"\n{more}'
        )
        return cls(root, key)

    def plan(self, role: str, do: str) -> None:
        """How the fake process of the role behaves from its next start on."""
        (self.root / f"fake-{role}.json").write_text(json.dumps({"do": do}))

    def told(self, role: str) -> list[dict[str, Any]]:
        """What the role's fake processes noted, one row a start."""
        path = self.root / "state" / role / "told.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def up(self, *options: str, env: dict[str, str] | None = None) -> Up:
        """Start `sealmq up`, with the fakes."""
        made = Up.start(self, [str(FAKES / "fake_up.py"), str(self.root), *options], env or {})
        self.ups.append(made)
        return made

    def status(self) -> dict[str, Any]:
        """`sealmq status SITE --json`; `code` is its exit code. In this process: its start costs
        more than its work, and it is asked again and again."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["status", str(self.root), "--json"])
        told: dict[str, Any] = json.loads(out.getvalue())
        return told | {"code": code, "stderr": err.getvalue()}

    def row(self, role: str) -> dict[str, Any]:
        """One role's row of the status."""
        [row] = [row for row in self.status()["processes"] if row["role"] == role]
        return dict(row)

    def left(self) -> list[str]:
        """What is left below run/ but the lock, and folders."""
        files = [p for p in (self.root / "run").rglob("*") if not p.is_dir()]
        return sorted(p.name for p in files if p.name != "up.lock")


@dataclass
class Up:
    """A `sealmq up`."""

    site: Site
    process: subprocess.Popen[str]
    out: Path
    err: Path

    @classmethod
    def start(cls, site: Site, command: list[str], env: dict[str, str]) -> Up:
        out = site.root.parent / f"{site.root.name}-{len(site.ups)}.out"
        err = out.with_suffix(".err")
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, *command],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(_PATH)} | env,
                stdout=stdout,
                stderr=stderr,
                text=True,
            )
        return cls(site, process, out, err)

    def ready(self) -> Up:
        """Wait for the summary."""
        until(
            lambda: "stops it." in self.out.read_text() or self.process.poll() is not None,
            f"site to be up: {self.err.read_text()}",
        )
        assert self.process.poll() is None, self.err.read_text()
        return self

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(WAIT_S)


def sealmq(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    done = sealmq_forks.run(words, timeout=WAIT_S)
    if done is not None:
        out, err = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(words, done.returncode, out, err)
    command = [sys.executable, "-m", "sealmq.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def command(*words: str) -> str:
    """What `sealmq …` prints, which must go well; in this process, as its start costs more than its
    work. For what a test needs and does not look at.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    assert code == 0, err.getvalue()
    return out.getvalue()


def gone(pid: int) -> bool:
    """Whether there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
