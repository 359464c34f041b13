"""What the benches of every folder share beside bench.schema.json: of which tree they are, and how
their tables look. A tool of the repository: no package has it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def commit(*of: str) -> str:
    """This tree's, with -dirty where these folders (none: any file it has) differ from it;
    "unknown" outside of one.
    """

    def git(*words: str) -> str:
        done = subprocess.run(  # noqa: S603 - our own words
            ["git", *words],  # noqa: S607 - found on PATH
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        what = ["--", *of] if of else ["--untracked-files=no"]
        return head + ("-dirty" if git("status", "--porcelain", *what) else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def aligned(head: Sequence[str], body: Sequence[Sequence[str]], left: int = 2) -> str:
    """A table in Markdown whose columns line up, so that it reads on a terminal as well; the first
    `left` columns are words, the others figures."""
    every = [head, *body]
    widths = [max(3, *(len(line[i]) for line in every)) for i in range(len(head))]

    def put(line: Sequence[str]) -> str:
        cells = (
            text.ljust(width) if i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join(cells)} |"

    rule = ["-" * w if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([put(head), put(rule), *map(put, body)])
