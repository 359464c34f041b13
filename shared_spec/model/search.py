"""The search: every state that a world can reach, breadth first, so that attacks are short."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar


class World:
    """A bounded setting: honest roles, an attacker, properties.

    A state is any hashable value with a text `bad`, empty while every property holds. Moves set it;
    a state with `bad` is an attack.
    """

    name: ClassVar[str]
    # Against whom, for people.
    attacker: ClassVar[str]
    # What each defence is, and where SPEC.md asks for it.
    DEFENCES: ClassVar[dict[str, str]] = {}
    # What the world takes for granted, and the protocol does not claim without it.
    ASSUMED: ClassVar[dict[str, str]] = {}

    def __init__(self, out: frozenset[str] = frozenset(), full: bool = False) -> None:
        self.full = full
        self.on = {name: name not in out for name in (*self.DEFENCES, *self.ASSUMED)}

    def starts(self) -> Iterator[tuple[str, Any]]:
        """States to begin with, each with a text."""
        raise NotImplementedError

    def moves(self, state: Any) -> Iterator[tuple[str, Any]]:
        """What can happen next: text, state."""
        raise NotImplementedError

    def explain(self, state: Any) -> list[str]:
        """More lines about a broken state."""
        return []

    def cover(self, prefix: str, **fields: Hashable) -> dict[str, Any]:
        """Associated data: fields without those whose defence `<prefix>-binds-<field>` is out."""
        return {k: v for k, v in fields.items() if self.on.get(f"{prefix}-binds-{k}", True)}


@dataclass
class Outcome:
    """What a search found: `broken` is empty when no property broke."""

    world: str
    states: int
    broken: str = ""
    trace: list[str] = field(default_factory=list)


def search(world: World) -> Outcome:
    """Explores a world to its end or to the first attack."""
    before: dict[Any, tuple[Any, str]] = {}
    queue: deque[Any] = deque()
    for text, state in world.starts():
        if state not in before:
            before[state] = (None, text)
            queue.append(state)
    while queue:
        state = queue.popleft()
        if state.bad:
            trace = _trace(before, state) + world.explain(state)
            return Outcome(world.name, len(before), state.bad, trace)
        for text, after in world.moves(state):
            if after not in before:
                before[after] = (state, text)
                queue.append(after)
    return Outcome(world.name, len(before))


def _trace(before: dict[Any, tuple[Any, str]], state: Any) -> list[str]:
    texts = []
    while state is not None:
        state, text = before[state]
        texts.append(text)
    return texts[::-1]
