"""`sealmq bench blinded`: what blinded policies cost."""

from __future__ import annotations

import argparse
from typing import Any

about = "what matching of blinded policies costs, what filters give away, and the paper's runs"
first = ("--allow-misses",)
closer = ("--part", "matching", "--part", "encoding", "--allow-misses")
_EXAMPLES = """\
examples:
  sealmq bench blinded
  sealmq bench blinded --quick                  tiny numbers: does it work here?
  sealmq bench blinded --part runs --runs 100
  sealmq bench blinded --json | jq '.rows[] | select(.measure == "rules_uncached")'

The parts: matching (comparisons, 64 rules, an answer that is known and one that is not), many
(500,000 subscriptions for one message), encoding, leakage, large (10,000 customers at the key
generator), and runs: the paper's, from 1 KB to 1 MB and from 1 to 64 rules, for which sites and a
Mosquitto are started in a temporary folder. All of it is written to build/bench/blinded.json as
well. It ends with 3 if a bar is missed.
"""


def add(kinds: argparse._SubParsersAction[Any]) -> None:
    """sealmq bench blinded"""
    parser = kinds.add_parser(
        "blinded",
        help="blinded policies: matching, encoding, leakage, the paper's runs",
        description="Measure what matching of blinded policies costs a mediator and encoding the "
        "key generator, what filters give away, and latencies as the paper has measured its own.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    parser.add_argument("--quick", action="store_true", help="tiny numbers, some seconds")
    parser.add_argument("--allow-misses", action="store_true", help="end with 0 all the same")
    parser.add_argument(
        "--part", action="append", default=[], help="only this part; again for another"
    )
    parser.add_argument(
        "--runs", metavar="N", type=int, help="messages of each case of the runs (default: 1000)"
    )
    parser.add_argument("--out", metavar="FILE", help="write the rows into this file as well")
