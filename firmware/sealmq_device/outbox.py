# What the application wants published, in its order, until it is over: a queue with a declared
# limit that says what it drops. Messages are plaintext here and are sealed when they are sent, so
# that counter, time and epoch are current; the age that a reader sees counts from then.
from micropython import const

from sealmq_spec.errors import RateLimited, SealError, Stale, TooLarge, Unavailable

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

# PUBACKs that wait for the receipt that proves them, and counters used after the oldest: a receipt
# shows the last 64.
_OWED = const(16)
_SPAN = const(40)
# A message that so many questions did not prove, so long after each other, was perhaps not
# acknowledged by the mediator.
_ASKED = const(3)
_AGAIN_MS = const(5000)
_FIRST_MS = const(1000)
_MOST_MS = const(60000)
_EXTRA = const(16)  # what a message costs besides its bytes, as it counts against the limit


class Item:
    # args: topic, msg, retain, qos, life, as publish() takes them.
    def __init__(self, n: int, args: "tuple[bytes, bytes, bool, int, int]") -> None:
        self.n = n
        self.args = args
        self.topic, self.msg, _, self.qos, _ = args
        self.size = len(self.topic) + len(self.msg) + _EXTRA
        self.ctr = 0  # 0: was not sealed yet
        self.salt = b""  # of the boot session that sealed it
        self.tries = 0
        self.over = ""  # how it ended


