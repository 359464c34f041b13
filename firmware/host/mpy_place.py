"""Puts the statements of a file's modules into its one namespace.

Each name that a module binds gets its place there; one that clashes, or that some function hides,
gets its module's name behind it. Constants stand as what they are, and imports from the same file
vanish.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mpy_file import MpyError
from mpy_parts import Part, Piece, renamed
from mpy_source import PACKAGES, Function, Module, bound, local

if TYPE_CHECKING:
    from mpy_merge import Merging


class Naming:
    """Gives each name of a file's modules its place in the file's one namespace."""

    def __init__(self, merging: Merging, piece: Piece) -> None:
        self._merging = merging
        self._piece = piece

    def run(self) -> None:
        """Fills in the file's `names`."""
        self._shadowed = set(self._find_shadowed())
        # The module that gives the file its name keeps its own names.
        stem = self._piece.name.partition(".")[2]
        entry = [m for m in self._piece.modules if m.name.partition(".")[2] == stem]
        for module in [*entry, *self._piece.modules]:
            for statement in module.body:
                for name in bound(statement):
                    owner = self.owner(module, statement, name)
                    if owner is not None and owner not in self._piece.names.values():
                        self._give(owner, name, module.name)

    def _find_shadowed(self) -> Iterator[tuple[str, str]]:
        """What is imported under another name because a function has a local one of that name, or
        into a variable."""
        for module in self._piece.modules:
            functions = [n for s in module.body for n in ast.walk(s) if isinstance(n, Function)]
            for function in functions:
                rebound = local(function, imports=False)
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        for here, source, inner in module.sources(node):
                            if here in rebound:
                                yield source, inner
            locals_ = {name for function in functions for name in local(function)}
            for statement in module.body:
                if isinstance(statement, ast.ImportFrom):
                    for here, source, inner in module.sources(statement):
                        if here != inner and inner in locals_:
                            yield source, inner

    def owner(self, module: Module, statement: ast.stmt, name: str) -> tuple[str, str] | None:
        """Whose a name is; None when it stands for another of this file, or for a number."""
        if name in module.constants:
            return None
        if isinstance(statement, ast.ImportFrom):
            for here, source, inner in module.sources(statement):
                if here == name:
                    other = self._merging.of[source]
                    if other is self._piece:
                        return None
                    return f"from {other.name}", self._merging.named(other, source, inner)
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return f"from {statement.module}", alias.name
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if (alias.asname or alias.name.partition(".")[0]) == name:
                    return f"import {alias.name if alias.asname else name}", ""
        return module.name, name

    def _give(self, owner: tuple[str, str], name: str, module: str) -> None:
        names = self._piece.names
        if name in names or owner in self._shadowed:
            name = f"{name}_{module.rpartition('.')[2]}"
        if name in names:
            raise MpyError(f"{self._piece.name}: two names become {name}")
        names[name] = owner


