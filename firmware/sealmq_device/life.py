# What a client that lives does next, and what came of it: all but the waiting, which living.py and
# living_aio.py do. A runner asks next(now), does that, and tells came() what came of it. Times are
# milliseconds of a clock that only rises.
#
# A watchdog is fed after each turn and nowhere else: a wait that hangs, a callback that does not
# return, a task that died leave it hungry. Its timeout has to be longer than the longest turn,
# which is a connect: five rounds with a few waits of `timeout` seconds each.
import errno

from micropython import const

from sealmq_spec.errors import (
    Denied,
    Misuse,
    RateLimited,
    SealError,
    Stale,
    TooLarge,
    Unavailable,
    WrongEpoch,
)

from . import entropy
from .backoff import FIRST_MS, Backoff
from .client import Client, _flags
from .keepalive import Keepalive
from .outbox import Outbox

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

    from .radio import Radio

# next() gives (what, argument).
WAIT = const(0)  # ms
CONNECT = const(1)
DROP = const(2)  # the connection, without a word: an error that says why
ASK = const(3)  # (filter, QoS; -1 to unsubscribe), ((family, command), COMMAND)
SEND = const(4)  # an Item, sealed now
RESEND = const(5)  # an Item, as it was
PING = const(6)
LISTEN = const(7)  # ms at most
SYNC = const(8)  # ask for the time
COMMAND = const(-2)  # in the place of a QoS

_AROUND = const(75)  # what a PUBLISH has besides topic and message, at most
# A connection that ends sooner counts as one more failure: else a peer that welcomes and hangs up
# would be tried without end, once in half a second.
_STABLE_MS = const(10000)
_LATE_MS = const(100)
_AGAIN_MS = const(5000)  # until what is refused for the moment is asked for again
# A quartz that drifts by 100 ppm is 9 s off then; a message may be a minute off (SPEC.md 6).
_DAY_MS = const(86400000)
_OLD = (Stale, WrongEpoch)
_PASS = (RateLimited, Unavailable, OSError)


