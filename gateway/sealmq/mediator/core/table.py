"""The subscription table: a topic's readers, each once, with the highest QoS of its filters.

A trie of filters by level (MQTT 3.1.1, 4.7; SPEC.md 4.3: a wildcard at the first level does not
match reserved topics), and a cache of answers by topic. A cached answer is dropped when a filter
that matches its topic changes, or for want of room. Subscriptions that neither change nor match are
never looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from sealmq_spec.topics import is_reserved, matches

WAITS = 4
"""A bit beside the QoS: all filters of this reader that match still wait for their snapshots."""

TOPICS = 16_384
# Copies of a message come close together: a broker has no more than so many under way.
_COPIES, _COPIES_BYTES = 4096, 4 * 1024 * 1024
# After more changes of filters with wildcards than these an answer is made anew, which costs less
# than to compare each of them with its topic.
_LOOKED_AT = 4

R = TypeVar("R", bound=Hashable)


class _Node(Generic[R]):
    """One level. `here`: readers whose filter ends here; `rest`: with # after here."""

    __slots__ = ("children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node[R]] = {}
        self.here: dict[R, int] = {}
        self.rest: dict[R, int] = {}


class _Answer(Generic[R]):
    __slots__ = ("readers", "seq")

    def __init__(self, readers: Mapping[R, int], seq: int) -> None:
        self.readers = readers
        self.seq = seq


class SubscriptionTable(Generic[R]):
    """`topics`: how many answers are cached; the oldest goes first."""

    def __init__(self, topics: int = TOPICS) -> None:
        self._root: _Node[R] = _Node()
        self._of: dict[R, dict[str, int]] = {}
        self._topics = topics
        self._answers: dict[str, _Answer[R]] = {}
        # How many filters with wildcards have changed, and the newest of them.
        self._seq = 0
        self._changed: deque[str] = deque(maxlen=_LOOKED_AT)

    def __len__(self) -> int:
        """Subscriptions."""
        return sum(map(len, self._of.values()))

    def filters(self, reader: R) -> Sequence[str]:
        """What a reader has."""
        return tuple(self._of.get(reader, ()))

    def value(self, reader: R, filter: str) -> int:
        """QoS and WAITS that were entered for it; -1: it is not there."""
        return self._of.get(reader, {}).get(filter, -1)

    def enter(self, reader: R, filter: str, qos: int, waits: bool = False) -> None:
        """The reader has this filter, with this QoS from now on. `waits`: for its snapshot."""
        value = qos | WAITS if waits else qos
        held = self._of.setdefault(reader, {})
        if held.get(filter) == value:
            return
        held[filter] = value
        node = self._root
        levels = filter.split("/")
        rest = levels[-1] == "#"
        for level in levels[:-1] if rest else levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        (node.rest if rest else node.here)[reader] = value
        self._has_changed(filter)

    def leave(self, reader: R, filter: str) -> None:
        """The reader has it no longer; nothing happens if it had not."""
        held = self._of.get(reader)
        if held is None or held.pop(filter, None) is None:
            return
        if not held:
            del self._of[reader]
        self._take_out(reader, filter)

    def drop(self, reader: R) -> None:
        """The reader is gone, with all it had."""
        for filter in self._of.pop(reader, ()):
            self._take_out(reader, filter)

    def match(self, topic: str) -> Mapping[R, int]:
        """Each reader of this topic once: with the highest QoS of its filters that match, and WAITS
        if all of these wait. It never changes: a change makes another one.
        """
        answer = self._answers.get(topic)
        if answer is not None and (answer.seq == self._seq or self._stands(topic, answer)):
            return answer.readers
        return self._look_up(topic)

    # No filter that matches has changed since.
    def _stands(self, topic: str, answer: _Answer[R]) -> bool:
        changes = self._seq - answer.seq
        if changes > len(self._changed):
            return False
        if any(matches(self._changed[-n], topic) for n in range(1, changes + 1)):
            return False
        answer.seq = self._seq
        return True

    def _look_up(self, topic: str) -> Mapping[R, int]:
        found: dict[R, int] = {}
        for row in self._rows(topic):
            for reader, value in row.items():
                other = found.get(reader)
                if other is not None:
                    value = max(value & 3, other & 3) | value & other & WAITS
                found[reader] = value
        # An answer that is made anew is the youngest.
        self._answers.pop(topic, None)
        if len(self._answers) >= self._topics:
            del self._answers[next(iter(self._answers))]
        self._answers[topic] = _Answer(found, self._seq)
        return found

    def _rows(self, topic: str) -> Iterator[dict[R, int]]:
        nodes = [self._root]
        wild = not is_reserved(topic)
        for level in topic.split("/"):
            following = []
            for node in nodes:
                if wild and node.rest:
                    yield node.rest
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
                child = node.children.get("+") if wild else None
                if child is not None:
                    following.append(child)
            nodes, wild = following, True
        for node in nodes:
            yield node.here
            yield node.rest

    def _take_out(self, reader: R, filter: str) -> None:
        levels = filter.split("/")
        rest = levels[-1] == "#"
        if rest:
            levels.pop()
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        node = path[-1]
        del (node.rest if rest else node.here)[reader]
        while levels and not (node.here or node.rest or node.children):
            path.pop()
            node = path[-1]
            del node.children[levels.pop()]
        self._has_changed(filter)

    def _has_changed(self, filter: str) -> None:
        if "+" in filter or "#" in filter:
            self._seq += 1
            self._changed.append(filter)
        else:
            self._answers.pop(filter, None)


class Copies:
    """The newest messages of a link, by topic and whole payload, so that each is delivered once. It
    has the last `most` of them, or the last `most_bytes` bytes, and up to twice as many.

    A part of the payload would not do: whoever can publish at the broker could forge a message with
    the same part, and the real one would be taken for its copy.
    """

    __slots__ = ("_before", "_bytes", "_most", "_most_bytes", "_seen")

    def __init__(self, most: int = _COPIES, most_bytes: int = _COPIES_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        # The newest, and those before them, which are dropped all at once.
        self._seen: set[tuple[str, bytes]] = set()
        self._before: set[tuple[str, bytes]] = set()
        self._bytes = 0

    def __contains__(self, key: tuple[str, bytes]) -> bool:
        return key in self._seen or key in self._before

    def __len__(self) -> int:
        return len(self._seen) + len(self._before)

    def again(self, key: tuple[str, bytes]) -> bool:
        """Whether it came before. Notes that it has."""
        seen = self._seen
        if key in seen or key in self._before:
            return True
        size = self._bytes + len(key[1])
        if len(seen) >= self._most or size > self._most_bytes:
            self._before = seen
            self._seen = seen = set()
            size = len(key[1])
        seen.add(key)
        self._bytes = size
        return False

    def clear(self) -> None:
        """Forgets all."""
        self._seen, self._before = set(), set()
        self._bytes = 0
