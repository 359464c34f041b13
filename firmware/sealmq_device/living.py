# A client that lives: it connects and connects again, pings, queues what cannot go out yet, and
# says what became of each message. This runs life.py's decisions on the blocking Client, one a
# turn; the network's errors end here, errors of the program do not.
import errno
import os
import time
from select import POLLIN, poll

from micropython import const

from sealmq_spec.errors import Denied, Malformed, Misuse, SealError, TooLarge

from . import entropy
from .backoff import Backoff
from .keepalive import Keepalive
from .life import ASK, CONNECT, DROP, LISTEN, PING, RESEND, SEND, SYNC, WAIT, Life
from .outbox import Outbox
from .radio import Radio

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

    from .client import Client
    from .outbox import Item
    from .watch import Watch

_PACKETS = const(16)  # taken in one turn
_AROUND = const(75)  # what a PUBLISH has besides topic and message, at most


def draw() -> int:
    return int.from_bytes(os.urandom(2), "big")


# Raises what is wrong with a message now, and not when it is sent.
def checked(client: "Any", topic: "str | bytes", msg: "str | bytes", qos: int, life: int) -> bytes:
    if qos not in (0, 1):
        raise Misuse("QoS is 0 or 1")
    if not (0 <= life <= 31 or life == 255):
        raise Misuse("life is 0 to 31 or 255")
    raw: bytes = client._topic(topic)
    n = len(raw) + len(msg) + _AROUND
    if n > client.limit:
        raise TooLarge("a packet of %d bytes, the limit is %d" % (n, client.limit))
    return raw


