"""What is measured: sites of real processes, one for each variant, and brokers alone.

A site is what `sealmq init` and `sealmq up` make: key generator, mediator, a private Mosquitto.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from load_brokers import HOST, MAKERS, Command, answers, free_port
from load_cpu import LoadError, memory_mib, processes
from load_family import site_of
from load_generator import Told, topic
from load_generator import name as client
from load_held import put

from sealmq.families import registry
from sealmq.kg.local import opened
from sealmq.run import ready
from sealmq.site.edit import edit
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout
from sealmq.site.model import Config

LABEL = "fleet"
START_S = 400.0
STOP_S = 30.0
FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@dataclass(frozen=True)
class Variant:
    """family: a policy family that judges after what it stands on; "": labels alone. settings: its
    own, as its bench has them.

    broker: a broker alone (load_brokers.py) in place of a site. workers: of the mediator; 0: as
    the site has it by itself.
    """

    name: str
    family: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    broker: str = ""
    # How many messages a client sends at once.
    bursts: tuple[int, ...] = (1, 16)
    workers: int = 0

    @property
    def sealed(self) -> bool:
        """Whether there is a site at all."""
        return not self.broker


class Scene:
    """One variant with its processes and its load generator. clients: how many the site knows."""

    def __init__(self, variant: Variant, folder: Path, clients: int, held: int) -> None:
        self.variant, self.clients = variant, clients
        self.held = held if variant.family else 0
        self._folder = folder
        self._log = folder / "log"
        self._main: subprocess.Popen[bytes] | None = None
        self._load: subprocess.Popen[str] | None = None
        self.pids: dict[str, int] = {}

    @property
    def site(self) -> Path:
        """The site's folder, of one that is no broker alone."""
        return self._folder / "site"

    # --- start ---

    def start(self, size: int) -> None:
        """Everything runs, and a load generator is there. LoadError."""
        self._folder.mkdir(parents=True)
        told = self._site() if self.variant.sealed else self._broker()
        if self._main is None:
            raise LoadError(f"{self.variant.name} has not been started")
        told |= {"main": self._main.pid, "pids": self.pids, "size": size}
        told |= {"family": self.variant.family}
        self._load = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, str(FOLDER / "load_generator.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.do("begin", **told)

    def _broker(self) -> Told:
        made = MAKERS[self.variant.broker](self._folder)
        main = self._begin(made.command)
        self.pids = {"broker": main.pid}
        self._until(lambda: answers(made.told["port"]))
        return made.told

    def _site(self) -> Told:
        site, key = self.site, self._folder / "site.key"
        port = free_port()
        words = ["init", str(site), "--key-file", str(key), "--broker", "mosquitto"]
        done = subprocess.run(  # noqa: S603 - our own command line
            [sys.executable, "-m", "sealmq.cli", *words, "--listen", f"{HOST}:{port}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LoadError(f"sealmq init: {done.stderr.strip()}")
        layout = Layout.open(site)
        try:
            config = edit(layout, self._configure)
        except SiteError as error:
            raise LoadError(
                f"{self.variant.name}: this SealMQ refuses the site: {error}", error.hint or ""
            ) from None
        if self.held:
            family, topics = self.variant.family, [topic(n) for n in range(self.clients)]
            rows = site_of(family).held(self.held, self._names(), topics)
            put(layout.mediator_db, self._folder.parent, family, rows, self.held)
        lent = self._lent(layout, config, key)
        self._begin(Command([sys.executable, "-m", "sealmq.cli", "up", str(site)]))
        self._until(lambda: self._serves(layout))
        return {"host": HOST, "port": port, "lent": lent}

    # While nothing runs: each one that is lent later is a change of keys, for which the mediators
    # fetch all of them.
    def _lent(self, layout: Layout, config: Config, key: Path) -> list[tuple[Told, str]]:
        with opened(layout, config, key) as kg:
            kg.apply(config)
            lent = [kg.lend(name) for name in self._names()]
        return [(enrolment, dump.hex()) for enrolment, dump in lent]

    def _configure(self, doc: Any) -> None:
        doc["labels"] = {LABEL: []}
        device = tomlkit.inline_table()
        device.update({"label": LABEL, "kind": "device"})
        clients = tomlkit.table()
        for name in self._names():
            clients.append(name, device)
        doc["clients"] = clients
        if self.variant.workers:
            doc["mediator"]["workers"] = self.variant.workers
        doc.pop("families", None)
        family = self.variant.family
        before = registry.manifest(family).stands_on if family else ("labels",)
        doc["policy"]["order"] = [*before, *([family] if family else [])]
        if family:
            site_of(family).put_in(doc, self._names(), self.variant.settings)

    def _names(self) -> list[str]:
        return [client(number) for number in range(self.clients)]

    def _serves(self, layout: Layout) -> bool:
        told = {role: ready.read(layout, role) for role in ("kg", "mediator", "broker")}
        for role, one in told.items():
            if one is None or not one.ready or one.pid is None:
                return False
            self.pids[role] = one.pid
        return True

    def _begin(self, command: Command) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is for the bench, which ends them in their order.
        with self._log.open("ab") as log, command.inherited() as more:
            self._main = subprocess.Popen(  # noqa: S603 - our own, and brokers as they were found
                command.words, stdout=log, stderr=log, start_new_session=True, **more
            )
        return self._main

    def _until(self, look: Callable[[], bool]) -> None:
        end = time.monotonic() + START_S
        while not look():
            if self._main is None or self._main.poll() is not None or time.monotonic() > end:
                last = self._log.read_text(errors="replace").strip()[-500:]
                raise LoadError(f"{self.variant.name} does not start: {last}")
            time.sleep(0.05)

    # --- use ---

    def do(self, what: str, **words: Any) -> Told:
        """An answer of the load generator. LoadError."""
        load = self._load
        if load is None or load.stdin is None or load.stdout is None:
            raise LoadError(f"{self.variant.name} has not been started")
        try:
            load.stdin.write(json.dumps({"do": what, **words}) + "\n")
            load.stdin.flush()
            answer: Told = json.loads(load.stdout.readline() or '{"error": "it has ended"}')
        except (OSError, ValueError) as error:
            answer = {"error": repr(error)}
        if "error" in answer:
            raise LoadError(f"{self.variant.name}, {what}: {answer['error']}")
        return answer

    def memory_mib(self) -> Mapping[str, float]:
        """What the processes of each role hold, without the pages that others share."""
        held: dict[str, float] = {}
        if self._main is not None:
            for pid, role in processes(self._main.pid, self.pids).items():
                held[role] = held.get(role, 0.0) + memory_mib(pid)
        return held

    # --- end ---

    def leave(self) -> None:
        """Ask all that was started to end; `stop` waits for it."""
        if self._load is not None and self._load.stdin is not None:
            with contextlib.suppress(OSError):
                self._load.stdin.close()
        if self._main is not None and self._main.poll() is None:
            self._main.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End all that was started; may be called at any time, and twice."""
        self.leave()
        load, self._load = self._load, None
        if load is not None:
            _end(load, STOP_S)
        main, self._main = self._main, None
        if main is not None:
            _end(main, STOP_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _end(process: subprocess.Popen[Any], patience_s: float) -> None:
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
