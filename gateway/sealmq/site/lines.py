"""Where in sealmq.toml a key stands, for error messages: found by plain reading, None if unsure."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_WORD = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_WORDS = re.compile(_WORD)
_KEY = re.compile(rf"\s*({_WORD}(?:\s*\.\s*{_WORD})*)\s*=")


def line_of(text: str, key: str) -> int | None:
    """The line (from 1) of `key`: names with dots between, of an array's table its number too.

    Of the deepest of its tables that stands there, the line that says most of it.
    """
    best, best_line = (0, 0), None
    table = ""
    nth: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        found = header or _KEY.match(line)
        if not found:
            continue
        at = _joined(found.group(2 if header else 1))
        if header:
            if header.group(1) == "[[" and at != key:
                nth[at] = nth.get(at, -1) + 1
                at = f"{at}.{nth[at]}"
            table = at
        elif table:
            at = f"{table}.{at}"
        if _same(at, key) and (len(table), len(at)) > best:
            best, best_line = (len(table), len(at)), number
    return best_line


def _joined(dotted: str) -> str:
    return ".".join(w[1:-1] if w[:1] in "\"'" else w for w in _WORDS.findall(dotted))


# `clients.a.label` is said about the line that begins with `a`.
def _same(word: str, name: str) -> bool:
    return word == name or name.startswith(word + ".")
