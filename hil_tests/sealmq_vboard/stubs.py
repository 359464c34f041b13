"""What the board's own modules say they lack, read from the files in device/."""

from __future__ import annotations

import ast
from pathlib import Path

_DEVICE = Path(__file__).parent / "device"


def missing() -> dict[str, list[str]]:
    """Module -> names that raise NotImplementedError there."""
    found = {}
    for path in sorted(_DEVICE.glob("vb_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if node.targets[0].id == "_MISSING":
                    found[path.stem[3:]] = list(ast.literal_eval(node.value))
    return found
