"""Which numbers a page shows. Each has to come from what was reduced, or from a list with reasons.

What counts: every number in running text, table cells and code spans, and words such as "half",
"four minutes" or "a thousand times". What does not: digits of names (m1, SHA-256, x86_64), targets
of links, listings of commands, comments. A page that states limits on every line is read less
strictly: there only a number with a unit counts, and with it all others of its sentence.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_ONES = (
    "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty"
)
_FRACTIONS = (
    "half halve halves third thirds quarter quarters fifth fifths sixth sixths tenth tenths"
)
_LARGE = "hundred thousand million billion hundredth hundredths thousandth thousandths"
# How much more or less something is; as a rule measured.
_TIMES = "twice thrice double doubles doubled"
_UNITS = (
    r"%|percent|‰|[kKMG]i?B\b|B\b|kbit|bytes?\b|bits?\b|s\b|ms\b|µs\b|us\b|ns\b|min\b|minutes?\b|"
    r"seconds?\b|hours?\b|days?\b|weeks?\b|h\b|times\b|fold\b|x\b|×|k\b|M\b|instructions?\b|"
    r"messages?\b|million\b|thousand\b|cores?\b|[mµ]A\b|mW\b|mWh\b|cycles\b|erasures\b|lines\b|"
    r"requests?\b|connections?\b|decisions?\b|keys\b|topics\b|points\b"
)
_WORD = "|".join(f"{_ONES} {_FRACTIONS} {_LARGE} {_TIMES}".split())
_ALWAYS = "|".join(f"{_FRACTIONS} {_LARGE} {_TIMES}".split())

NUMBER = re.compile(
    r"(?<![A-Za-z0-9_/.])(?<![A-Za-z]-)(?<![A-Za-z]\*)[+\-−]?\d(?:[\d,.]*\d)?", re.ASCII
)
# Between a number and its unit: nothing, a space, a line's end, or one word ("12 more seconds").
_UNIT = re.compile(rf"(?:[- \n]|-?)(?:[a-z-]+[ \n])?(?:{_UNITS})|\s*(?:{_UNITS})")
# "third" and "second" as order, and "once" are no quantities.
_WORDS = re.compile(rf"(?<![\w-])({_WORD})\b(?!-)", re.IGNORECASE)
_ORDINAL = re.compile(r"\b(?:the|its|this|each|every)\s+(?:third|tenth)\s+(?!of\b)", re.IGNORECASE)
# One of something, where it says how long or how much.
_ONE = re.compile(
    r"\b(?:about|under|some|takes?|took|of|in|within|by)\s+"
    r"((?:half\s+)?(?:an?|one)\s+(?:second|minute|hour|percent))\b|\b(one)\s+percent\b"
)
_COMPOUND = re.compile(
    r"\b((?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-[a-z]+)\b", re.I
)
# Where a sentence or a cell ends.
_END = re.compile(r"(?<=[.!?])\s+(?=\S)|\|(?=\s)|\n[ \t]*\n|\n(?=\s*(?:[-*]|\d+\.)\s)")
# Fenced or indented.
LISTING = re.compile(r"^(```|~~~)[\s\S]*?^\1[ ]*$|^ {4}.*$", re.MULTILINE)


class Number(NamedTuple):
    """Something that a page shows: where, and what."""

    at: int
    end: int
    text: str


def blank(text: str, found: re.Match[str]) -> str:
    """As many spaces, so that everything else keeps its place."""
    return re.sub(r"[^\n]", " ", found[0])


@lru_cache(maxsize=64)
def plain(text: str) -> str:
    """The page without what shows no figures; every sign that is left lies where it lay.

    Listings stay where they speak: what stands behind a # in one counts.
    """

    def none(found: re.Match[str]) -> str:
        return blank(text, found)

    def listing(found: re.Match[str]) -> str:
        return "\n".join(_remark(line) for line in found[0].split("\n"))

    text = re.sub(r"<!-- (\S+): begin -->.*?<!-- \1: end -->", none, text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", none, text, flags=re.DOTALL)
    text = LISTING.sub(listing, text)
    text = re.sub(r"(?<=\])\([^)]*\)", none, text)
    # The number of an item of a list.
    return re.sub(r"^[ \t]*\d+\.(?=\s)", none, text, flags=re.MULTILINE)


def _remark(line: str) -> str:
    head, mark, rest = line.partition(" # ")
    return " " * len(head + mark) + rest if mark else " " * len(line)


def numbers(text: str, strict: bool) -> list[Number]:
    """Those of a page, in order."""
    bare = plain(text)
    digits = [Number(m.start(), m.end(), m[0]) for m in NUMBER.finditer(bare)]
    words = list(_words(bare, strict))
    if not strict:
        ends = [0, *(m.end() for m in _END.finditer(bare)), len(bare) + 1]
        with_unit = [n.at for n in digits if _UNIT.match(bare, n.end)] + [n.at for n in words]
        measured = {bisect_right(ends, at) for at in with_unit}
        digits = [n for n in digits if bisect_right(ends, n.at) in measured]
    return sorted({*digits, *words})


def _words(bare: str, strict: bool) -> Iterator[Number]:
    orders = [m.span() for m in _ORDINAL.finditer(bare)]
    for found in _WORDS.finditer(bare):
        always = strict and re.fullmatch(_ALWAYS, found[1], re.IGNORECASE)
        order = any(begin <= found.start() < end for begin, end in orders)
        if (always and not order) or _UNIT.match(bare, found.end()):
            yield Number(found.start(), found.end(), found[1])
    for found in _ONE.finditer(bare):
        which = 1 if found[1] else 2
        yield Number(found.start(which), found.end(which), found[which])
    for found in _COMPOUND.finditer(bare) if strict else ():
        yield Number(found.start(), found.end(), found[1])
