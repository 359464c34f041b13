"""Splits the core file in two: what a board runs that wakes, connects, publishes and sleeps, and
the rest, which loads when something in it is first called.

A class stays in the core with its special methods and those of the path; where it lacks others it
gets a `__getattr__` that loads the rest, which puts them in, takes `__getattr__` away again and so
is asked once. A function that the path only names is taken from the rest where it is named, by its
number. An error that the path raises with a text is made by such a function, too. What is assigned
and what the path uses stays in the core, and the rest imports it from there: so a function that
rebinds a name of the module has to stay with all that read the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from mpy_file import MpyError
from mpy_parts import Part
from mpy_source import Function, local, used

LATER = "sealmq_device.later"
_NATIVE = ("micropython.viper", "micropython.native")
_FEW = 2
_MORE = "_more"
_TAKEN = "_rare"
_HOOK = f"""
def {_MORE}(self, name):
    import {LATER}
    return getattr(self, name)
"""
_TAKE = f"""
def {_TAKEN}(index):
    from {LATER} import {_TAKEN}
    return {_TAKEN}[index]
"""
_JOIN = """
for _whole, _rest in ({pairs},):
    for _name in _rest.__dict__:
        if _name[:2] != "__":
            setattr(_whole, _name, _rest.__dict__[_name])
"""


class _Numbered(ast.NodeTransformer):
    """Puts a call that takes it from the rest in the place of each function in `names`."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def _function(self, node: ast.AST) -> ast.AST:
        if isinstance(node, Function):
            own = local(node)
            node = _Numbered([n if n not in own else "" for n in self._names]).generic_visit(node)
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._names:
            return node
        number = ast.Constant(self._names.index(node.id))
        return ast.Call(ast.Name(_TAKEN, ast.Load()), [number], [])


