"""The bill of materials, told apart: what every gateway has, and what comes with an extra alone.

    bill.py SITE_PACKAGES BILL.cdx.json SEALMQ.whl EXTRA,EXTRA...

cyclonedx-py lists what is installed, and not why. A component that SealMQ needs without extras
gets the scope `required`; any other `optional`, with a property `sealmq:extra` for each extra that
brings it. SealMQ itself is named by its file, not by where it was made: the same bytes in each
folder.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

OURS = canonicalize_name("sealmq")


def main(site_packages: str, bill: str, wheel: str, installed: str) -> None:
    found = {canonicalize_name(d.name): d for d in distributions(path=[site_packages])}
    core = _needed(found, OURS, "")
    extras = {extra: _needed(found, OURS, extra) - core for extra in installed.split(",")}
    path = Path(bill)
    document = json.loads(path.read_text())
    for component in document["components"]:
        name = canonicalize_name(component["name"])
        if name == OURS:
            _by_file(component, wheel)
        _mark(component, name in core, [extra for extra, some in extras.items() if name in some])
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def _mark(component: dict[str, Any], in_core: bool, extras: list[str]) -> None:
    if in_core:
        component["scope"] = "required"
        return
    if not extras:
        raise SystemExit(f"bill.py: {component['name']} is installed, and nothing of ours needs it")
    component["scope"] = "optional"
    component["properties"] = [{"name": "sealmq:extra", "value": extra} for extra in extras]


def _by_file(component: dict[str, Any], wheel: str) -> None:
    for reference in component["externalReferences"]:
        if reference["url"].startswith("file:"):
            reference["url"] = wheel


def _needed(
    found: dict[NormalizedName, Distribution], name: NormalizedName, extra: str
) -> set[NormalizedName]:
    """The canonical names of all that this needs with this extra, itself too."""
    seen: set[tuple[NormalizedName, str]] = set()
    todo: list[tuple[NormalizedName, str]] = [(name, extra)]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        for text in found[one[0]].requires or []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": one[1]}):
                todo += [(canonicalize_name(need.name), also) for also in ("", *need.extras)]
    return {one for one, _ in seen}


if __name__ == "__main__":
    if len(sys.argv) != 5:
        raise SystemExit("usage: bill.py SITE_PACKAGES BILL.cdx.json SEALMQ.whl EXTRA,EXTRA...")
    main(*sys.argv[1:])
