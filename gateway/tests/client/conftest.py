"""What all tests of the client share."""

from __future__ import annotations

import pytest

from sealmq.client import backoff


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that lose a connection try again at once: each wait is the shortest that it may be.

    What they may be at most is tested with `Backoff.limit`.
    """
    monkeypatch.setattr(backoff, "draw", lambda: 0.0)
