"""`sealmq toy`: a command that comes with the family."""

from __future__ import annotations

import argparse
from typing import Any


def add(sub: argparse._SubParsersAction[Any]) -> None:
    parser = sub.add_parser("toy", help="what the toy family says")
    parser.add_argument("word")


def run(args: argparse.Namespace) -> int:
    print(f"toy: {args.word}")
    return 0
