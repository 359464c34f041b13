"""Where sealmq.toml names a label or a client, beside the line that makes it: for whoever wants to
take it out. Plain reading of the parsed file, which may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

SHOWN = 5


def of_label(doc: Mapping[str, Any], name: str) -> list[str]:
    """Dotted keys of what names this label."""
    found = [f"labels.{low}" for low, row in _rows(doc, "labels") if name in _list(row, "over")]
    found += [f"clients.{who}" for who, row in _rows(doc, "clients") if _of(row, "label") == name]
    found += [f"topics.{topic}" for topic, label in _rows(doc, "topics") if label == name]
    found += [
        f"borders.{of}.{word}"
        for of, row in _rows(doc, "borders")
        for word in ("from", "to")
        if _of(row, word) == name
    ]
    found += [key for key, names in _lists(_named_in(doc), "labels") if name in names]
    return found


def of_client(doc: Mapping[str, Any], name: str) -> list[str]:
    """Dotted keys of what names this client, its own line not counted."""
    from sealmq.families import registry  # few need it

    found = [key for key, names in _lists(_named_in(doc), "clients") if name in names]
    told = _rows(doc, "attributes")
    found += [f"attributes.{of}.by" for of, row in told if name in _list(row, "by")]
    for manifest in registry.manifests():
        key = f"families.{manifest.name}"
        table = _of(doc.get("families"), manifest.name)
        for word in manifest.names_clients:
            named = _of(table, word)
            if isinstance(named, Mapping) and name in named:
                found.append(f"{key}.{word}.{name}")
            found += [at for at, names in _lists([(key, table)], word) if name in names]
    return found


def words(keys: list[str]) -> str:
    """The first few, and how many more."""
    more = len(keys) - SHOWN
    return ", ".join(keys[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _rows(doc: Mapping[str, Any], table: str) -> list[tuple[str, Any]]:
    found = doc.get(table)
    return list(found.items()) if isinstance(found, Mapping) else []


def _of(row: Any, key: str) -> Any:
    return row.get(key) if isinstance(row, Mapping) else None


def _list(row: Any, key: str) -> list[Any]:
    found = row if isinstance(row, list) else _of(row, key)
    return found if isinstance(found, list) else []


# Where lists of names may stand.
def _named_in(doc: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, doc[key]) for key in ("creation", "families") if key in doc]


# Lists of names under this word, in these tables (by their keys), at any depth.
def _lists(tables: Iterable[tuple[str, Any]], word: str) -> Iterator[tuple[str, list[Any]]]:
    left = list(tables)
    while left:
        key, value = left.pop(0)
        if isinstance(value, Mapping):
            for name, inside in value.items():
                if name == word and isinstance(inside, list):
                    yield f"{key}.{name}", inside
                else:
                    left.append((f"{key}.{name}", inside))
        elif isinstance(value, list):
            left += [(f"{key}.{i}", row) for i, row in enumerate(value)]
