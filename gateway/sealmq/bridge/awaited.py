"""Messages of a peer whose first keys have not come yet, and of which this site imports a label.
Without the keys nobody can say whether a message is for this site. So it waits, in its order; after
KEYS_S it is refused and named, and so are later ones. A neighbour sends its keys before its
messages; those of a far peer come another way, and may come seconds later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

KEYS_S = 20.0
"""From the first message on: a far peer's keys are sent again every 15 s at the latest."""

Again = Callable[[], None]


class Awaited:
    """Peers whose keys have not come, and what waits for them."""

    def __init__(self) -> None:
        self._of: dict[str, list[Again]] = {}
        self._given_up: set[str] = set()

    def add(self, peer: str) -> None:
        """A label is imported of it, and there are no keys."""
        self._of[peer] = []

    def came(self, peer: str) -> None:
        """Its keys are there: what waits is judged again."""
        self._given_up.discard(peer)
        for again in self._of.pop(peer, ()):
            again()

    def lacks(self, peer: str) -> bool:
        """Whether its keys have not come."""
        return peer in self._of

    def waits(self, peer: str, again: Again) -> bool:
        """Have it judged again later; False: it has been waited for long enough."""
        if peer in self._given_up:
            return False
        waiting = self._of[peer]
        waiting.append(again)
        if len(waiting) == 1:
            asyncio.get_running_loop().call_later(KEYS_S, self._give_up, peer)
        return True

    def _give_up(self, peer: str) -> None:
        if peer not in self._of:
            return
        self._given_up.add(peer)
        some, self._of[peer] = self._of[peer], []
        for again in some:
            again()
