"""asyncio.timeout with a typed error that says what did not come in time."""

from __future__ import annotations

import asyncio
from types import TracebackType

from .errors import TimedOut


class Limit:
    """`async with Limit(30, "publish to a/b")`: TimedOut after 30 s; None: never. Used once."""

    def __init__(self, seconds: float | None, what: str) -> None:
        self._seconds, self._what = seconds, what
        self._timeout = None if seconds is None else asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        if self._timeout is not None:
            await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timeout is None:
            return
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise TimedOut(f"{self._what}: no answer within {self._seconds:g} s") from None
