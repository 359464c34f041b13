"""Gives arguments and private attributes names that cost nothing.

MicroPython looks each name of a file up among all others when it loads the file, those of arguments
too, in case that a caller gives one by name. Some names every .mpy file has by number.

An argument keeps its name where a caller may use it: in functions that applications call, where
some call of the image gives an argument of that name by name, and in functions that are called with
`**`. An attribute gets another name when it begins with one underscore, holds data, is nowhere a
method, and its name stands in no string. The new ones are such as no application gives to its own.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from mpy_source import Function

# Names that every .mpy file has by number.
_FREE = (
    "value", "key", "args", "index", "count", "values", "keys", "items", "start", "stop", "step",
    "end", "sep", "next", "copy", "main", "find", "strip", "upper", "lower", "format", "update",
)  # fmt: skip


_ODD = (
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "EOFError",
    "GeneratorExit", "ImportError", "IndentationError", "KeyboardInterrupt", "LookupError",
    "NameError", "NoneType", "NotImplementedError", "OverflowError", "RuntimeError", "SyntaxError",
    "SystemExit", "ZeroDivisionError", "builtins", "bytecode", "callable", "chr", "classmethod",
    "dir", "divmod", "eval", "exec", "getattr", "globals", "hasattr", "id", "isalpha", "isdigit",
    "isinstance", "islower", "isspace", "issubclass", "isupper", "iter", "locals", "lstrip",
    "micropython", "ord", "popitem", "pow", "repr", "rfind", "rindex", "rsplit", "setattr",
    "setdefault", "staticmethod", "super",
)  # fmt: skip


def rename_attributes(files: Collection[list[ast.stmt]]) -> None:
    """`files`: the statements of all files, the one first whose names cost most."""
    held: dict[str, None] = {}
    others: set[str] = set()
    nodes = [node for body in files for statement in body for node in ast.walk(statement)]
    for node in nodes:
        if isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
                held[node.attr] = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            others |= {node.name}
        elif isinstance(node, ast.Name | ast.Constant | ast.arg | ast.keyword):
            name = getattr(node, "id", None) or getattr(node, "value", None)
            others |= {str(name), str(getattr(node, "arg", ""))}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    free = [name for name in _ODD if name not in attributes]
    private = [n for n in held if n[0] == "_" and n[1] != "_" and n not in others]
    new = dict(zip(private, free, strict=False))
    for node in nodes:
        if isinstance(node, ast.Attribute):
            node.attr = new.get(node.attr, node.attr)


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
