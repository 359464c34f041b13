"""Text of others (topics, names, reasons, lines of other processes) as one line for people.

A terminal obeys control characters, and a line break makes one message look like two. Whatever is
not printable is escaped, everywhere in the same way: marks that turn the direction of writing, and
what nobody sees, as well.
"""

from __future__ import annotations

_CUT = "…"


def plain(text: str, most: int | None = None) -> str:
    """The text, escaped where it is not printable; cut where it is longer than `most`."""
    if most is not None and len(text) > most:
        text = text[: most - 1] + _CUT
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
