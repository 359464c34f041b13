"""Terms of the Dolev-Yao algebra: what a message is when ciphers are perfect.

Equal terms are one object, so comparing and hashing cost nothing. Names, numbers and text are plain
Python values and known to everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Context = tuple[tuple[str, Any], ...]

_ALL: dict[tuple[Any, ...], Term] = {}


class Term:
    """`kind` is secret, F, sealed, xor or pair; `args` are its parts."""

    __slots__ = ("args", "kind", "serial")

    def __init__(self, kind: str, args: tuple[Any, ...], serial: int) -> None:
        self.kind = kind
        self.args = args
        self.serial = serial

    def __hash__(self) -> int:
        return self.serial

    def __repr__(self) -> str:
        return show(self)


def _one(kind: str, *args: Any) -> Term:
    key = (kind, *args)
    found = _ALL.get(key)
    if found is None:
        found = _ALL[key] = Term(kind, args, len(_ALL))
    return found


def secret(name: str, *numbers: int | str) -> Term:
    """A random value that somebody drew."""
    return _one("secret", name, *numbers)


def f(tag: str, *ctx: Any, key: Any) -> Term:
    """F(tag, ctx; K) of SPEC.md 2; the context is public."""
    return _one("F", tag, ctx, key)


def sealed(key: Any, nonce: Any, ad: Mapping[str, Any], *plain: Any) -> Term:
    """AEAD under a key; an empty plaintext makes it TAG. `ad` holds the fields that it covers."""
    return _one("sealed", key, nonce, tuple(ad.items()), plain)


def xor(*parts: Term) -> Term:
    """Exclusive or; what comes twice is gone."""
    left: set[Term] = set()
    for part in parts:
        left ^= set(part.args[0]) if part.kind == "xor" else {part}
    return next(iter(left)) if len(left) == 1 else _one("xor", frozenset(left))


def readings(term: Term, **domains: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Every way to present a sealed packet whose receiver will accept its tag.

    A field that the associated data covers has one value, since with another the tag fails. One
    that it does not cover is the attacker's to choose from the field's domain.
    """
    bound = dict(term.args[2])
    options: list[dict[str, Any]] = [{}]
    for name, domain in domains.items():
        values = (bound[name],) if name in bound else domain
        options = [{**option, name: value} for option in options for value in values]
    yield from options


def show(term: Any) -> str:
    """As SPEC.md writes it."""
    if not isinstance(term, Term):
        return str(term)
    if term.kind == "secret":
        name, *numbers = term.args
        return f"{name}[{','.join(map(str, numbers))}]" if numbers else str(name)
    if term.kind == "F":
        tag, ctx, key = term.args
        return f"{tag}({', '.join([*map(show, ctx), show(key)])})"
    if term.kind == "xor":
        return " ⊕ ".join(sorted(map(show, term.args[0])))
    key, nonce, ad, plain = term.args
    fields = ", ".join(f"{name}={show(value)}" for name, value in ad)
    inside = ", ".join(map(show, plain))
    return f"sealed({inside or 'nothing'}; {fields}; {show(nonce)}; {show(key)})"
