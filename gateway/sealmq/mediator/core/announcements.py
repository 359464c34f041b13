"""What is sent to a client about keys without its asking (SPEC.md 4.4): new epochs, and the public
records.

Records go out before the first message that needs them, so that a reader never has to ask.
"""

from __future__ import annotations

from collections.abc import Callable

from sealmq_spec.const import OP_EPOCH, OP_RECORD
from sealmq_spec.keys import u24

from .keyring import Label
from .site import Site


class Announcements:
    """What was sent to one client, at this label, in this session.

    `known`: labels, and (label, epoch of m1), whose records it has; to be looked at before
    `records` is called.
    """

    __slots__ = ("_down", "_label", "_records", "_site", "known")

    def __init__(self, site: Site, label: int, down: Callable[[bytes], None]) -> None:
        self._site, self._label, self._down = site, label, down
        self._records: set[bytes] = set()
        self.known: set[int | tuple[int, int]] = set()

    def records(self, label: int, epoch: int = 0) -> None:
        """Before the first message of a label: the public records that open it.

        epoch: of m1, where it is known.
        """
        place = (label, epoch) if epoch else label
        if place in self.known:
            return
        self.known.add(place)
        for record in self._site.ring.records_for(self._label, label, epoch):
            if record not in self._records:
                self._records.add(record)
                self._down(bytes((OP_RECORD,)) + record)

    def keys_changed(self) -> None:
        """There may be other records now."""
        self.known.clear()

    def forget(self) -> None:
        """The client has new roots, and with them forgets what it derived from the old ones."""
        self.known.clear()
        self._records.clear()

    def epoch(self, label: Label) -> None:
        """The client's own label has a new epoch."""
        end = label.previous[1] if label.previous else 0
        body = u24(label.number) + u24(label.epoch) + self._site.ring.kseq.to_bytes(4, "big")
        self._down(bytes((OP_EPOCH,)) + body + end.to_bytes(4, "big"))
