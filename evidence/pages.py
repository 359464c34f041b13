"""The pages, and the generated tables in them.

`make evidence` puts each between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
"""

from __future__ import annotations

import re

from evidence.blocks import block
from evidence.place import ROOT, EvidenceError, put
from evidence.reduced import Reduced

PAGES = (
    "SECURITY.md",
    "evidence/README.md",
    "firmware/PERFORMANCE.md",
    "firmware/README.md",
    "gateway/PERFORMANCE.md",
    "gateway/TRUST.md",
    "hil_tests/README.md",
    "spark/README.md",
)
_BLOCK = re.compile(r"<!-- (\S+): begin -->\n.*?<!-- \1: end -->", re.DOTALL)


def read(page: str) -> str:
    """The page's text."""
    return (ROOT / page).read_text(encoding="utf-8")


def named(text: str) -> list[str]:
    """The tables of a page."""
    return [found[1] for found in _BLOCK.finditer(text)]


def written(page: str, text: str, reduced: Reduced) -> str:
    """The page with its tables as they are now. EvidenceError."""

    def table(found: re.Match[str]) -> str:
        name = found[1]
        try:
            return f"<!-- {name}: begin -->\n{block(name, reduced)}\n<!-- {name}: end -->"
        except EvidenceError as error:
            raise EvidenceError(f"{page}: {error}", error.hint) from error

    return _BLOCK.sub(table, text)


def write(reduced: Reduced) -> list[str]:
    """Puts every page right; those that changed."""
    return [p for p in PAGES if put(ROOT / p, written(p, read(p), reduced))]


def outdated(page: str, text: str, reduced: Reduced) -> list[str]:
    """The page's tables that are not what was reduced, each with its line. EvidenceError."""
    return [
        f"{page}:{text.count(chr(10), 0, found.start()) + 1}: the table {found[1]} is not what "
        "was reduced: make evidence PARTS=none"
        for found in _BLOCK.finditer(text)
        if written(page, found[0], reduced) != found[0]
    ]
