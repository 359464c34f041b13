"""`sealmq log SITE`: what a site did and refused, as text: up's own lines and the audit log."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import OK

if TYPE_CHECKING:
    from sealmq.site.layout import Layout

_EXAMPLES = """\
examples:
  sealmq log factory                       the last 100 lines
  sealmq log factory -f                    and those that come, until Ctrl-C
  sealmq log factory -n all | grep refused
  sealmq log factory --json | jq -r 'select(.event == "publish-refused") | .rule'

One line for each thing that happened, by time (UTC): what `sealmq up` and its processes wrote,
where it runs in the background (--detach), and what key generator and mediator decided:
connections, refusals with rule and reason, keys. What was let through is counted a minute and
stands in SITE/audit (`sealmq report`). What `up` writes under systemd is in its journal:
journalctl -u sealmq@factory.
"""
_DEFAULT = 100
_POLL_S = 0.25
_ALL = 1 << 62
# Counted by the minute, of whatever was let through: too much to read.
_COUNTED = frozenset({"publish-accepted", "delivered"})
_LAST = ("rule", "reason")
_NOT_SHOWN = ("v", "id", "at_ms", "site", "role", "inst", "event", "minute_ms", "line", "mac")


class Row(NamedTuple):
    """One line: when, by whom ("up" or a role), its text, and as JSON."""

    at_ms: int
    who: str
    text: str
    fields: dict[str, Any]


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "log",
        help="what a site did and refused, with the reasons",
        description="Show what a site did and refused, with the reasons.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    parser.add_argument(
        "-n",
        "--lines",
        metavar="N",
        type=_lines,
        default=_DEFAULT,
        help=f"so many of the last lines, or all (default: {_DEFAULT})",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for scripts")


def run(args: argparse.Namespace) -> int:
    """Print, and go on if asked to."""
    from sealmq.audit.events import EVENTS
    from sealmq.audit.reading import Tail
    from sealmq.site.layout import Layout

    layout = Layout.open(args.site)
    events = frozenset(EVENTS) - _COUNTED
    tails = [
        Tail(layout.audit(name), role, events, args.lines)
        for name, role in layout.writers().items()
    ]
    lines = _Lines(layout.up_log)
    _elsewhere(layout)

    def more() -> list[Row]:
        rows = [_of_audit(record) for tail in tails for record in tail.more()]
        return sorted([*rows, *lines.more()], key=lambda row: row.at_ms)

    show = _json if args.json else _text
    rows = more()
    show(rows[max(0, len(rows) - args.lines) :])
    while args.follow:
        time.sleep(_POLL_S)
        show(more())
    return OK


def _lines(word: str) -> int:
    if word == "all":
        return _ALL
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is no number; a number or all is right")
    return int(word)


def _elsewhere(layout: Layout) -> None:
    """Say where the lines of a running `sealmq up` go, if it is not to its own log."""
    from sealmq.run import lock, ready

    if lock.supervisor(layout.up_lock) is None:
        return
    output = (ready.read_json(layout.run / "up.json") or {}).get("output")
    where = {
        "journal": f"systemd's journal: journalctl -u sealmq@{layout.root.name}",
        "terminal": "where it was started",
    }.get(str(output))
    if where is not None:
        text = f"sealmq: what `sealmq up` itself writes goes to {where}; here is the audit log"
        print(text, file=sys.stderr)


def _text(rows: Iterable[Row]) -> None:
    from sealmq.plain import plain
    from sealmq.run.logfile import stamp

    for row in rows:
        print(f"{stamp(row.at_ms / 1000)} {row.who:<9}{plain(row.text)}", flush=True)


def _json(rows: Iterable[Row]) -> None:
    for row in rows:
        print(json.dumps(row.fields), flush=True)


def _of_audit(record: dict[str, Any]) -> Row:
    words = [record["event"]]
    for name, value in record.items():
        if name not in (*_NOT_SHOWN, *_LAST) and value != []:
            shown = ",".join(value) if isinstance(value, list) else value
            words.append(f"{name}={shown}")
    why = ": ".join(str(record[name]) for name in _LAST if record.get(name))
    text = " ".join(words) + (f" {why}" if why else "")
    return Row(int(record["at_ms"]), str(record["role"]), text, record)


class _Lines:
    """SITE/log/up.log, followed over its rotation."""

    def __init__(self, path: Path) -> None:
        from sealmq.run.logfile import OLDER

        self._path, self._older = path, path.with_name(path.name + OLDER)
        self._inode = self._at = -1

    def more(self) -> list[Row]:
        """What is new since the last call."""
        raw = b""
        if self._at < 0:
            raw = self._read(self._older, 0)
            self._at = 0
        found = _stat(self._path)
        if found is None:
            return self._rows(raw)
        if found != self._inode:
            if self._inode >= 0 and _stat(self._older) == self._inode:
                raw += self._read(self._older, self._at)
            self._inode, self._at = found, 0
        new = self._read(self._path, self._at)
        self._at += len(new)
        return self._rows(raw + new)

    # Whole lines alone.
    def _read(self, path: Path, at: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read()
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _rows(self, raw: bytes) -> list[Row]:
        from sealmq.run.logfile import when_ms

        rows = []
        for line in raw.decode(errors="replace").splitlines():
            at, _, text = line.partition(" ")
            at_ms = when_ms(at)
            if at_ms is not None:
                fields = {"at_ms": at_ms, "role": "supervisor", "text": text}
                rows.append(Row(at_ms, "up", text, fields))
            elif rows:  # a traceback's next line
                fields = {**rows[-1].fields, "text": line}
                rows.append(Row(rows[-1].at_ms, "up", line, fields))
        return rows


def _stat(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
