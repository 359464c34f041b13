"""What is measured: sites of real processes, one for each variant, and a plain Mosquitto.

A site is what `sealmq init` and `sealmq up` make: key generator, mediator, a private Mosquitto. The
plain one has the same configuration, and clients of its own in place of a mediator.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from purposes_load import Told, name, topic
from purposes_peer import LoadError

from sealmq.broker import mosquitto
from sealmq.broker.credentials import Credentials
from sealmq.families.purposes.records import NAME, RESERVATION
from sealmq.families.purposes.records import reservation as kept
from sealmq.families.purposes.store import Reservation
from sealmq.run import ready
from sealmq.site.edit import edit
from sealmq.site.layout import Layout
from sealmq.site.model import Limits
from sealmq.store import database, tables

LABEL = "fleet"
# For what everybody subscribes; below what the reservations allow, so that the tree is looked at.
PURPOSE, ALLOWED, FORBIDDEN = "billing/invoice", "billing", "advertising"
START_S = 400.0
STOP_S = 30.0
_HERE = Path(__file__).resolve().parent
_ROWS = 20_000


@dataclass(frozen=True)
class Variant:
    """mode and store of the family; none of them: without it. sealed: there is a site at all."""

    name: str
    mode: str = ""
    store: str = ""
    sealed: bool = True
    # How many messages a client sends at once. With 16, a flat store would be busy for a minute.
    bursts: tuple[int, ...] = (1, 16)


# In the order of the paper's tables.
VARIANTS = {
    v.name: v
    for v in (
        Variant("mosquitto", sealed=False),
        Variant("labels"),
        Variant("fos", "fos", "cache"),
        Variant("fop-cache", "fop", "cache"),
        Variant("hybrid", "hybrid", "cache"),
        Variant("fop", "fop", "tree"),
        Variant("fop-flat", "fop", "flat", bursts=(1,)),
    )
}


def reservations(count: int, clients: int) -> Iterator[str]:
    """The filters of `count` reservations (at least two): over what is subscribed to, then one for
    each client's own topic as far as they reach, then other topics, four levels deep.
    """
    yield "bench/#"
    yield "rate/#"
    left = count - 2
    for number in range(min(clients, left)):
        yield topic(number)
    for n in range(left - clients):
        yield f"house/{n % 1000}/room/{n // 1000}"


def record(filt: str, at_ms: int = 1_800_000_000_000) -> tuple[str, bytes]:
    """Key and value of a reservation as the family keeps it."""
    return RESERVATION + filt, _value(at_ms)


# All say the same, and there may be a million. Not over a label: those of a steward count whatever
# a topic's label is.
@functools.cache
def _value(at_ms: int) -> bytes:
    made = kept(Reservation("x", [ALLOWED], [FORBIDDEN], name(0)), at_ms).value
    if made is None:
        raise LoadError("a reservation's record has no value")
    return made


def free_port() -> int:
    """A port on loopback that nobody listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Scene:
    """One variant with its processes and its load generator."""

    def __init__(self, variant: Variant, folder: Path, clients: int, held: int) -> None:
        self.variant, self.clients = variant, clients
        self.held = held if variant.mode else 0
        self._folder = folder
        self._log = folder / "log"
        self._main: subprocess.Popen[bytes] | None = None
        self._load: subprocess.Popen[str] | None = None
        self.pids: dict[str, int] = {}

    # --- start ---

    def start(self, size: int) -> None:
        """Everything runs, every client is connected and has subscribed. LoadError."""
        self._folder.mkdir(parents=True)
        told = self._site() if self.variant.sealed else self._plain()
        family = bool(self.variant.mode)
        told |= {"clients": self.clients, "pids": self.pids, "size": size}
        told |= {"family": family, "purpose": PURPOSE}
        self._load = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, str(_HERE / "purposes_load.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.do("connect", **told)

    def _plain(self) -> Told:
        port, credentials = free_port(), Credentials.draw()
        config = self._folder / mosquitto.CONFIG
        texts = {
            config: mosquitto.config(self._folder, port, Limits(), root=os.geteuid() == 0),
            self._folder / mosquitto.PASSWORDS: mosquitto.passwords(credentials),
            self._folder / mosquitto.ACL: mosquitto.acl(credentials.user),
        }
        for path, text in texts.items():
            path.touch(0o600)
            path.write_text(text, encoding="utf-8")
        main = self._begin([mosquitto.find().path, "-c", str(config)])
        self.pids = {"broker": main.pid}
        self._until(lambda: _answers(port))
        where: Told = {"host": "127.0.0.1", "port": port}
        return where | {"user": credentials.user, "password": credentials.password}

    def _site(self) -> Told:
        site, key = self._folder / "site", self._folder / "site.key"
        port = free_port()
        words = ["init", str(site), "--key-file", str(key), "--broker", "mosquitto"]
        done = subprocess.run(  # noqa: S603 - our own command line
            [sys.executable, "-m", "sealmq.cli", *words, "--listen", f"127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LoadError(f"sealmq init: {done.stderr.strip()}")
        layout = Layout.open(site)
        edit(layout, self._configure)
        if self.held:
            self._hold(layout)
        self._begin([sys.executable, "-m", "sealmq.cli", "up", str(site)])
        self._until(lambda: self._serves(layout))
        return {"host": "127.0.0.1", "port": port, "site": str(site)}

    # A million rows take a while to write: sites with as many begin with copies of one file.
    def _hold(self, layout: Layout) -> None:
        made = self._folder.parent / f"held-{self.held}.db"
        if not made.exists():
            hold(made, self.held, self.clients)
        shutil.copyfile(made, layout.mediator_db)
        layout.mediator_db.chmod(0o600)

    def _configure(self, doc: Any) -> None:
        doc["labels"] = {LABEL: []}
        device = tomlkit.inline_table()
        device.update({"label": LABEL, "kind": "device"})
        clients = tomlkit.table()
        for number in range(self.clients):
            clients.append(name(number), device)
        doc["clients"] = clients
        family = bool(self.variant.mode)
        doc["policy"]["order"] = ["labels", "purposes"] if family else ["labels"]
        doc.setdefault("families", {}).pop("purposes", None)
        if family:
            settings = {"mode": self.variant.mode, "store": self.variant.store}
            # A steward's commands are not counted: all clients reserve as fast as they can.
            stewards = [name(number) for number in range(self.clients)]
            doc["families"]["purposes"] = {**settings, "strict": True, "stewards": stewards}
        else:
            doc.pop("families")

    def _serves(self, layout: Layout) -> bool:
        told = {role: ready.read(layout, role) for role in ("kg", "mediator", "broker")}
        for role, one in told.items():
            if one is None or not one.ready or one.pid is None:
                return False
            self.pids[role] = one.pid
        return True

    def _begin(self, words: list[str]) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is for the bench, which ends them in their order.
        with self._log.open("ab") as log:
            self._main = subprocess.Popen(  # noqa: S603 - our own, and Mosquitto as it was found
                words, stdout=log, stderr=log, start_new_session=True
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

    def memory_mib(self, role: str) -> float:
        """What a process holds, resident."""
        pages = int(Path(f"/proc/{self.pids[role]}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20

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


def hold(path: Path, count: int, clients: int) -> None:
    """A mediator's store with so many reservations; nobody has it open."""
    engine = database.create(path, 2.0)
    insert = str(tables.families.insert().compile(dialect=engine.dialect))
    # In the order of the table's key, which is much faster.
    rows = ((NAME, *record(filt)) for filt in sorted(reservations(count, clients)))
    with engine.begin() as conn:
        # The statement as it is made, the rows by the driver: a tenth of the time.
        while some := list(itertools.islice(rows, _ROWS)):
            conn.exec_driver_sql(insert, some)
    engine.dispose()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[Any], patience_s: float) -> None:
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
