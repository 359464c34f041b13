"""Looks for known plaintext in bytes: as it is, in hex, and in base64 at every alignment.

A reading that leaks anywhere leaks in one of these forms, whole.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import NamedTuple

PREFIX = 8


class Find(NamedTuple):
    """What was found, in which form, where."""

    text: str
    form: str
    where: str
    at: int


def forms(text: str) -> dict[str, bytes]:
    """The byte strings one of which stands wherever the text stands in that form."""
    raw = text.encode()
    found = {"text": raw, "hex": raw.hex().encode(), "HEX": raw.hex().upper().encode()}
    for shift in range(3):
        # Characters that also hold bits of what stands before or behind are left out.
        first = -(-shift * 8 // 6)
        whole = (shift + len(raw)) * 8 // 6
        for form, alphabet in (("base64", None), ("base64url", b"-_")):
            coded = base64.b64encode(bytes(shift) + raw, alphabet)
            found[f"{form}+{shift}"] = coded[first:whole]
    return found


def search(texts: Iterable[str], places: Mapping[str, bytes]) -> list[Find]:
    """Every text in every place; the first occurrence of each form. Linear in the bytes."""
    needles = [(needle, text, form) for text in texts for form, needle in forms(text).items()]
    if not needles:
        return []
    size = min(PREFIX, *(len(needle) for needle, _, _ in needles))
    by_start: dict[bytes, list[tuple[bytes, str, str]]] = {}
    for each in needles:
        by_start.setdefault(each[0][:size], []).append(each)
    found: dict[tuple[str, str, str], Find] = {}
    for where, data in places.items():
        for at in range(len(data) - size + 1):
            for needle, text, form in by_start.get(data[at : at + size], ()):
                if data.startswith(needle, at):
                    found.setdefault((text, form, where), Find(text, form, where, at))
    return list(found.values())
