"""A policy family that a test makes, installed: all of the gateway that is started then has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evil_scene import INSTRUMENT, environment


@contextmanager
def installed(folder: Path, name: str, text: str, **modules: str) -> Iterator[Path]:
    """The family `name`, whose module is `text`, is there for processes that are started meanwhile;
    `modules` beside it, by name. Gives its folder. A site needs its name in `[policy] order`.
    """
    family = folder / "families" / name
    family.mkdir(parents=True)
    for module, its in {"__init__": text, **modules}.items():
        (family / f"{module}.py").write_text(its)
    path = os.environ.get("PYTHONPATH", "")
    with environment(
        {
            "PYTHONPATH": f"{INSTRUMENT}:{path}".rstrip(":"),
            "SEALMQ_FAMILIES": str(family.parent),
        }
    ):
        yield family
