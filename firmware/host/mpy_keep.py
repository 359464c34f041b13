"""Leaves out what no application reaches.

Kept is what applications may import and what that names, on and on. Of a class that is kept: its
special methods, an application's public ones, and each method whose name stands, as an attribute
or a text, anywhere in what is kept.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mpy_parts import Part

if TYPE_CHECKING:
    from mpy_merge import Merging

# Classes of these are called by the interpreter itself.
CALLED = ("sealmq_device.inflate",)


def keep(merging: Merging) -> None:
    """Marks the parts of all files that are kept, and takes methods out of their classes."""
    index: dict[tuple[str, str], list[Part]] = {}
    waiting: list[tuple[str, Part]] = []
    for p in merging.pieces.values():
        for part in p.parts:
            for n in part.binds:
                index.setdefault((p.name, n), []).append(part)
            if not part.binds:
                waiting.append((p.name, part))

    def follow(where: str, part: Part) -> None:
        for key in [*((where, n) for n in part.uses), *part.takes]:
            waiting.extend((key[0], found) for found in index.get(key, ()))

    for name, names in merging.public.items():
        piece = merging.of[name]
        for n in names:
            own = merging.final(piece, name, n)
            waiting.extend((piece.name, part) for part in index[piece.name, own])
    held = _Methods(public_classes(merging))
    while True:
        while waiting:
            where, part = waiting.pop()
            if not part.kept:
                part.kept = True
                held.see(part.statement, where)
                part.describe()
                follow(where, part)
        methods = held.wanted()
        if not methods:
            break
        for where, node in methods:
            method = Part(node, set())
            method.describe()
            follow(where, method)
    for piece in merging.pieces.values():
        for part in piece.parts:
            if part.kept:
                held.prune(part.statement)


def public_classes(merging: Merging) -> set[str]:
    """What applications may call or derive from, as file.name, and the bases of it."""
    found: set[str] = set()
    waiting = [
        (merging.of[name], merging.final(merging.of[name], name, n))
        for name, names in merging.public.items()
        for n in names
    ]
    for name in CALLED:
        classes = [s for s in merging.modules[name].body if isinstance(s, ast.ClassDef)]
        waiting += [
            (merging.of[name], merging.final(merging.of[name], name, s.name)) for s in classes
        ]
    while waiting:
        piece, n = waiting.pop()
        found.add(f"{piece.name}.{n}")
        for part in piece.parts:
            s = part.statement
            if n in part.binds and isinstance(s, ast.ClassDef):
                waiting += [(piece, b.id) for b in s.bases if isinstance(b, ast.Name)]
            elif n in part.binds and isinstance(s, ast.ImportFrom) and s.module in merging.pieces:
                waiting.append((merging.pieces[s.module], s.names[0].name))
    return found


def public_functions(merging: Merging) -> set[int]:
    """What applications call, by id."""
    found: set[int] = set()
    classes = public_classes(merging)
    for piece in merging.pieces.values():
        for part in piece.parts:
            s = part.statement
            if isinstance(s, ast.FunctionDef) and f"{piece.name}.{s.name}" in classes:
                found.add(id(s))
            if isinstance(s, ast.ClassDef) and f"{piece.name}.{s.name}" in classes:
                found |= {
                    id(m)
                    for m in s.body
                    if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)
                    and (m.name == "__init__" or not m.name.startswith("_"))
                }
    return found


class _Methods:
    """Which methods of the classes that are kept are wanted: an attribute of that name is used."""

    def __init__(self, public: set[str]) -> None:
        self._public = public
        self._attributes: set[str] = set()
        self._methods: list[tuple[str, bool, ast.stmt]] = []  # file, an application's, method
        self._kept: set[int] = set()

    def see(self, statement: ast.stmt, where: str) -> None:
        """A top-level statement of the file `where` that is kept. Its methods wait."""
        if not isinstance(statement, ast.ClassDef):
            self._uses(statement)
            return
        public = f"{where}.{statement.name}" in self._public
        for node in statement.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._methods.append((where, public, node))
            else:
                self._uses(node)

    def _uses(self, node: ast.AST) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute):
                self._attributes.add(inner.attr)
            elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                self._attributes.add(inner.value)

    def wanted(self) -> list[tuple[str, ast.stmt]]:
        """Methods that turn out to be wanted since the last time."""
        found = []
        for where, public, node in self._methods:
            name = getattr(node, "name", "")
            plain = public and not name.startswith("_")
            special = name.startswith("__") and name.endswith("__")
            if id(node) not in self._kept and (plain or special or name in self._attributes):
                self._kept.add(id(node))
                found.append((where, node))
        for _, node in found:
            self._uses(node)
        return found

    def prune(self, statement: ast.stmt) -> None:
        """Takes the methods out that nobody wanted."""
        if isinstance(statement, ast.ClassDef):
            statement.body = [
                node
                for node in statement.body
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                or id(node) in self._kept
            ] or [ast.Pass()]
