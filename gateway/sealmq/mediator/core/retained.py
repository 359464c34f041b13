"""What a mediator remembers of retained messages, so that nobody replaces one by an older one.

By topic: the newest copy that passed, so that a broker's older one shows. By topic and sender: the
newest that the sender published, so that a network cannot let an older one overtake it. Only
in memory, and at most MOST of each, the oldest forgotten first. After a restart it begins empty.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from sealmq_spec.errors import Stale

from .denied import DeniedByRule

MOST = 100_000

Order = tuple[int, int]
Place = tuple[int, int, int]
Took = Callable[[str, int, int], None]
Told = Callable[[str, int, int, Order | None], None]


class Retained:
    """Times: (ms, seq) of m3; (t_pub, boot, ctr) of m1.

    `told` is called with what passes here towards the broker; another worker takes it by `heard`.
    `apart_ms`: copies that are no further apart count as published at once, and the last is that
    which the broker has: workers reach it over different links.
    """

    def __init__(
        self, most: int = MOST, told: Told = lambda topic, ms, seq, origin: None, apart_ms: int = 0
    ) -> None:
        self._most, self._told, self._apart_ms = most, told, apart_ms
        # By topic, the newest, and the order of what it was sealed anew from, which is the same
        # message.
        self._copies: OrderedDict[str, tuple[Order, Order | None]] = OrderedDict()
        self._published: OrderedDict[tuple[str, int], Place] = OrderedDict()

    def __len__(self) -> int:
        return len(self._copies)

    def forget(self) -> None:
        """Everything: the clock was set back."""
        self._copies.clear()
        self._published.clear()

    def passed(self, topic: str, ms: int, seq: int, origin: Order | None = None) -> None:
        """A retained copy passed here towards the broker. origin: the order of the entry in the
        journal that it was sealed anew from.
        """
        self._newest(topic, ms, seq, origin)
        self._told(topic, ms, seq, origin)

    def heard(self, topic: str, ms: int, seq: int, origin: Order | None) -> None:
        """One has passed at another worker."""
        if not self.newer(topic, ms, seq):
            self._newest(topic, ms, seq, origin)

    def _newest(self, topic: str, ms: int, seq: int, origin: Order | None = None) -> None:
        last = self._copies.get(topic)
        if origin is None and last is not None and last[0] == (ms, seq):
            origin = last[1]
        self._copies[topic] = (ms, seq), origin
        self._copies.move_to_end(topic)
        if len(self._copies) > self._most:
            self._copies.popitem(last=False)

    def newer(self, topic: str, ms: int, seq: int) -> bool:
        """Whether a newer copy than this one has passed."""
        last = self._copies.get(topic)
        return last is not None and (ms, seq) < last[0] and (ms, seq) != last[1]

    def came(self, topic: str, ms: int, seq: int) -> None:
        """A retained copy comes from the broker. Raises Stale for one that was replaced."""
        if self.newer(topic, ms, seq) and self.newer(topic, ms + self._apart_ms, seq):
            raise Stale(f"an older retained message of {topic[:100]!r} came back")
        self._newest(topic, ms, seq)

    def check(self, topic: str, sender: int, place: Place, passed: bool = False) -> None:
        """A client publishes with RETAIN. Raises Stale if a newer one of it was let through.

        passed: of another site's client, by way of a bridge: both the time and (boot, ctr) have to
        be lower, since what a border has sealed anew has its first sender's time.
        """
        last = self._published.get((topic, sender))
        if last is None:
            return
        lower = place[1:] < last[1:] and place[0] < last[0] if passed else place < last
        if lower:
            raise Stale(f"retained message {place} comes after {last} of the same sender")

    def published(self, topic: str, sender: int, place: Place) -> None:
        """It was let through."""
        key = topic, sender
        self._published[key] = place
        self._published.move_to_end(key)
        if len(self._published) > self._most:
            self._published.popitem(last=False)


class RetainedBytes:
    """How many bytes of retained messages each client has at the broker; a message is its last
    publisher's.

    It counts what passed since this mediator started; topics are bounded, and so is this. `told` is
    called with each; another worker takes it by `heard`.
    """

    def __init__(self, most: int, told: Took = lambda topic, client, size: None) -> None:
        self.most, self._told = most, told
        self._topics: dict[str, tuple[int, int]] = {}
        self._clients: Counter[int] = Counter()

    def check(self, topic: str, client: int, size: int) -> None:
        """Before a client publishes with RETAIN. Raises DeniedByRule if it would have more there
        than it may; what makes it less is always let through.
        """
        owner, before = self._topics.get(topic, (client, 0))
        more = size - before if owner == client else size
        if more > 0 and self._clients[client] + more > self.most:
            raise DeniedByRule(
                f"the retained messages of a client have {self.most >> 20} MiB at most ([limits] "
                "retained_mib); a sealed clear frees what a topic has",
                "mediator.publish.retained-full",
            )

    def took(self, topic: str, client: int, size: int) -> None:
        """It went to the broker; 0 bytes: a clear."""
        self.heard(topic, client, size)
        self._told(topic, client, size)

    def heard(self, topic: str, client: int, size: int) -> None:
        """The same, of another worker."""
        owner, before = self._topics.pop(topic, (client, 0))
        self._clients[owner] -= before
        if size:
            self._topics[topic] = client, size
            self._clients[client] += size
        for number in {owner, client}:
            if not self._clients[number]:
                del self._clients[number]
