"""The rounds of one run: load, fault, recovery, rest, verdict."""

from __future__ import annotations

import json
import os
import secrets as random_secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import health, inject
from .ledger import Tail
from .place import CLIENTS, GIVE_UP_S, Place
from .schedule import Round
from .verdict import LIVE, SLEEPER, Books, wrong_labels

HERE = Path(__file__).resolve().parents[1]
_POLL_S = 0.02
# Longer than a publish may take before its outcome counts as unknown.
_UNDER_WAY_S = 120.0
# A mediator whose clock steps by more (5 s) ends its connections and takes the new time.
_STEP_S = 6.0
# How much longer than the late reader waits by itself.
_LATE_S = 30.0
# No process of the site ends in these, so a DISCONNECT is surely heard.
_CALM = ("disk-full", "slow-store", "locked-store", "clock-jump", "kill-kg")
PATIENCE_S = 150.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is done. rate: messages a second of each publisher. patience: seconds until what
    has not come counts as lost: a client that was cut off often waits a minute, and perhaps once
    more, before it is back (SPEC.md 7.4). ack_first, lie: defects put in, for the harness's own
    tests.
    """

    broker: str
    rate: float = 20.0
    patience: float = PATIENCE_S
    ack_first: bool = False
    lie: str = ""


@dataclass(slots=True)
class Result:
    """One round. recovery: seconds from the fault's end until a fresh publish was read, or None."""

    round: Round
    recovery: float | None
    tally: dict[str, int]
    wrong: list[str]
    notes: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """For the result file."""
        return {**asdict(self.round), **self.tally, "recovery": self.recovery, "wrong": self.wrong,
                "notes": self.notes}  # fmt: skip


class GaveUp(Exception):
    """The run cannot go on: something did not come back in time."""


