"""`sealmq report`: what the logs of gateway, rig and benches say, as tables, figures and a page."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import java, outputs, progress, told
from .errors import OK, ReportError, hear, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .job import Outcome
    from .outputs import Found, Place
    from .page import Live
    from .progress import Steps

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_LOCAL = "local[*]"
_MEMORY = re.compile(r"[1-9]\d{0,5}[mgMG]")
_EVERY = re.compile(r"([1-9]\d{0,4})([smh]?)")
_EVERY_S = 60
_DAY_S = 86_400

_EXAMPLES = """\
examples:
  sealmq report factory/audit --out report                        the gateway's decisions
  sealmq report factory/audit results build/bench --out report    with the rig's and the benches'
  sealmq report results --out report --json | jq .headline
  sealmq report factory/audit --out report --since 2026-11-01 --until 2026-11-30    a month
  sealmq report factory/audit --out report --since 2026-11-28                       from then on
  sealmq report factory/audit --out wall --watch                    for a screen on the wall
  sealmq report factory/audit --out wall --watch --every 5m --since 2026-11-28
  sealmq report /mnt/logs --out /mnt/report --master spark://big:7077 --driver-memory 4g
  spark-submit --master spark://big:7077 spark/report.py /mnt/logs --out /mnt/report

LOGS are closed segments (.jsonl, .jsonl.gz) and what benches wrote (.json), by the schemas in
shared_spec/; segments that are still being written (.open) are left alone. DIR keeps what was read:
the next report reads only what is new, and a line that comes again counts once, even after kill -9.
Lines that no schema has are counted, with the reason, and lie in DIR/quarantine.

DIR/report.html is the page, DIR/summary.json its figures (shared_spec/report.schema.json),
DIR/tables/NAME Parquet. DIR and all in it are for their owner alone. With another master than
local[...] its workers must see LOGS and DIR under the same paths (a network share) and may write to
DIR; they need nothing of SealMQ.

--since and --until choose what is reported, by the day (UTC) that a line is of, and stand in the
page's head. All of LOGS is read and kept: the next report into DIR may be of other days.

--watch goes on until SIGINT or SIGTERM (exit code 0). It makes DIR/report.html anew every minute:
open it in a browser, where it loads itself anew. When the gateway closes a segment, after five
minutes at most, what is in it is reported in the next round. Killed, it goes on where it was.

Exit code 0: a report. 1: a report, and it has a regression or a nonce that was used twice. 2: no
report (usage, no Java, nothing to read, no space, ...).
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ReportError(message, hint=f"{self.prog} --help")


