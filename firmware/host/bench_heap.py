"""Heap: what a publish leaves to the collector, and how much a client needs in all."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import build_mpy
from bench_mpy import of_set
from bench_rows import Row, row
from bench_runs import SUITES, BenchError, Rig

_MESSAGES = 1000
_PEAK_MESSAGES = 100
_STEP = 1024
_CODE = re.compile(r"^code (\d+)$", re.MULTILINE)
_SYSTEM = re.compile(r"Arena 0:\nsystem bytes +=\s+(\d+)\nin use bytes +=\s+(\d+)")


def heap_per_message(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Bytes a publish leaves, the collector off; ours also with the heap locked."""
    rows = []
    for bits in (64, 32):
        params: dict[str, Any] = {"bits": bits, "qos": 0, "collector": "off"}
        with rig.far_end(variant) as far:
            said = rig.plainly(far.words(measure, size, _MESSAGES), bits, "64M").split("\n")
        if variant in SUITES:
            params["heap_locked"] = said[1] == "True"
        left = int(said[0] if variant in SUITES or variant == "plain" else said[1])
        rows.append(row(measure, variant, size, left / _MESSAGES, "bytes", _MESSAGES, params))
    return rows


def heap_peak(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """The least heap with which it connects and publishes, and the most that C libraries take."""
    rows = []
    for bits in (64, 32):
        with rig.far_end(variant) as far:
            words = far.words(measure, size, _PEAK_MESSAGES)
            ours = _least(partial(rig.run, words, bits))
            done = rig.run(words, bits)
        found, code = _SYSTEM.findall(done.stderr), _CODE.search(done.stdout)
        if len(found) != 2 or code is None:
            raise BenchError("a run did not say how much memory it took")
        libraries = int(found[1][0]) - int(found[0][1])
        params = {
            "bits": bits,
            "micropython": ours,
            "code": int(code[1]),
            "c_libraries": libraries,
            "messages": _PEAK_MESSAGES,
        }
        rows.append(row(measure, variant, size, ours + libraries, "bytes", 1, params))
    return rows


def heap_purposes(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """The least heap with which a new board with that set, 32 bit, does what it is for."""
    path = of_set(rig.folder / "sets" / variant, variant, 32)
    rows = []
    with rig.far_end("sealmq-ccm") as far:
        words = ["bench_purposes", far.enrolment(), variant]

        def run(heap: str, program: Path | None) -> subprocess.CompletedProcess[str]:
            far.forget()
            return rig.run(words, 32, heap, path, program)

        for program in (None, *rig.programs):
            least = _least(partial(run, program=program))
            params = {"bits": 32, "micropython_version": run(f"{least}", program).stdout.strip()}
            rows.append(row(measure, variant, size, least, "bytes", 1, params))
    return rows


def set_bytes(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Bytes of each set of files that has a limit, on the architecture where it is largest."""
    totals = build_mpy.lay_out(rig.folder / "all", build_mpy.build(rig.folder / "all"))
    return [
        row(measure, name, size, max(of.values()), "bytes", 1)
        for name, of in totals.items()
        if build_mpy.SETS[name]
    ]


def _least(run: Callable[..., subprocess.CompletedProcess[str]]) -> int:
    """Bytes of heap with which a run, given `heap`, succeeds; to the next KiB."""
    low, high = 0, 2048
    while high - low > 1:
        middle = (low + high) // 2
        if run(heap=f"{middle * _STEP}").returncode == 0:
            high = middle
        else:
            low = middle
    if high == 2048:
        raise BenchError("it does not work with 2 MiB of heap either")
    return high * _STEP
