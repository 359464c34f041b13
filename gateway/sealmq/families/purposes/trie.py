"""A trie of topic levels, in plain dicts: a level to what is below it, or to the one item there.

A path is a filter's levels (filters.levels) and an end ("\\0", the item's source, and whether this
is the filter's other form), so two items never share one.
Where only one item lies below a level it stands there itself, whatever its filter's further levels
are: no node is made before two items differ. A thing taken out is folded back, so the shape
depends on what is in it, not on what was. NUL and an unlimited depth are refused by the caller.
No function here recurses.

A look at what crosses a filter (`steps`) may rest at any time and go on after changes: whatever was
there all the while is met. It remembers nodes and their keys, never what stands at a key; a node
that is folded away keeps its last item; and where a node changes while its keys are run through,
they are listed and begun again, once for each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from sealmq_spec.topics import is_reserved

from ..filters import covers, crosses, levels


class Item(Protocol):
    """What a trie holds."""

    @property
    def filter(self) -> str: ...
    @property
    def source(self) -> str: ...


T = TypeVar("T", bound=Item)

Node = dict[str, Any]
"""Levels (and ends) to a Node or to an item."""

END = "\0"
OTHER = ("#", "/#")
_LEVELS = 4096
_ALL = -1
_WIDE = 1024
"""Keys of a node that are listed at once; of a wider one only if it changes meanwhile, which may
take some milliseconds for a million."""


def _path(filter: str, source: str) -> list[str]:
    path = levels(filter)
    path.append(END + source + (END if filter in OTHER else ""))
    return path


class Trie(Generic[T]):
    """Items by their filter and source."""

    def __init__(self) -> None:
        self._root: Node = {}
        self._count = 0
        self.nodes = 0
        """How many nodes there are below the root: memory that a few deep paths can take."""
        self.changes = 0
        """How often something was put or removed."""
        # The ends that occur: a node is asked for them, however many other keys it has.
        self._ends: dict[str, None] = {}
        # Levels that occur again and again ("temp") are one string.
        self._levels: dict[str, str] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return _below(self._root)

    def _level(self, level: str) -> str:
        if len(self._levels) >= _LEVELS:
            self._levels.clear()
        return self._levels.setdefault(level, level)

    def put(self, item: T) -> T | None:
        """Keep it; gives the one whose place it took."""
        path = _path(item.filter, item.source)
        self.changes += 1
        self._ends[path[-1]] = None
        node = self._root
        for i, level in enumerate(path):
            child = node.get(level)
            if child is None:
                node[self._level(level)] = item
                self._count += 1
                return None
            if type(child) is not dict:
                other: T = child
                if other.filter == item.filter and other.source == item.source:
                    node[level] = item
                    return other
                # Two below one level now: the one that stood here goes a level down.
                self.nodes += 1
                child = node[level] = {self._level(_path(other.filter, other.source)[i + 1]): other}
            node = child
        raise ValueError(f"a level has a NUL: {item.filter!r}")

    def remove(self, filter: str, source: str) -> T | None:
        """Take it out; None when it is not there."""
        way: list[tuple[Node, str]] = []
        node = self._root
        for level in _path(filter, source):
            child = node.get(level)
            if child is None:
                return None
            way.append((node, level))
            if type(child) is not dict:
                found: T = child
                if found.filter != filter or found.source != source:
                    return None
                del node[level]
                self.changes += 1
                self._count -= 1
                self._fold(way)
                return found
            node = child
        return None

    def _fold(self, way: list[tuple[Node, str]]) -> None:
        """A node with one item alone is replaced by the item, upwards as far as it goes."""
        while len(way) > 1:
            node, _ = way.pop()
            if len(node) > 1:
                return
            above, level = way[-1]
            (last,) = node.values()
            if type(last) is dict:
                return
            above[level] = last
            self.nodes -= 1

    def get(self, filter: str, source: str) -> T | None:
        """The item of exactly this filter and source."""
        node = self._root
        for level in _path(filter, source):
            child = node.get(level)
            if child is None:
                return None
            if type(child) is not dict:
                found: T = child
                return found if found.filter == filter and found.source == source else None
            node = child
        return None

    def covering(self, filter: str) -> list[T]:
        """Items whose filter covers this one; of a topic those that match it."""
        found: list[T] = []
        steps = levels(filter)
        count = len(steps)
        root = self._root
        if is_reserved(filter):
            child = root.get(steps[0])
            if child is None:
                return found
            if type(child) is not dict:
                if child.filter == filter or covers(child.filter, filter):
                    found.append(child)
                return found
            left = [(child, 1)]
        else:
            left = [(root, 0)]
        while left:
            node, i = left.pop()
            _ends(node.get("#"), found)
            if i == count:
                found.extend(self._ending(node))
                continue
            level = steps[i]
            if level == "#":
                continue
            i += 1
            for key in ("+",) if level == "+" else (level, "+"):
                child = node.get(key)
                if child is None:
                    continue
                if type(child) is dict:
                    left.append((child, i))
                elif child.filter == filter or covers(child.filter, filter):
                    found.append(child)
        return found

    def crossing(self, filter: str) -> Iterator[T]:
        """Items whose filter shares a topic with this one; of a topic those that match it."""
        return (item for item in self.steps(filter) if item is not None)

    def steps(self, filter: str) -> Iterator[T | None]:
        """`crossing` in steps that cost about the same: an item, or None where there was none.

        It may rest for as long as one likes. What was put meanwhile need not be met, and what was
        removed may be.
        """
        wanted = levels(filter)
        count = len(wanted)
        reserved = is_reserved(filter)
        may = _may_cross(filter)
        changes = self.changes
        # A node, its keys that are left, and the filter's level that they have to suit.
        ways: list[_Way] = []

        def go(node: Node, i: int) -> Iterable[T]:
            """Goes into a node; gives what ends there."""
            if i == count:
                ends = self._ending(node)
                _ends(node.get("#"), ends)
                return ends
            level = wanted[i] if i != _ALL else "#"
            if level == "#":
                ways.append(_Way(node, _ALL))
            elif level == "+":
                ways.append(_Way(node, i))
            else:
                keys = (level,) if reserved and not i else (level, "+", "#")
                ways.append(_Way(node, i, [key for key in keys if key in node]))
            return ()

        yield from go(self._root, 0)
        while ways:
            if changes != self.changes:
                changes = self.changes
                for way in ways:
                    way.changed()
            way = ways[-1]
            key = next(way.keys, None)
            if key is None:
                ways.pop()
                continue
            child, i = way.node.get(key), way.i
            if child is None:
                yield None
            elif type(child) is not dict:
                fits = i == _ALL or (may(child.filter) and crosses(child.filter, filter))
                yield child if fits else None
            elif i == _ALL:
                yield from go(child, i)
            elif key == "#":
                yield from list(child.values())
            elif i or reserved or wanted[0] != "+" or not is_reserved(key):
                yield from go(child, i + 1)

    def _ending(self, node: Node) -> list[T]:
        """The items whose filter ends at this node."""
        return [node[end] for end in self._ends if end in node]


class _Way:
    """A node that `steps` goes through."""

    __slots__ = ("_live", "i", "keys", "node")

    def __init__(self, node: Node, i: int, keys: Iterable[str] | None = None) -> None:
        self.node, self.i = node, i
        self._live = keys is None and len(node) > _WIDE
        self.keys = iter(node if self._live else list(node) if keys is None else keys)

    def changed(self) -> None:
        """The trie has: what runs through the node's own keys begins again with a list."""
        if self._live:
            self._live = False
            self.keys = iter(list(self.node))


def _may_cross(filter: str) -> Callable[[str], bool]:
    """A quick look at another filter: False is sure. A + visits all there is on its level.

    What has no wildcards itself contains the levels after a + as they are.
    """
    after = (part.rstrip("#").rstrip("/") for part in filter.split("+")[1:])
    levels = max(after, key=len, default="")
    if not levels:
        return lambda other: True
    return lambda other: levels in other or "+" in other or "#" in other


def _ends(child: Any, found: list[Any]) -> None:
    """The items of one place: none, a lone one, or one for each source."""
    if type(child) is dict:
        found.extend(child.values())
    elif child is not None:
        found.append(child)


def _below(node: Node) -> Iterator[Any]:
    """All items below."""
    left = [node]
    while left:
        for child in left.pop().values():
            if type(child) is dict:
                left.append(child)
            else:
                yield child
