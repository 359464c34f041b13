"""What an attacker can work out from what it has (Dolev and Yao, with exclusive or).

It takes apart whatever it holds the key of, solves the linear system of all XORs that it has seen,
and builds anything from what it knows. It never breaks a cipher or F, and guesses no secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .terms import Term, show

_CACHE: dict[frozenset[Term], Knowledge] = {}


class Knowledge:
    """Everything that follows from `base`."""

    def __init__(self, base: Iterable[Term]) -> None:
        self.known: set[Term] = set()
        # For a term that was solved for: the terms whose XOR it is.
        self.solved: dict[Term, tuple[Term, ...]] = {}
        todo = list(base)
        shut: list[Term] = []
        sums: set[Term] = set()
        while todo:
            while todo:
                term = todo.pop()
                if term in self.known:
                    continue
                self.known.add(term)
                if term.kind == "xor":
                    sums.add(term)
                elif term.kind == "sealed":
                    shut.append(term)
            opened = [t for t in shut if self.can(t.args[0])]
            shut = [t for t in shut if t not in opened]
            todo = [part for t in opened for part in t.args[3] if isinstance(part, Term)]
            todo += self._solve(sums)
            todo = [t for t in todo if t not in self.known]

    def can(self, term: Any) -> bool:
        """Whether the attacker can produce it."""
        if not isinstance(term, Term) or term in self.known:
            return True
        if term.kind == "F":
            return self.can(term.args[2])
        if term.kind == "sealed":
            return self.can(term.args[0]) and all(map(self.can, term.args[3]))
        return term.kind == "xor" and all(map(self.can, term.args[0]))

    def _solve(self, sums: set[Term]) -> list[Term]:
        """Gauss over GF(2): the unknown parts that the known sums determine."""
        # (pivot, unknown parts, the known terms whose XOR these are); a pivot is in one row only.
        rows: list[tuple[Term, frozenset[Term], frozenset[Term]]] = []
        for term in sorted(sums, key=lambda t: t.serial):
            left = frozenset(p for p in term.args[0] if not self.can(p))
            by = frozenset({term, *(term.args[0] - left)})
            for pivot, other, used in rows:
                if pivot in left:
                    left, by = left ^ other, by ^ used
            if not left:
                continue
            new = min(left, key=lambda t: t.serial)
            rows = [
                (pivot, other ^ left, used ^ by) if new in other else (pivot, other, used)
                for pivot, other, used in rows
            ]
            rows.append((new, left, by))
        found = []
        for part, left, by in rows:
            if len(left) == 1:
                found.append(part)
                self.solved[part] = tuple(sorted(by, key=lambda t: t.serial))
        return found

    def why(self, term: Term) -> str:
        """How it came by a term, for people."""
        if term in self.solved:
            return f"{show(term)} = " + " ⊕ ".join(
                f"({show(t)})" if t.kind == "xor" else show(t) for t in self.solved[term]
            )
        return f"{show(term)} can be opened or built from what it holds"


def knowledge(base: frozenset[Term]) -> Knowledge:
    """The same, remembered; many states share what the attacker has."""
    found = _CACHE.get(base)
    if found is None:
        if len(_CACHE) > 50_000:
            _CACHE.clear()
        found = _CACHE[base] = Knowledge(base)
    return found
