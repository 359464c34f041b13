"""What a border does with one message: it passes, or is refused and named. No socket, no clock.

Before a message is acknowledged it lies on disk, sealed for where it goes, in one step with the
note that it has come: after a kill it is neither lost nor made anew. It is sent again as the same
m1, whose sender, boot session and counter readers know: so they take it once, however often it is
sent. Its time is the one at which it was published first, and its life ends when that one's does;
of what is retained by several clients at most 60 s later.

An event is on disk before its message leaves: with topic, labels, sender and digest, and never a
word of what was inside. After a kill there may be two for one message, with one digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from sealmq.bridge.passing import head
from sealmq.client.values import How
from sealmq.client.values import Message as Delivered
from sealmq.site.model import Border
from sealmq_spec.const import CLEAR, LIVE, WINDOW_S
from sealmq_spec.errors import Malformed, SealError
from sealmq_spec.origin import message_id
from sealmq_spec.topics import check_topic
from sealmq_spec.window import NEW, OLD

from .ends import Plain
from .spool import Message, Spool, Waiting

Seal = Callable[[bytes, bytes, int, int, int], bytes]
"""Publishing.seal."""


class Writes(Protocol):
    """An audit log's `write`."""

    def __call__(self, event: str, **fields: str) -> None: ...


class Passage:
    """Of one border. senders: clients by number; of a label that comes from a peer none is known.
    crossed, dropped: how many, the latter by the first word of why.
    """

    def __init__(
        self, border: Border, senders: Mapping[int, str], spool: Spool, seal: Seal, audit: Writes
    ) -> None:
        self._border, self._spool, self._seal, self._audit = border, spool, seal, audit
        self._senders = senders
        self._peer = border.label_in.partition("@")[2]
        self.crossed, self.dropped = 0, Counter[str]()

    def take(self, message: Delivered, label: int) -> bool:
        """A message that the reading client has opened; whether something waits now that did not.
        label: the number of the border's own. On disk when this returns, or named as dropped.
        ClientError, sqlite3.Error: neither; it must not be acknowledged.
        """
        plain, topic = message.payload, message.topic
        if not isinstance(plain, Plain):
            raise TypeError("a message that no border has opened")
        digest = message_id(plain.m1)
        try:
            said = head(plain.m1)
            of = self._border.label_in if message.label_number == label else message.label
            if why := self._border.refuses(topic, of):
                raise Malformed(why)
            if said.kind == CLEAR and plain:
                raise Malformed("a clear has nothing inside")
            place = self._border.place(topic)
            raw = check_topic(place)
        except SealError as error:
            self.drop(topic, str(error), digest)
            return False
        seen = self._spool.look(said.origin, said.ctr)
        if seen != NEW:
            # What is retained comes with each subscription, however old it is; a clear does not.
            if seen == OLD and (said.kind == CLEAR or message.how is not How.RETAINED):
                self.drop(topic, "late: 64 of its sender came before it", digest)
            return False
        sender = self._senders.get(said.sender, "") if not self._peer else ""
        since = said.t_pub if said.kind == LIVE else self._after(place, said.t_pub)
        m1 = self._seal(raw, bytes(plain), said.kind, said.life, since)
        one = Message(place, said.kind != LIVE, sender or f"#{said.sender}", digest, m1)
        self._spool.put(one, said.origin, said.ctr, since)
        return True

    # Clients' clocks differ. Of what several of them retain on a topic, or clear there, this border
    # is the one sender: readers take its newest by its time, and the broker has its last.
    def _after(self, place: str, t_pub: int) -> int:
        newest = self._spool.newest(place)
        return newest if t_pub < newest <= t_pub + WINDOW_S else t_pub

    def waiting(self, most: int) -> list[Waiting]:
        """The oldest that wait. What the border no longer passes is dropped, and the others have an
        event each: nothing of them may leave before the audit log is on disk.
        """
        found = []
        for one in self._spool.oldest(most):
            topic = self.home(one.message.topic)
            if why := self._border.refuses(topic, self._border.label_in):
                self.ended(one, why)
                continue
            cleared = {"detail": "clear"} if head(one.message.m1).kind == CLEAR else {}
            self._audit(
                "border-crossed",
                border=self._border.name,
                topic=topic,
                label=self._border.label_in,
                label_out=self._border.label_out,
                sender=one.message.sender,
                digest=one.message.digest.hex(),
                **cleared,
            )
            found.append(one)
        return found

    def ended(self, one: Waiting, why: str) -> None:
        """The broker has it; or, with a reason, it will never take it."""
        if not self._spool.done(one):
            return  # it was dropped, and named, while it was on its way
        if why:
            self.lost(one.message, why)
        else:
            self.crossed += 1

    def lost(self, one: Message, why: str) -> None:
        """It had waited, and will not be published."""
        self.drop(self.home(one.topic), why, one.digest)

    def home(self, place: str) -> str:
        """The topic that was published again there."""
        topic = place[len(self._border.mount) :]
        return f"@{self._peer}/{topic}" if self._peer else topic

    def drop(self, topic: str, why: str, digest: bytes = b"") -> None:
        """Name it."""
        self.dropped[why.partition(":")[0][:40]] += 1
        self._audit(
            "border-dropped",
            border=self._border.name,
            topic=topic,
            reason=why,
            digest=digest.hex(),
        )
