"""Rows in the form that every bench of SealMQ prints: shared_spec/bench.schema.json."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def row(measure: str, variant: str, value: float, unit: str, n: int, size: int = 64) -> Row:
    """One row; `params` says on what it was measured, when, and of which tree."""
    where = {"python": platform.python_version(), "machine": platform.machine(), **made()}
    return {
        "measure": measure,
        "variant": variant,
        "size": size,
        "value": value,
        "unit": unit,
        "n": n,
        "params": where,
    }


@cache
def made() -> Row:
    """When this bench ran (Unix ms), and the commit, with -dirty; the same for all its rows."""

    def git(*words: str) -> str:
        done = subprocess.run(  # noqa: S603 - fixed words
            ["git", *words],  # noqa: S607 - found on PATH
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        commit = head + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        commit = "unknown"
    return {"at_ms": time.time_ns() // 1_000_000, "commit": commit}


def show(rows: Iterable[Row]) -> None:
    """Prints the one object."""
    print(json.dumps({"rows": list(rows)}))
