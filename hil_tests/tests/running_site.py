"""A real site for end-to-end tests: `sealmq init`, `sealmq up`, clients in real MicroPython.

Everything goes through the command line, the network and files that an operator sees. Waiting is
for a condition, within bounds; no test looks at how long something took.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import sealmq_forks
from free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SEALMQ = Path(sys.executable).with_name("sealmq")
MICROPYTHON = ROOT / "build/micropython/bin"
PATIENCE_S = 30.0

T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
    """The first true answer of `look`; fails with `what` when none comes. A look may be a command:
    the longer it has taken, the more seldom, so that waiting leaves the cores to who works.
    """
    begin = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        passed = time.monotonic() - begin
        if passed > patience_s:
            raise AssertionError(f"waited {patience_s:.0f} s in vain for {what}")
        time.sleep(0.05 + min(0.25, passed / 5))


def sealmq(
    *arguments: object,
    timeout: float = 60,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `sealmq …` to its end."""
    words = list(map(str, arguments))
    given = None if stdin is None else stdin.encode()
    done = sealmq_forks.run(words, stdin=given, env=env, timeout=timeout)
    if done is not None:
        out, err = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(words, done.returncode, out, err)
    return subprocess.run(
        [str(SEALMQ), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        input=stdin,
        env=env,
        check=False,
    )


def program() -> str:
    """`sealmq` for subprocess.Popen. Any signal to it is the command's but SIGKILL."""
    return str(sealmq_forks.on_path(os.environ) / "sealmq")


def ran(*words: object) -> str:
    """What `sealmq …` prints, which must go well."""
    done = sealmq(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def publish(site: Site, client: str, topic: str, message: str, *flags: object) -> None:
    """`sealmq pub`."""
    ran("pub", site.path, "--client", client, "-t", topic, "-m", message, *flags)


@functools.cache
def _made(example: str, policy: str) -> tuple[Path, str]:
    """What `sealmq init` makes, to copy from, and where it listens: a key file and a store cost
    two tenths of a second, and most tests do not ask how they came about.
    """
    folder = Path(tempfile.mkdtemp(prefix="sealmq-made-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    listen = f"127.0.0.1:{free_port()}"
    site, key = folder / "site", folder / "site.key"
    words = ("--example", example, "--policy", policy, "--key-file", key, "--listen", listen)
    done = sealmq("init", site, *words)
    assert done.returncode == 0, done.stderr
    return folder, listen


class Site:
    """One site below `folder`; the key file lies beside it, not in it.

    policy: "labels", or "purposes" as `sealmq init` has it by itself.
    """

    def __init__(self, folder: Path, example: str = "factory", policy: str = "labels") -> None:
        self.path = folder / "site"
        self.key = folder / "site.key"
        self.clients = folder / "clients"
        self.port = free_port()
        self._folder = folder
        self._up: subprocess.Popen[str] | sealmq_forks.Running | None = None
        self._log = folder / "up.log"
        made, listen = _made(example, policy)
        shutil.copytree(made / "site", self.path)
        shutil.copy2(made / "site.key", self.key)
        self.edit(f'"{listen}"', f'"127.0.0.1:{self.port}"')
        self.edit(f'"{made / "site.key"}"', f'"{self.key}"')

    @property
    def toml(self) -> Path:
        return self.path / "sealmq.toml"

    def edit(self, old: str, new: str) -> None:
        """Replaces text that stands in sealmq.toml exactly once."""
        text = self.toml.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in sealmq.toml"
        self.toml.write_text(text.replace(old, new))

    def purposes(self, tables: str) -> None:
        """A site that judged by labels judges by purposes as well, as these tables say."""
        self.edit('order = ["labels"]\n', 'order = ["labels", "purposes"]\n')
        self.toml.write_text(self.toml.read_text() + tables)

    def up(self, *options: object, under: tuple[str, ...] = (), forked: bool = True) -> None:
        """Starts `sealmq up` and waits until everything is ready. under: a tracer's command.
        forked: False for processes with a command line, environment and memory that nobody else
        has had (sealmq_forks.py).
        """
        self._traced = bool(under)
        before = len(self.log())
        words = ["up", str(self.path), *map(str, options)]
        with self._log.open("a") as log:
            self._up = None if under else sealmq_forks.start(words, log, forked)
            if self._up is None:
                command = [*under, str(SEALMQ), *words]
                self._up = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, text=True
                )
        until("the site to be up", lambda: self._lives() and "stops it." in self.log()[before:])
        until("the site to be ready", lambda: self._lives() and self._ready())

    def _lives(self) -> bool:
        assert self._up is not None
        assert self._up.poll() is None, f"`sealmq up` ended:\n{self.log()}"
        return True

    def _ready(self) -> bool:
        return sealmq("status", self.path, "--json").returncode == 0

    def log(self) -> str:
        """What `sealmq up` has printed."""
        return self._log.read_text() if self._log.exists() else ""

    def down(self) -> int:
        """SIGTERM, and the exit code."""
        if self._up is None:
            return 0
        if self._up.poll() is None:
            os.kill(self._supervisor(), signal.SIGTERM)
        try:
            return self._up.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._up.kill()
            raise AssertionError(f"`sealmq up` did not stop:\n{self.log()}") from None
        finally:
            self._up = None

    def _supervisor(self) -> int:
        """The pid of `sealmq up`: our child, or the tracer's."""
        assert self._up is not None
        pid = self._up.pid
        if not self._traced:
            return pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def status(self) -> dict[str, Any]:
        """What `sealmq status --json` says."""
        answer: dict[str, Any] = json.loads(sealmq("status", self.path, "--json").stdout)
        return answer

    def pid(self, role: str) -> int:
        """The process of a role."""
        return next(int(p["pid"]) for p in self.status()["processes"] if p["role"] == role)

    def pid_or_none(self, role: str) -> int | None:
        """The process of a role that is ready; None while it is not."""
        rows = [p for p in self.status()["processes"] if p["role"] == role and p["ready"]]
        return int(rows[0]["pid"]) if rows else None

    def kill(self, role: str) -> int:
        """kill -9, at once; gives the pid that was."""
        pid = self.pid(role)
        os.kill(pid, signal.SIGKILL)
        return pid

    def back(self, role: str, killed: int, patience_s: float = PATIENCE_S) -> None:
        """Waits until the supervisor has started a role again and all is ready."""

        # Of one answer: what was killed may still be dying, and be gone in the next.
        def again() -> bool:
            processes = self.status()["processes"]
            return all(p["ready"] and p["pid"] != killed for p in processes)

        until(f"{role} to be back", again, patience_s)

    def audit(self, event: str = "", **fields: object) -> list[dict[str, Any]]:
        """Audit records so far, closed segments and open ones, filtered."""
        rows = []
        for file in sorted(self.path.glob("audit/*/*.jsonl*")):
            for line in file.read_text().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # the line that is being written
                if (not event or row["event"] == event) and all(
                    row.get(k) == v for k, v in fields.items()
                ):
                    rows.append(row)
        return rows

    def noted(self) -> str:
        """The newest audit records, for the text of a failure."""
        time.sleep(0.5)  # they are written a little later than what they tell of
        rows = sorted(self.audit(), key=lambda row: int(row.get("at_ms", 0)))[-12:]
        return "audit: " + "; ".join(map(json.dumps, rows))

    def enrol(self, name: str, label: str, *options: object) -> Path:
        """The enrolment file of a client, which is added if it is new; alone in its folder."""
        folder = self.clients / name
        folder.mkdir(parents=True)
        file = folder / "sealmq.json"
        done = sealmq("client", "add", self.path, name, "--label", label, "-o", file, *options)
        assert done.returncode == 0, done.stderr
        return file


class Reading:
    """A `sealmq sub` of the client `monitor`, subscribed; what it prints is below `folder`."""

    def __init__(self, site: Site, folder: Path, *flags: str) -> None:
        self.out, self.err = folder / f"{len(list(folder.iterdir()))}.out", folder / "sub.err"
        words = ["sub", str(site.path), "--client", "monitor", "-v", "-d", *flags]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen([program(), *words], stdout=out, stderr=err)
        until("the subscription", lambda: "subscribed: " in self.err.read_text())

    def lines(self) -> list[str]:
        """A line a message: topic and payload."""
        return self.out.read_text().splitlines()

    def end(self) -> None:
        """As the operator ends it."""
        self.process.terminate()
        assert self.process.wait(30) == 0


def micropython(script: Path | str, *arguments: object, bits: int = 64) -> subprocess.Popen[str]:
    """A script in real MicroPython with the device client; stdout and stderr are one pipe."""
    interpreter = MICROPYTHON / f"micropython{bits}"
    assert interpreter.exists(), f"{interpreter} is missing: make setup"
    path = ":".join(str(ROOT / p) for p in ("firmware", "shared_spec", "build/micropython/lib"))
    path += ":.frozen"  # asyncio
    return subprocess.Popen(
        [str(interpreter), str(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "MICROPYPATH": path},
    )
