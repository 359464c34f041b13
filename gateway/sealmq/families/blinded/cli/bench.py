"""`sealmq bench blinded`: what matching of blinded policies costs."""

from __future__ import annotations

import argparse
from typing import Any

about = "what matching of blinded policies costs, and what filters give away"
first = ("--allow-misses",)
closer = ("--allow-misses", "--closer")
_EXAMPLES = """\
examples:
  sealmq bench blinded
  sealmq bench blinded --quick                  tiny numbers: does it work here?
  sealmq bench blinded --json | jq '.rows[] | select(.measure == "rules_uncached")'

Matching alone, without sockets and crypto: comparisons, 64 rules, an answer that is known and one
that is not, 500,000 subscriptions for one message, what encoding costs, a customer's bytes, and the
leakage of both encodings. All of it is written to build/bench/blinded.json as well. It ends with 3
if a bar is missed.
"""


def add(kinds: argparse._SubParsersAction[Any]) -> None:
    """sealmq bench blinded"""
    parser = kinds.add_parser(
        "blinded",
        help="blinded policies: matching, encoding, leakage",
        description="Measure what matching of blinded policies costs a mediator and encoding the "
        "key generator, and what filters give away.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    parser.add_argument("--quick", action="store_true", help="tiny numbers, some seconds")
    parser.add_argument("--allow-misses", action="store_true", help="end with 0 all the same")
    parser.add_argument("--out", metavar="FILE", help="write the rows into this file as well")
