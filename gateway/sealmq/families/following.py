"""Which subscriptions the policy has to be asked about again: those whose verdict depends on
something that has changed.

It only collects them; the mediator asks, and pauses or resumes them at the broker.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from .api import FOREVER, Dep, Follow
from .decision import Decision

K = TypeVar("K", bound=Hashable)


def is_followed(decision: Decision) -> bool:
    """Whether a subscription with this answer is to be asked about again.

    A deny may become an allow. If `enforce = false` has made an allow of it, that may end.
    """
    if not decision.allow or decision.overridden:
        return True
    return any(isinstance(duty, Follow) for duty in decision.duties)


class Following(Generic[K]):
    """All followed subscriptions; a key stands for one subscription of one connection."""

    def __init__(self) -> None:
        self._deps: dict[K, tuple[Dep, ...]] = {}
        self._index: dict[Dep, set[K]] = {}
        # Only those whose answer expires.
        self._until: dict[K, int] = {}
        self._due: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._deps)

    def follow(self, key: K, decision: Decision) -> None:
        """Follows the subscription by what this answer depends on."""
        self.drop(key)
        self._deps[key] = decision.deps
        for dep in decision.deps:
            self._index.setdefault(dep, set()).add(key)
        if 0 < decision.until < FOREVER:
            self._until[key] = decision.until

    def drop(self, key: K) -> None:
        """Follows it no longer: the client has left it, or its connection ends."""
        self._due.pop(key, None)
        self._until.pop(key, None)
        for dep in self._deps.pop(key, ()):
            resting = self._index.get(dep)
            if resting is not None:
                resting.discard(key)
                if not resting:
                    del self._index[dep]

    def gone(self, deps: Iterable[Dep]) -> None:
        """What depends on any of these is due."""
        for dep in deps:
            for key in self._index.get(dep, ()):
                self._due[key] = None

    def all_deps(self) -> list[Dep]:
        """All that followed subscriptions depend on."""
        return list(self._index)

    def all_of(self, keys: Iterable[K]) -> None:
        """These are due, whatever they depend on."""
        for key in keys:
            if key in self._deps:
                self._due[key] = None

    def everything(self) -> None:
        """All are due."""
        self._due.update(dict.fromkeys(self._deps))

    def tick(self, now_ms: int) -> None:
        """Subscriptions whose answers have expired are due."""
        for key, until in self._until.items():
            if now_ms >= until:
                self._due[key] = None

    def take(self) -> list[K]:
        """What is due; each is given once."""
        if not self._due:
            return []
        due, self._due = self._due, {}
        return list(due)