class _Errors(ast.NodeTransformer):
    """Puts calls of functions that make them in the place of errors with a text."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, made: dict[str, Part]):
        self._function = function
        self._local = local(function)
        self._made = made

    def run(self) -> None:
        self._function.body = [self.visit(statement) for statement in self._function.body]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node  # another one's variables

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if not isinstance(node.exc, ast.Call):
            return node
        inside = list(ast.walk(node.exc))
        if not any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in inside):
            return node
        names = sorted({n.id for n in inside if isinstance(n, ast.Name)} & self._local)
        key = f"{', '.join(names)}: {ast.unparse(node.exc)}"
        if key not in self._made:
            name = f"_error_{len(self._made)}"
            made = ast.parse(f"def {name}({', '.join(names)}):\n    return {ast.unparse(node.exc)}")
            self._made[key] = Part(made.body[0], {name}, kept=True)
        (name,) = self._made[key].binds
        arguments: list[ast.expr] = [ast.Name(n, ast.Load()) for n in names]
        return ast.Raise(ast.Call(ast.Name(name, ast.Load()), arguments, []), node.cause)


class Split:
    """`parts`: the core's. `awake`: functions, and methods as Class.method, of the path, in the
    names of the file. Gives `core` and `later`, statements; `moved`: names that lie in `later`."""

    def __init__(self, parts: Iterable[Part], awake: Iterable[str]) -> None:
        self._parts = [part for part in parts if part.kept]
        self._awake = set(awake)
        if self._awake:
            self._parts += self._errors()
        self._by_name: dict[str, list[Part]] = {}
        for part in self._parts:
            for name in part.binds:
                self._by_name.setdefault(name, []).append(part)
        self._stay: dict[int, Part] = {}
        self._rare: set[str] = set()  # functions of the rest that the core names
        self.core: list[ast.stmt] = []
        self.later: list[ast.stmt] = []
        self.moved: set[str] = set()
        self.whole: set[str] = set()  # classes whose other half lies in `later`
        self._choose()
        self._divide()

    def _cold(self, holder: str, method: str) -> bool:
        special = method.startswith("__") and method.endswith("__")
        return not special and f"{holder}.{method}" not in self._awake

    def _errors(self) -> list[Part]:
        """Functions that make the errors which the path raises."""
        made: dict[str, Part] = {}
        for part in self._parts:
            s = part.statement
            functions = [m for name, m in _methods(s) if not self._cold(next(_class_name(s)), name)]
            if isinstance(s, ast.FunctionDef) and s.name in self._awake:
                functions.append(s)
            for function in functions:
                if not any(ast.unparse(d) in _NATIVE for d in function.decorator_list):
                    _Errors(function, made).run()
        return list(made.values())

    def _choose(self) -> None:
        rebound: list[Part] = []
        for part in self._parts:
            rebinds = {
                name
                for node in ast.walk(part.statement)
                if isinstance(node, ast.Global)
                for name in node.names
            }
            for other in self._parts if rebinds else ():
                if rebinds & used(other.statement):
                    rebound.append(other)
                    (name,) = other.binds
                    self._awake.add(name)
                    methods = _methods(other.statement)
                    self._awake |= {f"{name}.{m}" for m, node in methods if rebinds & used(node)}
        before = -1
        while before != len(self._awake):
            before = len(self._awake)
            self._stay = {}
            self._rare = set()
            waiting = [p for n in self._awake for p in self._by_name.get(n.partition(".")[0], ())]
            waiting += rebound
            waiting += [part for part in self._parts if not part.binds]
            while waiting:
                part = waiting.pop()
                if id(part) not in self._stay:
                    self._stay[id(part)] = part
                    waiting += self._needed(part.statement)

    def _needed(self, statement: ast.stmt) -> Iterator[Part]:
        """The parts that a statement of the core needs there."""
        for name in self._needs(statement):
            for other in self._by_name.get(name, ()):
                if isinstance(other.statement, Function) and name not in self._awake:
                    self._rare.add(name)
                else:
                    yield other
        # What is reached through its class cannot wait for an object to lack it.
        for node in self._run(statement):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                    self._awake.add(f"{inner.value.id}.{inner.attr}")

    def _run(self, statement: ast.stmt) -> list[ast.stmt]:
        """What of a statement of the core stays there."""
        if not isinstance(statement, ast.ClassDef):
            return [statement]
        return [
            node
            for node in statement.body
            if not isinstance(node, Function) or not self._cold(statement.name, node.name)
        ]

    def _needs(self, statement: ast.stmt) -> set[str]:
        """The names that a statement of the core uses, of a class without its cold methods."""
        if not isinstance(statement, ast.ClassDef):
            return used(statement)
        names = {name for base in statement.bases for name in used(base)}
        for node in self._run(statement):
            names |= used(node)
        return names

    def _divide(self) -> None:
        pairs = []
        halves: list[ast.stmt] = []
        rest: list[ast.stmt] = []
        hooks: list[str] = []
        for part in self._parts:
            s = part.statement
            if id(part) not in self._stay:
                rest.append(s)
                self.moved |= part.binds if not _is_import(s) else set()
                continue
            if isinstance(s, ast.ClassDef):
                cold = [node for name, node in _methods(s) if self._cold(s.name, name)]
                if cold:
                    s.body = [node for node in s.body if node not in cold] or [ast.Pass()]
                    halves.append(_class(f"{s.name}_rest", cold))
                    pairs.append(s.name)
                    self.whole.add(s.name)
                    if not self._hooked(s, hooks):
                        hooks.append(s.name)
                        s.body += ast.parse(f"__getattr__ = {_MORE}").body
            self.core.append(s)
        if not halves and not rest:
            return
        first = next((i for i, s in enumerate(self.core) if not _is_import(s)), 0)
        added = ast.parse(_HOOK).body if hooks else []
        rare = sorted(self._rare)
        self.core = [_Numbered(rare).visit(s) for s in self.core]
        added += ast.parse(_TAKE).body if rare else []
        self.core[first:first] = added
        # What takes a method from its class comes when that is whole.
        last = [s for s in rest if isinstance(s, ast.Assign) and _takes(s, pairs)]
        self.later = [*self._imports([*rest, *halves])]
        self.later += [s for s in rest if not _is_import(s) and s not in last]
        self.later += halves
        if rare:
            self.later += ast.parse(f"{_TAKEN} = ({', '.join(rare)},)").body
        if pairs:
            text = _JOIN.format(pairs=", ".join(f"({name}, {name}_rest)" for name in pairs))
            text += "".join(f"del {name}.__getattr__\n" for name in hooks)
            self.later += ast.parse(text).body
        self.later += last

    def _hooked(self, node: ast.ClassDef, hooks: list[str]) -> bool:
        for base in node.bases:
            name = base.id if isinstance(base, ast.Name) else ""
            for part in self._by_name.get(name, ()):
                if name in hooks or self._hooked(part.statement, hooks):  # type: ignore[arg-type]
                    return True
        return False

    def _imports(self, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        """What the rest takes from the core and from elsewhere."""
        needs = {name for s in statements if not _is_import(s) for name in used(s)}
        needs |= {name.removesuffix("_rest") for s in statements for name in _class_name(s)}
        own = []
        for name in sorted(needs - self.moved):
            for part in self._by_name.get(name, ()):
                if _is_import(part.statement):
                    yield part.statement
                else:
                    own.append(ast.alias(name))
        if own:
            yield ast.ImportFrom(LATER.partition(".")[0], own, 0)


def when_called(body: list[ast.stmt]) -> list[ast.stmt]:
    """A file's statements: what its functions only call of the rest, such as an error's class, is
    imported where they do, if that is in few places and the file can do without the rest then."""
    later = [s for s in body if isinstance(s, ast.ImportFrom) and s.module == LATER]
    wholly = any(isinstance(s, ast.Import) and s.names[0].name == LATER for s in body)
    names = {alias.asname or alias.name: alias.name for s in later for alias in s.names}
    rest = [s for s in body if s not in later]
    called = [n for s in rest for n in _calls(s)]
    named = [n for s in rest for node in ast.walk(s) for n in _named(node)]
    counts = [called.count(n) for n in names]
    if wholly or counts != [named.count(n) for n in names] or sum(counts) > _FEW:
        return body
    return [_Importing(names).visit(s) for s in rest]


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id


def _calls(statement: ast.stmt) -> Iterator[str]:
    """What functions call."""
    for function in ast.walk(statement):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in function.body:
                for node in ast.walk(inner):
                    if isinstance(node, ast.Call):
                        yield from _named(node.func)


class _Importing(ast.NodeTransformer):
    """Puts an import before each statement that calls one of `names`: {here: name there}."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, block in ast.iter_fields(node):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, field, [new for old in block for new in self._with_import(old)])
        return node

    def _with_import(self, statement: ast.stmt) -> list[ast.stmt]:
        own = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, ast.stmt)]
        calls = [n for part in own for n in ast.walk(part) if isinstance(n, ast.Call)]
        found = {n for call in calls for n in _named(call.func) if n in self._names}
        imports = [
            ast.ImportFrom(LATER, [ast.alias(*dict.fromkeys((self._names[n], n)))], 0)
            for n in sorted(found)
        ]
        return [*imports, self.visit(statement)]


def _class_name(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield node.name


def _takes(node: ast.Assign, classes: list[str]) -> bool:
    value = node.value
    return (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id in classes
    )


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _methods(node: ast.stmt) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    if not isinstance(node, ast.ClassDef):
        return []
    return [(m.name, m) for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]


def _class(name: str, body: Sequence[ast.stmt]) -> ast.ClassDef:
    made = ast.parse(f"class {name}:\n    pass").body[0]
    if not isinstance(made, ast.ClassDef):
        raise MpyError(f"{name} is no name of a class")
    made.body = [*body]
    return made
