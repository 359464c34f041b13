"""`python -m faults`: a site, its clients, and what can happen to a machine."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from rich.console import Console
from rich.progress import Progress

from .place import BROKERS
from .report import table
from .runner import PATIENCE_S, Result, Run, Settings
from .schedule import KINDS, draw

_EXAMPLES = """\
examples:
  python -m faults --rounds 50 --broker mosquitto
  python -m faults --seed 4711 --rounds 50 --broker mosquitto      the same schedule again
  python -m faults --faults kill-mediator,power-cut --full

The last line of output is `ok`, or names the seed and the folder that is kept: logs, ledger, site.
Exit code 0: every promise was kept. 1: one was not. 2: usage.
"""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m faults",
        description="Faults under load: nothing acknowledged may be lost, doubled or relabelled.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=20, help="how many (default: %(default)s)")
    parser.add_argument("--broker", choices=BROKERS, default="embedded")
    parser.add_argument("--seed", type=int, help="replays this schedule (default: a fresh one)")
    parser.add_argument(
        "--faults", default=",".join(KINDS), help=f"of these, comma-separated: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--full", action="store_true", help="faults and sleeps last longer, up to a minute"
    )
    parser.add_argument("--results", type=Path, help="JSON lines go here too")
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    parser.add_argument(
        "--rate", type=float, default=20.0, help="messages a second, of each of three publishers"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_S,
        help="seconds until what is owed and has not come counts as lost (default: %(default)s)",
    )
    # Defects put in, so that tests can see the verdict red.
    parser.add_argument("--ack-first", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--lie", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    args.kinds = tuple(args.faults.split(","))
    unknown = set(args.kinds) - set(KINDS)
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least 1")
    if args.results is not None and (args.results.is_dir() or not args.results.parent.is_dir()):
        parser.error(f"--results {args.results}: a file in a folder that there is")
    if args.seed is None:
        args.seed = secrets.randbelow(1 << 31)
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every promise was kept."""
    args = parse(arguments)
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    console.print(f"seed {args.seed}")
    plan = draw(args.seed, args.rounds, args.kinds, full=args.full)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    results: list[Result] = []
    wrong: list[str] = []
    run = Run(folder, Settings(args.broker, args.rate, args.patience, args.ack_first, args.lie))
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("rounds", total=len(plan))
        try:
            run.begin()
            for result in run.rounds(plan):
                results.append(result)
                _write(folder / "results.jsonl", result)
                if args.results is not None:
                    _write(args.results, result)
                for text in result.wrong:
                    console.print(f"round {result.round.number} {result.round.kind}: {text}")
                progress.advance(bar)
                if any(text.startswith("gave up") for text in result.wrong):
                    break
            wrong = run.end()
        finally:
            run.stop()
    for text in wrong:
        console.print(text)
    console.print(table(results))
    failed = bool(wrong) or any(result.wrong for result in results) or len(results) < len(plan)
    if failed or args.keep:
        console.print(f"seed {args.seed}; kept: {folder}")
    else:
        shutil.rmtree(folder)
    console.print("FAILED" if failed else "ok")
    return int(failed)


def _write(path: Path, result: Result) -> None:
    with path.open("a") as file:
        file.write(json.dumps(result.row()) + "\n")


if __name__ == "__main__":
    sys.exit(main())
