"""The pages, and where each of their figures comes from.

Behind a figure stands where it comes from, in a comment that no reader sees:

    takes 146,000<!--= subscribe.purpose --> instructions       that figure; `make evidence` puts it
    less than a hundredth<!--? connect.share < 0.01 --> of      words: what has to hold for them

Whole tables lie between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evidence.blocks import BLOCKS, block
from evidence.numbers import LISTING, Number, numbers, plain
from evidence.place import ROOT, STATED, EvidenceError, put
from evidence.reduced import Reduced

# Every number of these counts.
STRICT = ("README.md", "SECURITY.md", "firmware/PERFORMANCE.md", "gateway/PERFORMANCE.md")
# What these have with a unit counts: they state limits as well.
LOOSE = (
    "evidence/README.md",
    "firmware/README.md",
    "flash_scripts/README.md",
    "gateway/PURPOSES.md",
    "gateway/README.md",
    "gateway/fuzz/README.md",
    "hil_tests/README.md",
    "hil_tests/sealmq_vboard/README.md",
    "shared_spec/README.md",
    "shared_spec/model/README.md",
    "spark/README.md",
)
PAGES = (*STRICT, *LOOSE)

_FIGURE = re.compile(r"([^\s|(*`~>]+)<!--= ([a-z0-9_.-]+) -->")
_WORDS = re.compile(r"<!--\? (.*?) -->")
_BLOCK = re.compile(r"<!-- (\S+): begin -->\n.*?<!-- \1: end -->", re.DOTALL)
# So far before its comment a figure in words may stand.
_NEAR = 60

Stated = Mapping[str, list[str]]


def read(page: str) -> str:
    """The page's text."""
    return (ROOT / page).read_text(encoding="utf-8")


def stated(path: Path = STATED) -> Stated:
    """Page or "everywhere" -> phrases whose numbers are stated, not measured. EvidenceError."""
    found: dict[str, list[str]] = {}
    for page, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for entry in entries:
            if set(entry) != {"why", "text"} or not entry["why"]:
                raise EvidenceError(f"{path.name}: {page}: an entry has `why` and `text`")
            found.setdefault(page, []).extend(entry["text"])
    return found


def written(page: str, text: str, reduced: Reduced) -> str:
    """The page with its figures and tables as they are now. EvidenceError."""

    listings = _listings(text)

    def figure(found: re.Match[str]) -> str:
        if found.start() in listings:
            return found[0]
        return f"{_shown(reduced, found[2], page)}<!--= {found[2]} -->"

    def table(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name}: begin -->\n{block(name, reduced)}\n<!-- {name}: end -->"

    return _BLOCK.sub(table, _FIGURE.sub(figure, text))


def write(reduced: Reduced) -> list[str]:
    """Puts every page right; those that changed."""
    return [p for p in PAGES if put(ROOT / p, written(p, read(p), reduced))]


def problems(page: str, text: str, reduced: Reduced, phrases: Stated) -> list[str]:
    """What the page shows that it should not, each with its line. Empty: all of it is known."""
    told: list[str] = []

    def tell(at: int, what: str) -> None:
        told.append(f"{page}:{text.count(chr(10), 0, at) + 1}: {what}")

    for found in _BLOCK.finditer(text):
        if found[1] not in BLOCKS:
            tell(found.start(), f"nobody makes the table {found[1]}")
        elif written(page, found[0], reduced) != found[0]:
            tell(found.start(), f"the table {found[1]} is not what was reduced: make evidence")
    covered = [span for name in (page, "everywhere") for span in _phrases(text, phrases.get(name))]
    listings = _listings(text)
    for found in _FIGURE.finditer(text):
        if found.start() in listings:
            continue
        right = _shown(reduced, found[2], page)
        if found[1] != right:
            tell(found.start(), f"{found[2]} is {right}, not {found[1]}: make evidence")
        covered.append(found.span(1))
    those = numbers(text, page in STRICT)
    for found in _WORDS.finditer(text):
        if found.start() in listings:
            continue
        if not holds(found[1], reduced):
            tell(found.start(), f"no longer true: {found[1]} ({_values(found[1], reduced)})")
        if (near := _before(found.start(), those)) is None:
            tell(found.start(), "no number stands before this")
        else:
            covered.append((near.at, near.end))
    for number in those:
        if not any(at <= number.at and number.end <= end for at, end in covered):
            tell(number.at, f"where does {number.text!r} come from?")
    return told


def unused(texts: Mapping[str, str], phrases: Stated, reduced: Reduced) -> list[str]:
    """Phrases that no page has, and figures that none shows."""
    told = []
    for page, those in phrases.items():
        where = [texts[page]] if page in texts else list(texts.values())
        told += [
            f"stated.toml: {page}: nothing says {phrase!r}"
            for phrase in those
            if not any(next(_phrases(text, [phrase]), None) for text in where)
        ]
    named = "\n".join(
        found for text in texts.values() for found in re.findall("<!--[=?].*?-->", text)
    )
    shown = set(re.findall(r"[a-z][a-z0-9_.-]*", named))
    return told + [f"no page shows {name}" for name in reduced.figures if name not in shown]


def holds(condition: str, reduced: Reduced) -> bool:
    """Of `0 < name <= 1`, with numbers and names of figures. EvidenceError."""
    parts = re.split(r"\s*(<=|<|=)\s*", condition.strip())
    if len(parts) < 3:
        raise EvidenceError(f"nothing is compared in {condition!r}")
    values = [_value(word, reduced) for word in parts[::2]]
    pairs = zip(parts[1::2], values, values[1:], strict=False)
    return all(a < b or (sign != "<" and a == b) for sign, a, b in pairs if sign != "=") and all(
        a == b for sign, a, b in zip(parts[1::2], values, values[1:], strict=False) if sign == "="
    )


def _value(word: str, reduced: Reduced) -> float:
    if re.fullmatch(r"-?\d+(\.\d+)?", word):
        return float(word)
    return float(_known(reduced, word)["value"])


def _values(condition: str, reduced: Reduced) -> str:
    names = re.findall(r"[a-z][a-z0-9_.-]*", condition)
    return ", ".join(f"{name} = {_value(name, reduced):.4g}" for name in names)


def _known(reduced: Reduced, name: str) -> dict[str, Any]:
    if name not in reduced.figures:
        raise EvidenceError(f"there is no figure {name}", "figures.py says which there are")
    return reduced.figures[name]


def _shown(reduced: Reduced, name: str, page: str) -> str:
    try:
        return str(_known(reduced, name)["shown"])
    except EvidenceError as error:
        raise EvidenceError(f"{page}: {error}", error.hint) from error


def _listings(text: str) -> set[int]:
    """Where a comment is an example of one."""
    return {at for found in LISTING.finditer(text) for at in range(*found.span())}


def _before(at: int, those: list[Number]) -> Number | None:
    near = [number for number in those if number.end <= at and at - number.end < _NEAR]
    return near[-1] if near else None


def _phrases(text: str, phrases: list[str] | None) -> Iterator[tuple[int, int]]:
    """Where they stand; a line may end at each of their spaces."""
    bare = plain(text) if phrases else ""
    for phrase in phrases or ():
        words = phrase.split()
        # Few places have its first word, and a search for a text is quick.
        spaced = r"\s+".join(map(re.escape, words))
        form = re.compile(rf"(?<![\w.,]){spaced}(?![\w%]|[.,]\d)")
        at = bare.find(words[0])
        while at >= 0:
            if found := form.match(bare, at):
                yield found.span()
            at = bare.find(words[0], at + 1)
