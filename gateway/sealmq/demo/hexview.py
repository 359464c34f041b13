"""An m3 in hex, each field in its colour (SPEC.md 3.3): what a broker has of a reading."""

from __future__ import annotations

from rich.text import Text

FIELDS = (
    ("m3", 1, "bold white"),
    ("suite·how", 1, "cyan"),
    ("label", 3, "yellow"),
    ("epoch", 3, "green"),
    ("instance", 3, "blue"),
    ("time", 6, "magenta"),
    ("seq", 3, "blue"),
)
SEALED = "bright_black"
_STYLES = [style for _, size, style in FIELDS for _ in range(size)]


def legend() -> Text:
    """The fields' names in their colours, in their order."""
    text = Text()
    for name, _, style in FIELDS:
        text.append(f"{name} ", style)
    return text.append("sealed", SEALED)


def line(payload: bytes, start: int = 0, end: int | None = None) -> Text:
    """The payload's bytes from `start` to `end`."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for at, byte in enumerate(payload[start:end], start):
        text.append(f"{byte:02x} ", _STYLES[at] if at < len(_STYLES) else SEALED)
    return text
