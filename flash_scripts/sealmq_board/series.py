"""`sealmq board flash --csv|--archive`: many boards, one after the other, at one place.

Which board has which client stands in the record (JSON lines), written before anything gets to the
board: so a run that was cut off goes on where it was, one client is never on two boards, and one
board never two clients.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import errno
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import build, bundle, enrolment, fetch, firmware, private
from .enrolment import Enrolment
from .errors import BoardError, UsageError, words
from .esptool_run import Runner
from .onto_board import Board
from .ports import Port
from .showing import Showing

BEGUN, DONE, FAILED, KNOWN = "begun", "done", "failed", "known"
_LOOK_S = 0.2


class Record:
    """Which client is on which board. `path` is ours alone while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise BoardError(
                f"another run writes {path}", hint="wait until that one ends, or --record FILE"
            ) from None
        self._boards: dict[str, str] = {}
        self._done: set[str] = set()
        with open(os.dup(self._fd), "rb") as file:
            raw = file.read()
        # A line that a kill cut off was not whole before anything got to a board.
        os.ftruncate(self._fd, raw.rfind(b"\n") + 1)
        for number, line in enumerate(raw.split(b"\n")[:-1], 1):
            try:
                row = json.loads(line)
                self._note(str(row["enrolment"]), str(row["mac"]), str(row["outcome"]))
            except (ValueError, KeyError, TypeError):
                os.close(self._fd)
                raise BoardError(
                    f"{path}, line {number}, is no line of such a record",
                    hint="name another one with --record; this one's boards are in no other",
                ) from None

    def close(self) -> None:
        """Others may write it."""
        os.close(self._fd)

    def write(self, who: Enrolment, mac: str, outcome: str) -> None:
        """On disk when this returns. OSError: it is not."""
        key = enrolment.digest(who)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        row = {
            "at": now.replace("+00:00", "Z"),
            "site": who.site,
            "client": who.client,
            "name": who.name,
            # Of which secret: after `sealmq client rotate` the client is free again.
            "enrolment": key,
            "mac": mac,
            "outcome": outcome,
        }
        line = json.dumps(row).encode() + b"\n"
        end = os.fstat(self._fd).st_size
        # On a full disk a part of it may be written, and no error told.
        if os.write(self._fd, line) != len(line):
            os.ftruncate(self._fd, end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        os.fsync(self._fd)
        self._note(key, mac, outcome)

    def _note(self, key: str, mac: str, outcome: str) -> None:
        self._boards[key] = mac
        if outcome == DONE:
            self._done.add(key)

    def done(self, who: Enrolment) -> bool:
        """Whether it is on its board."""
        return not self._done.isdisjoint(enrolment.digests(who))

    def board(self, who: Enrolment) -> str:
        """The board that has, or may have, this secret; empty: none."""
        found = (self._boards.get(each) for each in enrolment.digests(who))
        return next(filter(None, found), "")


def clients(args: argparse.Namespace) -> list[Enrolment]:
    """Whom to bring onto boards, in their order. BoardError, UsageError."""
    names = None if args.csv is None else _names(Path(args.csv))
    if args.archive is not None and args.identity is not None and args.enrolments is None:
        found = enrolment.all_of(args.archive, args.identity, names)
    elif names is not None and args.enrolments and not (args.archive or args.identity):
        folder = Path(args.enrolments)
        found = [enrolment.load(str(folder / f"{name}{enrolment.SUFFIX}")) for name in names]
    else:
        raise UsageError(
            "enrolments come from one place",
            "--csv FILE --enrolments DIR, or --archive FILE --identity FILE (and --csv FILE for "
            "some of it)",
        )
    if not found:
        raise BoardError(f"{args.archive} holds no enrolment")
    seen: dict[tuple[str, int], str] = {}
    for who in found:
        other = seen.setdefault((who.site, who.client), who.name)
        if other is not who.name:
            raise BoardError(f"{who.name} and {other} are the same client {who.client}")
    return found


def _names(path: Path) -> list[str]:
    try:
        # -sig: a spreadsheet may have put a byte order mark in front.
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if "name" not in (reader.fieldnames or ()):
                raise BoardError(
                    f"{path}, line 1: there is no column name",
                    "that of `sealmq client add --from`: name,label",
                )
            names = [row["name"] or "" for row in reader]
    except UnicodeDecodeError as error:
        raise BoardError(f"{path} is not UTF-8: byte {error.start}") from None
    except csv.Error as error:
        raise BoardError(f"{path}: {error}") from None
    for number, name in enumerate(names, 2):
        # It becomes a file's name.
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise BoardError(f"{path}, line {number}: {name!r} is no client's name")
    if not names:
        raise BoardError(f"{path} has no rows", "a line for each client, after name,label")
    return names


def run(args: argparse.Namespace, board: Callable[..., Board], check: Callable[..., Any]) -> int:
    """Bring all onto boards. `board` makes one for a bundle, `check` says what speaks against it.

    The exit code is 1 when a client is on no board at the end.
    """
    port = _place(args)
    wanted = clients(args)
    recipe = build.recipe(args)
    if not args.arch and not recipe.finds:
        build.warn_of_address(recipe.told(wanted[0]))
    record = Record(Path(args.record or f"{args.csv or args.archive}.flashed.jsonl"))
    with contextlib.closing(record), Showing() as showing:
        made = firmware.checked(
            fetch.load(args.firmware, args.sha256, showing.fetched), recipe.chip
        )
        series = _Series(args, wanted, recipe, record)
        there = series.left()
        while series.left():
            series.ask(port)
            plugged = _plugged(port, args.timeout)
            if plugged is None:
                break
            with series.bundle() as take:
                one = board(port, take(None), made, showing)
                runner = Runner()
                try:
                    one.look(runner)
                    who = series.whose(one.mac)
                    if who is not None:
                        one.bundle = take(who)
                        one.error = check(one, args.replace, showing)
                    if who is not None and one.error is None:
                        record.write(who, one.mac, BEGUN)
                        one.bring(runner, keep=False)
                        record.write(who, one.mac, DONE)
                except BoardError as error:  # of this board; others are to come
                    one.error = error
                except BaseException:
                    runner.stop()
                    raise
                series.tell(one)
            if series.left():
                _gone(port, plugged)
    return series.end(there)


class _Series:
    """Whose turn it is, and what is said of it."""

    def __init__(
        self,
        args: argparse.Namespace,
        wanted: list[Enrolment],
        recipe: build.Recipe,
        record: Record,
    ) -> None:
        self._args, self._wanted, self._recipe, self._record = args, wanted, recipe, record

    def left(self) -> list[Enrolment]:
        """Who is on no board yet."""
        return [who for who in self._wanted if not self._record.done(who)]

    def _free(self) -> list[Enrolment]:
        return [who for who in self.left() if not self._record.board(who)]

    def whose(self, mac: str) -> Enrolment | None:
        """Whose board it is to be; None: it is one of these already. BoardError: nobody's."""
        for who in self._wanted:
            if self._record.board(who) == mac:
                return None if self._record.done(who) else who
        free = self._free()
        if not free:
            raise BoardError(
                f"the board {mac} is none of those that were begun ({self._begun()})",
                hint="plug in one of those; if it is no more: `sealmq client rotate`, and again",
            )
        return free[0]

    def _begun(self) -> str:
        rows = [f"{who.name} on {self._record.board(who)}" for who in self.left()]
        return ", ".join(rows[:5]) + (" ..." if len(rows) > 5 else "")

    @contextlib.contextmanager
    def bundle(self) -> Iterator[Callable[[Enrolment | None], bundle.Bundle]]:
        """What makes a bundle, in memory, of this client, or of any to ask a board with."""
        with private.folder(sum(bundle.sizes().values())) as folder:

            def take(who: Enrolment | None) -> bundle.Bundle:
                path = folder / "one.board"
                self._recipe.write(path, who or self.left()[0], replace=True)
                return bundle.read(path)

            yield take

    def ask(self, port: Port) -> None:
        """For the next board."""
        free = self._free()
        next_ = f"the next is {free[0].name}" if free else f"begun: {self._begun()}"
        left = f"{len(self.left())} of {len(self._wanted)} left"
        print(f"sealmq board: plug in a board at {port.name} ({left}; {next_})", file=sys.stderr)

    def tell(self, board: Board) -> None:
        """What became of it."""
        text, hint = words(board.error) if board.error else ("", None)
        known = next((w for w in self._wanted if self._record.board(w) == board.mac), None)
        who = known if board.mac else None
        outcome = FAILED if board.error else DONE if board.done else KNOWN
        if self._args.json:
            row = {
                "board": board.name, "mac": board.mac, "outcome": outcome,
                "client": who.client if who else None, "name": who.name if who else None,
                "error": text, "hint": hint or "", "seconds": round(board.seconds, 1),
                "left": len(self.left()),
            }  # fmt: skip
            print(json.dumps(row), flush=True)
            return
        if board.error:
            print(f"sealmq board: {board.name}: {text}", file=sys.stderr)
            if hint:
                print(f"hint: {hint}", file=sys.stderr)
        elif who is not None:
            told = "is on" if board.done else "is already on"
            took = f" ({board.seconds:.0f} s)" if board.done else "; nothing was written"
            print(
                f"{who.name} (client {who.client}) {told} the board {board.mac}{took}", flush=True
            )

    def end(self, before: list[Enrolment]) -> int:
        """What was done in all; the exit code."""
        left = self.left()
        done = len(self._wanted) - len(left)
        if not self._args.json:
            now = len(before) - len(left)
            print(f"{done} of {len(self._wanted)} clients are on boards, {now} since this began")
        if left:
            print(
                "sealmq board: no board came in time\nhint: run the same command again",
                file=sys.stderr,
            )
        return 1 if left else 0


def _place(args: argparse.Namespace) -> Port:
    if args.bundles:
        raise UsageError("bundles with --csv or --archive", "these have the clients")
    if len(args.boards) != 1 or args.boards[0][0] != "port" or "://" in args.boards[0][1]:
        raise UsageError(
            "no place where boards are plugged in",
            "one --port with a path: of a USB socket, /dev/serial/by-path/...",
            hint="ls -l /dev/serial/by-path, with a board in it",
        )
    return Port(args.boards[0][1], args.boards[0][1])


def _plugged(port: Port, timeout: float | None) -> tuple[int, int, int] | None:
    """What is at that path, once something is; None: nothing came in time."""
    end = None if timeout is None else time.monotonic() + timeout
    while (found := _at(port)) is None:
        if end is not None and time.monotonic() > end:
            return None
        time.sleep(_LOOK_S)
    return found


def _gone(port: Port, plugged: tuple[int, int, int]) -> None:
    print(f"sealmq board: take it off {port.name}", file=sys.stderr)
    while _at(port) == plugged:
        time.sleep(_LOOK_S)


def _at(port: Port) -> tuple[int, int, int] | None:
    try:
        found = os.stat(port.url)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_rdev
