"""`sealmq bench`: what things cost, measured here. It needs the source tree, not a site."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from .errors import FAILED, OK, OperatorError

# The folder that holds gateway/, firmware/ and the rest; elsewhere when installed from a wheel.
_ROOT = Path(__file__).resolve().parents[3]
_DEVICE = Path("firmware", "host", "bench_device.py")

_EXAMPLES = """\
examples:
  sealmq bench device
  sealmq bench device --json
"""
_DEVICE_EXAMPLES = """\
examples:
  sealmq bench device
  sealmq bench device --json | jq '.rows[] | select(.measure == "connect")'
  sealmq bench device --measure publish --variant sealmq-ccm --variant plain --size 64

All of it takes some minutes and is written to build/bench/device.json as well. Instructions are
counted by valgrind on MicroPython (`make setup` fetches it): they do not depend on this machine's
speed or load.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq bench device"""
    parser = sub.add_parser("bench", help="measure what things cost", epilog=_EXAMPLES)
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True)
    device = kinds.add_parser(
        "device",
        help="the device client beside umqtt, plain and over TLS 1.3",
        description="Count what the device client costs, beside umqtt plain and over TLS 1.3 in "
        "the same interpreter: instructions, and bytes of heap.",
        epilog=_DEVICE_EXAMPLES,
    )
    device.add_argument("--json", action="store_true", help="print rows as JSON, for scripts")
    for name, what in (
        ("measure", "only this measure, such as connect, publish or receive"),
        ("variant", "only this variant, such as plain, tls13-ecdsa or sealmq-ccm"),
        ("size", "only payloads of so many bytes"),
    ):
        device.add_argument(
            f"--{name}", action="append", default=[], help=f"{what}; again for another"
        )
    device.add_argument("--out", help="write the rows into this file as well")


def run(args: argparse.Namespace) -> int:
    """Start the bench; the firmware's side prints what it finds."""
    script = _ROOT / _DEVICE
    if not script.is_file():
        raise OperatorError(
            f"there is no {_DEVICE} in {_ROOT}",
            "measuring needs SealMQ's source tree, not only the installed package",
            hint="run it from a checkout, after `make setup`",
        )
    words = ["--json"] if args.json else []
    for name in ("measure", "variant", "size"):
        for value in getattr(args, name):
            words += [f"--{name}", value]
    if args.out:
        words += ["--out", args.out]
    # Another process: the gateway's code does not know the device's. The words are the operator's
    # own, and no shell reads them.
    done = subprocess.run([sys.executable, str(script), *words], check=False)  # noqa: S603
    return OK if done.returncode == 0 else max(done.returncode, FAILED)
