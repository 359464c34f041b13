"""Gives arguments, private attributes and a file's own names such names as cost nothing.

MicroPython looks each name of a file up among all others when it loads the file, those of arguments
too, in case that a caller gives one by name. Some names every .mpy file has by number; others
stand in the file anyway.

An argument keeps its name where a caller may use it: in functions that applications call, where
some call of the image gives an argument of that name by name, and in functions that are called with
`**`. A private attribute, one that begins with one underscore, keeps its name where that stands in
a string; two of classes that have nothing to do with each other may get the same new one. A name at
a file's top keeps its name where applications import it. The new names of attributes are such as
no application gives to its own.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from mpy_source import Function, bound, local

# Names that every .mpy file has by number.
_FREE = (
    "value", "key", "args", "index", "count", "values", "keys", "items", "start", "stop", "step",
    "end", "sep", "next", "copy", "main", "find", "strip", "upper", "lower", "format", "update",
)  # fmt: skip


# Such names too, and odd ones.
_ODD = (
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "EOFError",
    "GeneratorExit", "ImportError", "IndentationError", "KeyboardInterrupt", "LookupError",
    "NameError", "NoneType", "NotImplementedError", "OverflowError", "RuntimeError", "SyntaxError",
    "SystemExit", "ZeroDivisionError", "builtins", "bytecode", "callable", "chr", "classmethod",
    "dir", "divmod", "eval", "exec", "getattr", "globals", "hasattr", "id", "isalpha", "isdigit",
    "isinstance", "islower", "isspace", "issubclass", "isupper", "iter", "locals", "lstrip",
    "micropython", "ord", "popitem", "pow", "repr", "rfind", "rindex", "rsplit", "setattr",
    "setdefault", "staticmethod", "super", "Ellipsis", "Exception", "IndexError", "KeyError",
    "MemoryError", "OSError", "StopIteration", "TypeError", "ValueError", "abs", "bool",
    "bytearray", "dict", "int", "len", "little", "object", "print", "range", "round", "sorted",
    "str", "sum", "tuple", "zip", "endswith", "from_bytes", "to_bytes", "bytes", "readinto",
    "readline", "rstrip", "startswith", "throw",
)  # fmt: skip
# Built-ins that functions use; none that only an error asks for.
_OFTEN = ("len", "bytes", "bytearray", "isinstance", "memoryview", "str", "int")
_Method = ast.FunctionDef | ast.AsyncFunctionDef


def rename_attributes(files: Iterable[list[ast.stmt]], public: Iterable[str]) -> None:
    """`files`: the statements of all files, first those of the two that each board loads. `public`:
    names that applications import from these."""
    nodes = [node for body in files for statement in body for node in ast.walk(statement)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    families = _families(classes)
    # Of each private attribute the families of classes that have it; None: not known which.
    held: dict[str, set[str | None]] = {}
    known: set[int] = set()
    for cls in classes:
        family = families[cls.name]
        for member in cls.body:
            if isinstance(member, _Method):
                held.setdefault(member.name, set()).add(family)
                for node in ast.walk(member) if member.args.args else ():
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                        if node.value.id == member.args.args[0].arg:
                            known.add(id(node))
                            if isinstance(node.ctx, ast.Store):
                                held.setdefault(node.attr, set()).add(family)
            else:
                for name in bound(member):
                    held.setdefault(name, set()).add(family)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if id(node) not in known:
                held.setdefault(node.attr, set()).add(None)
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)} | held.keys()
    # First those of the first file, as they come.
    order = dict.fromkeys(n.attr for n in nodes if isinstance(n, ast.Attribute))
    private = [n for n in order if n in held and n[0] == "_" and n[1:2] != "_" and n not in texts]
    files = [*files]
    free = [*_ODD, *public, *(name for body in files[:2] for name in _standing(body))]
    free = [name for name in dict.fromkeys(free) if name not in attributes and name.isidentifier()]
    new: dict[str, str] = {}
    for name in private:
        for candidate in free:
            if not any(
                given == candidate
                and (None in held[name] | held[other] or held[name] & held[other])
                for other, given in new.items()
            ):
                new[name] = candidate
                break
    for node in nodes:
        if isinstance(node, ast.Attribute):
            node.attr = new.get(node.attr, node.attr)
    for cls in classes:
        for member in cls.body:
            if isinstance(member, _Method):
                member.name = new.get(member.name, member.name)
            else:
                for inner in ast.walk(member):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        inner.id = new.get(inner.id, inner.id)


def _meet(some: set[str | None], others: set[str | None]) -> bool:
    return None in some | others or bool(some & others)


def _families(classes: Collection[ast.ClassDef]) -> dict[str, str]:
    """Each class with the name of one that stands for all that it has to do with."""
    found = {cls.name: cls.name for cls in classes}
    for cls in classes:
        # The rest of a class that lies in two files.
        related = [ast.unparse(base) for base in cls.bases] + [cls.name.removesuffix("_rest")]
        for other in related:
            if other in found:
                old, one = found[cls.name], found[other]
                found = {name: one if of == old else of for name, of in found.items()}
    return found


def _standing(body: list[ast.stmt]) -> Iterator[str]:
    """The names that stand in a file anyway, not as attributes: of classes that applications know,
    and what it takes from the interpreter's own modules."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            yield from (alias.name for alias in statement.names if alias.name[0] != "_")
            yield from (statement.module or "").split(".")[:1]
        elif isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)


