"""A site whose processes run under the shim, and the broker beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from free_ports import free_port
from running_site import SEALMQ, Site, sealmq, until

from .shim import Shim

ROLES = ("kg", "broker", "mediator")
BROKERS = ("embedded", "mosquitto", "external")
GIVE_UP_S = 60.0
# The command `sealmq`, several times in one process: its start costs more than its work.
_COMMANDS = """
import json, sys
from sealmq.cli.main import main
sys.exit(max(main(words) for words in json.loads(sys.argv[1])))
"""
# name -> label. Three publishers, two readers of everything, a will, somebody who comes late.
CLIENTS = {
    "first": "m1-temp",
    "second": "m2-temp",
    "third": "ctrl-room-temp",
    "willing": "m1-ctrl",
    "live": "monitor",
    "sleeper": "monitor",
    "late": "monitor",
}


class Mosquitto:
    """An external Mosquitto below the shim's root; it saves whenever something has changed."""

    def __init__(self, folder: Path, shim: Shim) -> None:
        program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise FileNotFoundError("mosquitto is missing: apt-get install mosquitto")
        self.port = free_port()
        self._shim, self._program, self._log = shim, program, folder.parent / "mosquitto.log"
        folder.mkdir(mode=0o700)
        self._config = folder.parent / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\n"
            f"persistence true\npersistence_location {folder}/\n"
            "autosave_interval 5\nmax_queued_messages 100000\nmax_inflight_messages 1000\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - found on PATH, our own configuration
                [self._program, "-c", str(self._config)],
                env=self._shim.environment(),
                stdout=log,
                stderr=log,
            )

    def ended(self) -> None:
        """After a kill: reap it."""
        if self.process is not None:
            self.process.wait(GIVE_UP_S)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(GIVE_UP_S)


class Place(Site):
    """folder/disk is what the faults concern: site, and an external broker's files."""

    def __init__(self, folder: Path, broker: str, lie: str = "") -> None:
        disk = folder / "disk"
        disk.mkdir()
        self.disk, self.kind = disk, broker
        self.shim = Shim(folder, disk, lie)
        super().__init__(folder)
        (folder / "site").rename(disk / "site")
        self.path = disk / "site"
        own = broker == "external"
        self.external = Mosquitto(disk / "broker", self.shim) if own else None
        text = self.toml.read_text()
        row = '{} = {{ label = "{}", kind = "app" }}\n'
        more = "".join(row.format(*each) for each in CLIENTS.items())
        self.toml.write_text(text.replace("[clients]\n", f"[clients]\n{more}", 1))

    @property
    def keeps(self) -> bool:
        """Whether the broker keeps sessions."""
        return self.kind != "embedded"

    def enrol_all(self) -> None:
        """An enrolment file for each client of the load."""
        commands = []
        for name, label in CLIENTS.items():
            file = self.clients / name / "sealmq.json"
            file.parent.mkdir(parents=True)
            commands.append(
                ["client", "add", str(self.path), name, "--label", label, "-o", str(file)]
            )
        done = subprocess.run(  # noqa: S603 - our own command, once for all of them
            [sys.executable, "-c", _COMMANDS, json.dumps(commands)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"`sealmq client add` failed: {done.stderr}")

    # --- processes -------------------------------------------------------------------------------

    def launch(self) -> None:
        """`sealmq up`, under the shim; does not wait."""
        options: tuple[str, ...] = ()
        if self.external is not None:
            options = ("--broker", f"mqtt://127.0.0.1:{self.external.port}")
        elif self.kind == "mosquitto":
            options = ("--broker", "mosquitto")
        with self._log.open("a") as log:
            self._up = subprocess.Popen(  # noqa: S603 - our own command
                [str(SEALMQ), "up", str(self.path), *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                env=self.shim.environment(),
            )
        self._traced = False

    def start(self) -> None:
        """Everything, from nothing, until it serves."""
        if self.external is not None:
            self.external.start()
        self.launch()
        until("the site to be ready", self.ready, GIVE_UP_S)

    def ready(self) -> bool:
        """By its own files, as `sealmq status` reads them, without the cost of the command."""
        if self._up is None or self._up.poll() is not None:
            raise AssertionError(f"`sealmq up` has ended:\n{self.log()[-2000:]}")
        pids = self.pids()
        for role in ROLES:
            told = _read(self.path / "run" / role / "ready.json")
            if told is None or told.get("ready") is not True:
                return False
            own = self.external is not None and role == "broker"
            if not own and (told.get("pid") != pids.get(role) or not alive(told.get("pid"))):
                return False
        return True

    def pids(self) -> dict[str, int]:
        """Live processes of the site by role, the supervisor and the broker included."""
        found: dict[str, int] = {}
        if self._up is not None and self._up.poll() is None:
            found["supervisor"] = self._up.pid
        told = _read(self.path / "run" / "up.json") or {}
        if told.get("pid") == found.get("supervisor"):
            rows = told.get("processes")
            for role, row in rows.items() if isinstance(rows, dict) else ():
                if alive(row["pid"]):
                    found[role] = int(row["pid"])
        if self.external is not None and self.external.process is not None:
            if self.external.process.poll() is None:
                found["broker"] = self.external.process.pid
        return found

    def await_pid(self, role: str) -> int:
        """The pid of a role; it may be on its way back from an earlier fault."""
        return until(f"a process for {role}", lambda: self.pids().get(role), GIVE_UP_S)

    def kill_all(self, roles: dict[str, int]) -> None:
        """All at once: frozen first, so that none does anything behind another's end."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in roles.values():
                send(pid, number)
        self.gone(roles)

    def gone(self, roles: dict[str, int]) -> None:
        """Waits until these have ended."""
        if self._up is not None and self._up.pid in roles.values():
            self._up.wait(GIVE_UP_S)
        if self.external is not None and roles.get("broker") is not None:
            self.external.ended()
        for role, pid in roles.items():
            until(f"the end of {role}", lambda pid=pid: not alive(pid), GIVE_UP_S)  # type: ignore[misc]

    def stop(self) -> None:
        """The end of the run."""
        self.shim.calm()
        for pid in self.pids().values():
            send(pid, signal.SIGCONT)
        try:
            self.down()
        finally:
            if self.external is not None:
                self.external.stop()

    # --- what an operator sees -------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        """topic -> label, as `sealmq topic list` says."""
        done = sealmq("topic", "list", self.path, "--json")
        if done.returncode:
            raise AssertionError(f"`sealmq topic list` failed: {done.stderr}")
        return {row["topic"]: row["label"] for row in json.loads(done.stdout)["topics"]}

    def lock(self, database: str) -> sqlite3.Connection:
        """A write transaction held on a store, as another program could hold one."""
        role = database.split(".")[0]
        held = sqlite3.connect(self.path / "state" / role / database, timeout=GIVE_UP_S)
        held.isolation_level = None
        held.execute("BEGIN IMMEDIATE")
        return held


def send(pid: int, number: int) -> None:
    """A signal; nothing when the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def alive(pid: object) -> bool:
    """Whether a process runs; its remains (a zombie) do not count."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def frozen(pids: dict[str, int]) -> None:
    """Stops processes and waits until they stand."""
    for pid in pids.values():
        send(pid, signal.SIGSTOP)
    end = time.monotonic() + 5
    for pid in pids.values():
        while time.monotonic() < end and _state(pid) in ("R", "S", "D"):
            time.sleep(0.002)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _read(path: Path) -> dict[str, object] | None:
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None
