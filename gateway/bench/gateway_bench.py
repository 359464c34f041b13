"""What a message costs the whole gateway, beside brokers alone: real processes, 250 clients, 64 B,
three readers a message, everything in turns and in pairs; medians with their intervals.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench_print import Row, count, text_of
from gateway_parts import GROUPS, PARTS, QUICK, GatewaySizes, Group, Part
from gateway_table import Missing, missed, table
from gateway_variants import NATS, VARIANTS
from load_brokers import find_nats
from load_cpu import LoadError
from load_rounds import Progress, running

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench" / "gateway.json"
MISSED = 3  # the exit status when a bar is missed

_EXAMPLES = """\
examples:
  gateway_bench.py                                      everything, into build/bench/gateway.json
  gateway_bench.py --quick                              small numbers: does it work here?
  gateway_bench.py --part qos0 --variant mosquitto-tls --variant sealmq-labels --pairs 4
"""


class Plan:
    """What is to be done; `run` does it."""

    def __init__(self, given: argparse.Namespace) -> None:
        sizes = QUICK if given.quick else GatewaySizes()
        self.sizes = replace(
            sizes,
            pairs=given.pairs or sizes.pairs,
            clients=given.clients or sizes.clients,
            many=given.idle or sizes.many,
        )
        self.chosen = tuple(given.part or ()) or tuple(part.name for part in PARTS)
        # All of it: what cannot be measured here is left out, and said.
        self.all = not given.part
        self.variants = tuple(given.variant or ())
        self.missing: list[Missing] = []
        if not self.variants:
            self.variants = tuple(VARIANTS)
            self._without_nats()

    def parts(self, group: Group) -> list[tuple[Part, list[str]]]:
        """Those of the group that were asked for, and the variants of each."""
        return [
            (part, named)
            for part in group.parts
            if part.name in self.chosen
            if (named := [name for name in part.variants if name in self.variants])
        ]

    # A column beside, no bar: who did not ask for it by name does without.
    def _without_nats(self) -> None:
        try:
            find_nats()
        except LoadError as error:
            self.variants = tuple(name for name in VARIANTS if name != NATS)
            self.missing.append(Missing(NATS, _words(error), barred=False))

    def run(self) -> list[Row]:
        """The rows. LoadError: it cannot be measured."""
        made: list[Row] = []
        groups = [(group, self.parts(group)) for group in GROUPS]
        if not any(parts for _, parts in groups):
            raise LoadError("none of these parts has any of these variants", "gateway_bench.py -h")
        steps = [
            len(names) * (part.pairs(self.sizes) + 1) + (at == 0) * len(_variants(parts))
            for _, parts in groups
            for at, (part, names) in enumerate(parts)
        ]
        progress = Progress(sum(steps))
        clock = _Clock(self.sizes.minutes * 60, [part for _, of in groups for part, _ in of])
        for group, parts in groups:
            if not parts:
                continue
            try:
                made += self._group(group, parts, progress.done, clock)
            except LoadError as error:
                if not (self.all and group.optional):
                    raise
                self.missing.append(Missing(", ".join(p.name for p, _ in parts), _words(error)))
        return made

    def _group(
        self,
        group: Group,
        parts: Sequence[tuple[Part, list[str]]],
        progress: Callable[[str], None],
        clock: _Clock,
    ) -> list[Row]:
        made: list[Row] = []
        wanted = [(VARIANTS[name], group.held(self.sizes)) for name in _variants(parts)]
        with running(wanted, group.clients(self.sizes), self.sizes.size, progress) as scenes:
            for part, names in parts:
                mine = [scene for scene in scenes if scene.variant.name in names]

                def said(what: str, part: Part = part) -> None:
                    progress(f"{part.name}, {what}")

                try:
                    made += part.measure(mine, self.sizes, clock.end(part), said)
                except LoadError as error:
                    if not (self.all and part.optional):
                        raise
                    self.missing.append(Missing(part.name, _words(error), barred=False))
        return made


class _Clock:
    """When each part shall be over: its share of the time, the last ones included."""

    def __init__(self, seconds: float, parts: Sequence[Part]) -> None:
        self._end = time.monotonic() + seconds
        self._left = [part.share for part in parts]

    def end(self, part: Part) -> float:
        """Of the next part, by monotonic()."""
        now = time.monotonic()
        mine = part.share / sum(self._left) * max(0.0, self._end - now)
        self._left.remove(part.share)
        return now + mine


def _variants(parts: Sequence[tuple[Part, list[str]]]) -> list[str]:
    named = {name for _, names in parts for name in names}
    return [name for name in VARIANTS if name in named]


def main(
    argv: Sequence[str] | None = None, run: Callable[[Plan], list[Row]] = lambda plan: plan.run()
) -> int:
    """Command line entry."""
    given = _parser().parse_args(argv)
    # What we start inherits it: each client is an open file, in a mediator two.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = given.out
    if out is None and not (given.part or given.variant or given.quick):
        out = OUT
    plan = Plan(given)
    try:
        rows = run(plan)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(text_of(rows), encoding="utf-8")
    except (LoadError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"bench_gateway: {_words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench_gateway: interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    print(json.dumps({"rows": rows}) if given.json else table(rows, plan.missing))
    misses = missed(rows, plan.missing)
    for line in misses:
        print(f"bench_gateway: missed: {line}", file=sys.stderr)
    return MISSED if misses and not given.allow_misses else 0


def _words(error: Exception) -> str:
    hint = getattr(error, "hint", "")
    return f"{error} (hint: {hint})" if hint else str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gateway_bench.py",
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, words, choices in (
        ("part", "only this part", [part.name for part in PARTS]),
        ("variant", "only this variant", list(VARIANTS)),
    ):
        parser.add_argument(
            f"--{name}",
            action="append",
            choices=choices,
            metavar=name.upper(),
            help=f"{words}; again for another: {', '.join(choices)}",
        )
    for name, words in (
        ("pairs", f"rounds that count (default: {GatewaySizes.pairs})"),
        ("clients", f"how many clients (default: {GatewaySizes.clients})"),
        ("idle", f"how many that connect and are idle (default: {GatewaySizes.many})"),
    ):
        parser.add_argument(f"--{name}", type=count, metavar="N", help=words)
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    default = f"{OUT.relative_to(ROOT)} when all is measured"
    parser.add_argument("--out", type=Path, help=f"write the rows there as well; {default}")
    parser.add_argument(
        "--allow-misses",
        action="store_true",
        help=f"end with 0, not {MISSED}, when a bar is missed",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
