"""The partial order of labels: closure and cycles (Chen and Wilson, sections 3 and 3.2).

bottom is below every label, top above every one, none is isolated and not part of the order.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ConfigError
from .model import BOTTOM, TOP


def closure(over: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """label -> all labels strictly below it, bottom and top included. ConfigError on a cycle."""
    below: dict[str, frozenset[str]] = {BOTTOM: frozenset()}
    for name in _lowest_first(over):
        mine = {BOTTOM}
        for low in over[name]:
            mine.add(low)
            mine |= below[low]
        below[name] = frozenset(mine)
    below[TOP] = frozenset(below)
    return below


# Depth first without recursion: a chain of 5,000 labels must not end in a RecursionError.
def _lowest_first(over: Mapping[str, tuple[str, ...]]) -> list[str]:
    done: dict[str, bool] = {}
    out = []
    for start in over:
        path = [start]
        while path:
            name = path[-1]
            if done.get(name):
                path.pop()
                continue
            done[name] = False
            todo = [low for low in over[name] if not done.get(low)]
            if not todo:
                done[name] = True
                out.append(path.pop())
                continue
            if todo[0] in done:  # begun, not done: it is on the path
                raise _cycle([*path[path.index(todo[0]) :], todo[0]])
            path.append(todo[0])
    return out


def _cycle(names: list[str]) -> ConfigError:
    shown = names if len(names) <= 8 else [*names[:7], "...", names[-1]]
    return ConfigError(
        "a label would dominate itself: " + " > ".join(shown),
        "an order has no circles; take one of these out",
        key=f"labels.{names[0]}",
    )
