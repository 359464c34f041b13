# A client that lives: it connects and connects again, pings, queues what cannot go out yet, and
# says what became of each message. One thing a turn, on the blocking Client; the network's errors
# end here, errors of the program do not.
import errno
import time
from select import POLLIN, poll

from micropython import const

from sealmq_spec.errors import Misuse, SealError

from .life import DROP, LISTEN, SEND, SYNC, WAIT, Life

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

    from .client import Client

_PACKETS = const(16)  # taken in one turn


class Living(Life):
    # client: with a keepalive. The rest as Life has it.
    def __init__(self, client: "Client", *args: "Any", **kw: "Any") -> None:
        self._begin(client, client.keepalive, *args, **kw)
        self.on_message: "Callable[[Any], Any] | None" = None
        self._inbox: "list[Any]" = []
        client.set_callback(self._inbox.append)
        self._running = False
        self._poll: "Any" = None
        self._polled: "Any" = None  # the socket that it looks at

    # f(message), as Client has them.
    def set_callback(self, f: "Callable[[Any], Any]") -> None:
        self.on_message = f

    # One turn: waits at most ms, or does one thing that takes as long as the network lets it, in
    # the bounds of `timeout`. True: something happened.
    def turn(self, ms: int = 1000) -> bool:
        core = self.core
        what, arg = self.next(core.mono())
        happened = what != WAIT and what != LISTEN
        if what == WAIT:
            time.sleep(min(arg, ms) / 1000)
        else:
            got = 0
            error: "Exception | None" = None
            try:
                got = self._do(what, arg, ms)
            except Misuse:
                raise
            except (OSError, SealError) as caught:
                error = caught
            self.came(what, arg, got, error)
        self._turned()
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
        mono = self.core.mono
        end = mono() + ms
        while len(self.outbox):
            left = end - mono()
            if left <= 0:
                return False
            self.turn(min(left, 1000))
        return True

    # Ends the session properly: no will is published.
    def disconnect(self) -> None:
        self.up = False
        try:
            self.core.disconnect()
        except OSError:
            pass  # it is over either way

    def _do(self, what: int, arg: "Any", ms: int) -> int:
        c = self.core
        if what == LISTEN:
            return self._listen(min(arg, ms))
        if what == DROP:
            c._close()
            raise arg
        if what == SYNC:
            self._sync()
            return 0
        name, args = self._call(what, arg)
        got = getattr(c, name)(*args)
        return got if what == SEND else 0

    # How many packets came, with at most ms of waiting for the first.
    def _listen(self, ms: int) -> int:
        c = self.core
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
        # What a callback that raised has left is there still.
        while n < _PACKETS - len(self._inbox) and c.check_msg():
            n += 1
        return n
