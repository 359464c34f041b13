"""A page for a screen on the wall: it loads itself anew, and says so when nobody makes it any more.

The one script that a page of ours ever has, known to the browser by its hash: nothing that comes
from a device can run. Without it the page still reloads, by its meta element.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from . import words
from .markup import Markup, tag

# A round may take as long as the pause before it, and the screen's clock be a little wrong.
_LATE = 3
_SCRIPT = """
const late = document.getElementById("late"), { made, late: after } = late.dataset;
const age = (Date.now() - Date.parse(made)) / 1000;
if (age > after) {
  late.textContent = `Old: made ${Math.round(age / 60)} min ago, by this screen's clock. `
    + "Does sealmq report --watch still run?";
  late.hidden = false;
  late.previousElementSibling.hidden = true;
}
"""


@dataclass(frozen=True)
class Live:
    """every: seconds from one page to the next. ended: when (UTC) nobody makes it any more."""

    every: int
    ended: str | None = None

    @property
    def policy(self) -> str:
        """What the page's Content-Security-Policy has besides."""
        digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
        return f"; script-src 'sha256-{digest}'"

    @property
    def refresh(self) -> Markup:
        """Loads the page anew, also one that is ended: somebody may start it again."""
        return tag("meta", http_equiv="refresh", content=self.every)

    @property
    def script(self) -> Markup | None:
        """Says that the page is old. One that is ended says so itself."""
        return None if self.ended else tag("script", Markup(_SCRIPT))

    def said(self, made: str | None) -> Markup:
        """What stands in the page's head."""
        if self.ended:
            text = f"Not live: sealmq report --watch ended at {words.when(self.ended, True)} UTC."
            return tag("p", text, class_="live late")
        return tag(
            "div",
            tag("p", f"Live: made anew every {words.duration(self.every * 1000)}.", class_="live"),
            tag(
                "p",
                id="late",
                class_="live late",
                role="alert",
                hidden="",
                data_made=made or "",
                data_late=_LATE * self.every,
            ),
        )
