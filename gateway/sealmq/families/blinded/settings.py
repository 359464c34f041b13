"""[families.blinded] of sealmq.toml: how policies are encoded. What they say does not stand there,
since mediators read that file.

encoding = "scoped"     a key for each event type, customer and epoch
           "paper"      one alias for each attribute; it gives away what BLINDED.md says
decoys = 0.5            paper: how probable a second alias of an attribute is
length = 8              paper: places of a conjunction, fillers counted
"""

from __future__ import annotations

from dataclasses import dataclass

from sealmq.near import near

from ..api import FamilyConfigError, Policy

NAME = "blinded"
ENCODINGS = ("scoped", "paper")
_KEYS = ("encoding", "decoys", "length")
MOST_PLACES = 32


@dataclass(frozen=True, slots=True)
class Settings:
    scoped: bool = True
    decoys: float = 0.5
    length: int = 8


def read(config: Policy) -> Settings:
    """FamilyConfigError: the first thing that is wrong."""
    table = config.families.get(NAME, {})
    for key in table:
        if key not in _KEYS:
            raise FamilyConfigError(key, f"unknown key {key!r}", near(key, _KEYS))
    encoding = table.get("encoding", "scoped")
    if encoding not in ENCODINGS:
        raise FamilyConfigError("encoding", f"encoding is {encoding!r}", " or ".join(ENCODINGS))
    decoys, length = table.get("decoys", 0.5), table.get("length", 8)
    if type(decoys) not in (int, float) or not 0 <= decoys <= 1:
        raise FamilyConfigError("decoys", f"{decoys!r} is no probability", "0 to 1")
    if type(length) is not int or not 1 <= length <= MOST_PLACES:
        raise FamilyConfigError("length", f"{length!r}", f"1 to {MOST_PLACES}")
    return Settings(encoding == "scoped", float(decoys), length)
