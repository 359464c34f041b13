"""The store: an asyncio face over one writer thread; readers are synchronous, for start-up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sealmq.families.records import Record

from .records import Held, SessionMark, StoreRecord


class Store:
    """Tables topics, sessions, cache, meta and the families' rows."""

    @classmethod
    def open(cls, path: Path, *, queue: int = 4096) -> Store:
        """Open or create (file 0600). StoreCorrupt, StoreUnavailable."""
        raise NotImplementedError

    @classmethod
    def open_readonly(cls, path: Path) -> Store:
        """For the CLI, whether the mediator runs or not; `commit` refuses."""
        raise NotImplementedError

    async def commit(self, records: Sequence[StoreRecord]) -> list[Held]:
        """All or nothing, on disk (fsync) when this returns; one Held for each record, in order.

        Commits complete in the order of submission. StoreUnavailable: nothing of it is kept.
        """
        raise NotImplementedError

    def records(self) -> list[Record]:
        """All that the policy families index (Engine.load)."""
        raise NotImplementedError

    def sessions(self) -> dict[int, SessionMark]:
        """The marks by client number."""
        raise NotImplementedError

    def cache(self, name: str) -> bytes | None:
        """A sealed blob, or None."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is queued, then end the writer thread. Blocks for that long."""
        raise NotImplementedError
