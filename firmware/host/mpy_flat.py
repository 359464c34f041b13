"""Makes one class of a class and its base, where nothing else knows the base.

A client is written as a chain of classes, one a file. MicroPython looks for a method in one after
the other, each time it is called, and makes each when it loads the file. A base of one class in the
same file, which nobody else names but by its methods, goes into that class. A method that the
class overrides, and calls as the base's, becomes a function.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mpy_file import MpyError
from mpy_parts import Part
from mpy_source import bound

if TYPE_CHECKING:
    from mpy_merge import Merging
    from mpy_parts import Piece

_Method = ast.FunctionDef | ast.AsyncFunctionDef


def flatten(merging: Merging) -> dict[str, str]:
    """Changes the parts of all files; {Class.method of before: what it is called now}."""
    outside = {
        (merging.of[module].name, merging.final(merging.of[module], module, name))
        for module, names in merging.public.items()
        for name in names
    }
    nodes = {
        piece.name: [n for part in piece.parts for n in ast.walk(part.statement)]
        for piece in merging.pieces.values()
    }
    for inner in (n for found in nodes.values() for n in found):
        if isinstance(inner, ast.ImportFrom):
            outside |= {(inner.module or "", alias.name) for alias in inner.names}
    moved: dict[str, str] = {}
    for piece in merging.pieces.values():
        while pair := _pair(piece, outside):
            _join(piece, *pair, moved)
    return moved


def _pair(piece: Piece, outside: set[tuple[str, str]]) -> tuple[Part, Part] | None:
    """A base that can go into the one class that has it, and that class."""
    classes = {p.statement.name: p for p in piece.parts if isinstance(p.statement, ast.ClassDef)}
    for name, base in classes.items():
        if (piece.name, name) in outside:
            continue
        heirs = [c for c in classes.values() if name in _bases(c.statement)]
        if len(heirs) == 1 and len(_bases(heirs[0].statement)) == 1 and _only_methods(piece, name):
            return base, heirs[0]
    return None


def _bases(node: ast.stmt) -> list[str]:
    return [ast.unparse(b) for b in node.bases] if isinstance(node, ast.ClassDef) else []


def _only_methods(piece: Piece, name: str) -> bool:
    """Whether `name` stands only where a class names its base, and before a point."""
    named = expected = 0
    for part in piece.parts:
        for node in ast.walk(part.statement):
            if isinstance(node, ast.Name) and node.id == name:
                named += 1
            elif isinstance(node, ast.ClassDef):
                expected += _bases(node).count(name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                expected += node.value.id == name
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "super":
                return False
    return named == expected


def _join(piece: Piece, base: Part, heir: Part, moved: dict[str, str]) -> None:
    old, new = base.statement, heir.statement
    if not isinstance(old, ast.ClassDef) or not isinstance(new, ast.ClassDef):
        raise MpyError(f"{piece.name}: no classes to make one of")
    own = {name for statement in new.body for name in bound(statement)}
    taken = {n for p in piece.parts for n in p.binds}
    functions: list[Part] = []
    names: dict[str, str] = {}
    body = []
    for statement in old.body:
        (name, *_) = [*bound(statement), ""]
        if name not in own:
            body.append(statement)
        elif isinstance(statement, _Method):
            function = f"{old.name}_{name}"
            if function in taken or _outside(statement):
                raise MpyError(f"{piece.name}: {old.name}.{name} cannot become a function")
            names[name] = statement.name = function
            functions.append(Part(statement, {function}))
    new.body = [*(s for s in body if not isinstance(s, ast.Pass)), *new.body]
    new.bases = old.bases
    called = _Called(old.name, new.name, names)
    # What names a method by its class stands after the class.
    at = piece.parts.index(base)
    until = piece.parts.index(heir)
    before: list[Part] = []
    after: list[Part] = []
    for part in piece.parts[at + 1 : until]:
        assigns = isinstance(part.statement, ast.Assign)
        aside = assigns and any(
            isinstance(n, ast.Name) and n.id == old.name for n in ast.walk(part.statement)
        )
        (after if aside else before).append(part)
    piece.parts[at : until + 1] = [*functions, *before, heir, *after]
    for part in piece.parts:
        part.statement = called.visit(part.statement)
    for key, value in list(moved.items()):
        cls, _, method = value.partition(".")
        if cls == old.name:
            moved[key] = names.get(method, f"{new.name}.{method}")
    for statement in old.body:
        if isinstance(statement, _Method):
            method = next((k for k, v in names.items() if v == statement.name), statement.name)
            moved[f"{old.name}.{method}"] = names.get(method, f"{new.name}.{method}")


def _outside(method: _Method) -> list[ast.AST]:
    """What of a method stands in the class's names, but for constants."""
    a = method.args
    found = [*a.defaults, *(d for d in a.kw_defaults if d is not None), *method.decorator_list]
    return [node for node in found if not isinstance(node, ast.Constant)]


class _Called(ast.NodeTransformer):
    """Puts what a base's methods are called now in the place of Base.method."""

    def __init__(self, old: str, new: str, functions: dict[str, str]) -> None:
        self._old, self._new, self._functions = old, new, functions

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.value, ast.Name) or node.value.id != self._old:
            return node
        if node.attr in self._functions:
            return ast.Name(self._functions[node.attr], node.ctx)
        return ast.Attribute(ast.Name(self._new, ast.Load()), node.attr, node.ctx)
