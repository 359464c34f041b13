"""Purposes form a directed acyclic graph: `a/b` is below `a` by its name, and edges may be added.

The paper's section IV-A: whoever allows a purpose allows all that is below it, and a prohibition
reaches down in the same way. `[families.purposes.tree] parent = ["child", ...]` holds the edges;
when there are any, only purposes that occur there are known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from sealmq.near import closest

MEMO = 4096
"""How many purposes' ancestors are remembered; clients may ask for any number of them."""

GUESSED = 500
"""Purposes of a tree that is still searched for a name that was meant: 12 ms of the loop."""


class BadTree(ValueError):
    """The tree cannot be one. `key`: the parent where the fault stands; `hint`: for people."""

    def __init__(self, key: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.key = key
        self.what = what
        self.hint = hint


class Purposes:
    """The graph of one configuration; never changes."""

    def __init__(self, tree: Mapping[str, Sequence[str]] | None = None) -> None:
        """`tree`: edges from a purpose to those below it. BadTree when they run in a circle."""
        self._up: dict[str, list[str]] = {}
        for parent, children in (tree or {}).items():
            self._learn(parent)
            for child in children:
                self._learn(child)
                if parent not in self._up[child]:
                    self._up[child].append(parent)
        self._check()
        self._above: dict[str, frozenset[str]] = {}

    def _learn(self, purpose: str) -> None:
        """A purpose occurs, and with it all that its name stands below."""
        while purpose not in self._up:
            by_name = purpose.rpartition("/")[0]
            self._up[purpose] = [by_name] if by_name else []
            if not by_name:
                return
            purpose = by_name

    def _check(self) -> None:
        """Depth first, without recursion: a purpose met again on its own way up is a circle."""
        done: set[str] = set()
        for start in self._up:
            way = [start]
            on_way = {start}
            left = [iter(self._up[start])]
            while left:
                up = next(left[-1], None)
                if up is None:
                    left.pop()
                    last = way.pop()
                    on_way.discard(last)
                    done.add(last)
                elif up in on_way:
                    raise _circle([*way[way.index(up) :], up])
                elif up not in done:
                    way.append(up)
                    on_way.add(up)
                    left.append(iter(self._up[up]))

    def __bool__(self) -> bool:
        """Whether there is a tree, hence a closed list of purposes."""
        return bool(self._up)

    @property
    def names(self) -> Collection[str]:
        """All that occur in the tree, with what their names stand below; none without a tree."""
        return self._up.keys()

    def known(self, purpose: str) -> bool:
        """Whether the purpose counts: always without a tree, else if it occurs in it."""
        return not self._up or purpose in self._up

    def suggest(self, purpose: str) -> str:
        """The known purpose that was probably meant; "" without an idea."""
        return "" if len(self._up) > GUESSED else closest(purpose, self._up)

    def above(self, purpose: str) -> frozenset[str]:
        """The purpose itself and all that it is below of."""
        found = self._above.get(purpose)
        if found is None:
            if len(self._above) >= MEMO:
                self._above.clear()
            found = self._above[purpose] = self._climb(purpose)
        return found

    def _climb(self, purpose: str) -> frozenset[str]:
        seen = {purpose}
        left = [purpose]
        while left:
            at = left.pop()
            ups = self._up.get(at)
            if ups is None:
                by_name = at.rpartition("/")[0]
                ups = [by_name] if by_name else []
            for up in ups:
                if up not in seen:
                    seen.add(up)
                    left.append(up)
        return frozenset(seen)


def _circle(way: list[str]) -> BadTree:
    """`way` goes upwards and ends where it began."""
    down = way[::-1]
    # An edge by name cannot be taken out: name one that stands in the file.
    key = next((a for a, b in pairwise(down) if b.rpartition("/")[0] != a), down[0])
    return BadTree(
        key,
        f"the purposes run in a circle: {' > '.join(down)}",
        "a purpose cannot be below itself; a/b is below a by its name already",
    )
