"""Errors of the store. StoreUnavailable passes by itself; StoreCorrupt needs an operator."""

from __future__ import annotations


class StoreError(Exception):
    """Base of the store's errors; `hint` is for the operator."""

    hint: str | None = None

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


class StoreUnavailable(StoreError):
    """Nothing of the commit is kept (disk full, locked, queue full, closed). Refuse; try later."""


class StoreFull(StoreError):
    """Nothing of the commit is kept: a client, or a family, has as much as [limits] lets it have.
    Others, and what takes something away, may pass.
    """


class StoreCorrupt(StoreError):
    """The file is no store of ours, damaged, or of a newer version."""