class Life:
    # core: the Client. keepalive: seconds, 0 if another one keeps it. wlan: as in wlan.py, or None
    # where the network is somebody else's. outbox: as in outbox.py. wdt: what has feed(). patience:
    # ms without a session after which a reset is worth trying, since more than the network may be
    # stuck; 0: never. clean: as in connect().
    reserve = Client.reserve
    release = Client.release
    presubscribe = Client.presubscribe
    _for = Client._for

    def _begin(
        self,
        core: "Client",
        keepalive: int,
        wlan: "Radio | None" = None,
        outbox: "Outbox | None" = None,
        wdt: "Any" = None,
        patience: int = 0,
        clean: bool = True,
    ) -> None:
        if not core.keepalive:
            raise Misuse("no keepalive")
        self.core = core
        self.outbox = Outbox() if outbox is None else outbox
        self.outbox.answer_ms = 1000 * core.timeout
        self.clean = clean
        self.backoff = Backoff()
        self.radio = wlan
        # f(up, error): a session began, ended, could not be had; or a subscription was refused.
        self.on_change: "Callable[[bool, Exception | None], Any] | None" = None
        self.error: "Exception | None" = None  # what went wrong last
        self.failures = 0  # attempts to connect that failed, since one did not
        self.up = False
        self.at = 0  # when to connect
        self.asks: "list[tuple[Any, int]]" = []
        self._asks_at = 0  # when something may be asked for
        self._keep = Keepalive(keepalive)
        self._wdt = wdt
        self._patience = patience
        self._up_at = core.mono()
        self._since = 0  # when the session began
        self._sync_at = 0
        self._session = (0, b"")
        self._pongs = 0
        self._late = False
        # Before what next() gave: ctr and salt; the newest unacknowledged; the last refusal.
        self._before: "tuple[Any, ...]" = ()

    # --- for the application ---

    # Queues it; gives its number. Raises what is wrong with the message itself.
    def publish(
        self,
        topic: "str | bytes",
        msg: "bytes | str",
        retain: bool = False,
        qos: int = 0,
        life: int = 0,
    ) -> int:
        if isinstance(msg, str):
            msg = msg.encode()
        if isinstance(topic, str):
            topic = topic.encode()
        raw = self.core._topics.get(topic) or self.core._topic(topic)
        _flags(qos, retain, life)
        if len(raw) + len(msg) + _AROUND > self.core.limit:
            raise TooLarge("%d bytes" % len(msg))
        n = self.outbox.put(raw, bytes(msg), retain, qos, life)
        self._poke()
        return n

    # Now or as soon as there is a session, and again in each that needs it. qos -1: no longer.
    def subscribe(self, topic: "str | bytes", qos: int = 0, purpose: "str | None" = None) -> None:
        _flags(max(qos, 0), False, 0)
        if purpose is not None:
            topic = self._for(topic, purpose)
        if isinstance(topic, str):
            topic = topic.encode()
        self._ask(topic, qos)

    def unsubscribe(self, topic: "str | bytes", purpose: "str | None" = None) -> None:
        self.subscribe(topic, -1, purpose)

    # As Client's, but queued: sent until it is answered, once; the reply is not kept.
    def command(self, family: str, body: "bytes | str") -> None:
        self._ask((family, body), COMMAND)

    def _ask(self, what: "Any", qos: int) -> None:
        self.asks.append((what, qos))
        self._poke()

    def isconnected(self) -> bool:
        return self.up

    # There is something new to do.
    def _poke(self) -> None:
        pass

    # --- what next ---

    def next(self, now: int) -> "tuple[int, Any]":
        core = self.core
        s = core.session
        self.outbox.sending = None
        self._before = s.ctr, s.salt, max(core.unacked or (0,)), core.last_refused
        if self.radio is not None:
            wait = self.radio.next(now)
            if wait:
                # No salt is drawn, nor anything else begun, while Wi-Fi is down.
                return (DROP, self.radio.error) if self.up else (WAIT, wait)
        if not self.up:
            return (WAIT, self.at - now) if now < self.at else (CONNECT, 0)
        keep = self._keep
        late = keep.dead(now) or self.outbox.silent(now)
        if late and self._late:
            return DROP, OSError(errno.ETIMEDOUT)
        self._late = late
        if late:
            # What came while the application was busy has not been read yet.
            return LISTEN, _LATE_MS
        box = self.outbox
        box.newest = s.ctr
        item = box.next(now)
        if item is not None and item.ctr:
            # Before what takes new counters (SPEC.md 7.4).
            if item.ctr in core.unacked:
                return RESEND, item
            box.in_doubt(item)
            return self.next(now)
        if self.asks and now >= self._asks_at:
            return ASK, self.asks[0]
        if item is not None:
            box.sending = item
            return SEND, item
        if now >= self._sync_at:
            return SYNC, 0
        wait = min(keep.wait(now), box.wait(now))
        if self.asks:
            wait = min(wait, self._asks_at - now)
        return (LISTEN, wait) if wait > 0 else (PING, 0)

    # For what the client has a method: its name, and what it takes.
    def _call(self, what: int, arg: "Any") -> "tuple[str, Any]":
        if what == SEND:
            return "publish", arg.args
        if what == CONNECT:
            return "connect", (self.clean,)
        if what != ASK:
            return "resend" if what == RESEND else "ping", ()
        if arg[1] == COMMAND:
            return "command", arg[0]
        return ("subscribe", arg) if arg[1] >= 0 else ("unsubscribe", arg[:1])

    # got: what a publish gave; how many packets came.
    def came(self, what: int, arg: "Any", got: int, error: "Exception | None") -> None:
        core = self.core
        s = core.session
        keep = self._keep
        now = core.mono()
        ctr, salt, kept, refused = self._before
        # The mediator refused this one, and said so.
        told = isinstance(error, SealError) and error.ctr > 0
        if what == SEND or what == RESEND:
            if what == SEND:
                newest = max(core.unacked or (0,))
                if error is None or newest > kept:
                    arg.ctr = got if error is None else newest
                elif not arg.qos and not told and (s.ctr, s.salt) != (ctr, salt):
                    arg.ctr = s.ctr
                arg.salt = s.salt
            self._sent(what, arg, now, error, told)
            if arg.qos and (told or error is None):
                keep.heard(now)
        elif what == ASK and core.sock is not None:
            keep.heard(now)
            if isinstance(error, _PASS) or (isinstance(error, Denied) and not error.ctr):
                # What passes, or no notice says, is asked for again. A subscription lets others go
                # first; what was asked of the same filter since counts.
                self._asks_at = now + _AGAIN_MS
                if arg[1] != COMMAND:
                    self.asks.pop(0)
                    for ask in self.asks:
                        if ask[0] == arg[0]:
                            break
                    else:
                        self.asks.append(arg)
            else:
                self.asks.pop(0)
                if error is not None:
                    self._change(True, error)
        elif what == SYNC:
            self._sync_at = now + _DAY_MS
        elif what == LISTEN and got:
            keep.heard(now)
            self.outbox.prove(core.receipted)
        if core.pongs != self._pongs:
            self._pongs = core.pongs
            self.outbox.answered(core.receipted)
        if what == PING:
            keep.pinged(now)
            self.outbox.asked(now)
        elif what != LISTEN:
            keep.sent(now)
        if self._lost():
            if what == CONNECT and core.last_refused is not refused:
                # CONNACK 5 and then no answer in quarantine, either: the first says why.
                if isinstance(core.last_refused, Denied):
                    error = core.last_refused
            self._down(now, error)
        elif what == CONNECT or self._session != (s.conn, s.salt):
            # Before what was asked of the same filters since.
            self.asks = list(core.missing.items()) + self.asks
            for filt in core.missing:
                del core._subscribed[filt]
            core.missing = {}
            self._connected(now)
        # Subscriptions that a session was not given again.
        while core._gone:
            self._change(self.up, core._gone.pop(0))

    # What came of a message.
    def _sent(
        self, what: int, item: "Any", now: int, error: "Exception | None", told: bool
    ) -> None:
        box = self.outbox
        if error is None:
            box.done(item, now)
        elif item.ctr and item.ctr in self.core.unacked:
            pass  # RESEND comes next
        elif told and not (what == RESEND and isinstance(error, _OLD)):
            box.refused(item, error, now)
        elif item.ctr:
            # Or, sent again, it is too old by now; but a mediator that has restarted since may
            # have forwarded it (SPEC.md 6.1).
            box.in_doubt(item)
        else:
            # It was not about this message: it stays where it is.
            box.hold(item, now)

    def _lost(self) -> bool:
        return self.core.sock is None

    def _connected(self, now: int) -> None:
        core = self.core
        s = core.session
        self._session = s.conn, s.salt
        self._sync_at = now + _DAY_MS
        self._keep.start(now)
        self._since = now
        self.failures = 0
        for ctr in list(core.unacked):
            if core.receipted(ctr):
                del core.unacked[ctr]  # it need not go out again
        self.outbox.begun(s.salt, core.receipted)
        self._change(True, None)

    def _down(self, now: int, error: "Exception | None") -> None:
        if not self.up:
            self.failures += 1
        elif now - self._since >= _STABLE_MS:
            self.backoff.limit = FIRST_MS
        # Who is refused asks again, but not soon; unless it may be by one who has no say.
        late = isinstance(error, Denied) and not self.core._places
        self.at = now + (self.backoff.most if late else self.backoff.next())
        self._change(False, error)

    def _change(self, up: bool, error: "Exception | None") -> None:
        self.up = up
        self.error = error
        if self.on_change is not None:
            self.on_change(up, error)

    # A turn has come to its end.
    def _turned(self) -> None:
        now = self.core.mono()
        if self.up:
            self._up_at = now
        if self._wdt is not None and not 0 < self._patience <= now - self._up_at:
            self._wdt.feed()

    def _sync(self) -> None:
        core = self.core
        s = core.session
        core._send_control(s.ask_time(entropy.nonce(s.salt), core.mono()))
