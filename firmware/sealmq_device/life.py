# What a client that lives does next. Decisions only: a runner asks next(now), does it, and says
# what came of it. No socket, no sleep; times are milliseconds of a clock that only rises.
import errno

from micropython import const

from sealmq_spec.errors import Denied, SealError, Stale, WrongEpoch

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

    from .backoff import Backoff
    from .keepalive import Keepalive
    from .outbox import Item, Outbox
    from .radio import Radio

# next() gives (what, argument).
WAIT = const(0)  # ms
CONNECT = const(1)
DROP = const(2)  # the connection, without a word: an error that says why
ASK = const(3)  # (filter, QoS; -1 to unsubscribe)
SEND = const(4)  # an Item, sealed now
RESEND = const(5)  # an Item, as it was
PING = const(6)
LISTEN = const(7)  # ms at most
SYNC = const(8)  # ask for the time

# A quartz that drifts by 100 ppm is 9 s off then; a message may be a minute off (SPEC.md 6).
_DAY_MS = const(86400000)
_OLD = (Stale, WrongEpoch)


class Life:
    def __init__(
        self, keep: "Keepalive", box: "Outbox", backoff: "Backoff", radio: "Radio | None"
    ) -> None:
        self.keep = keep
        self.box = box
        self.backoff = backoff
        self.radio = radio
        self.up = False
        self.asks: "list[tuple[str, int]]" = []
        self.error: "Exception | None" = None  # what went wrong last
        self.failures = 0  # attempts to connect that failed, since one did not
        self.on_change: "Callable[[bool, Exception | None], Any] | None" = None
        self.at = 0  # when to connect
        self._sync_at = 0
        self._salt = b""

    def next(self, now: int) -> "tuple[int, Any]":
        if self.radio is not None:
            wait = self.radio.next(now)
            if wait:
                # No salt is drawn, nor anything else begun, while Wi-Fi is down.
                return (DROP, self.radio.error) if self.up else (WAIT, wait)
        if not self.up:
            return (WAIT, self.at - now) if now < self.at else (CONNECT, 0)
        if self.keep.dead(now):
            return DROP, OSError(errno.ETIMEDOUT)
        if self.asks:
            return ASK, self.asks[0]
        box = self.box
        item = box.next(now)
        if item is not None:
            return (RESEND if item.ctr else SEND), item
        if now >= self._sync_at:
            return SYNC, 0
        wait = self.keep.wait(now)
        if wait <= 0 or box.unproven(now):
            return PING, 0
        return LISTEN, min(wait, box.wait(now))

    # --- what came of it ---

    # A session. salt: of its boot session. receipted: as Client's, with what the welcome said.
    def connected(self, now: int, salt: bytes, receipted: "Callable[[int], bool]") -> None:
        self.keep.start(now)
        self.backoff.up(now)
        self.failures = 0
        self._sync_at = now + _DAY_MS
        self.box.prove(receipted)
        self.box.lost(salt)
        self._salt = salt
        self._change(True, None)

    # Not connected, or not any more.
    def down(self, now: int, error: "Exception | None") -> None:
        if self.up:
            self.backoff.down(now)
        else:
            self.failures += 1
        self.error = error
        # Who is refused asks again, but not soon.
        late = isinstance(error, Denied)
        self.at = now + (self.backoff.most if late else self.backoff.next())
        self._change(False, error)

    # Something went wrong that ended nothing.
    def report(self, error: Exception) -> None:
        self.error = error
        self._change(True, error)

    def _change(self, up: bool, error: "Exception | None") -> None:
        self.up = up
        if self.on_change is not None:
            self.on_change(up, error)

    # SEND came to its end. ctr: of the message, 0: it was not sealed. open: it can be sent again as
    # it was.
    def sent(
        self, item: "Item", now: int, ctr: int, salt: bytes, open: bool, error: "Exception | None"
    ) -> None:
        box = self.box
        if ctr:
            box.sealed(item, ctr, salt)
        if error is None:
            self.keep.sent(now)
            if item.qos:
                self.keep.heard(now)
            box.done(item, now)
        elif open:
            pass  # RESEND comes next
        elif isinstance(error, SealError) and error.ctr:
            self.keep.heard(now)
            box.refused(item, error, now)
        elif ctr:
            box.in_doubt(item)
        else:
            # It was not about this message: it stays where it is.
            box.hold(item, now)

    # RESEND likewise. open: the packet is kept still.
    def resent(self, item: "Item", now: int, open: bool, error: "Exception | None") -> None:
        box = self.box
        if error is None:
            self.keep.heard(now)
            box.done(item, now)
        elif not open:
            # Sealed long ago: too old by now, but a mediator that has restarted since may have
            # forwarded it (SPEC.md 6.1).
            if isinstance(error, SealError) and error.ctr and not isinstance(error, _OLD):
                box.refused(item, error, now)
            else:
                box.in_doubt(item)

    def asked(self, now: int) -> None:
        self.asks.pop(0)
        self.keep.heard(now)

    def synced(self, now: int) -> None:
        self._sync_at = now + _DAY_MS
        self.keep.sent(now)

    def pinged(self, now: int) -> None:
        self.keep.pinged(now)
        self.box.asked(now)

    # A packet came.
    def heard(self, now: int, receipted: "Callable[[int], bool]") -> None:
        self.keep.heard(now)
        self.box.prove(receipted)
