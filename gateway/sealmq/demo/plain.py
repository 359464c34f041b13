"""The display for logs and pipes: lines, in the order in which things happened."""

from __future__ import annotations

import asyncio

from .board import Board

SETTLED_S = 1.0
BYTES = 32


class Lines:
    """`async with Lines(board)`: prints messages once it is clear who could open them."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._shown = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Lines:
        self._task = asyncio.create_task(self._follow(), name="display")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        self.settle(self._board.seconds)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(SETTLED_S)
            self.settle(self._board.seconds - SETTLED_S)

    def settle(self, until: float) -> None:
        """Print what was published up to `until`, and a sample of what the broker saw meanwhile."""
        board = self._board
        for message in board.messages:
            if self._shown < message.at <= until:
                readers = ", ".join(sorted(message.readers)) or "nobody"
                board.line(
                    f"{message.publisher}: {message.topic} {message.text!r}; opened by {readers}",
                    message.at,
                )
        self._shown = until
        if board.packets:
            topic, payload = board.packets[-1]
            board.line(f"the broker saw: {topic} {payload[:BYTES].hex(' ')} …")
