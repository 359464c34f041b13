"""The merging of modules into what ships: what it keeps of a program's meaning, what it refuses."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from mpy_file import MpyError
from mpy_merge import merge
from mpy_source import read

CORE = "sealmq_device"


def merged(awake: tuple[tuple[str, str], ...] = (), /, **texts: str) -> dict[str, str]:
    """The files' sources; modules by their plain names, `core` for the package's own."""
    texts = {"inflate": "", "aead": "", "ccm": "", **texts}
    named = {CORE if name == "core" else f"{CORE}.{name}": text for name, text in texts.items()}
    modules = {name: read(name, text, named) for name, text in named.items()}
    return merge(modules, {CORE: ()}, awake)


def ran(**texts: str) -> object:
    """What f() of the core gives."""
    space: dict[str, object] = {}
    exec(merged(**texts)[CORE], space)  # noqa: S102 made of this test's own text
    f = space["f"]
    assert callable(f)
    return f()


@pytest.mark.parametrize(
    ("what", "a", "b", "result"),
    [
        ("names that clash", "def _g():\n    return 1\ndef g():\n    return _g()",
         "from .a import g\ndef _g():\n    return 2\ndef f():\n    return g(), _g()", (1, 2)),
        ("another name over a local one", "def g():\n    return 1",
         "from .a import g as h\ndef f():\n    g = 5\n    return h(), g", (1, 5)),
        ("a default and a name of its own", "X = 3\ndef g(x=X):\n    return x",
         "from .a import g\ndef f():\n    return g(), g(4)", (3, 4)),
        ("an argument by name", "def g(first, second=0):\n    return first - second",
         "from .a import g\ndef f():\n    return g(5, second=2)", 3),
        ("arguments by **", "def g(first, second):\n    return first - second",
         "from .a import g\ndef f():\n    return g(**{'second': 2, 'first': 5})", 3),
        ("a class that overrides", "class A:\n    def _m(self):\n        return 1\n"
         "    def m(self):\n        return self._m()",
         "from .a import A\nclass B(A):\n    def _m(self):\n        return 2\n"
         "def f():\n    return A().m(), B().m()", (1, 2)),
        ("what an overridden method did", "class A:\n    n = 1\n    def m(self, x=1):\n"
         "        return x\n    def k(self):\n        return self.m()\nk = A.k\nm = A.m",
         "from .a import A, k, m\nclass B(A):\n    def m(self):\n        return A.m(self, 2) + 1\n"
         "def f():\n    return B().m(), k(B()), m(B()), B.n", (3, 3, 1, 1)),
        ("private names of unrelated classes", "class A:\n    def __init__(self):\n"
         "        self._x = 1\n    def _m(self):\n        return self._x",
         "from .a import A\nclass B:\n    _y = 2\n    def _k(self):\n        return self._y\n"
         "def f():\n    a, b = A(), B()\n    b._y = 3\n    return a._m(), b._k(), B._y, a._x",
         (1, 3, 2, 1)),
        ("one more private attribute", "class A:\n    _x = 1\n    _z = 5",
         "from .a import A\nclass B:\n    _y = 2\ndef put(a):\n    a._y = 4\n"
         "def f():\n    a = A()\n    put(a)\n    return a._x, a._y, a._z, B()._y", (1, 4, 5, 2)),
        ("a name of the file that is also an attribute's", "class A:\n    def go(self):\n"
         "        return 1",
         "from .a import A\ndef long_name(go):\n    return go\ndef other_name(n=long_name(4)):\n"
         "    return n\ndef f():\n    return A().go(), long_name(2), other_name()", (1, 2, 4)),
        ("a default of a method", "def one():\n    return 1",
         "from .a import one\nclass B:\n    def value(self):\n        return 3\n"
         "    def two(self, n=one()):\n        return n\ndef f():\n"
         "    return B().two(), B().value()", (1, 3)),
        ("getattr by a text", "class A:\n    def __init__(self):\n        self._x = 4\n"
         "    def m(self):\n        return 1",
         "from .a import A\ndef f():\n    return getattr(A(), 'm')(), getattr(A(), '_x')", (1, 4)),
        ("a closure", "def g(n):\n    def h():\n        return n + 1\n    return h",
         "from .a import g\ndef f():\n    return g(1)()", 2),
        ("global", "_n = 0\ndef g():\n    global _n\n    _n += 1\n    return _n",
         "from .a import g\n_n = 7\ndef f():\n    g()\n    return g(), _n", (2, 7)),
        ("except as", "def g():\n    return 1",
         "from .a import g\ndef f():\n    try:\n        raise OSError(3)\n"
         "    except OSError as g:\n        return g.args[0]", 3),
        ("a comprehension", "n = 9", "from .a import n\ndef f():\n    return [n for n in (1, 2)]",
         [1, 2]),
        ("a module", "Y = [6]\ndef g():\n    return Y", "from . import a\ndef f():\n"
         "    return a.g() is a.Y", True),
        ("built-ins used often, and a variable of that name", "def g(x):\n"
         "    return len(x) + len(x) + len(x) + len(x)\ndef k(len):\n"
         "    return (lambda bytes: len + bytes)(2), [str for str in bytes(2)]",
         "from .a import g, k\ndef f():\n    return g('ab'), k(3)", (8, (5, [0, 0]))),
        ("compared by identity", "NOT = bytes(3)", "from .a import NOT\ndef f():\n"
         "    x = NOT\n    return x is NOT, bytes(3) is NOT", (True, False)),
    ],
)  # fmt: skip
def test_a_merged_program_means_the_same(what: str, a: str, b: str, result: object) -> None:
    assert ran(a=a, b=b, core="from .b import f") == result


def test_a_built_in_that_functions_use_often_has_a_name_in_the_file() -> None:
    once = "def g(x):\n    return len(x)"
    text = merged(a=once, core="from .a import g\ndef f():\n    return g('')")[CORE]
    assert "len(x)" in text.replace("value", "x")
    often = "def g(x):\n    return len(x), len(x), len(x), len(x)"
    text = merged(a=often, core="from .a import g\ndef f():\n    return g('')")[CORE]
    assert text.count("len") == 1  # where it gets that name


def test_a_base_that_nobody_names_is_no_class_of_its_own() -> None:
    a = "class Base:\n    def m(self):\n        return 1"
    b = "from .a import Base\nclass Heir(Base):\n    pass"
    text = merged(a=a, b=b, core="from .b import Heir")[CORE]
    assert "Base" not in text
    assert "class Heir:" in text
    text = merged(a=a, b=b, core="from .a import Base\nfrom .b import Heir")[CORE]
    assert "class Heir(Base):" in text


def test_what_applications_import_keeps_its_name() -> None:
    b = "def helper():\n    return 1\ndef told(what):\n    return helper()"
    text = merged(b=b, core="from .b import told")[CORE]
    assert "def told(what)" in text
    assert "helper" not in text


def test_what_a_function_imports_into_an_argument() -> None:
    b = "def f(g=None):\n    if g is None:\n        from .aead import g\n    return g()"
    assert ran(aead="def g():\n    return 1", b=b, core="from .b import f") == 1


def test_what_nothing_names_is_left_out() -> None:
    a = "def g():\n    return 1\ndef unused():\n    return 2\nclass A:\n    n = 1"
    text = merged(a=a, core="from .a import g")[CORE]
    assert "unused" not in text
    assert "class A" not in text


def test_what_is_imported_in_a_function_is_a_file_of_its_own() -> None:
    files = merged(a="def g():\n    return 1", core="from .b import f", b="def f():\n"
                   "    from .a import g\n    return g()")  # fmt: skip
    assert "return 1" in files[f"{CORE}.a"]
    assert "return 1" not in files[CORE]


def test_what_a_waking_board_does_not_run_is_put_off() -> None:
    b = (
        "class C:\n    def wake(self):\n        return 1\n    def other(self):\n"
        "        return helper()\ndef helper():\n    return 2"
    )
    files = merged(((f"{CORE}.b", "C.wake"),), b=b, core="from .b import C")
    assert "def wake" in files[CORE]
    assert "helper" not in files[CORE]
    assert "def other" in files[f"{CORE}.later"]


def test_an_error_that_a_waking_board_does_not_raise_is_put_off() -> None:
    b = (
        "class Bad(Exception):\n    pass\nclass C:\n    def wake(self, n, m=2):\n        if n:\n"
        "            raise Bad('%d is not %d' % (n, m)) from None\n        return 1"
    )
    files = merged(((f"{CORE}.b", "C.wake"),), b=b, core="from .b import C")
    assert "is not" not in files[CORE]
    assert "Bad" not in files[CORE]
    core, later = ModuleType(CORE), ModuleType(f"{CORE}.later")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, CORE, core)
        exec(files[CORE], vars(core))  # noqa: S102 made of this test's own text
        assert core.C().wake(0) == 1
        patch.setitem(sys.modules, f"{CORE}.later", later)
        exec(files[f"{CORE}.later"], vars(later))  # noqa: S102 the same
        with pytest.raises(Exception, match=r"^7 is not 2$"):
            core.C().wake(7)


def test_a_file_that_only_raises_what_is_put_off_does_without_it_until_then() -> None:
    b = (
        "class Bad(Exception):\n    pass\nclass C:\n    def wake(self, n):\n        if n:\n"
        "            from .a import g\n            return g(n)\n        return 1"
    )
    a = "from .b import Bad\ndef g(n):\n    if n > 1:\n        raise Bad(n)\n    return 2"
    files = merged(((f"{CORE}.b", "C.wake"),), a=a, b=b, core="from .b import Bad, C")
    head, _, rest = files[f"{CORE}.a"].partition("def ")
    assert "later" not in head
    assert f"from {CORE}.later import Bad" in rest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("from .a import *\ndef f():\n    pass", r"import \*"),
        ("import sealmq_device.a\ndef f():\n    pass", r"write: from"),
        ("from ..a import g\ndef f():\n    pass", "above the package"),
        ("from .missing import g\ndef f():\n    pass", "no module"),
        ("try:\n    from .a import g\nexcept ImportError:\n    g = None\ndef f():\n    return g",
         "top-level try"),
    ],
)  # fmt: skip
def test_what_it_does_not_understand_is_refused(text: str, why: str) -> None:
    with pytest.raises(MpyError, match=why):
        merged(a="def g():\n    pass", b=text, core="from .b import f")
