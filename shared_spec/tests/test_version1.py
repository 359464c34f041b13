"""What a client of version 1 says and takes is what it was when others began to write clients.

`version1.txt` has the vectors of that day that still count, each with a digest of what it says:
894 of 977. The other 83 are 6 of refs 1 and 2, which were reserved then, and 77 of purposes: 74
read texts (a mediator's part now, and its other forms and words), 3 had other bounds written down.
A case that changes here breaks clients in the field: it needs another version, not another digest.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent / "vectors"
HELD = dict(line.split() for line in (HERE / "version1.txt").read_text().splitlines())
_FAMILIES = 32


def digest(case: dict[str, Any]) -> str:
    """Of all but the words about it."""
    said = {k: v for k, v in case.items() if k not in ("name", "section", "what")}
    if case["op"].startswith("purposes"):
        # A value and its text: then the text was given, and now the value is.
        said = {**said.pop("in"), **said.pop("out", {}), "refuse": said.get("refuse")}
    return hashlib.sha256(json.dumps(_own(said), sort_keys=True).encode()).hexdigest()[:8]


def _own(said: Any) -> Any:
    """Without the protocol's own items, which were handed to the application as well."""
    if isinstance(said, list):
        return [_own(one) for one in said]
    if not isinstance(said, dict):
        return said
    out = {k: _own(v) for k, v in said.items()}
    if isinstance(said.get("tlv"), list):
        out["tlv"] = [item for item in said["tlv"] if item[0] & 0x7F >= _FAMILIES]
    return out


def test_the_cases_of_version_1_stand_as_they_were() -> None:
    found = {p.stem: digest(json.loads(p.read_text())) for p in VECTORS.glob("*.json")}
    assert len(HELD) == 894
    assert {name for name, was in HELD.items() if found.get(name) != was} == set()


@pytest.mark.parametrize("name", ["connect-ccm", "reader-will-late", "purposes-access-plain"])
def test_a_change_of_what_a_case_says_is_noticed(name: str) -> None:
    case = json.loads((VECTORS / f"{name}.json").read_text())
    assert digest({**case, "what": "in other words"}) == HELD[name]
    for field in ("in", "out", "steps", "refuse"):
        if field in case:
            text = json.dumps(case[field])
            at = text.rindex('"', 0, text.rindex('"'))
            other = json.loads(text[:at] + '"0' + text[at + 1 :])
            assert digest({**case, field: other}) != HELD[name], field