class Substitution(ast.NodeTransformer):
    """Turns a module's statements into parts of its file."""

    def __init__(self, merging: Merging, piece: Piece, module: Module) -> None:
        self._merging = merging
        self._piece = piece
        self._module = module
        self._inside: list[dict[str, ast.expr | None]] = []
        self._own: dict[str, str] = {}

    def run(self) -> None:
        """Adds to the file's `parts`."""
        naming = Naming(self._merging, self._piece)
        owners = {owner: own for own, owner in self._piece.names.items()}
        there = {n for part in self._piece.parts for n in part.binds}
        for statement in self._module.body:
            for name in bound(statement):
                owner = naming.owner(self._module, statement, name)
                if owner is not None:
                    self._own[name] = owners[owner]
            if isinstance(statement, ast.ImportFrom):
                for here, source, inner in self._module.sources(statement):
                    if here not in self._module.constants and here not in self._own:
                        self._own[here] = self._merging.final(self._piece, source, inner)
        for statement in self._module.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for single in self._imports(statement):
                    (binds,) = bound(single)
                    if binds not in there:
                        there.add(binds)
                        self._piece.parts.append(Part(single, {binds}))
            else:
                node = self.visit(statement)
                binds_all = set(bound(node))
                if not binds_all or not binds_all <= set(self._module.constants):
                    self._piece.parts.append(Part(node, binds_all))

    def _imports(self, statement: ast.Import | ast.ImportFrom) -> Iterator[ast.stmt]:
        """One import for each name that comes from elsewhere."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name.partition(".")[0] not in PACKAGES:
                    own = self._own[alias.asname or alias.name.partition(".")[0]]
                    yield ast.Import([renamed(alias.name, own)])
            return
        ours = {here: (source, inner) for here, source, inner in self._module.sources(statement)}
        for alias in statement.names:
            here = alias.asname or alias.name
            if here not in ours:
                own = self._own[here]
                yield ast.ImportFrom(statement.module, [renamed(alias.name, own)], 0)
            elif here not in self._module.constants:
                other = self._merging.of[ours[here][0]]
                if other is not self._piece:
                    name = self._merging.final(other, *ours[here])
                    yield ast.ImportFrom(other.name, [renamed(name, self._own[here])], 0)

    def _replaced(self, name: str) -> ast.expr | None:
        for scope in reversed(self._inside):
            if name in scope:
                return scope[name]
        if name in self._module.constants:
            return ast.Constant(self._module.constants[name])
        return ast.Name(self._own[name], ast.Load()) if name in self._own else None

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self._replaced(node.id)
        if isinstance(found, ast.Name):
            return ast.copy_location(ast.Name(found.id, node.ctx), node)
        if found is None or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(found, node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._own.get(name, name) for name in node.names]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if not self._inside:
            node.name = self._own[node.name]
        node.bases = [self.visit(base) for base in node.bases]
        names = {name: None for statement in node.body for name in bound(statement)}
        body: list[ast.stmt] = []
        for statement in node.body:
            if isinstance(statement, Function):
                body.append(self._function(statement, method=True))
            else:
                self._inside.append(dict(names))
                body.append(self.visit(statement))
                self._inside.pop()
        node.body = body
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._function(node, method=False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._function(node, method=False)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self._function(node, method=False)

    def _function(self, node: Any, method: bool) -> Any:
        if not self._inside and not method and not isinstance(node, ast.Lambda):
            node.name = self._own[node.name]
        a = node.args
        a.defaults = [self.visit(default) for default in a.defaults]
        a.kw_defaults = [default and self.visit(default) for default in a.kw_defaults]
        if not isinstance(node, ast.Lambda):
            node.decorator_list = [self.visit(d) for d in node.decorator_list]
        scope: dict[str, ast.expr | None] = dict.fromkeys(local(node))
        variables = local(node, imports=False)
        # What a function imports from its own file is there already.
        for inner in ast.walk(node):
            if isinstance(inner, ast.ImportFrom):
                for here, source, name in self._module.sources(inner):
                    constants = self._merging.modules[source].constants
                    if name in constants:
                        scope[here] = ast.Constant(constants[name])
                    elif self._merging.of[source] is self._piece:
                        own = self._merging.final(self._piece, source, name)
                        if own in scope and own != here:
                            raise MpyError(f"{self._module.name}: {own} is local and imported")
                        if here not in variables:
                            scope[here] = ast.Name(own, ast.Load())
        self._inside.append(scope)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [s for old in node.body for s in _listed(self.visit(old))] or [ast.Pass()]
        self._inside.pop()
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt] | None:
        """Inside a function, or in a `try` at the top."""
        kept: list[ast.stmt] = []
        ours = {here: (source, inner) for here, source, inner in self._module.sources(node)}
        if ours and not self._inside:
            raise MpyError(f"{self._module.name}: our own module imported in a top-level try or if")
        for alias in node.names:
            here = alias.asname or alias.name
            if here not in ours:
                own = here if self._inside else self._own[here]
                kept.append(ast.ImportFrom(node.module, [renamed(alias.name, own)], 0))
            elif self._inside[-1][here] is None:
                other = self._merging.of[ours[here][0]]
                name = self._merging.final(other, *ours[here])
                if other is self._piece:
                    kept.append(
                        ast.Assign([ast.Name(here, ast.Store())], ast.Name(name, ast.Load()))
                    )
                else:
                    kept.append(ast.ImportFrom(other.name, [renamed(name, here)], 0))
        return kept or [ast.Pass()]


def _listed(node: Any) -> list[ast.stmt]:
    return node if isinstance(node, list) else [] if node is None else [node]