def _day(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no day such as 2026-11-30") from None


def _every(text: str) -> int:
    """Seconds."""
    found = _EVERY.fullmatch(text)
    seconds = int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
    if not 0 < seconds <= _DAY_S:
        raise argparse.ArgumentTypeError(f"{text} is no time such as 30s, 5m or 1h (24h at most)")
    return seconds


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = _Parser(
        prog="sealmq report",
        description="Read the logs of gateway, rig and benches, and write tables, figures and a "
        "page of them into a folder.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "logs", metavar="LOGS", nargs="+", help="folders (with all below them) and files"
    )
    made.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="the report's folder, made if needed"
    )
    made.add_argument("--json", action="store_true", help="print summary.json, for scripts")
    made.add_argument(
        "--fresh", action="store_true", help="forget what DIR holds and read all of LOGS again"
    )
    for name, which in (("since", "first"), ("until", "last")):
        made.add_argument(
            f"--{name}",
            metavar="DAY",
            type=_day,
            help=f"the {which} day (UTC) that is reported, YYYY-MM-DD; all are read and kept",
        )
    made.add_argument(
        "--watch", action="store_true", help="make the page anew every minute, until it is ended"
    )
    made.add_argument(
        "--every",
        metavar="TIME",
        type=_every,
        help="with --watch: how often, such as 30s, 5m or 1h (default: 60s)",
    )
    made.add_argument(
        "--master",
        metavar="URL",
        help="where Spark computes: local[N] with N cores, or spark://HOST:PORT "
        f"(default: {_LOCAL}, all cores of this machine)",
    )
    made.add_argument(
        "--driver-memory", metavar="SIZE", help="of Java, such as 512m or 4g (default: 1g)"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    log: list[str] = []
    try:
        args = parser().parse_args(arguments)
        code = run(args, log)
        sys.stdout.flush()
        return code
    except SystemExit:  # argparse, after --help
        raise
    except BaseException as error:  # one handler: no traceback ever reaches an operator
        return report(error, log[0] if log else None)


def run(args: argparse.Namespace, log: list[str]) -> int:
    """Make the report and tell of it. log: gets the path of what Java says, once there is one."""
    master = _checked(args)
    java.check()
    java.check_master(master)
    found = outputs.look(args.logs, args.out)
    with outputs.opened(args.out, args.fresh) as place:
        log.append(str(place.log))
        if args.watch:
            return _watched(args, master, place, found)
        with progress.steps() as steps:
            outcome = _made(args, master, place, steps)
        size = f"{found.files} files, {found.size / 1e6:.1f} MB"
        if args.json:
            print(json.dumps(outcome, indent=2))
        else:
            for line in told.lines(outcome, args.out, size):
                print(line)
        return int(outcome["exit"])


def _checked(args: argparse.Namespace) -> str | None:
    """The master. ReportError."""
    if args.since and args.until and args.since > args.until:
        raise ReportError(f"--since {args.since} is after --until {args.until}")
    if args.driver_memory is not None and not _MEMORY.fullmatch(args.driver_memory):
        raise ReportError(f"--driver-memory {args.driver_memory}", "a size such as 512m or 4g")
    if args.every and not args.watch:
        raise ReportError("--every is of --watch", hint="sealmq report LOGS --out DIR --watch")
    if args.watch and args.json:
        raise ReportError("--json is of one report", "with --watch DIR/summary.json has it")
    if _SUBMITTED not in os.environ:
        return args.master or _LOCAL
    for name in ("master", "driver_memory"):
        if getattr(args, name) is not None:
            word = "--" + name.replace("_", "-")
            raise ReportError(f"{word} is spark-submit's here", "before report.py, not behind it")
    return None


def _made(
    args: argparse.Namespace, master: str | None, place: Place, steps: Steps
) -> dict[str, Any]:
    from . import job
    from .tables import Days

    with _spark(args, master, place, steps) as spark:
        days = Days(args.since, args.until)
        return job.run(spark, args.logs, args.out, steps, days).summary


def _watched(args: argparse.Namespace, master: str | None, place: Place, found: Found) -> int:
    """Report after report, until a signal ends it: the exit code."""
    from . import job
    from .tables import Days
    from .watch import ended_by_signals, watch

    days = Days(args.since, args.until)
    every = args.every or _EVERY_S
    say = partial(print, flush=True)
    say(f"watching {found.files} files, {found.size / 1e6:.1f} MB; {args.out / outputs.PAGE}")
    try:
        with (
            ended_by_signals() as take,
            _spark(args, master, place, progress.Steps()) as spark,
        ):
            take()

            def again(live: Live) -> Outcome:
                return job.run(spark, args.logs, args.out, None, days, live)

            watch(again, args.logs, place, every, say=say)
    except KeyboardInterrupt:  # before there was anything to watch
        pass
    return OK


@contextmanager
def _spark(
    args: argparse.Namespace, master: str | None, place: Place, steps: Steps
) -> Iterator[SparkSession]:
    """Spark and its Java, which has ended when this returns."""
    from . import job
    from .classes import Archive
    from .session import end, session

    # Where Java was started before us, its options were spark-submit's.
    classes = None if _SUBMITTED in os.environ else Archive(java.found())
    # PySpark logs each error on stderr with all of Java's stack; `report` has a line for it.
    if os.environ.get("SEALMQ_DEBUG") != "1":
        logging.disable(logging.CRITICAL)
    with steps.step("start"):
        spark = session(
            master,
            "sealmq report",
            place.scratch,
            memory=args.driver_memory,
            small=job.small(args.logs, place.out, master),
            log=place.log,
            held=(place.lock,),
            classes=classes.option() if classes else "",
        )
        java.wait_for_workers(spark)
    try:
        yield spark
    except BaseException as error:
        hear(error)
        raise
    finally:
        # Whatever is wrong with it now is not what the operator should read.
        with suppress(Exception):
            code = end(spark)
            if classes is not None:
                classes.keep(code)
