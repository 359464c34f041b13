"""Merges the device's modules into few files, each one namespace, without what no device reaches.

MicroPython looks for each name of each .mpy file among all names that it knows, so many files that
repeat one another's names cost more than all the code that they hold, on flash and when a board
wakes. What a client imports when it is imported becomes one file, the core; a module that is
imported inside a function becomes one of its own, together with what nobody else needs; what
several such would hold is one more.

This happens to the code, in this order:

- mpy_source.py takes out annotations (but viper's, which are types), docstrings, type checking, a
  source's checks of itself (an `if` that only raises ImportError) and the ways round a missing
  viper, which all that we build for have; a module that is imported as such becomes imports of the
  names that are used; a name that is bound once to a number, a text or bytes, and is nowhere
  compared with `is`, stands as that and is bound no more.
- mpy_place.py puts a file's modules into one namespace: imports between them vanish, and names
  that clash get their module's name behind them.
- mpy_keep.py leaves out top-level definitions and methods that nothing names.
- mpy_split.py moves what a waking board does not run from the core into a file that loads when
  something in it is first called.
- mpy_names.py gives built-ins that a file's functions use often a name in the file, which is found
  sooner, and renames arguments that no caller may give by name, and private attributes.
- Imports of names from elsewhere come first in each file.

Then build_mpy.py compiles, without assertions and line numbers, and deflates all of the device's
package but the core and what inflates. What cannot be merged is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from mpy_file import MpyError
from mpy_flat import flatten
from mpy_keep import keep, public_functions
from mpy_names import alias_builtins, rename_arguments, rename_attributes, rename_globals
from mpy_parts import Piece, renamed, source_of
from mpy_place import Naming, Substitution
from mpy_source import Module, bound, find_constants, told_apart, used
from mpy_split import LATER, Split, when_called

# What the application may import. The core's module keeps its name.
CORE = "sealmq_device"
# Imported inside a function, and yet always needed; and a cipher.
WITH_CORE = ("sealmq_device.aead",)
# A file of its own: through it MicroPython imports the others, once one of them is asked for.
INFLATE = "sealmq_device.inflate"
_PATH = f"""
_path = globals().pop("__path__", "")
def __getattr__(name):
    del globals()["__getattr__"]
    globals()["__path__"] = _path
    import {INFLATE}
    if name == "__path__":
        return globals()[name]
    return __import__("{CORE}." + name, None, None, (name,))
"""

_DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign


def merge(
    modules: Mapping[str, Module],
    public: Mapping[str, Iterable[str]],
    awake: Iterable[tuple[str, str]] = (),
    cipher: str = "sealmq_device.ccm",
) -> dict[str, str]:
    """{file's module name: source}. `modules`: by dotted name. `public`: the modules that an
    application may import and the names that it may import from them; no names stand for all that
    begin without an underscore. One that lies in another file gets a file that passes them on.
    `awake`: (module, function or Class.method) of the core that mpy_split.py leaves there; without
    any all of it stays. `cipher`: the module of the one that is in the core."""
    merging = Merging(dict(modules), {m: list(names) for m, names in public.items()}, cipher)
    return merging.run(awake)


class Merging:
    """The work of merge(). `pieces`: the files by name; `of`: each module's."""

    def __init__(
        self, modules: dict[str, Module], public: dict[str, list[str]], cipher: str
    ) -> None:
        self.modules = modules
        self._with_core = (*WITH_CORE, cipher)
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
                Substitution(self, piece, module).run()
        moved = flatten(self)
        keep(self)
        public_nodes = public_functions(self)
        core = self.pieces[CORE]
        bodies = {name: [p.statement for p in q.parts if p.kept] for name, q in self.pieces.items()}
        own = {owner: name for name, owner in core.names.items()}
        names = [(own.get((m, q.partition(".")[0])), q.partition(".")) for m, q in awake]
        path = [name + q[1] + q[2] for name, q in names if name]
        split = Split(core.parts if names else (), [moved.get(name, name) for name in path])
        if names:
            bodies[CORE], bodies[LATER] = split.core, split.later
            bodies[CORE] += ast.parse(_PATH).body
        self._moved = split.moved if names else set()
        for name, body in bodies.items():
            if name not in (CORE, LATER):
                redirected = [new for old in body for new in self._redirected(old, split)]
                bodies[name] = when_called(redirected)
        bodies = {name: alias_builtins(body) for name, body in bodies.items()}
        rename_arguments(bodies.values(), public_nodes)
        public_names = self._public_names()
        first = [CORE, LATER]
        order = sorted(bodies, key=lambda n: first.index(n) if n in first else len(first))
        rename_attributes([bodies[n] for n in order], sorted(public_names[CORE]))
        rename_globals(bodies, public_names)
        made = {name: source_of(body) for name, body in bodies.items() if body}
        for name, taken in self.public.items():
            if name not in made:
                made[name] = self._passing_on(name, taken)
        for package in {name.partition(".")[0] for name in made}:
            made.setdefault(package, "")
        return made

    def _public_names(self) -> dict[str, set[str]]:
        """What applications import from each file, in its own names."""
        found: dict[str, set[str]] = {}
        for module, names in self.public.items():
            piece = self.of[module]
            found.setdefault(piece.name, set()).update(self.final(piece, module, n) for n in names)
        found[LATER] = found[CORE]
        return found

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
        core = self._order([*self._with_core, CORE])
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
        self._piece(INFLATE, [INFLATE])
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

    # --- what is called what ---

    def _name(self, piece: Piece) -> None:
        if not piece.names:
            Naming(self, piece).run()

    def named(self, piece: Piece, module: str, name: str) -> str:
        """The same as final, for a file whose names may not be given yet."""
        self._name(piece)
        return self.final(piece, module, name)

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
        aliases = [renamed(self.final(piece, name, n), n) for n in names]
        made = ast.ImportFrom(piece.name, aliases, 0)
        split = Split((), ())
        return source_of(self._redirected(made, split) if piece.name == CORE else [made])
