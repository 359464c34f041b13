"""The live display fits into the terminal, and shows the attempt that is being made."""

from __future__ import annotations

import io

from rich.console import Console

from sealmq.demo.acts import ATTEMPTS
from sealmq.demo.board import Board
from sealmq.demo.live import view


def test_it_fits_and_shows_the_attempt_that_is_made() -> None:
    board = Board(lambda text, at: None)
    for attempt, height in zip(ATTEMPTS, (24, 50) * len(ATTEMPTS), strict=False):
        board.trying(attempt)
        out = io.StringIO()
        Console(file=out, width=160, height=height).print(view(board, height, 160))
        shown = out.getvalue().splitlines()
        assert len(shown) <= height
        assert any("│ …" in line and attempt.title in line for line in shown)
        board.result(attempt, attempt.expected, "")
