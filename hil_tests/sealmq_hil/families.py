"""What the rig does about policy families: each that wants something of it has a file `rig.toml` in
its folder of the gateway. The rig's site has all of these in force; nothing here names one.

text = "..."                 one line for `list`
append = "..."               put at the end of the site's sealmq.toml
[tables], [named]            lines for tables that `sealmq init` has written, by table; `named` once
                             there are the clients that they name
[reader]                     one more client at the rig's label: name, its filters, words besides
                             for `sealmq sub`
[[step]]                     name, program, read_by: what a board runs in the place of its own
                             program, and which readers get what it publishes

In a program {board} stands for the board's name and {word} for the payload to publish; at its end
it prints "said all". Of clients there are rig-reader, above all boards, and bystander, below them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "gateway/sealmq/families"
Table = tuple[str, Sequence[str]]
"""A table of sealmq.toml that `sealmq init` has written, and lines that are put into it."""


@dataclass(frozen=True, slots=True)
class Step:
    """A program of a board's, and the names of those who read what it publishes."""

    name: str
    program: str
    read_by: Sequence[str]


@dataclass(frozen=True, slots=True)
class FamilyReader:
    """One more reader: its filters, and what `sealmq sub` is told besides."""

    name: str
    filters: Sequence[str]
    words: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """A file. name: the family's, and that of the rig's behaviour."""

    name: str
    text: str
    steps: Sequence[Step]
    append: str = ""
    tables: Sequence[Table] = ()
    named: Sequence[Table] = ()
    reader: FamilyReader | None = None


def _read(file: Path) -> Family:
    told: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    reader: Mapping[str, Any] | None = told.pop("reader", None)
    return Family(
        name=file.parent.name,
        steps=[Step(**step) for step in told.pop("step")],
        tables=list(told.pop("tables", {}).items()),
        named=list(told.pop("named", {}).items()),
        reader=None if reader is None else FamilyReader(**reader),
        **told,
    )


def _found() -> Iterator[Family]:
    for file in sorted(FOLDER.glob("*/rig.toml")):
        yield _read(file)


FAMILIES = {family.name: family for family in _found()}