def rename_globals(
    files: Mapping[str, list[ast.stmt]], public: Mapping[str, Collection[str]]
) -> None:
    """`files`: each file's statements. `public`: the names of each that applications import."""
    own = {name: _Globals(name, body, public.get(name, ())) for name, body in files.items()}
    for each in own.values():
        each.choose(own)
    for each in own.values():
        each.choose_imports(own)
    for each in own.values():
        each.rename(own)


def alias_builtins(body: list[ast.stmt]) -> list[ast.stmt]:
    """A file's statements, with names of its own for the built-ins that its functions use often:
    such a name is found at once, a built-in's after the file's and by looking through a list."""
    tops = {n for statement in body for n in bound(statement)}
    found: dict[str, list[ast.Name]] = {name: [] for name in _OFTEN if name not in tops}
    for statement in body:
        for node in _methods(statement) if isinstance(statement, ast.ClassDef) else [statement]:
            _find(node, found)
    made = []
    for name, uses in found.items():
        if len(uses) > 3:
            made += ast.parse(f"_file_{name} = {name}").body
            for use in uses:
                use.id = f"_file_{name}"
    return [*made, *body]


def _find(node: ast.AST, found: dict[str, list[ast.Name]]) -> None:
    """Adds the uses of the built-ins `found` in a function."""
    if not isinstance(node, Function):
        return
    if not isinstance(node, ast.Lambda) and node.decorator_list:
        return  # to viper some are types
    own = local(node)
    left = {name: uses for name, uses in found.items() if name not in own}
    waiting: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, Function):
            _find(inner, left)
        elif isinstance(inner, ast.Name) and inner.id in left:
            left[inner.id].append(inner)
        else:
            waiting += ast.iter_child_nodes(inner)


