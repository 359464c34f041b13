"""Where in sealmq.toml a key stands, for error messages: found by plain reading, None if unsure."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*[=.]""")


def line_of(text: str, key: str) -> int | None:
    """The line (from 1) of `key`: TABLE, TABLE.NAME, or ARRAY.NUMBER[.NAME]."""
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


# `clients.a.label` is said about the line that begins with `a`.
def _same(word: str, name: str) -> bool:
    return word == name or name.startswith(word + ".")


def _plain(word: str) -> str:
    parts = [w.strip() for w in word.split(".")] if word[:1] not in "\"'" else [word]
    return ".".join(w[1:-1] if w[:1] in ("'", '"') else w for w in parts)
