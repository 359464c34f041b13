"""What a client is told of keys without asking (SPEC.md 4.4): new epochs, and the public records.

Records go out before the first message that needs them, so that a reader never has to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealmq_spec.const import OP_EPOCH, OP_RECORD
from sealmq_spec.keys import u24

from .keyring import Keyring, Label

if TYPE_CHECKING:
    from .connection import Connection


class Telling:
    """What one connection has been told."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        # Records that were sent, and the labels looked at with this ring.
        self._records: set[bytes] = set()
        self._labels: set[int | tuple[int, int]] = set()
        self._ring: Keyring | None = None

    def records(self, label: int, epoch: int = 0) -> None:
        """Before the first message of a label: the public records that open it.

        epoch: of m1, where it is known.
        """
        ring = self._conn.hub.ring
        if self._ring is not ring:
            self._ring = ring
            self._labels.clear()
        place = (label, epoch) if epoch else label
        if place in self._labels:
            return
        self._labels.add(place)
        rows = ring.records_for(self._conn.client.label, label, epoch)
        for record in rows:
            if record not in self._records:
                self._records.add(record)
                self._conn.down(bytes((OP_RECORD,)) + record)

    def forget(self) -> None:
        """The client has new roots, and with them forgets what it derived from the old ones."""
        self._ring = None
        self._records.clear()

    def epoch(self, label: Label) -> None:
        """The client's own label has a new epoch."""
        end = label.previous[1] if label.previous else 0
        body = u24(label.number) + u24(label.epoch) + self._conn.hub.ring.kseq.to_bytes(4, "big")
        self._conn.down(bytes((OP_EPOCH,)) + body + end.to_bytes(4, "big"))
