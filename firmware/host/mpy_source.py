"""A device module as the merging of mpy_merge.py takes it: its own imports, the names it binds, its
constants; without annotations, type checking and what only a source needs."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from mpy_file import MpyError

PACKAGES = ("sealmq_device", "sealmq_spec")
# What an interpreter without viper raises. All that we build for have it.
_STRUCT = ("pack", "pack_into", "unpack", "unpack_from", "calcsize")
_NO_VIPER = ("_NO_VIPER", "(SyntaxError, NotImplementedError)")
_BUILTINS = {"const": lambda value: value, "bytes": bytes, "len": len, "ord": ord}
_VIPER = ("micropython.viper", "viper")

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Constant = int | bytes | str


class _Clean(ast.NodeTransformer):
    """Takes out annotations, type checking, a source's checks of itself, ways round viper."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        # To viper they are types.
        if not any(ast.unparse(d) in _VIPER for d in node.decorator_list):
            node.returns = None
            a = node.args
            for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
                if arg is not None:
                    arg.annotation = None
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._body(node)

    def _body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        if not node.body:
            node.body = [ast.Pass()]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        # A format of struct's may be bytes, which are no name that has to be looked for.
        form = node.args[0] if node.args else None
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called in _STRUCT and isinstance(form, ast.Constant) and isinstance(form.value, str):
            node.args[0] = ast.Constant(form.value.encode())
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        self.generic_visit(node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        return None if ast.unparse(node.targets[0]) == "_TYPING" else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        if ast.unparse(node.test) == "_TYPING":
            return None
        if len(node.body) == 1 and ast.unparse(node.body[0]).startswith("raise ImportError("):
            return None
        self.generic_visit(node)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        caught = node.handlers[0].type if len(node.handlers) == 1 else None
        if caught is not None and ast.unparse(caught) in _NO_VIPER:
            return node.body
        return node


@dataclass
class Module:
    """One source file. `name`: dotted, a package's own file has the package's."""

    name: str
    package: str
    body: list[ast.stmt]
    constants: dict[str, Constant] = field(default_factory=dict)

    def imported(self, node: ast.ImportFrom) -> str:
        """The dotted name of the module that `node` imports from."""
        if not node.level:
            return node.module or ""
        if node.level > 1:
            raise MpyError(f"{self.name}: an import from above the package")
        return f"{self.package}.{node.module}" if node.module else self.package

    def sources(self, node: ast.ImportFrom) -> Iterator[tuple[str, str, str]]:
        """(name here, module, name there) of what `node` takes from our own modules."""
        base = self.imported(node)
        if base.partition(".")[0] in PACKAGES:
            for alias in node.names:
                yield alias.asname or alias.name, base, alias.name


class _Plain(ast.NodeTransformer):
    """Turns `from . import m` and `m.name` into `from .m import name as m_name` and `m_name`."""

    def __init__(self, module: Module, known: Collection[str]) -> None:
        self._module = module
        self._known = known
        self._taken: dict[str, set[str]] = {}

    def run(self) -> None:
        held: list[tuple[ast.ImportFrom, ast.alias]] = []
        tree = ast.Module(self._module.body, [])
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and self._module.imported(node) in PACKAGES:
                base = self._module.imported(node)
                held += [(node, a) for a in node.names if f"{base}.{a.name}" in self._known]
        self._taken = {alias.asname or alias.name: set() for _, alias in held}
        self._module.body = self.visit(tree).body
        for node, alias in held:
            here = alias.asname or alias.name
            names = [ast.alias(n, f"{here}_{n}") for n in sorted(self._taken[here])]
            node.module = f"{self._module.imported(node)}.{alias.name}"
            node.level = 0
            if len(node.names) > 1:
                raise MpyError(f"{self._module.name}: more than one module in one import")
            node.names = names or [ast.alias("__name__", f"{here}__name")]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._taken:
            self._taken[node.value.id].add(node.attr)
            return ast.copy_location(ast.Name(f"{node.value.id}_{node.attr}", node.ctx), node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._taken and not isinstance(node.ctx, ast.Load):
            raise MpyError(f"{self._module.name}: {node.id} is a module and something else")
        return node


def read(name: str, text: str, known: Collection[str]) -> Module:
    """The module `name` from its source; `known`: our modules. Raises MpyError for what cannot be
    merged."""
    tree = _Clean().visit(ast.parse(text, name))
    package = name if name in PACKAGES else name.rpartition(".")[0]
    module = Module(name, package, tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in PACKAGES and name not in PACKAGES:
                    raise MpyError(f"{name}: import {alias.name}, write: from ... import ...")
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            raise MpyError(f"{name}: from {node.module} import *")
    _Plain(module, known).run()
    return module


def bound(node: ast.AST, imports: bool = True) -> Iterator[str]:
    """The names that a statement binds in the scope in which it stands."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id
    if imports and isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    for child in children(node):
        yield from bound(child, imports)


def children(node: ast.AST) -> list[ast.AST]:
    """As ast.iter_child_nodes, but contexts and operators, in which no name stands; much faster."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and value._fields:
            found.append(value)
    return found


def local(node: Function, imports: bool = True) -> set[str]:
    """The local names of a function, its comprehensions' included; with `imports`, also those that
    only imports bind."""
    a = node.args
    names = {arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)}
    names |= {arg.arg for arg in (a.vararg, a.kwarg) if arg is not None}
    body = node.body if isinstance(node.body, list) else [node.body]
    elsewhere: set[str] = set()
    for statement in body:
        names.update(bound(statement, imports))
        waiting: list[ast.AST] = [statement]
        while waiting:
            inner = waiting.pop()
            if isinstance(inner, ast.Global | ast.Nonlocal):
                elsewhere.update(inner.names)
            waiting += children(inner)
    return names - elsewhere


def used(node: ast.AST) -> set[str]:
    """The names of the file that stand in `node`; not a function's own."""
    names: set[str] = set()
    waiting = children(node) if isinstance(node, Function) else [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Function):
            names |= used(each)
        elif isinstance(each, ast.Name):
            names.add(each.id)
        else:
            waiting += children(each)
    return names - local(node) if isinstance(node, Function) else names


def told_apart(modules: Iterable[Module]) -> set[str]:
    """The names that an `is` compares."""
    return {
        inner.id
        for module in modules
        for statement in module.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        for inner in (node.left, *node.comparators)
        if isinstance(inner, ast.Name)
    }


def find_constants(module: Module, modules: dict[str, Module], apart: set[str]) -> None:
    """Fills `module.constants` with the names bound once to a number, a text or bytes, but for
    those in `apart`, objects and not values."""
    counts: dict[str, int] = {}
    for statement in module.body:
        for name in bound(statement):
            counts[name] = counts.get(name, 0) + 1
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                counts.update(dict.fromkeys(node.names, 2))
    known: dict[str, Constant] = {}
    for statement in module.body:
        if isinstance(statement, ast.ImportFrom):
            for here, source, name in module.sources(statement):
                if source in modules and name in modules[source].constants:
                    known[here] = modules[source].constants[name]
                    module.constants[here] = known[here]
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        if isinstance(target, ast.Name) and counts[target.id] == 1:
            value = _value(statement.value, known)
            if isinstance(value, Constant):
                known[target.id] = value
                if target.id not in apart:
                    module.constants[target.id] = value


def _value(node: ast.expr, known: dict[str, Constant]) -> object:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id not in known and inner.id not in _BUILTINS:
            return None
        if isinstance(inner, ast.Attribute | ast.Lambda | ast.ListComp | ast.GeneratorExp):
            return None
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "constant", "eval")
    try:
        return eval(code, {"__builtins__": {}, **_BUILTINS, **known})  # noqa: S307 our own source
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
