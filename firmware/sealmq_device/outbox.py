# What the application wants published, in its order, until it is over: a queue with a declared
# limit that says what it drops. Messages are plaintext here and are sealed when they are sent, so
# that counter, time and epoch are current; the age that a reader sees counts from then.
from micropython import const

from sealmq_spec.errors import Misuse, RateLimited, SealError, Stale, TooLarge, Unavailable

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

# How a message ended.
ACCEPTED = "accepted"  # QoS 1: acknowledged, and proved if proof is wanted
SENT = "sent"  # QoS 0: written
REFUSED = "refused"  # the mediator said why
DROPPED = "dropped"  # never sent: the queue was full
DOUBT = "doubt"  # sent, and nobody can say any more whether it was accepted; not sent again

# PUBACKs that wait for the receipt that proves them. A receipt shows the last 64.
_OWED = const(16)
# So many questions without proof, and so long after each: the PUBACK was not the mediator's.
_ASKED = const(3)
_ANSWER_MS = const(5000)
_FIRST_MS = const(1000)
_MOST_MS = const(60000)
_EXTRA = const(16)  # what a message costs besides its bytes, as it counts against the limit


class Item:
    def __init__(self, n: int, topic: bytes, msg: bytes, retain: bool, qos: int, life: int):
        self.n = n
        self.topic = topic
        self.msg = msg
        self.retain = retain
        self.qos = qos
        self.life = life
        self.ctr = 0  # 0: was not sealed yet
        self.salt = b""  # of the boot session that sealed it
        self.tries = 0
        self.over = ""  # how it ended

    def size(self) -> int:
        return len(self.topic) + len(self.msg) + _EXTRA


