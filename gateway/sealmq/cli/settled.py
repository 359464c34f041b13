"""Whether what a command has changed counts everywhere: who puts a client out must not be told
"done" while a mediator still serves it.

Each mediator tells the key generator which keys and which policy it goes by. One that is connected,
or whose process lives, and that has not told is one of which nothing is known. One whose process
is gone delivers nothing, and starts with what was changed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

from sealmq.kglink import KgClient, KgError
from sealmq.run import proc, ready
from sealmq.site.layout import Layout

from .errors import NOT_KNOWN, OperatorError, UsageError

__all__ = ["CODES", "NOT_KNOWN", "Settled", "add_wait", "check", "settle", "wait_s"]

WAIT_S = 10.0
_POLL_S = 0.02
# Shorter than this, nobody needs to hear that it goes on.
_SILENT_S = 1.0
CODES = """\
exit codes: 0 it counts: each mediator that runs has confirmed it, or none runs; 1 refused, nothing
was changed but what it names; 2 wrong usage; 27 it is done, but a mediator that runs has not
confirmed it in time: whether it counts there is not known yet
"""


@dataclass(frozen=True, slots=True)
class Settled:
    """Mediators that go by it, and those of which that is not known: number (0: unknown) and pid.

    ok: there is none of the latter.
    """

    confirmed: list[dict[str, int]]
    unconfirmed: list[dict[str, int]]

    @property
    def ok(self) -> bool:
        return not self.unconfirmed

    def to_json(self) -> dict[str, Any]:
        """What --json says of it."""
        return {
            "known": self.ok,
            "confirmed": self.confirmed,
            "unconfirmed": self.unconfirmed,
        }


def add_wait(parser: argparse.ArgumentParser) -> None:
    """-W: how long mediators are waited for."""
    parser.add_argument(
        "-W",
        "--timeout",
        metavar="SECONDS",
        default=f"{WAIT_S:g}",
        help="wait so long until all mediators have confirmed it (default: %(default)s)",
    )


def wait_s(args: argparse.Namespace) -> float:
    """What -W says; UsageError, before anything is changed."""
    try:
        seconds = float(args.timeout)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise UsageError(f"--timeout {args.timeout}", "it is 0 to 3600 seconds")
    return seconds


def settle(layout: Layout, seconds: float, kseq: int, policy: str = "") -> Settled:
    """Wait until every mediator goes by the keys of `kseq`, and by that policy if one is given."""
    return asyncio.run(_settle(layout, seconds, kseq, policy))


async def _settle(layout: Layout, seconds: float, kseq: int, policy: str) -> Settled:
    begun = time.monotonic()
    told = False
    kg: KgClient | None = None
    try:
        while True:
            kg, rows = await _asked(layout, kg)
            found = _sorted(layout, rows, kseq, policy)
            passed = time.monotonic() - begun
            if found.ok or passed >= seconds:
                return found
            if passed > _SILENT_S and not told and sys.stderr.isatty():
                told = True
                print(f"waiting for {_names(found.unconfirmed)} to confirm it", file=sys.stderr)
            await asyncio.sleep(_POLL_S)
    finally:
        if kg is not None:
            await kg.close()


async def _asked(
    layout: Layout, kg: KgClient | None
) -> tuple[KgClient | None, list[dict[str, Any]]]:
    """The mediators that are connected; nobody while the key generator is away."""
    try:
        if kg is None or kg.lost:
            kg = await KgClient.connect(layout.kg_socket)
        return kg, await kg.mediators()
    except KgError:
        return kg, []


def _sorted(layout: Layout, rows: list[dict[str, Any]], kseq: int, policy: str) -> Settled:
    done: list[dict[str, int]] = []
    left: list[dict[str, int]] = []
    for row in rows:
        goes = row["kseq"] >= kseq and policy in ("", row["policy"])
        (done if goes else left).append({"mediator": row["mediator"], "pid": row["pid"]})
    known = {row["pid"] for row in rows}
    left += [{"mediator": 0, "pid": pid} for pid in _living(layout) if pid not in known]
    return Settled(done, left)


# Those that `sealmq up` has started and that live: one that was stopped for long is connected no
# more, and goes on with what it knew when it is woken.
def _living(layout: Layout) -> list[int]:
    up = ready.read_json(layout.run / "up.json") or {}
    told = up.get("processes")
    row = told.get("mediator") if isinstance(told, dict) else None
    if not isinstance(row, dict) or type(row.get("pid")) is not int:
        return []
    start = proc.start_of(row["pid"])
    return [row["pid"]] if start is not None and start == row.get("start") else []


def check(found: Settled, what: str, again: str) -> None:
    """OperatorError, with the exit code for it, unless it counts everywhere.

    what: what is done and may not count yet. again: the command that asks again.
    """
    if found.ok:
        return
    pid = found.unconfirmed[0]["pid"]
    raise OperatorError(
        f"{what}, but {_names(found.unconfirmed)} has not confirmed it: whether it counts there "
        "is not known yet",
        hint=f"ask again: {again}; if that process hangs: kill -9 {pid}, `sealmq up` starts "
        "another one",
        code=NOT_KNOWN,
    )


def _names(rows: list[dict[str, int]]) -> str:
    return ", ".join(
        (f"mediator {row['mediator']}" if row["mediator"] else "a mediator")
        + f" (process {row['pid']})"
        for row in rows
    )
