"""What a message costs the whole gateway, beside brokers alone: real processes, 250 clients, 64 B,
three readers a message, everything in turns and in pairs; medians with their intervals.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench_command import Command, words_of
from bench_print import Row
from gateway_parts import GROUPS, PARTS, QUICK, GatewaySizes, Group, Part
from gateway_table import Missing, missed, table
from gateway_variants import NATS, VARIANTS
from load_brokers import find_nats
from load_cpu import LoadError
from load_rounds import Progress, running

_EXAMPLES = """\
examples:
  gateway_bench.py                                      everything, into build/bench/gateway.json
  gateway_bench.py --quick                              small numbers: does it work here?
  gateway_bench.py --part qos0 --variant mosquitto-tls --variant sealmq-labels --pairs 4
"""
COMMAND = Command(
    "gateway",
    "gateway_bench.py",
    __doc__ or "",
    _EXAMPLES,
    only={"part": [part.name for part in PARTS], "variant": list(VARIANTS)},
    counts={
        "pairs": f"rounds that count (default: {GatewaySizes.pairs})",
        "clients": f"how many clients (default: {GatewaySizes.clients})",
        "idle": f"how many that connect and are idle (default: {GatewaySizes.many})",
    },
    barred=True,
)


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
            self.missing.append(Missing(NATS, words_of(error), barred=False))

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
                self.missing.append(Missing(", ".join(p.name for p, _ in parts), words_of(error)))
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
                    self.missing.append(Missing(part.name, words_of(error), barred=False))
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
    given = COMMAND.read(argv)
    # What we start inherits it: each client is an open file, in a mediator two.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    plan = Plan(given)
    return COMMAND.end(
        given,
        lambda: run(plan),
        lambda rows: table(rows, plan.missing),
        lambda rows: missed(rows, plan.missing),
    )


if __name__ == "__main__":
    sys.exit(main())
