"""The files that mpy_merge.py makes, while it makes them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from mpy_source import Function, Module, used


@dataclass
class Piece:
    """One file. `names`: what its namespace holds, and whose that is: (module, name there)."""

    name: str
    modules: list[Module] = field(default_factory=list)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)


@dataclass
class Part:
    """A statement at a file's top, in the file's own names."""

    statement: ast.stmt
    binds: set[str]
    uses: set[str] = field(default_factory=set)
    # (file, name there) that it imports.
    takes: set[tuple[str, str]] = field(default_factory=set)
    kept: bool = False

    def describe(self) -> None:
        """Fills in what the statement uses and takes; of a class not its methods."""
        nodes: list[ast.AST] = [self.statement]
        if isinstance(self.statement, ast.ClassDef):
            s = self.statement
            nodes = [*s.bases, *(node for node in s.body if not isinstance(node, Function))]
        for node in nodes:
            self.uses |= used(node)
            for inner in ast.walk(node):
                if isinstance(inner, ast.ImportFrom):
                    self.takes |= {(inner.module or "", alias.name) for alias in inner.names}


def source_of(statements: list[ast.stmt]) -> str:
    """Imports of names first, those from one module together."""
    imports: dict[str, dict[tuple[str, str | None], None]] = {}
    body = []
    for s in statements:
        if isinstance(s, ast.ImportFrom):
            names = imports.setdefault(s.module or "", {})
            names.update({(alias.name, alias.asname): None for alias in s.names})
        else:
            body.append(s)
    head: list[ast.stmt] = [
        ast.ImportFrom(source, [ast.alias(n, asname) for n, asname in names], 0)
        for source, names in imports.items()
    ]
    return ast.unparse(ast.fix_missing_locations(ast.Module([*head, *body], []))) + "\n"


def renamed(name: str, own: str) -> ast.alias:
    """`name as own`."""
    return ast.alias(name, None if own == name else own)
