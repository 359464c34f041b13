"""Who asks and what: one Ask for each connection, filled again for each question. It also notes
what the answer rests on: what a family says, and what it read without saying so.

Reading `size`, `message_id` or `age_ms` makes the merged verdict one that is never cached: those
differ from message to message while the cache's key does not hold them. So does `tlv` of a message
that has items, and `grant` of one that lies under a grant: such a message never meets the cache
(conn.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .attributes import Attributes
from .counts import Counts
from .values import value

NEVER = 0
FOREVER = 1 << 62

Dep = tuple[str, ...]
"""What a verdict rests on: a kind and its keys, for instance ("topic", "a/b")."""

ATTRIBUTE = "attribute"
"""The kind of deps that are attributes: this, the name, the subject."""

Question = Literal["connect", "publish", "subscribe", "deliver"]
QUESTIONS: tuple[Question, ...] = get_args(Question)

HOWS = ("live", "retained", "will", "queued")
"""Age kinds by their number on the wire (SPEC.md 3.3, `how`)."""

NO_TLV: Mapping[int, bytes] = {}
NO_NOTES: Mapping[str, Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Who:
    """A client as policy sees it. It publishes under its label: m1 names no other (SPEC.md 3.1)."""

    client: str
    number: int
    kind: str
    site: str
    label: str


@value
class Sub:
    """A subscription as the broker knows it (parsed filter) and its notes by family. `reaches` says
    of a topic whether the filter matches it.
    """

    filter: str
    qos: int
    notes: Mapping[str, Mapping[str, Any]]
    reaches: Callable[[str], bool] = field(compare=False)


class Ask:
    """What a question is about. Fields that a question does not have keep their defaults.

    `topic` is the topic of publish and deliver, the filter of subscribe, "" of connect, after
    `parse`; `raw` as it arrived. `label` is the message's (deliver) or "". `how` indexes HOWS.
    Times are Unix ms. `deps`, `until`, `volatile` and `counted` are the engine's: what the answer
    has rested on so far, until when it holds, whether it must not be cached, and what was read of
    counts; `keyed`, that items and grant are part of what it is kept by.

    `one_sender`: what a family reads of counts while it is set is counted for a message of this
    sender alone. For what an OnlyFrom rests on, one sender after the other; the family resets it.
    """

    __slots__ = (
        "_age_ms",
        "_attributes",
        "_counts",
        "_grant",
        "_looked",
        "_message_id",
        "_size",
        "_subs",
        "_tlv",
        "counted",
        "deps",
        "how",
        "keyed",
        "label",
        "notes",
        "now_ms",
        "one_sender",
        "qos",
        "question",
        "raw",
        "retain",
        "topic",
        "until",
        "volatile",
        "who",
    )

    def __init__(
        self,
        who: Who,
        attributes: Attributes,
        subs: Mapping[str, Sub],
        looked: Dep,
        counts: Counts | None = None,
    ) -> None:
        """`subs` are the connection's subscriptions; what looks at them rests on `looked`."""
        self.who = who
        self._attributes = attributes
        self._counts = Counts() if counts is None else counts
        self._subs = subs
        self._looked = looked
        self.deps: dict[Dep, None] = {}
        self.until = FOREVER
        self.volatile = False
        # By name and subject: for whose messages alone it counts; None: whoever has sent it.
        self.counted: dict[tuple[str, str], set[str] | None] = {}
        self.one_sender = ""
        self.fill("connect", "", 0)

    def fill(
        self,
        question: Question,
        raw: str,
        now_ms: int,
        label: str = "",
        how: int = 0,
        qos: int = 0,
        retain: bool = False,
        size: int = 0,
        tlv: Mapping[int, bytes] = NO_TLV,
        message_id: tuple[int, int] | None = None,
        age_ms: int = 0,
        grant: tuple[str, str] | None = None,
    ) -> None:
        """Take the next question. The engine calls it, families never do."""
        self.question = question
        self.raw = raw
        self.topic = raw
        self.notes = NO_NOTES
        self.now_ms = now_ms
        self.label = label
        self.how = how
        self.qos = qos
        self.retain = retain
        self._size = size
        self._tlv = tlv
        self._message_id = message_id
        self._age_ms = age_ms
        self._grant = grant
        self.keyed = False

    @property
    def size(self) -> int:
        """Bytes of the payload as sealed by the publisher."""
        self.volatile = True
        return self._size

    @property
    def tlv(self) -> Mapping[int, bytes]:
        """Authenticated items: those that a publisher puts into its message (publish), those that
        families have put into it (deliver). CONNECT and SUBSCRIBE have none. Types keep their
        critical bit. Under a label (`grant` is None) whoever has the label's topic key and reaches
        the broker can forge them.
        """
        if self._tlv and not self.keyed:
            self.volatile = True
        return self._tlv

    @property
    def grant(self) -> tuple[str, str] | None:
        """Family and name of the grant under which the broker's copy lies, which is one of no
        client: a mediator has made it, and `tlv` is what families have put (publish, SealToGrant).
        None: it lies under the label. Of deliver alone.
        """
        if self._grant is not None and not self.keyed:
            self.volatile = True
        return self._grant

    @property
    def message_id(self) -> tuple[int, int] | None:
        """(boot, ctr) of the publisher (m1)."""
        self.volatile = True
        return self._message_id

    @property
    def age_ms(self) -> int:
        """Milliseconds since the publisher sealed it."""
        self.volatile = True
        return self._age_ms

    @property
    def subs(self) -> tuple[Sub, ...]:
        """The connection's subscriptions that match `topic` (deliver)."""
        self.deps[self._looked] = None
        topic, found = self.topic, []
        for sub in self._subs.values():
            if sub.reaches(topic):
                found.append(sub)
        return tuple(found)

    def attribute(self, name: str, subject: str = "") -> Any:
        """Its value; UnknownAttribute (hence a deny) when none holds now.

        The verdict then rests on it and is cached no longer than it holds; on an absent one as
        well, so that its arrival is noticed. What rests on a count is never cached, and a delivery
        that comes of it counts.
        """
        self.deps[ATTRIBUTE, name, subject] = None
        if name in self._counts.declared:
            self.volatile = True
            self._count((name, subject))
            return self._counts.read(name, subject, self.who.client, self.now_ms)
        held = self._attributes.read(name, subject, self.now_ms)
        self.holds_until(held.until)
        return held.value

    def _count(self, key: tuple[str, str]) -> None:
        if not self.one_sender:
            self.counted[key] = None
        elif (senders := self.counted.setdefault(key, set())) is not None:
            senders.add(self.one_sender)

    def holds_until(self, ms: int) -> None:
        """The answer may be another one from then on: it is cached no longer."""
        if ms < self.until:
            self.until = ms
