"""Merges the device's modules into few files, each one namespace, without what no device reaches.

MicroPython looks for each name of each .mpy file among all names that it knows, so many files that
repeat one another's names cost more than all the code that they hold, on flash and when a board
wakes. What a client imports when it is imported becomes one file; a module that is imported inside
a function becomes one of its own, together with what nobody else needs.

This happens to the code: a name that is bound once to a number, a text or bytes stands as that;
imports between merged modules vanish, and names that clash get their module's name behind them;
top-level definitions and methods that nothing names are left out (a method is named when an
attribute or a text of its name stands anywhere in what is kept); mpy_split.py puts off what a
waking board does not run; mpy_names.py renames arguments and private attributes. Annotations go,
and the ways round a missing viper, which all that we build for have. What cannot be merged is
refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mpy_file import MpyError
from mpy_names import rename_arguments, rename_attributes
from mpy_source import PACKAGES, Function, Module, bound, find_constants, local, told_apart, used
from mpy_split import LATER, Split

# What the application may import. The core's module keeps its name.
CORE = "sealmq_device"
# Imported inside a function, and yet always needed.
WITH_CORE = ("sealmq_device.inflate", "sealmq_device.aead", "sealmq_device.ccm")
# Classes of these are called by the interpreter itself.
CALLED = ("sealmq_device.inflate",)

_DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign


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


def merge(
    modules: Mapping[str, Module],
    public: Mapping[str, Iterable[str]],
    awake: Iterable[tuple[str, str]] = (),
) -> dict[str, str]:
    """{file's module name: source}. `modules`: by dotted name. `public`: the modules that an
    application may import and the names that it may import from them; no names stand for all that
    begin without an underscore. One that lies in another file gets a file that passes them on.
    `awake`: (module, function or Class.method) of the core that mpy_split.py leaves there; without
    any all of it stays."""
    merging = _Merging(dict(modules), {m: list(names) for m, names in public.items()})
    return merging.run(awake)


class _Merging:
    def __init__(self, modules: dict[str, Module], public: dict[str, list[str]]) -> None:
        self.modules = modules
        self.public = public
        self.pieces: dict[str, Piece] = {}
        self.of: dict[str, Piece] = {}  # by module
        self._moved: set[str] = set()

    def _all(self, name: str) -> list[str]:
        module = self._module(name)
        # What a module imports from ours and does not use, it passes on.
        found = {n for s in module.body if isinstance(s, _DEFINES) for n in bound(s)}
        uses = {n for s in module.body for n in used(s)}
        for s in module.body:
            if isinstance(s, ast.ImportFrom):
                found |= {here for here, _, _ in module.sources(s) if here not in uses}
        return sorted(n for n in found if not n.startswith("_") and n not in module.constants)

    def _module(self, name: str) -> Module:
        if name not in self.modules:
            raise MpyError(f"there is no module {name}")
        return self.modules[name]

    def run(self, awake: Iterable[tuple[str, str]]) -> dict[str, str]:
        apart = told_apart(self.modules.values())
        for name in self._order(self.modules):
            find_constants(self.modules[name], self.modules, apart)
        self.public = {m: names or self._all(m) for m, names in self.public.items()}
        self._divide()
        for piece in self.pieces.values():
            self._name(piece)
        for piece in self.pieces.values():
            for module in piece.modules:
                _Substitution(self, piece, module).run()
        self._keep()
        public_nodes = self._public_functions()
        core = self.pieces[CORE]
        bodies = {name: [p.statement for p in q.parts if p.kept] for name, q in self.pieces.items()}
        own = {owner: name for name, owner in core.names.items()}
        names = [(own.get((m, q.partition(".")[0])), q) for m, q in awake]
        split = Split(
            core.parts if names else (),
            [name + q[len(q.partition(".")[0]) :] for name, q in names if name],
        )
        if names:
            bodies[CORE], bodies[LATER] = split.core, split.later
        self._moved = split.moved if names else set()
        for name, body in bodies.items():
            if name not in (CORE, LATER):
                bodies[name] = [new for old in body for new in self._redirected(old, split)]
        rename_arguments(bodies.values(), public_nodes)
        rename_attributes(bodies.values())
        made = {name: _source(body) for name, body in bodies.items() if body}
        for name, taken in self.public.items():
            if name not in made:
                made[name] = self._passing_on(name, taken)
        for package in {name.partition(".")[0] for name in made}:
            made.setdefault(package, "")
        return made

    # --- which module goes where ---

    def _imports(self, module: Module, lazy: bool) -> list[str]:
        found: dict[str, None] = {}
        for statement in module.body:
            inside = isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
            if inside != lazy:
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.ImportFrom):
                    for _, source, _ in module.sources(node):
                        self._module(source)
                        found[source] = None
        return list(found)

    def _order(self, names: Iterable[str]) -> list[str]:
        """What each imports first, then itself."""
        order: dict[str, None] = {}
        visiting: list[str] = []

        def visit(name: str) -> None:
            if name in order:
                return
            if name in visiting:
                raise MpyError(f"imports in a circle: {' '.join(visiting)}")
            visiting.append(name)
            for other in self._imports(self.modules[name], lazy=False):
                visit(other)
            visiting.pop()
            order[name] = None

        for name in names:
            visit(name)
        return list(order)

    def _divide(self) -> None:
        core = self._order([*WITH_CORE, CORE])
        entries: dict[str, list[str]] = {}
        waiting = [*core, *self.public]
        seen = set(core)
        while waiting:
            name = waiting.pop()
            module = self._module(name)
            for entry in self._imports(module, lazy=True):
                if entry not in entries and entry not in core:
                    entries[entry] = [m for m in self._order([entry]) if m not in core]
                    waiting += entries[entry]
            if name not in seen and name in self.public:
                entries.setdefault(name, [m for m in self._order([name]) if m not in core])
                waiting += [m for m in entries[name] if m not in seen]
            seen.add(name)
        # What the same files would hold is one file of its own.
        groups: dict[frozenset[str], list[str]] = {}
        for member in self._order([m for members in entries.values() for m in members]):
            owners = frozenset(e for e, members in entries.items() if member in members)
            if owners:
                groups.setdefault(owners, []).append(member)
        self._piece(CORE, core)
        for members in groups.values():
            self._piece(next((m for m in members if m in entries), members[-1]), members)

    def _piece(self, name: str, members: list[str]) -> None:
        # What is deflated lies in one folder.
        called = name if name in self.public else f"{CORE}.{name.partition('.')[2]}"
        piece = Piece(CORE if name == CORE else called, [self.modules[m] for m in members])
        if piece.name in self.pieces:
            raise MpyError(f"two files become {piece.name}")
        self.pieces[piece.name] = piece
        for m in members:
            self.of[m] = piece

    # --- what is kept ---

    def _keep(self) -> None:
        index: dict[tuple[str, str], list[Part]] = {}
        waiting: list[tuple[str, Part]] = []
        for p in self.pieces.values():
            for part in p.parts:
                for n in part.binds:
                    index.setdefault((p.name, n), []).append(part)
                if not part.binds:
                    waiting.append((p.name, part))

        def follow(where: str, part: Part) -> None:
            for key in [*((where, n) for n in part.uses), *part.takes]:
                waiting.extend((key[0], found) for found in index.get(key, ()))

        for name, names in self.public.items():
            piece = self.of[name]
            for n in names:
                own = self.final(piece, name, n)
                waiting.extend((piece.name, part) for part in index[piece.name, own])
        held = _Methods(self._public_classes())
        while True:
            while waiting:
                where, part = waiting.pop()
                if not part.kept:
                    part.kept = True
                    held.see(part.statement, where)
                    _describe(part)
                    follow(where, part)
            methods = held.wanted()
            if not methods:
                break
            for where, node in methods:
                method = Part(node, set())
                _describe(method)
                follow(where, method)
        for piece in self.pieces.values():
            for part in piece.parts:
                if part.kept:
                    held.prune(part.statement)

    def _public_classes(self) -> set[str]:
        """What applications may call or derive from, as file.name, and the bases of it."""
        found: set[str] = set()
        waiting = [
            (self.of[name], self.final(self.of[name], name, n))
            for name, names in self.public.items()
            for n in names
        ]
        for name in CALLED:
            classes = [s for s in self.modules[name].body if isinstance(s, ast.ClassDef)]
            waiting += [(self.of[name], self.final(self.of[name], name, s.name)) for s in classes]
        while waiting:
            piece, n = waiting.pop()
            found.add(f"{piece.name}.{n}")
            for part in piece.parts:
                s = part.statement
                if n in part.binds and isinstance(s, ast.ClassDef):
                    waiting += [(piece, b.id) for b in s.bases if isinstance(b, ast.Name)]
                elif n in part.binds and isinstance(s, ast.ImportFrom) and s.module in self.pieces:
                    waiting.append((self.pieces[s.module], s.names[0].name))
        return found

    def _name(self, piece: Piece) -> None:
        if not piece.names:
            _Naming(self, piece).run()

    def named(self, piece: Piece, module: str, name: str) -> str:
        """The same as final, for a file whose names may not be given yet."""
        self._name(piece)
        return self.final(piece, module, name)

    def _public_functions(self) -> set[int]:
        """What applications call, by id."""
        found: set[int] = set()
        classes = self._public_classes()
        for piece in self.pieces.values():
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

    def final(self, piece: Piece, module: str, name: str) -> str:
        """What `name` of `module` is called in its file."""
        for own, owner in piece.names.items():
            if owner == (module, name):
                return own
        for statement in self.modules[module].body:
            if isinstance(statement, ast.ImportFrom):
                for here, source, inner in self.modules[module].sources(statement):
                    if here == name and self.of[source] is piece:
                        return self.final(piece, source, inner)
                    if here == name:
                        other = self.of[source]
                        owner = f"from {other.name}", self.named(other, source, inner)
                        return next(own for own, given in piece.names.items() if given == owner)
        raise MpyError(f"{module} has no {name}")

    # --- the files' sources ---

    def _redirected(self, statement: ast.stmt, split: Split) -> list[ast.stmt]:
        """A statement of another file, with what it takes from the core where that now lies."""
        if not isinstance(statement, ast.ImportFrom):
            for node in ast.walk(statement):
                for _, block in ast.iter_fields(node):
                    if isinstance(block, list) and any(
                        isinstance(s, ast.ImportFrom) for s in block
                    ):
                        block[:] = [new for old in block for new in self._redirected(old, split)]
            return [statement]
        if statement.module != CORE:
            return [statement]
        made: list[ast.stmt] = []
        if any(alias.name in split.whole for alias in statement.names):
            made.append(ast.Import([ast.alias(LATER)]))
        for module, moved in ((CORE, False), (LATER, True)):
            names = [a for a in statement.names if (a.name in self._moved) == moved]
            if names:
                made.append(ast.ImportFrom(module, names, 0))
        return made

    def _passing_on(self, name: str, names: list[str]) -> str:
        piece = self.of[name]
        aliases = [_alias(self.final(piece, name, n), n) for n in names]
        made = ast.ImportFrom(piece.name, aliases, 0)
        split = Split((), ())
        return _source(self._redirected(made, split) if piece.name == CORE else [made])


def _source(statements: list[ast.stmt]) -> str:
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


def _describe(part: Part) -> None:
    """Fills in what a statement uses and takes; of a class not its methods."""
    nodes: list[ast.AST] = [part.statement]
    if isinstance(part.statement, ast.ClassDef):
        s = part.statement
        nodes = [*s.bases, *(node for node in s.body if not isinstance(node, Function))]
    for node in nodes:
        part.uses |= used(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.ImportFrom):
                part.takes |= {(inner.module or "", alias.name) for alias in inner.names}


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


class _Naming:
    """Gives each name of a file's modules its place in the file's one namespace."""

    def __init__(self, merging: _Merging, piece: Piece) -> None:
        self._merging = merging
        self._piece = piece

    def run(self) -> None:
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


class _Substitution(ast.NodeTransformer):
    """Turns a module's statements into parts of its file."""

    def __init__(self, merging: _Merging, piece: Piece, module: Module) -> None:
        self._merging = merging
        self._piece = piece
        self._module = module
        self._inside: list[dict[str, ast.expr | None]] = []
        self._own: dict[str, str] = {}

    def run(self) -> None:
        naming = _Naming(self._merging, self._piece)
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
                    yield ast.Import([_alias(alias.name, own)])
            return
        ours = {here: (source, inner) for here, source, inner in self._module.sources(statement)}
        for alias in statement.names:
            here = alias.asname or alias.name
            if here not in ours:
                own = self._own[here]
                yield ast.ImportFrom(statement.module, [_alias(alias.name, own)], 0)
            elif here not in self._module.constants:
                other = self._merging.of[ours[here][0]]
                if other is not self._piece:
                    name = self._merging.final(other, *ours[here])
                    yield ast.ImportFrom(other.name, [_alias(name, self._own[here])], 0)

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
                kept.append(ast.ImportFrom(node.module, [_alias(alias.name, own)], 0))
            elif self._inside[-1][here] is None:
                other = self._merging.of[ours[here][0]]
                name = self._merging.final(other, *ours[here])
                if other is self._piece:
                    kept.append(
                        ast.Assign([ast.Name(here, ast.Store())], ast.Name(name, ast.Load()))
                    )
                else:
                    kept.append(ast.ImportFrom(other.name, [_alias(name, here)], 0))
        return kept or [ast.Pass()]


def _alias(name: str, own: str) -> ast.alias:
    return ast.alias(name, None if own == name else own)


def _listed(node: Any) -> list[ast.stmt]:
    return node if isinstance(node, list) else [] if node is None else [node]
