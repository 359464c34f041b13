"""Numbers, times and sizes as people read them: with units, in UTC, no more digits than count."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime

Number = int | float

_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SIZES = (
    (1 << 60, "EiB"),
    (1 << 50, "PiB"),
    (1 << 40, "TiB"),
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
)
_TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))
# A number and its unit stay on one line.
GAP = "\u00a0"
# In the place of a number that is not there.
DASH = "\u2013"


def width(text: str) -> int:
    """Columns that `text` takes: two for the wide signs of East Asia and for emoji."""
    if text.isascii():
        return len(text)
    return sum(_columns(sign) for sign in text)


def _columns(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def count(value: Number | None) -> str:
    """All digits, in groups of three: 1,234,567. Beyond 10¹⁵ nobody reads them all."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{round(value):,}" if abs(value) < 1e15 else short(value)


def figure(value: Number | None) -> str:
    """For a column of a plot: all digits while there is room for them."""
    return count(value) if value is None or abs(value) < 1e7 else short(value)


def short(value: Number | None) -> str:
    """Three digits and a multiple: 1.23 M. For axes and tiles."""
    if value is None or not math.isfinite(value):
        return DASH
    for step, sign in _STEPS:
        # 999,950 would otherwise be written 1000 k.
        if abs(value) >= step * 0.9995:
            return f"{digits(value / step)}{GAP}{sign}"
    return digits(value)


def digits(value: Number) -> str:
    """Three digits that count, without zeros behind the point."""
    if value == 0:
        return "0"
    if abs(value) >= 1e18:
        return f"{value:.1e}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    if places > 5:
        return f"{value:.1e}"
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def share(part: Number, whole: Number) -> str:
    """Of a hundred. What is not nothing is not written as 0 %, nor what is not all as 100 %."""
    if whole <= 0:
        return DASH
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return f"< 0.01{GAP}%"
    if 99.99 < percent < 100:
        return f"> 99.99{GAP}%"
    return f"{digits(percent)}{GAP}%" if percent < 99 else f"{percent:.4g}{GAP}%"


def part(of: Number, whole: Number) -> str:
    """Of a hundred, with one decimal, for a column of such numbers: their points stand in line."""
    if whole <= 0:
        return DASH
    percent = 100 * of / whole
    if 0 < percent < 0.05:
        return f"< 0.1{GAP}%"
    if 99.95 <= percent < 100:
        return f"> 99.9{GAP}%"
    return f"{percent:.1f}{GAP}%"


def ratio(value: Number | None) -> str:
    """How many times as much: 0.58×, 139×."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{short(value) if abs(value) >= 1e4 else digits(value)}×"


def duration(ms: Number | None) -> str:
    """From milliseconds, in the unit that suits."""
    if ms is None or not math.isfinite(ms):
        return DASH
    for step, sign in _TIMES:
        if abs(ms) >= step:
            much = ms / step
            return f"{short(much) if abs(much) >= 1e4 else digits(much)}{GAP}{sign}"
    return "0" if ms == 0 else f"{digits(ms * 1000)}{GAP}µs"


def size(value: Number | None) -> str:
    """From bytes."""
    if value is None or not math.isfinite(value):
        return DASH
    for step, sign in _SIZES:
        if abs(value) >= step:
            return f"{digits(value / step)}{GAP}{sign}"
    return f"{digits(value)}{GAP}B"


def measured(value: Number | None, of: str) -> str:
    """A bench's value with the unit that the bench gave it."""
    match of.partition(" ")[0]:
        case "bytes" | "B":
            return size(value)
        case "ms":
            return duration(value)
        case "s":
            return duration(None if value is None else value * 1000)
        case "us" | "µs":
            return duration(None if value is None else value / 1000)
        case "ns":
            return duration(None if value is None else value / 1e6)
        case _:
            return short(value)


def unit(name: str) -> str:
    """A bench's unit as people write it; what is measured in times of a second says so."""
    first, _, of = name.partition(" ")
    first = {"us": "time", "ns": "time", "ms": "time", "s": "time", "bytes": "bytes"}.get(
        first, first
    )
    return f"{first} {of}".strip()


def plural(number: Number, one: str, many: str | None = None) -> str:
    """`1 line`, `2 lines`."""
    return f"{count(number)}{GAP}{one if number == 1 else many or one + 's'}"


def instant(text: str | None) -> datetime | None:
    """From ISO text, which is UTC where it does not say so; None where it is none."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def when(text: str | None, seconds: bool = False) -> str:
    """2026-11-22 16:05; the page says once that this is UTC."""
    at = instant(text)
    if at is None:
        return DASH
    return at.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def age(at: str | None, then: str | None) -> str:
    """How long before `then` that was; "" where one is not known."""
    a, b = instant(at), instant(then)
    return duration(max(0, (b - a).total_seconds() * 1000)) if a and b else ""
