"""What is sent to a client about keys without its asking (SPEC.md 4.4): new epochs, public records,
grants.

Records and grants go out before the first message that needs them, so that a reader never has to
ask. A client keeps 64 grants, as they came last; `_grants` is what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable

from sealmq_spec.const import OP_EPOCH, OP_RECORD
from sealmq_spec.keys import u24

from .keyring import Grant, Label
from .site import Site

GRANTS = 64
"""That a client keeps of a connection."""


class Announcements:
    """What was sent to one client, at this label, in this session.

    `known`: labels, and (label, epoch of m1), whose records it has; to be looked at before
    `records` is called.
    """

    __slots__ = ("_down", "_grants", "_label", "_records", "_site", "known")

    def __init__(self, site: Site, label: int, down: Callable[[bytes], None]) -> None:
        self._site, self._label, self._down = site, label, down
        self._records: set[bytes] = set()
        # By number, with an `until`; the one that was told last is the last one.
        self._grants: dict[int, tuple[Grant, int]] = {}
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

    def grant(self, grant: Grant) -> None:
        """Before a message that is sealed to it."""
        had = self._grants.get(grant.number)
        if had is None or had[1] or had[0].epoch != grant.epoch:
            self._tell(grant, 0)

    def _tell(self, grant: Grant, until: int) -> None:
        told = self._grants
        told.pop(grant.number, None)
        if len(told) >= GRANTS:
            del told[next(iter(told))]
        told[grant.number] = grant, until
        self._down(grant.told(until))

    def keys_changed(self, client: int) -> None:
        """There may be other records now, and grants that this client does not hold any more."""
        self.known.clear()
        if not self._grants:
            return
        held = {one.number for one in self._site.ring.grants.values() if client in one.holders}
        now = self._site.now_ms // 1000
        for grant, until in list(self._grants.values()):
            if not until and grant.number not in held:
                self._tell(grant, now)

    def forget(self) -> None:
        """The client has new roots, and with them forgets what it derived from the old ones."""
        self.known.clear()
        self._records.clear()

    def epoch(self, label: Label) -> None:
        """The client's own label has a new epoch."""
        end = label.previous[1] if label.previous else 0
        body = u24(label.number) + u24(label.epoch) + self._site.ring.kseq.to_bytes(4, "big")
        self._down(bytes((OP_EPOCH,)) + body + end.to_bytes(4, "big"))
