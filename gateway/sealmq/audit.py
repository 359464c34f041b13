"""The audit log of one process: JSON lines after shared_spec/audit.schema.json, in segments.

A segment is written as `….jsonl.open`, fsynced, and renamed once to a name never reused. No payload
and no secret ever enters it. Writing is cheap; a thread of its own serialises and fsyncs.
"""

from __future__ import annotations

from pathlib import Path

Field = str | int | bool | list[str]


class Audit:
    """`role`: kg, mediator, broker, supervisor. `inst`: the process's instance; `site`: hex."""

    def __init__(self, dir: Path, role: str, inst: int, site: str) -> None:
        raise NotImplementedError

    def write(self, event: str, **fields: Field | None) -> None:
        """One record. Fields that are None are left out; an unknown event or field is an error."""
        raise NotImplementedError

    def count_accepted(self, client: str, topic: str, label: str) -> None:
        """publish-accepted, one record a minute for each client and topic."""
        raise NotImplementedError

    def count_delivered(self, client: str, topic: str, label: str) -> None:
        """delivered, likewise."""
        raise NotImplementedError

    def count_denied(self, client: str, topic: str, rule: str, label: str = "") -> None:
        """deliver-denied, one record a minute for each client, topic and rule."""
        raise NotImplementedError

    def count_unenforced(self, client: str, topic: str, rule: str, question: str) -> None:
        """unenforced: what `enforce = false` let through, counted likewise."""
        raise NotImplementedError

    async def synced(self) -> None:
        """Returns when all that was written before is on disk."""
        raise NotImplementedError

    def close(self) -> None:
        """Write the counts out, fsync, rename the segment, end the thread."""
        raise NotImplementedError