class Outbox:
    # queue_len, queue_bytes: what it holds at most, those included whose proof is awaited.
    # drop_newest: when it is full, drop what comes; else the oldest that was not sent yet. again:
    # publish anew what is in doubt, which readers may get twice. proof: a message with QoS 1 is
    # accepted when a receipt says so, not with a PUBACK, which can be forged.
    def __init__(
        self,
        queue_len: int = 50,
        queue_bytes: int = 8192,
        drop_newest: bool = False,
        again: bool = True,
        proof: bool = True,
    ) -> None:
        self.queue_len = queue_len
        self.queue_bytes = queue_bytes
        self._drop_newest = drop_newest
        self._again = again
        self._proof = proof
        # f(item, outcome, error or None): how each message ended.
        self.on_outcome: "Callable[[Item, str, SealError | None], Any] | None" = None
        self.counts = {ACCEPTED: 0, SENT: 0, REFUSED: 0, DROPPED: 0, DOUBT: 0}
        self.waiting: "list[Item]" = []
        self.owed: "list[Item]" = []  # acknowledged, not proved
        self.bytes = 0
        self.prove_ms = 2000  # how long proof may wait for more messages
        self.answer_ms = 10000  # how long the peer may take to answer a question
        self._n = 0
        self._hold = 0  # nothing is sent before
        self._acked = 0
        self._asking = False  # a question is not answered yet
        self.newest = 0  # ctr that the session used last, for whatever it was
        self.sending: "Item | None" = None  # under way, so it stays, though it has no ctr yet

    def __len__(self) -> int:
        return len(self.waiting) + len(self.owed)

    # Its number. TooLarge: more than the whole queue holds.
    def put(self, *args: "Any") -> int:
        self._n += 1
        item = Item(self._n, args)
        if item.size > self.queue_bytes:
            raise TooLarge("%d bytes" % item.size)
        self.waiting.append(item)
        self.bytes += item.size
        while not item.over and (len(self) > self.queue_len or self.bytes > self.queue_bytes):
            # What has been sealed stays.
            old = item
            for one in self.waiting:
                if not (one.ctr or one is self.sending or self._drop_newest):
                    old = one
                    break
            self._over(old, DROPPED)
        return self._n

    # The message to send, or to send again if it has a ctr. None: nothing now.
    def next(self, now: int) -> "Item | None":
        if not self.waiting or now < self._hold:
            return None
        item = self.waiting[0]
        return item if item.ctr or not self._full() else None

    # Whether nothing new may be sent before the oldest is proved.
    def _full(self) -> bool:
        owed = self.owed
        return len(owed) >= _OWED or (len(owed) > 0 and self.newest - owed[0].ctr >= _SPAN)

    # Milliseconds until the receipt that proves what was acknowledged has to be asked for
    # (PINGREQ), or its answer is late; or until a held message can go, but never 0 for that.
    def wait(self, now: int) -> int:
        wait = _MOST_MS
        n = len(self.owed)
        if n:
            patience = self.prove_ms
            if self._asking:
                patience = self.answer_ms
            elif self.owed[0].tries:
                patience = _AGAIN_MS
            elif 2 * n >= self.queue_len or self._full():
                patience = 0
            wait = self._acked + patience - now
        if self.waiting and now < self._hold:
            wait = min(wait, self._hold - now)
        return wait

    # It was asked.
    def asked(self, now: int) -> None:
        self._acked = now
        self._asking = len(self.owed) > 0
        for item in self.owed:
            item.tries += 1

    # The question was answered, by a receipt and PINGRESP or by PINGRESP alone.
    def answered(self, receipted: "Callable[[int], bool]") -> None:
        self._asking = False
        self.prove(receipted)

    # Whether only another connection can tell what was accepted: its welcome has a receipt, and no
    # counter is taken twice in it. The last question was not answered; or too many were, and did
    # not prove what somebody had acknowledged.
    def silent(self, now: int) -> bool:
        if self._asking:
            return now - self._acked >= self.answer_ms
        return len(self.owed) > 0 and self.owed[0].tries > _ASKED

    # --- what became of it ---

    # QoS 0: written. QoS 1: PUBACK.
    def done(self, item: Item, now: int) -> None:
        if not item.qos:
            self._over(item, SENT)
        elif self._proof:
            if not self.owed:
                self._acked = now
            item.tries = 0
            self.waiting.remove(item)
            self.owed.append(item)
        else:
            self._over(item, ACCEPTED)

    # receipted: as Client's.
    def prove(self, receipted: "Callable[[int], bool]") -> None:
        for item in self.owed + self.waiting[:1]:
            if item.ctr and receipted(item.ctr):
                self._over(item, ACCEPTED)

    # The mediator refused it. What may go well later is kept at its place.
    def refused(self, item: Item, error: "Any", now: int) -> None:
        if isinstance(error, (RateLimited, Unavailable)) or (
            isinstance(error, Stale) and not item.tries
        ):
            item.ctr = 0
            self.hold(item, now)
        else:
            self._over(item, REFUSED, error)

    # Nothing goes out for a while.
    def hold(self, item: Item, now: int) -> None:
        self._hold = now + min(_FIRST_MS << min(item.tries, 6), _MOST_MS)
        item.tries += 1

    # A connection has begun. salt: of its boot session. What another one sealed cannot be sent as
    # it was.
    def begun(self, salt: bytes, receipted: "Callable[[int], bool]") -> None:
        self._hold = 0
        for item in self.owed + self.waiting:
            if item.ctr and item.salt != salt:
                if item in self.owed:
                    self._over(item, DOUBT)
                else:
                    self.in_doubt(item)
        self.answered(receipted)
        for item in reversed(list(self.owed)):
            if item.tries > _ASKED:
                # The mediator itself does not know it.
                self.owed.remove(item)
                self.waiting.insert(0, item)
                self.in_doubt(item)

    # It waits, was sent, and cannot be sent again as it was.
    def in_doubt(self, item: Item) -> None:
        item.ctr = item.tries = 0
        if not (self._again and item.qos):
            self._over(item, DOUBT)

    def _over(self, item: Item, outcome: str, error: "SealError | None" = None) -> None:
        (self.owed if item in self.owed else self.waiting).remove(item)
        self.bytes -= item.size
        self.counts[outcome] += 1
        item.over = outcome
        if self.on_outcome is not None:
            self.on_outcome(item, outcome, error)
