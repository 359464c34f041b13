"""Where things lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "evidence"
RESULTS = HOME / "results"
RUNS = HOME / "runs"
REDUCED = HOME / "reduced.json"
WORK = ROOT / "build" / "evidence"


class EvidenceError(Exception):
    """What stands in the way; `hint` says what to do about it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def shown(path: Path) -> str:
    """A path as people write it."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def put(path: Path, text: str) -> bool:
    """Replaces a file in one step; False when it says that already."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return True