class Living:
    # client: with a keepalive. wlan: as in wlan.py, or None where the network is somebody else's.
    # outbox: as in outbox.py. watch: as in watch.py. clean: as in connect().
    def __init__(
        self,
        client: "Client",
        wlan: "Any" = None,
        outbox: "Outbox | None" = None,
        watch: "Watch | None" = None,
        clean: bool = True,
    ) -> None:
        if not client.keepalive:
            raise Misuse("a keepalive is needed: Client(..., keepalive=60)")
        self.client = client
        self.outbox = Outbox() if outbox is None else outbox
        self.clean = clean
        radio = Radio(wlan, Backoff(draw)) if wlan is not None else None
        self.life = Life(Keepalive(client.keepalive), self.outbox, Backoff(draw), radio)
        self.on_message: "Callable[[Any], Any] | None" = None
        self._inbox: "list[Any]" = []
        client.set_callback(self._inbox.append)
        self._watch = watch
        self._running = False
        self._poll: "Any" = None
        self._polled: "Any" = None  # the socket that it looks at
        self._session = (0, b"")

    # --- for the application ---

    # f(message), as Client has them.
    def set_callback(self, f: "Callable[[Any], Any]") -> None:
        self.on_message = f

    # f(item, outcome, error): how each message ended, see outbox.py.
    def set_outcome(self, f: "Callable[[Item, str, SealError | None], Any]") -> None:
        self.outbox.on_outcome = f

    # f(up, error): a session began, ended, could not be had; or a subscription was refused.
    def set_change(self, f: "Callable[[bool, Exception | None], Any]") -> None:
        self.life.on_change = f

    def set_last_will(
        self, topic: "str | bytes", msg: bytes, retain: bool = False, qos: int = 0, life: int = 0
    ) -> None:
        self.client.set_last_will(topic, msg, retain, qos, life)

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
        raw = checked(self.client, topic, msg, qos, life)
        return self.outbox.put(raw, bytes(msg), retain, qos, life)

    # Now or as soon as there is a session, and again in each that needs it.
    def subscribe(self, topic: str, qos: int = 0) -> None:
        if qos not in (0, 1):
            raise Misuse("QoS is 0 or 1")
        self.life.asks.append((topic, qos))

    def unsubscribe(self, topic: str) -> None:
        self.life.asks.append((topic, -1))

    def isconnected(self) -> bool:
        return self.life.up

    # One turn: waits at most ms, or does one thing that takes as long as the network lets it, in
    # the bounds of `timeout`. True: something happened.
    def turn(self, ms: int = 1000) -> bool:
        c = self.client
        life = self.life
        what, arg = life.next(c.mono())
        if what == WAIT:
            time.sleep(min(arg, ms) / 1000)
        else:
            self._act(what, arg, ms)
        if self._watch is not None:
            self._watch.turned(c.mono(), life.up)
        happened = what != WAIT and what != LISTEN
        while self._inbox:
            happened = True
            message = self._inbox.pop(0)
            if self.on_message is not None:
                self.on_message(message)
        return happened

    # For ever, or until a callback calls stop().
    def run(self) -> None:
        self._running = True
        while self._running:
            self.turn()

    def stop(self) -> None:
        self._running = False

    # Turns until all that is queued is over. False: not within ms.
    def flush(self, ms: int) -> bool:
        mono = self.client.mono
        end = mono() + ms
        while len(self.outbox):
            left = end - mono()
            if left <= 0:
                return False
            self.turn(min(left, 1000))
        return True

    # Ends the session properly: no will is published.
    def disconnect(self) -> None:
        try:
            self.client.disconnect()
        except OSError:
            pass  # it is over either way
        self.life.up = False

    # --- what life.py decided ---

    def _act(self, what: int, arg: "Any", ms: int) -> None:
        c = self.client
        s = c.session
        began = s.ctr, s.salt
        refused = c.last_refused
        kept = max(c.unacked) if c.unacked else 0
        error: "Exception | None" = None
        got = 0
        try:
            got = self._do(what, arg, ms)
        except Misuse:
            raise
        except (OSError, SealError) as caught:
            error = caught
            last = c.last_refused
            if what == CONNECT and last is not refused and isinstance(last, Denied):
                # No answer in quarantine, either: that is why.
                error = last
        now = c.mono()
        life = self.life
        if what == SEND:
            ctr = got
            unacked = c.unacked
            if error is not None:
                if unacked and max(unacked) > kept:
                    ctr = max(unacked)
                elif not arg.qos and (s.ctr, s.salt) != began:
                    ctr = s.ctr
            life.sent(arg, now, ctr, s.salt, ctr in unacked, error)
        elif what == RESEND:
            life.resent(arg, now, arg.ctr in c.unacked, error)
        elif what == ASK and (error is None or c.sock is not None):
            # What was refused is not asked for again.
            life.asked(now)
        elif what == PING and error is None:
            life.pinged(now)
        elif what == SYNC:
            life.synced(now)
        elif what == LISTEN and got:
            life.heard(now, c.receipted)
        self._look(what, now, error)

    # Whether there is a session still, or another one.
    def _look(self, what: int, now: int, error: "Exception | None") -> None:
        c = self.client
        life = self.life
        s = c.session
        if c.sock is None:
            life.down(now, error)
        elif what == CONNECT or self._session != (s.conn, s.salt):
            self._session = s.conn, s.salt
            for ctr in list(c.unacked):
                if c.receipted(ctr):
                    del c.unacked[ctr]  # it need not go out again
            life.connected(now, s.salt, c.receipted)
        elif what == ASK and error is not None:
            life.report(error)

    def _do(self, what: int, arg: "Any", ms: int) -> int:
        c = self.client
        if what == SEND:
            return c.publish(arg.topic, arg.msg, arg.retain, arg.qos, arg.life)
        if what == LISTEN:
            return self._listen(min(arg, ms))
        if what == CONNECT:
            c.connect(self.clean)
        elif what == RESEND:
            if arg.ctr not in c.unacked:
                raise Malformed("the packet of ctr %d is lost" % arg.ctr)
            c.resend()
        elif what == PING:
            c.ping()
        elif what == SYNC:
            s = c.session
            if s.clock_conflict:
                # It cannot be put back but by another boot session, see Client._upkeep.
                c._astray = True
            c._send_control(s.ask_time(entropy.nonce(s.salt), c.mono()))
        elif what == DROP:
            c._close()
            raise arg
        elif what == ASK:
            if arg[1] < 0:
                c.unsubscribe(arg[0])
            else:
                c.subscribe(arg[0], arg[1])
        return 0

    # How many packets came, with at most ms of waiting for the first.
    def _listen(self, ms: int) -> int:
        c = self.client
        sock = c.sock
        if sock is None:
            raise OSError(errno.ENOTCONN)
        if not (c._ahead or c._queue):
            if self._polled is not sock:
                self._poll = poll()
                self._poll.register(sock, POLLIN)
                self._polled = sock
            if not self._poll.poll(ms):
                return 0
        n = 0
        while n < _PACKETS and c.check_msg():
            n += 1
        return n
