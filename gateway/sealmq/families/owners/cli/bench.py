"""`sealmq bench owners`: what owner policies cost, and how soon what somebody says counts."""

from __future__ import annotations

import argparse
from typing import Any

about = "what owner policies cost, and how soon a retraction counts"
first = ("--allow-misses", "--pairs", "6")
closer = ("--variant", "labels", "--variant", "owners", "--pairs", "16", "--allow-misses")
_EXAMPLES = """\
examples:
  sealmq bench owners
  sealmq bench owners --quick                   tiny numbers: does it work here?
  sealmq bench owners --json | jq '.rows[] | select(.measure == "cpu_message_to_labels")'
  sealmq bench owners --variant labels --variant owners --pairs 16

The variants: labels (without the family), owners, owners-sealed (types with sealed attributes),
owners-matching-set (each reader's copy is sealed to its link). Real sites are started in a
temporary folder, each with its own Mosquitto and a load generator, and end with the bench. All of
it is written to build/bench/owners.json as well. It ends with 3 if a bar is missed.
"""


def add(kinds: argparse._SubParsersAction[Any]) -> None:
    """sealmq bench owners"""
    parser = kinds.add_parser(
        "owners",
        help="owner policies: messages, decisions, how soon a retraction counts",
        description="Measure what owner policies cost, beside the same site without them: CPU a "
        "message, decisions by assertions, memory, and the time from a retraction to the last "
        "delivery.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    parser.add_argument("--quick", action="store_true", help="tiny numbers, some seconds")
    parser.add_argument("--allow-misses", action="store_true", help="end with 0 all the same")
    parser.add_argument(
        "--variant", action="append", default=[], help="only this variant; again for another"
    )
    for name, what in (
        ("pairs", "how many rounds count, all variants in turns in each (default: 10)"),
        ("clients", "how many clients (default: 250)"),
    ):
        parser.add_argument(f"--{name}", metavar="N", type=int, help=what)
    parser.add_argument("--out", metavar="FILE", help="write the rows into this file as well")