class Outbox:
    # queue_len, queue_bytes: what it holds at most, those included whose proof is awaited. drop:
    # "oldest" or "newest". again: publish anew what is in doubt, which readers may get twice.
    # proof: a message with QoS 1 is accepted when a receipt says so, not with a PUBACK, which can
    # be forged. on_outcome(item, outcome, error or None) hears how each message ended.
    def __init__(
        self,
        queue_len: int = 50,
        queue_bytes: int = 8192,
        drop: str = "oldest",
        again: bool = True,
        proof: bool = True,
    ) -> None:
        if drop not in ("oldest", "newest") or queue_len < 1:
            raise Misuse("drop is oldest or newest, queue_len at least 1")
        self.queue_len = queue_len
        self.queue_bytes = queue_bytes
        self._oldest = drop == "oldest"
        self._again = again
        self._proof = proof
        self.on_outcome: "Callable[[Item, str, SealError | None], Any] | None" = None
        self.counts = {ACCEPTED: 0, SENT: 0, REFUSED: 0, DROPPED: 0, DOUBT: 0}
        self.waiting: "list[Item]" = []
        self.owed: "list[Item]" = []  # acknowledged, not proved
        self.bytes = 0
        self.prove_ms = 2000  # how long proof may wait for more messages
        self._n = 0
        self._hold = 0  # nothing is sent before
        self._acked = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.owed)

    # Its number. TooLarge: more than the whole queue holds.
    def put(self, topic: bytes, msg: bytes, retain: bool, qos: int, life: int) -> int:
        self._n += 1
        item = Item(self._n, topic, msg, retain, qos, life)
        size = item.size()
        if size > self.queue_bytes:
            raise TooLarge("a message of %d bytes, the queue holds %d" % (size, self.queue_bytes))
        while len(self) >= self.queue_len or self.bytes + size > self.queue_bytes:
            old = self._oldest_idle()
            if old is None:
                self._over(item, DROPPED)
                return item.n
            self._remove(self.waiting, old)
            self._over(old, DROPPED)
        self.waiting.append(item)
        self.bytes += size
        return item.n

    # What may go so that another has room: nothing that has been sealed.
    def _oldest_idle(self) -> "Item | None":
        if self._oldest:
            for item in self.waiting:
                if not item.ctr:
                    return item
        return None

    # The message to send, or to send again if it has a ctr. None: nothing now.
    def next(self, now: int) -> "Item | None":
        if not self.waiting or now < self._hold or len(self.owed) >= _OWED:
            return None
        return self.waiting[0]

    # Milliseconds until something may be due: a held message, a proof.
    def wait(self, now: int) -> int:
        if self.waiting and now < self._hold:
            return self._hold - now
        if self.owed:
            patience = _ANSWER_MS if self.owed[0].tries else self.prove_ms
            return max(self._acked + patience - now, 0)
        return _MOST_MS

    # Whether to ask (PINGREQ) for the receipt that proves what was acknowledged.
    def unproven(self, now: int) -> bool:
        n = len(self.owed)
        if not n:
            return False
        if self.owed[0].tries:
            return now - self._acked >= _ANSWER_MS
        return now - self._acked >= self.prove_ms or n >= _OWED or 2 * n >= self.queue_len

    # It was asked.
    def asked(self, now: int) -> None:
        self._acked = now
        for item in reversed(list(self.owed)):
            item.tries += 1
            if item.tries > _ASKED:
                # The receipts that came do not show it: nobody has accepted it yet.
                self.owed.remove(item)
                self.waiting.insert(0, item)
                self.in_doubt(item)

    # --- what became of it ---

    # It went out with this ctr; what became of it is not known yet.
    def sealed(self, item: Item, ctr: int, salt: bytes) -> None:
        item.ctr = ctr
        item.salt = salt

    # QoS 0: written. QoS 1: PUBACK.
    def done(self, item: Item, now: int) -> None:
        self._remove(self.waiting, item)
        if not item.qos:
            self._over(item, SENT)
        elif self._proof:
            if not self.owed:
                self._acked = now
            item.tries = 0
            self.owed.append(item)
            self.bytes += item.size()
        else:
            self._over(item, ACCEPTED)

    # receipted: as Client's.
    def prove(self, receipted: "Callable[[int], bool]") -> None:
        for item in list(self.owed):
            if receipted(item.ctr):
                self._remove(self.owed, item)
                self._over(item, ACCEPTED)
        if self.waiting and self.waiting[0].ctr and receipted(self.waiting[0].ctr):
            self._over(self._remove(self.waiting, self.waiting[0]), ACCEPTED)

    # The mediator refused it. What may go well later is kept at its place.
    def refused(self, item: Item, error: SealError, now: int) -> None:
        later = isinstance(error, (RateLimited, Unavailable))
        if later or (isinstance(error, Stale) and not item.tries):
            item.ctr = 0
            self.hold(item, now)
            return
        self._remove(self.waiting, item)
        self._over(item, REFUSED, error)

    # Nothing goes out for a while.
    def hold(self, item: Item, now: int) -> None:
        self._hold = now + min(_FIRST_MS << min(item.tries, 6), _MOST_MS)
        item.tries += 1

    # The boot session is another one, or the packet is lost: what it sealed cannot be sent as it
    # was.
    def lost(self, salt: bytes) -> None:
        self._hold = 0
        for item in list(self.owed):
            if item.salt != salt:
                self._remove(self.owed, item)
                self._over(item, DOUBT)
        for item in list(self.waiting):
            if item.ctr and item.salt != salt:
                self.in_doubt(item)

    # It waits, was sent, and cannot be sent again as it was.
    def in_doubt(self, item: Item) -> None:
        item.ctr = item.tries = 0
        if not self._again or not item.qos:
            self._over(self._remove(self.waiting, item), DOUBT)

    def _remove(self, items: "list[Item]", item: Item) -> Item:
        items.remove(item)
        self.bytes -= item.size()
        return item

    def _over(self, item: Item, outcome: str, error: "SealError | None" = None) -> None:
        self.counts[outcome] += 1
        item.over = outcome
        if self.on_outcome is not None:
            self.on_outcome(item, outcome, error)
