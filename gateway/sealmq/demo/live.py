"""The live display: messages, attempts, the broker's view. For a terminal; `--plain` is for others.

It shows a Board and nothing that the Board does not have.
"""

from __future__ import annotations

import asyncio

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from . import hexview
from .acts import ATTEMPTS
from .board import Board, Tried

REFRESH_S = 0.25
_MARKS = {
    "waiting": ("·", "bright_black"),
    "trying": ("…", "yellow"),
    "refused": ("✗ refused", "green"),
    "accepted": ("✓ accepted", "green"),
    "withheld": ("✗ withheld", "green"),
    "unseen": ("? not seen", "bold red"),
}


class Screen:
    """`async with Screen(board)`: the display runs until the block ends."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board, self._console = board, console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Screen:
        self._live.start()
        self._task = asyncio.create_task(self._refresh(), name="display")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        self._live.stop()

    async def _refresh(self) -> None:
        while True:
            height = self._console.size.height
            self._live.update(view(self._board, height, self._console.size.width), refresh=True)
            await asyncio.sleep(REFRESH_S)


def view(board: Board, height: int, width: int) -> RenderableType:
    """The whole display for a terminal of this size."""
    tried = _latest(board, max(4, height - 11))
    packets = max(1, min(4, height - len(tried) - 16))
    rows = max(2, height - len(tried) - packets - 11)
    head = Text.assemble(
        ("SealMQ demo  ", "bold"),
        f"{board.seconds:4.0f} s  {board.site}  ",
        (board.step, "cyan"),
        no_wrap=True,
        overflow="ellipsis",
    )
    return Group(head, _messages(board, rows), _attempts(tried), _broker(board, packets, width))


# So many attempts as a terminal has room for: those that were begun last.
def _latest(board: Board, most: int) -> list[Tried]:
    tried = list(board.tried.values())
    begun = sum(each.state != "waiting" for each in tried)
    return tried[max(0, begun - most) :][:most]


def _messages(board: Board, rows: int) -> Panel:
    table = Table(box=None, expand=True, pad_edge=False, show_header=False)
    for name, ratio in (("publisher", 3), ("topic", 3), ("text", 4), ("readers", 4)):
        table.add_column(name, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for message in board.messages[-rows:]:
        readers = Text(", ".join(message.readers) or "…", "green" if message.readers else "")
        table.add_row(message.publisher, message.topic, Text(message.text, "bold"), readers)
    for _ in range(rows - len(board.messages[-rows:])):
        table.add_row("", "", "", "")
    return Panel(table, title="who published what, and who could open it", title_align="left")


def _attempts(tried: list[Tried]) -> Panel:
    table = Table(box=None, expand=True, pad_edge=False, show_header=False)
    table.add_column("mark", width=10, no_wrap=True)
    table.add_column("title", width=max(len(a.title) for a in ATTEMPTS), no_wrap=True)
    table.add_column("why", ratio=1, no_wrap=True, overflow="ellipsis")
    for each in tried:
        mark, style = mark_of(each)
        title = each.attempt.title if each.state != "waiting" else ""
        table.add_row(Text(mark, style), title, Text(each.why, "bright_black"))
    return Panel(table, title="what was tried, and why it was refused", title_align="left")


def mark_of(tried: Tried) -> tuple[str, str]:
    """An attempt's state in a word and a colour: red is what should not be."""
    mark, style = _MARKS[tried.state]
    if tried.state in ("refused", "accepted", "withheld") and tried.state != tried.attempt.expected:
        style = "bold red"
    return mark, style


def _broker(board: Board, packets: int, width: int) -> Panel:
    lines: list[RenderableType] = [hexview.legend()]
    for topic, payload in board.packets[-packets:]:
        text = Text(f"{topic:<24.24} ", no_wrap=True, overflow="ellipsis")
        most = max(24, (width - 32) // 3)
        lines.append(text.append_text(hexview.line(payload, 0, most)))
    title = f"what the broker saw ({board.broker_packets} messages)"
    return Panel(Group(*lines), title=title, title_align="left")
