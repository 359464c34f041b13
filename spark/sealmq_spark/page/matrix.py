"""Tables whose cells are the plot: heat maps, and what passed where."""

from __future__ import annotations

import math
from collections.abc import Sequence

from . import words
from .markup import Markup, named, tag

_STEPS = 6


def heat(value: float, most: float, title: str) -> Markup:
    """A cell of a heat map: one of six shades, by the logarithm. Each has its number, too."""
    if value <= 0:
        return tag("td", tag("span", "·", aria_label="none"), class_="heat h0")
    # Shade 6 is `most`; each one below is a third.
    shade = max(1, _STEPS - math.floor(math.log(most / value, 3) + 1e-9))
    said = f"{title}: {words.count(value)}"
    return tag("td", words.short(value), class_=f"heat h{shade}", title=said)


def verdict(passed: int, failed: int, skipped: int, ms: float | None, title: str) -> Markup:
    """A cell of what passed where: a sign and a word for the eye, numbers for the pointer."""
    said = [
        words.plural(number, name, name)
        for number, name in ((passed, "passed"), (failed, "failed"), (skipped, "skipped"))
        if number
    ]
    time = f", {words.duration(ms)}" if ms is not None else ""
    kind, sign = _sign(passed, failed, skipped)
    took = tag("small", words.duration(ms)) if ms is not None and (passed or failed) else None
    many = f" {failed}/{passed + failed}" if failed and passed + failed > 1 else ""
    # The sign stands for those who tell no colours apart; the words for those who hear the page.
    shown = tag("span", sign + many, aria_hidden="true", class_="sign")
    told = tag("span", ", ".join(said) or "not run", class_="unseen")
    text = f"{title}: {', '.join(said) or 'not run'}{time}"
    return tag("td", shown, took, told, class_=f"verdict {kind}", title=text)


def _sign(passed: int, failed: int, skipped: int) -> tuple[str, str]:
    if failed and passed:
        return "mixed", "±"
    if failed:
        return "failed", "✗"
    if passed:
        return "passed", "✓"
    return ("skipped", "○") if skipped else ("missing", "")


def matrix(
    names: str,
    columns: Sequence[Markup],
    rows: Sequence[Markup],
    cells: Sequence[Sequence[Markup]],
    label: str,
) -> Markup:
    """`cells`: a list of td a row. It scrolls by itself where its columns need more width."""
    heads = [tag("th", tag("span", one), scope="col") for one in columns]
    body = [
        tag("tr", tag("th", name, scope="row", class_="name"), found)
        for name, found in zip(rows, cells, strict=True)
    ]
    made = tag(
        "table",
        tag("thead", tag("tr", tag("th", names, scope="col", class_="name"), heads)),
        tag("tbody", body),
        class_="matrix",
        aria_label=label,
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=label)


__all__ = ["heat", "matrix", "named", "verdict"]
