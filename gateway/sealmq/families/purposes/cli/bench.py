"""`sealmq bench purposes`: what purpose limitation costs, beside a site without it."""

from __future__ import annotations

import argparse
from typing import Any

about = "what purpose limitation costs, beside a site without it"
first = ()
closer = ("--variant", "labels", "--variant", "fop-cache", "--variant", "hybrid", "--pairs", "40")
_EXAMPLES = """\
examples:
  sealmq bench purposes
  sealmq bench purposes --quick                 tiny numbers: does it work here?
  sealmq bench purposes --json | jq '.rows[] | select(.measure == "cpu_message_to_labels")'
  sealmq bench purposes --variant labels --variant hybrid --reservations 100000 --pairs 20

The variants are those of the HivePBAC paper: mosquitto (plain, without SealMQ), labels (without the
policy family), fos, fop, fop-cache, hybrid, fop-flat. Real sites are started in a temporary folder,
each with its own Mosquitto and a load generator, and end with the bench. All of it takes some ten
minutes and is written to build/bench/purposes.json as well. Throughput depends on the machine and
on what else runs there; CPU a message much less, and what one variant is to another least.
"""


def add(kinds: argparse._SubParsersAction[Any]) -> None:
    """sealmq bench purposes"""
    parser = kinds.add_parser(
        "purposes",
        help="purpose limitation: its modes and stores beside a site without it",
        description="Measure what purpose limitation costs, beside the same site without it and "
        "beside a plain Mosquitto: throughput, round trip, CPU a message of each process, rates.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    parser.add_argument("--quick", action="store_true", help="tiny numbers, some seconds")
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        help="only this variant, such as labels, fop-cache or hybrid; again for another",
    )
    for name, what in (
        ("pairs", "how many rounds count, all variants in turns in each (default: 10)"),
        ("clients", "how many clients (default: 250)"),
        ("reservations", "how many reservations are held (default: 1000)"),
    ):
        parser.add_argument(f"--{name}", metavar="N", type=int, help=what)
    parser.add_argument("--out", metavar="FILE", help="write the rows into this file as well")