class Run:
    """One site and its load."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self._settings = folder, settings
        self.place = Place(folder, settings.broker, settings.lie)
        self.marker = f"plain-{random_secrets.token_hex(8)}"
        readers = (LIVE, SLEEPER) if self.place.keeps else (LIVE,)
        self.books = Books(readers)
        self.leaks = health.Leaks()
        self._tail = Tail(folder / "ledger.jsonl")
        self._load: subprocess.Popen[str] | None = None
        self._broker_lost = False

    # --- begin and end ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Site up, clients connected and subscribed."""
        self.place.start()
        self.place.enrol_all()
        config = self.folder / "load.json"
        told = {
            "host": "127.0.0.1",
            "port": self.place.port,
            "ledger": str(self.folder / "ledger.jsonl"),
            "enrolments": str(self.place.clients),
            "keeps": self.place.keeps,
            "marker": self.marker,
            "ack_first": self._settings.ack_first,
        }
        config.write_text(json.dumps(told))
        with (self.folder / "load.log").open("w") as log:
            self._load = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "faults.clients", str(config)],
                cwd=HERE,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )
        self._wait("the clients to connect", lambda: "begun" in self.books.marks)
        if self.place.keeps:
            # A session that the broker has not saved yet is not what the rounds are about.
            self._settle_broker()

    def _settle_broker(self) -> None:
        folders = (self.place.disk / "broker", self.place.path / "state" / "broker")
        since = time.time()

        def saved() -> bool:
            files = [f for folder in folders for f in folder.glob("**/mosquitto.db")]
            return any(f.stat().st_mtime >= since for f in files)

        self._wait("the broker's first save", saved)

    def end(self) -> list[str]:
        """What is wrong beside single rounds."""
        wrong: list[str] = []
        try:
            wrong += self._final()
        except (GaveUp, AssertionError) as error:
            wrong.append(f"at the end: {error}")
        self.stop()
        files = [self.folder / name for name in ("up.log", "load.log", "mosquitto.log")]
        wrong += health.tracebacks(files)
        written = [f for f in (*files, *self.place.path.glob("audit/*/*")) if f.is_file()]
        wanted = health.secrets(self.place.key, self.place.clients, self.marker)
        return wrong + health.leaked(written, wanted) + self.leaks.grown()

    def _final(self) -> list[str]:
        labels = {name: label for name, label in CLIENTS.items()}
        wrong = wrong_labels(self.books.learned(), labels, self.place.labels())
        # amqtt keeps retained messages in memory and promises no more.
        if self.place.keeps or not self._broker_lost:
            self._tell(do="late", topics=self.books.expected(), within=self._settings.patience)
            self._wait(
                "the late reader",
                lambda: "late-done" in self.books.marks,
                _LATE_S + self._settings.patience,
            )
            wrong += self.books.wrong_retained()
        self.books.take(self._tail.fresh())
        return wrong + self.books.doubled() + self.books.faults

    def stop(self) -> None:
        """End all processes."""
        if self._load is not None:
            with suppress(OSError):
                self._tell(do="end")
            try:
                self._load.wait(30)
            except subprocess.TimeoutExpired:
                self._load.kill()
                self._load.wait()
            if self._load.stdin is not None:
                with suppress(OSError):
                    self._load.stdin.close()
            self._load = None
        self.place.stop()

    # --- rounds ----------------------------------------------------------------------------------

    def rounds(self, plan: Sequence[Round]) -> Iterator[Result]:
        """Plays them one after another."""
        for each in plan:
            yield self._round(each)

    def _round(self, fault: Round) -> Result:
        inject.prepare(self.place, fault)
        self._tell(
            do="round",
            k=fault.number,
            seed=fault.seed,
            rate=self._settings.rate,
            will=fault.will,
            will_at=fault.will_at,
            sleep=fault.sleep,
        )
        time.sleep(fault.at)
        if fault.kind in ("kill-broker", "kill-supervisor", "power-cut"):
            self._broker_lost = True
        before, struck = self.place.shim.shift, time.monotonic()
        notes = inject.strike(self.place, fault)
        since = time.monotonic()
        after = self.place.shim.shift
        steps = abs(after - before) >= _STEP_S
        wrong: list[str] = []
        recovery: float | None = None
        try:
            fresh = since
            if steps:
                self._wait("the reader to come back", lambda: self._back(since))
                fresh = time.monotonic()
            # Until then the mediator may have gone on by its old time, or by the new one already.
            self.books.clock(struck, max(before, after))
            self.books.clock(fresh, after)
            self._wait("a fresh publish to be read", lambda: self._fresh(fresh))
            recovery = (self.books.recovered(fresh) or 0.0) + fresh - since
            self._wait("every process to be back", self.place.ready)
            quiet = f"quiet {fault.number}"
            self._tell(do="quiet", k=fault.number)
            self._wait("what is under way", lambda: quiet in self.books.marks, _UNDER_WAY_S)
            with suppress(GaveUp):
                patience = self._settings.patience
                self._wait("what is owed", lambda: not self.books.missing(), patience)
        except (GaveUp, AssertionError) as error:
            wrong.append(f"gave up: {error}")
        self.books.take(self._tail.fresh())
        tally = dict(self.books.tally())
        wrong += self.books.settle(calm=fault.kind in _CALM)
        self.leaks.look(self.place.pids())
        return Result(fault, recovery, tally, wrong, notes)

    def _back(self, since: float) -> bool:
        up = self.books.up_since.get(LIVE)
        return up is not None and up > since

    def _fresh(self, since: float) -> bool:
        return self.books.recovered(since) is not None

    def _wait(self, what: str, look: Callable[[], object], patience: float = GIVE_UP_S) -> None:
        end = time.monotonic() + patience
        while True:
            self.books.take(self._tail.fresh())
            if look():
                return
            if time.monotonic() > end:
                raise GaveUp(f"waited {patience:.0f} s in vain for {what}")
            if self._load is not None and self._load.poll() is not None:
                raise GaveUp(f"the load has ended: {self._last_words()}")
            time.sleep(_POLL_S)

    def _last_words(self) -> str:
        return (self.folder / "load.log").read_text()[-1500:]

    def _tell(self, **command: object) -> None:
        if self._load is None or self._load.stdin is None:
            raise GaveUp("there is no load")
        self._load.stdin.write(json.dumps(command) + "\n")
        self._load.stdin.flush()
