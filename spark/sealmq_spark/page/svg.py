"""The few shapes that the plots are made of. Across, a place is a share of the plot (so that a plot
fits any width without its text being stretched); down, it is pixels.

A plot has room left and below for its axes as padding: there, text stands at places below 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from .markup import Markup, tag
from .scales import Scale

MARK = 5.0
_PATHS = {
    "square": "M-4.5-4.5h9v9h-9z",
    "diamond": "M0-6 6 0 0 6-6 0z",
    "triangle": "M0-5.5 5.8 4.8-5.8 4.8z",
    "down": "M0 5.5 5.8-4.8-5.8-4.8z",
    "cross": "M-4-4 4 4M-4 4 4-4",
    "tick": "M0-8V8",
}
SHAPES = ("circle", "square", "diamond", "triangle", "down")
_WIDE = 10_000
_CROWD = 5


def percent(share: float) -> str:
    """A share of the plot's width as an attribute."""
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"


def px(value: float) -> str:
    """A length with no more digits than a screen shows."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def plot(kind: str, label: str, height: float, *children: object) -> Markup:
    """A plot that stands for itself: `label` says what it shows to who does not see it."""
    style = f"height:{px(height)}px"
    return tag("svg", *children, class_=f"plot {kind}", role="img", aria_label=label, style=style)


def strip(*children: object) -> Markup:
    """The plot's part in a row of a table, whose cells say the same in numbers."""
    return tag("svg", *children, class_="strip", aria_hidden="true")


def bar(left: float, right: float, colour: str, thick: float = 12) -> Markup:
    """A bar of a row, never thinner than can be seen."""
    if right <= left:
        return tag("path", d="M0-6v12", class_=f"mark line {colour}") if right == 0 else Markup()
    return tag(
        "rect",
        x=percent(left),
        width=percent(max(right - left, 0.004)),
        y="50%",
        height=px(thick),
        transform=f"translate(0 {px(-thick / 2)})",
        rx="1.5",
        class_=f"mark {colour}",
    )


def interval(left: float, right: float, colour: str, thick: bool = False) -> Markup:
    """From low to high, behind the mark that stands between them."""
    kind = "span thick" if thick else "span"
    return tag(
        "line",
        x1=percent(left),
        x2=percent(max(right, left)),
        y1="50%",
        y2="50%",
        class_=f"{kind} {colour}",
    )


def mark(shape: str, place: float, colour: str, down: str = "50%", title: str = "") -> Markup:
    """A dot of one of SHAPES at a place across."""
    said = tag("title", title) if title else None
    if shape == "circle":
        return tag("circle", said, cx=percent(place), cy=down, r=MARK, class_=f"mark {colour}")
    path = tag("path", said, d=_PATHS[shape], class_=f"mark {colour}")
    # Only an svg of its own can stand at a share of the width.
    return tag("svg", path, x=percent(place), y=down, class_="at")


def key(shape: str, colour: str) -> Markup:
    """A shape as it stands in a legend."""
    if shape == "bar":
        drawn = tag("rect", width=12, height=12, rx=2, class_=colour)
    elif shape == "circle":
        drawn = tag("circle", cx=6, cy=6, r=MARK, class_=colour)
    else:
        drawn = tag("path", d=_PATHS[shape], transform="translate(6 6)", class_=colour)
    return tag("svg", drawn, class_="key", viewBox="0 0 12 12", aria_hidden="true")


def across(scale: Scale, height: float, labels: bool = True) -> list[Markup]:
    """The axis below: a tick each, with its text where `labels`."""
    found = []
    for tick in scale.ticks:
        kind = "minor" if tick.minor else None
        parts: list[Markup | None] = [_upright(tick.place, 0, height)]
        if labels:
            parts.append(_words(tick.place, height + 15, tick.text))
            parts.append(_words(tick.place, height + 29, tick.below) if tick.below else None)
        found.append(tag("g", parts, class_=kind))
    return found


def _upright(place: float, top: float, bottom: float) -> Markup:
    at = percent(place)
    return tag("line", x1=at, x2=at, y1=px(top), y2=px(bottom), class_="grid")


def _words(place: float, down: float, text: str) -> Markup:
    return tag("text", text, x=percent(place), y=px(down), class_="tick")


def up(scale: Scale, height: float) -> list[Markup]:
    """The axis at the left: lines over the whole width, and their numbers before them."""
    found = []
    for tick in scale.ticks:
        down = height * (1 - tick.place)
        line = tag("line", x1=0, x2="100%", y1=px(down), y2=px(down), class_="grid")
        text = tag("text", tick.text, x=-8, y=px(down + 4), class_="tick left")
        found.append(tag("g", line, text, class_="low" if tick.minor else None))
    return found


def grid(scale: Scale) -> list[Markup]:
    """Upright lines over the height of a row."""
    lines = []
    for tick in scale.ticks:
        at = percent(tick.place)
        kind = "grid minor" if tick.minor else "grid"
        lines.append(tag("line", x1=at, x2=at, y1=0, y2="100%", class_=kind))
    return lines


def axis(scale: Scale) -> Markup:
    """The numbers above the rows of a table; lesser ones have a line below, and no number."""
    texts = []
    crowded = len(scale.ticks) > _CROWD
    for tick in scale.ticks:
        if tick.minor and crowded:
            continue
        kind = "tick minor" if tick.minor else "tick"
        # At the ends the text stays within the column.
        kind += " first" if tick.place < 0.06 else " last" if tick.place > 0.9 else ""
        texts.append(tag("text", tick.text, x=percent(tick.place), y="13", class_=kind))
    return tag("svg", texts, class_="axis", aria_hidden="true")


def stretched(height: float, *paths: Markup) -> Markup:
    """Paths in WIDE by `height` units, stretched over the plot's width; their lines are not."""
    return tag(
        "svg",
        paths,
        viewBox=f"0 0 {_WIDE} {px(height)}",
        preserveAspectRatio="none",
        width="100%",
        height=px(height),
    )


def wide(place: float) -> int:
    """A place across in the units of `stretched`."""
    return round(place * _WIDE)


def line(points: Sequence[tuple[float, float]], colour: str) -> Markup:
    """Through places (across, down in pixels)."""
    path = "M" + "L".join(f"{wide(x)} {px(y)}" for x, y in points)
    return tag("path", d=path, class_=f"curve {colour}")


def band(points: Sequence[tuple[float, float, float]], colour: str) -> Markup:
    """Between two curves: (across, down to the lower, down to the upper)."""
    there = [f"{wide(x)} {px(low)}" for x, low, _ in points]
    back = [f"{wide(x)} {px(high)}" for x, _, high in reversed(points)]
    return tag("path", d="M" + "L".join([*there, *back]) + "Z", class_=f"band {colour}")


def rule(place: float) -> Markup:
    """The upright line that a row's values are held against."""
    at = percent(place)
    return tag("line", x1=at, x2=at, y1=0, y2="100%", class_="rule")
