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
from typing import Any, NamedTuple, NoReturn

from .errors import OperatorError

_CHECKOUT = "it is part of a checkout: make setup, then build/venv/bin/sealmq"


def _extra(name: str) -> str:
    return (
        f"in the checkout: make install EXTRAS={name}, or {sys.executable} -m pip install "
        f"'.[{name}]'"
    )


class Program(NamedTuple):
    """`package` is run for it; `needs`: what that imports or starts besides, of the extra."""

    package: str
    text: str
    needs: tuple[str, ...] = ()
    extra: str = ""


_FLASH = ("esptool", "esp_idf_nvs_partition_gen", "littlefs", "mpremote", "serial")
PROGRAMS = {
    "board": Program("sealmq_board", "flash, provision and update boards", _FLASH, "flash"),
    "vboard": Program(
        "sealmq_vboard", "a virtual board, for esptool and mpremote", ("serial",), "flash"
    ),
    "hil": Program("sealmq_hil", "the rig: boards, real or virtual, under test", _FLASH, "flash"),
    "report": Program(
        "sealmq_spark",
        "what the logs of gateway and rig say, as tables and a page",
        ("pyspark",),
        "spark",
    ),
}


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Their lines in `sealmq --help`; each parses its own words."""
    for name, program in PROGRAMS.items():
        sub.add_parser(name, help=program.text, add_help=False)


def run(name: str, words: Sequence[str]) -> NoReturn:
    """Become that program. OperatorError: it is not installed here."""
    program = PROGRAMS[name]
    if importlib.util.find_spec(program.package) is None:
        raise OperatorError(f"sealmq {name} is not in an installed gateway", hint=_CHECKOUT)
    missing = [each for each in program.needs if importlib.util.find_spec(each) is None]
    if missing:
        raise OperatorError(
            f"sealmq {name} needs the extra {program.extra}, which is not installed here "
            f"({', '.join(missing)} missing)",
            hint=_extra(program.extra),
        )
    sys.stdout.flush()
    # The words are the operator's own, and no shell reads them. -P: what lies in the folder where
    # somebody works is no module.
    os.execv(sys.executable, [sys.executable, "-P", "-m", program.package, *words])  # noqa: S606
