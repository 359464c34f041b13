"""Provisioning requests on their way to the key generator and back (SPEC.md 7.2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sealmq.kglink import KgUnavailable

from .limits import PROVISION_S

if TYPE_CHECKING:
    from sealmq.kglink import Answer

    from .hub import Hub


class Asking:
    """Of one mediator. A key generator that is away is waited for, but not for long."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        # Set, and replaced, when keys or the key generator have come or gone.
        self._news = asyncio.Event()

    def news(self) -> None:
        """Keys, or the key generator, have come or gone."""
        self._news.set()
        self._news = asyncio.Event()

    async def provision(self, packet: bytes) -> Answer:
        """The key generator's answer to a provisioning request. Raises KgError."""
        try:
            async with asyncio.timeout(PROVISION_S):
                answer = await self._ask(packet)
                self._hub.links_came(answer.client, answer.links)
                await self._catch_up(answer)
        except TimeoutError:
            raise KgUnavailable("the key generator is away") from None
        return answer

    async def _ask(self, packet: bytes) -> Answer:
        while True:
            news, kg = self._news, self._hub.kg
            if kg is not None:
                try:
                    return await kg.answer(packet)
                except KgUnavailable:
                    if not kg.lost:
                        raise
            if self._hub.kg is kg:
                await news.wait()

    # Who holds an epoch before we know of it would be refused with it.
    async def _catch_up(self, answer: Answer) -> None:
        while True:
            news, ring = self._news, self._hub.ring
            client = ring.clients.get(answer.client)
            label = ring.labels.get(client.label) if client is not None else None
            if client is None or label is None:
                return
            if client.epochs.get(answer.gen, 0) <= label.epoch:
                return
            await news.wait()
