"""Looks for known plaintext in bytes: as it is, in hex, and in base64 at every alignment.

A reading that leaks anywhere leaks in one of these forms, whole.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import NamedTuple


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
    """Every text in every place; the first occurrence of each form."""
    found = []
    for text in texts:
        for form, needle in forms(text).items():
            for where, data in places.items():
                at = data.find(needle)
                if at >= 0:
                    found.append(Find(text, form, where, at))
    return found
