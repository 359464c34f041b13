"""`sealmq board`, `vboard`, `hil` and `report`: programs that stand beside the gateway.

The gateway's code knows neither boards nor the rig nor the reports (the layout's imports go one
way), so each is a program of its own, which takes this process's place: same terminal, same
signals, its exit code.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .errors import OperatorError

_SOURCE = "or run it from a checkout after `make setup`"
_FLASH = f"pip install 'sealmq[flash]', {_SOURCE}"
_SPARK = f"pip install 'sealmq[spark]', and Java 17 or 21; {_SOURCE}"
# Command: the package that is run for it, what `sealmq --help` says, how to come by it.
PROGRAMS = {
    "board": ("sealmq_board", "flash, provision and update boards", _FLASH),
    "vboard": ("sealmq_vboard", "a virtual board, for esptool and mpremote", _FLASH),
    "hil": ("sealmq_hil", "the rig: boards, real or virtual, under test", _FLASH),
    "report": (
        "sealmq_spark",
        "what the logs of gateway and rig say, as tables and a page",
        _SPARK,
    ),
}


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Their lines in `sealmq --help`; each parses its own words."""
    for name, (_, text, _) in PROGRAMS.items():
        sub.add_parser(name, help=text, add_help=False)


def run(name: str, words: Sequence[str]) -> NoReturn:
    """Become that program. OperatorError: it is not installed here."""
    package, _, hint = PROGRAMS[name]
    if importlib.util.find_spec(package) is None:
        raise OperatorError(
            f"sealmq {name} needs the package {package}, which is not installed here",
            hint=hint,
        )
    sys.stdout.flush()
    # The words are the operator's own, and no shell reads them. -P: what lies in the folder where
    # somebody works is no module.
    os.execv(sys.executable, [sys.executable, "-P", "-m", package, *words])  # noqa: S606