class _Globals(ast.NodeTransformer):
    """Another name for each name at a file's top that stands nowhere else in the file."""

    def __init__(self, name: str, body: list[ast.stmt], public: Collection[str]) -> None:
        self.name = name
        self.new: dict[str, str] = {}
        self._body = body
        nodes = [node for statement in body for node in ast.walk(statement)]
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        attributes |= {m.name for n in nodes if isinstance(n, ast.ClassDef) for m in _methods(n)}
        elsewhere = {
            alias.name for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names
        }
        self._tops = {n for s in body for n in bound(s)}
        # What other names must not become: those of this file's variables and what it calls.
        self._taken = {n.id for n in nodes if isinstance(n, ast.Name)} | self._tops
        self._taken |= {n for f in nodes if isinstance(f, Function) for n in local(f)}
        self._taken |= {"self", "super"}
        # As above, those that attributes have come last.
        free = sorted({*_FREE, *_ODD, *attributes}, key=lambda n: (n in attributes, n))
        self._free = [n for n in free if n not in self._taken and n[:2] != "__"]
        # These cost nothing as they are, or are used where a class's names come first.
        self._kept = {*public, *_FREE, *_ODD, *attributes, *elsewhere}
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                self._kept |= {n.id for n in _outside_functions(node) if isinstance(n, ast.Name)}
        self._inside: list[set[str]] = []

    def choose(self, files: Mapping[str, _Globals]) -> None:
        """New names for what the file defines."""
        stems = {name.rpartition(".")[2] for name in files}
        self._free = [n for n in self._free if n not in stems]
        imported = {n for s in self._body if _imports(s) for n in bound(s)}
        for name in sorted(self._tops - imported - self._kept):
            if self._free and name[:2] != "__":
                self.new[name] = self._free.pop(0)

    def choose_imports(self, files: Mapping[str, _Globals]) -> None:
        """New names for what it imports, the same as there if that is free."""
        for statement in self._body:
            if isinstance(statement, ast.ImportFrom):
                of = files.get(statement.module or "")
                for alias in statement.names:
                    here = alias.asname or alias.name
                    there = of.new.get(alias.name, alias.name) if of else alias.name
                    if here == there or here in self.new or here in self._kept - {alias.name}:
                        continue
                    if there not in self._taken | set(self.new.values()):
                        self.new[here] = there
                        if there in self._free:
                            self._free.remove(there)
                    elif self._free:
                        self.new[here] = self._free.pop(0)

    def rename(self, files: Mapping[str, _Globals]) -> None:
        self._files = files
        for statement in self._body:
            self.visit(statement)

    def _of(self, name: str) -> str:
        return name if any(name in scope for scope in self._inside) else self.new.get(name, name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._of(node.id)
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self.new.get(name, name) for name in node.names]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        of = self._files.get(node.module or "")
        for alias in node.names:
            here = self._of(alias.asname or alias.name)
            alias.name = of.new.get(alias.name, alias.name) if of else alias.name
            alias.asname = None if here == alias.name else here
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._of(node.name)
        node.bases = [self.visit(base) for base in node.bases]
        for statement in node.body:
            if isinstance(statement, Function):
                self._function(statement)
            # Nothing else in a class names anything that gets another name.
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._of(node.name)
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._of(node.name)
        return self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.AST) -> ast.AST:
        a = node.args  # type: ignore[attr-defined]
        for outer in (*a.defaults, *a.kw_defaults, *getattr(node, "decorator_list", ())):
            if outer is not None:
                self.visit(outer)
        self._inside.append(local(node))  # type: ignore[arg-type]
        body = node.body  # type: ignore[attr-defined]
        for inner in body if isinstance(body, list) else [body]:
            self.visit(inner)
        self._inside.pop()
        return node


def _imports(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [m for m in node.body if isinstance(m, _Method)]


def _outside_functions(node: ast.ClassDef) -> Iterator[ast.AST]:
    """What of a class is not in its methods: defaults, decorators, what it assigns."""
    for member in node.body:
        if isinstance(member, _Method):
            a = member.args
            for outer in (*a.defaults, *a.kw_defaults, *member.decorator_list):
                if outer is not None:
                    yield from ast.walk(outer)
        else:
            yield from ast.walk(member)


def rename_arguments(files: Collection[list[ast.stmt]], public: set[int]) -> None:
    """`files`: the statements of all files. `public`: ids of functions that applications call."""
    nodes = [node for body in files for statement in body for node in ast.walk(statement)]
    by_name: set[str] = set()
    starred: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg is not None:
                    by_name.add(keyword.arg)
                elif isinstance(node.func, ast.Name):
                    starred.add(node.func.id)
                elif isinstance(node.func, ast.Attribute):
                    starred.add(node.func.attr)
    tops = [s for body in files for s in body]
    methods = [s for top in tops if isinstance(top, ast.ClassDef) for s in top.body]
    for function in [*tops, *methods]:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            if id(function) not in public and function.name not in starred:
                _rename(function, by_name)


def _rename(function: ast.FunctionDef | ast.AsyncFunctionDef, by_name: set[str]) -> None:
    inner = [n for statement in function.body for n in ast.walk(statement)]
    if any(isinstance(n, Function | ast.Global | ast.Nonlocal) for n in inner):
        return
    a = function.args
    taken = {n.id for n in inner if isinstance(n, ast.Name)}
    taken |= {arg.arg for arg in ast.walk(a) if isinstance(arg, ast.arg)}
    for n in inner:
        if isinstance(n, ast.Import | ast.ImportFrom):
            taken |= {alias.asname or alias.name for alias in n.names}
        if isinstance(n, ast.ExceptHandler) and n.name:
            taken.add(n.name)
    free = [name for name in _FREE if name not in taken]
    new: dict[str, str] = {}
    for arg in (*a.posonlyargs, *a.args):
        if arg.arg not in by_name and arg.arg not in _FREE and arg.arg != "self" and free:
            new[arg.arg] = free.pop(0)
            arg.arg = new[arg.arg]
    for n in inner:
        if isinstance(n, ast.Name):
            n.id = new.get(n.id, n.id)
