"""Where in sealmq.toml a key stands, for error messages: found by plain reading, None if unsure."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_WORD = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_WORDS = re.compile(_WORD)
_DOTTED = re.compile(rf"\s*{_WORD}(?:\s*\.\s*{_WORD})*\s*=")
_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*[=.]""")


def line_of(text: str, key: str) -> int | None:
    """The line (from 1) of `key`: TABLE, TABLE.NAME, or ARRAY.NUMBER[.NAME].

    Of families.* any depth: the deepest of its tables that stands there.
    """
    if key.startswith("families."):
        return _nested(text, key)
    table, _, rest = key.partition(".")
    name = rest
    nth = -1
    if table == "creation" and rest:
        number, _, name = rest.partition(".")
        nth = int(number)
    count = -1
    current = ""
    header_line = None
    for number_of_line, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            current = _plain(header.group(2))
            if current == table:
                count += 1
                if nth in (-1, count):
                    header_line = header_line or number_of_line
            elif current == key:
                return number_of_line
            continue
        if current == table and nth in (-1, count) and name:
            found = _KEY.match(line)
            if found and _same(_plain(found.group(1)), name):
                return number_of_line
        elif not current and not rest:
            found = _KEY.match(line)
            if found and _plain(found.group(1)) == table:
                return number_of_line
    return header_line


# The longest header that the key begins with, and in its table the longest key.
def _nested(text: str, key: str) -> int | None:
    best, best_line = (0, 0), None
    table = ""
    nth: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        found = header or _DOTTED.match(line)
        if not found:
            continue
        at = _joined(found.group(2 if header else 0))
        if header:
            if header.group(1) == "[[":
                nth[at] = nth.get(at, -1) + 1
                at = f"{at}.{nth[at]}"
            table = at
        else:
            at = f"{table}.{at}"
        if _same(at, key) and (len(table), len(at)) > best:
            best, best_line = (len(table), len(at)), number
    return best_line


def _joined(dotted: str) -> str:
    return ".".join(
        w[1:-1] if w[:1] in "\"'" else w for w in _WORDS.findall(dotted.partition("=")[0])
    )


# `clients.a.label` is said about the line that begins with `a`.
def _same(word: str, name: str) -> bool:
    return word == name or name.startswith(word + ".")


def _plain(word: str) -> str:
    parts = [w.strip() for w in word.split(".")] if word[:1] not in "\"'" else [word]
    return ".".join(w[1:-1] if w[:1] in ("'", '"') else w for w in parts)
