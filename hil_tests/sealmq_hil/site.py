"""A real site for the rig: `sealmq init` and `sealmq up`, a broker, readers, and the taps.

Every board has a label of its own, so that rekeying one leaves the others alone. Above all of them
is the rig's reader; below them a bystander, who may read none. The site is closed, as `sealmq init`
makes one; what a policy family needs, so that the rig reads, its `rig.toml` says.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .broker import Mosquitto, free_port
from .errors import Failed, RigError
from .families import FAMILIES, Table
from .nonces import Book
from .path import Path as BoardPath
from .processes import commands, last_words, ordered, run, sealmq, until
from .reader import Reader
from .tap import Envelopes, Tap, identity

MOSQUITTO, EMBEDDED = "mosquitto", "embedded"
BROKERS = (MOSQUITTO, EMBEDDED)
ABOVE, BELOW = "rig-reader", "bystander"
LIMITS = "rig/bystander"
_UP_S = 120.0


def topic_of(board: str) -> str:
    """Where a board publishes."""
    return f"rig/{board}/reading"


class Site:
    """One site for all boards of a run. `host`: this machine as boards see it."""

    def __init__(
        self, folder: Path, boards: Sequence[str], broker: str = MOSQUITTO, host: str = "127.0.0.1"
    ) -> None:
        self.folder, self._boards, self._host = folder, list(boards), host
        self.path, self._key = folder / "site", folder / "site.key"
        self.book = Book()
        self.port = free_port()
        self.mosquitto = Mosquitto(folder / "broker") if broker == MOSQUITTO else None
        self._up: subprocess.Popen[bytes] | None = None
        self._tap: Tap | None = None
        self._commands = threading.Lock()
        self.envelopes: Envelopes | None = None
        self.paths: dict[str, BoardPath] = {}
        self.clients: dict[str, int] = {}
        # Boards by their numbers.
        self.numbers: dict[int, str] = {}
        self.above: Reader
        self.below: Reader
        # Of policy families, by their names.
        self.others: dict[str, Reader] = {}
        self._families = list(FAMILIES.values())

    # --- begin and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Everything runs, and the readers listen."""
        self._policy()
        lines: list[list[str | Path]] = []
        more = [family.reader for family in self._families if family.reader is not None]
        names = (*self._boards, ABOVE, BELOW, *(reader.name for reader in more))
        for name in names:
            (self.folder / name).mkdir(mode=0o700)
            lines.append(self._add(name))
        ordered(commands(*lines), timeout=300)
        self._write(*(table for family in self._families for table in family.named))
        if self.mosquitto is not None:
            self.mosquitto.start()
        self.up()
        for name in self._boards:
            # Real boards come from other machines; the gateway itself stays on the loopback.
            listen = "127.0.0.1" if self._host == "127.0.0.1" else "0.0.0.0"  # noqa: S104
            self.paths[name] = BoardPath(self.book, ("127.0.0.1", self.port), listen)
        for name in names:
            told = json.loads(self._file(name).read_text())
            self.clients[name] = int(told["client"])
            self.book.site, self.book.mediator = told["site"], int(told["mediator"]["number"])
        self.numbers.update((self.clients[name], name) for name in self._boards)
        self.above = Reader(self._file(ABOVE), ["rig/#"])
        self.below = Reader(self._file(BELOW), ["rig/#"])
        for one in more:
            self.others[one.name] = Reader(self._file(one.name), one.filters, one.words)
        for reader in (self.above, self.below, *self.others.values()):
            reader.start()
        if self.mosquitto is not None:
            ident = identity(self.above.enrolment, self.above.state)
            self.envelopes = Envelopes(self.book, ident)
            self._tap = Tap(self.mosquitto.port, self.envelopes.came)
            until("the tap to listen", self._tap.listening)

    def _policy(self) -> None:
        words: list[str | Path] = ["init", self.path, "--key-file", self._key]
        ordered(sealmq(*words, "--listen", f"127.0.0.1:{self.port}"), timeout=120)
        boards = ", ".join(f'"{name}"' for name in self._boards)
        labels = [f'"{name}" = ["{BELOW}"]' for name in self._boards]
        topics = [f'"{topic_of(name)}" = "{name}"' for name in self._boards]
        self._write(
            ("labels", [f"{BELOW} = []", *labels, f"{ABOVE} = [{boards}]"]),
            ("topics", [*topics, f'"{LIMITS}" = "{BELOW}"']),
            *(table for family in self._families for table in family.tables),
        )
        self._judge()

    def _judge(self) -> None:
        """All families judge that have something to say to the rig, after those of a new site."""
        toml = self.path / "sealmq.toml"
        text = toml.read_text()
        found = re.search(r"^order = \[(.*)\]$", text, re.MULTILINE)
        if found is None:
            raise RigError("sealmq init wrote no [policy] order")
        order = json.loads(f"[{found[1]}]")
        order += [family.name for family in self._families if family.name not in order]
        text = text.replace(found[0], f"order = {json.dumps(order)}")
        toml.write_text(text + "".join(family.append for family in self._families))

    def _write(self, *tables: Table) -> None:
        toml = self.path / "sealmq.toml"
        text = toml.read_text()
        for table, lines in tables:
            head = f"\n[{table}]\n"
            if text.count(head) != 1:
                raise RigError(f"sealmq init wrote no table [{table}] to add to")
            text = text.replace(head, head + "\n".join(lines) + "\n")
        toml.write_text(text)

    def _file(self, name: str) -> Path:
        return self.folder / name / "sealmq.json"

    def _add(self, name: str) -> list[str | Path]:
        kind = "device" if name in self._boards else "app"
        label = name if kind == "device" or name in (ABOVE, BELOW) else ABOVE
        words: list[str | Path] = ["client", "add", self.path, name, "--label", label]
        return [*words, "--kind", kind, "-o", self._file(name)]

    def up(self) -> None:
        """`sealmq up`, until it says that the site is up."""
        words: list[str | Path] = ["up", self.path]
        if self.mosquitto is not None:
            words += ["--broker", self.mosquitto.url]
        log = self.folder / "up.log"
        begun = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self._up = subprocess.Popen(  # noqa: S603 - our own words
                sealmq(*words), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        process = self._up

        def ready() -> bool:
            text = log.read_bytes()[begun:].decode(errors="replace")
            if process.poll() is not None:
                raise RigError(f"`sealmq up` ended: {' / '.join(text.splitlines()[-4:])}")
            return "\nsite " in f"\n{text}" and " is up\n" in text

        until("the site to be up", ready, _UP_S)

    def stop(self) -> None:
        """Ends all processes; what the taps saw stays."""
        own = (getattr(self, name, None) for name in ("above", "below"))
        for reader in (*filter(None, own), *self.others.values()):
            reader.close()
        for path in self.paths.values():
            path.close()
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGTERM)
            try:
                self._up.wait(_UP_S)
            except subprocess.TimeoutExpired:
                self._up.kill()
                self._up.wait()
        if self._tap is not None:
            self._tap.close()
        if self.envelopes is not None:
            self.envelopes.end()
        if self.mosquitto is not None:
            self.mosquitto.stop()

    # --- what an operator does -------------------------------------------------------------------

    def command(self, *words: str | Path) -> str:
        """`sealmq …`, which has to succeed. One at a time: some edit the same file."""
        with self._commands:
            return ordered(sealmq(*words), timeout=300)

    def rekey(self) -> None:
        """New epochs for the labels of all boards; the old ones are over at once."""
        words = [word for name in self._boards for word in ("--label", name)]
        self.command("rekey", self.path, *words, "--handover", "0")

    def enrolment(self, board: str) -> Path:
        """A board's enrolment file, whose mediator is the tap on this board's path."""
        return self._through(board, self._file(board))

    def clients_all(self, what: str) -> None:
        """`sealmq client disable`, `enable` or `rotate` for all boards, in one process."""
        lines: list[list[str | Path]] = []
        for name in self._boards:
            lines.append(["client", what, self.path, name])
            if what == "rotate":
                self._file(name).unlink(missing_ok=True)
                lines[-1] += ["-o", self._file(name)]
        with self._commands:
            ordered(commands(*lines), timeout=300)

    def _through(self, board: str, file: Path) -> Path:
        told: dict[str, Any] = json.loads(file.read_text())
        told["mediator"]["host"], told["mediator"]["port"] = self._host, self.paths[board].port
        through = file.with_name("board.sealmq.json")
        through.unlink(missing_ok=True)
        fd = os.open(through, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as f:
            json.dump(told, f)
        return through

    # --- what happens to it ----------------------------------------------------------------------

    def pid(self, role: str) -> int:
        """The process of a role. Failed: there is none."""
        done = run(sealmq("status", self.path, "--json"), timeout=120)
        try:
            rows = json.loads(done.stdout)["processes"]
        except (ValueError, KeyError):
            raise Failed(f"sealmq status: {last_words(done)}") from None
        found = next((int(p["pid"] or 0) for p in rows if p["role"] == role), 0)
        if not found:  # a signal to 0 would be one to ourselves
            raise Failed(f"the site has no {role} that runs")
        return found

    def kill_mediator(self) -> None:
        """SIGKILL; the supervisor starts it again."""
        os.kill(self.pid("mediator"), signal.SIGKILL)
        self.mediator_back()

    def mediator_back(self) -> None:
        """Until it takes connections."""
        until("the mediator to listen", self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def lose_broker(self, away_s: float) -> None:
        """SIGKILL, and so many seconds without it (the embedded one's supervisor decides)."""
        if self.mosquitto is None:
            os.kill(self.pid("broker"), signal.SIGKILL)
            return
        self.mosquitto.kill()
        time.sleep(away_s)
        self.mosquitto.start()

    def audit(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """Audit records so far, closed segments and open ones."""
        rows = []
        for file in sorted(self.path.glob("audit/*/*.jsonl*")):
            for line in file.read_text(errors="replace").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # the line that is being written
                if row.get("event") == event and all(row.get(k) == v for k, v in fields.items()):
                    rows.append(row)
        return rows
