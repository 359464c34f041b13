"""The samples of the documents: each fenced block that is a program or something to type."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

from running_site import ROOT


class Sample(NamedTuple):
    """A block: of which page, below which heading, the how manieth of its language there."""

    page: str
    heading: str
    number: int
    language: str
    text: str

    @property
    def key(self) -> str:
        """As tables of tests name it."""
        which = f" {self.number}" if self.number > 1 else ""
        return f"{self.page}: {self.heading}{which}"


def samples(language: str) -> dict[str, Sample]:
    """All of one language, "python" or "console", of every page of the repository, by key."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [each for page in listed.stdout.split() for each in of_page(page)]
    return {each.key: each for each in found if each.language == language}


def of_page(page: str) -> list[Sample]:
    """Those of one page, in order. A block without a language but with a prompt is a console's."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Sample] = []
    heading = ""
    for line in re.finditer(r"(?ms)^#+ ([^\n]*)$|^```(\w*)\n(.*?)^```$", text):
        if line[1] is not None:
            heading = line[1].replace("`", "")
            continue
        language = line[2] or ("console" if re.search(r"(?m)^\$ ", line[3]) else "")
        same = [s for s in found if (s.heading, s.language) == (heading, language)]
        found.append(Sample(page, heading, len(same) + 1, language, line[3]))
    return found
