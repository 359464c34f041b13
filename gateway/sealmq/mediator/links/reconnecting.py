"""A link to the broker that is kept up: it connects again, ever more slowly, until cancelled."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

from .broker import BrokerAddress, BrokerAway

log = logging.getLogger("sealmq.mediator")

FIRST_S, MOST_S = 0.1, 5.0


class ReconnectingLink(ABC):
    """`away`: why it is not there, None while it is; `changed` is called at each change."""

    def __init__(
        self, address: BrokerAddress, client_id: str, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._address, self._client_id, self._changed = address, client_id, changed
        self.away: str | None = "the broker has not answered yet"

    async def run(self) -> None:
        """Holds the link until cancelled."""
        pause = FIRST_S
        while True:
            try:
                await self._hold()
                pause = FIRST_S
            except BrokerAway as error:
                if pause == FIRST_S:
                    log.warning("%s; trying again", error)
                self._tell(str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, MOST_S)

    def _tell(self, away: str | None) -> None:
        if away != self.away:
            self.away = away
            self._changed()

    @abstractmethod
    async def _hold(self) -> None:
        """Opens it and returns when it has ended. Raises BrokerAway."""
