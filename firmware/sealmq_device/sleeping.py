# A board that sleeps: it wakes, publishes what it has, and sleeps again, in one call. What cannot
# go out lies in RTC memory until a later wake.
import sys
from hashlib import sha256

from micropython import const

from .client import Client
from .life import COMMAND, CONNECT, SEND
from .living import Living
from .outbox import Outbox
from .rtc import ROOM, Rtc, RtcStore
from .store import FileStore

_TYPING = False
if _TYPING:
    from typing import Any

    from .outbox import Item

_TRIES = const(2)  # connections that fail in one wake
_LONGEST = const(6)  # after failures at most two to that many wakes pass
_OFTEN = const(16)  # subscriptions are made again at least once in so many wakes


class Sleeper(Living):
    # store: as Client's. budget: seconds that a wake may take. batch: radio only when so many
    # messages are there. listen: ms of silence that end a wake of one who subscribes. outbox:
    # of which RTC memory holds 255 messages, 2,015 bytes. board: what has RTC and deepsleep, as
    # the module `machine`. The rest is Client's.
    def __init__(
        self,
        store: "str | Any" = None,
        wlan: "Any" = None,
        budget: int = 20,
        batch: int = 1,
        listen: int = 500,
        outbox: "Outbox | None" = None,
        clean: bool = True,
        board: "Any" = None,
        **options: "Any",
    ) -> None:
        if board is None:
            import machine as board
        box = Outbox() if outbox is None else outbox
        # What RTC memory holds, also where this program has less room.
        most = min(box.queue_bytes, ROOM)
        box.queue_bytes = ROOM
        box.queue_len = min(box.queue_len, 255)
        box.prove_ms = 0
        if store is None:
            from .given import given

            store = given()
        elif isinstance(store, str):
            store = FileStore(store)
        enrolment = store.enrolment()
        self.rtc = kept = Rtc(board.RTC(), str(enrolment.get("ps")))
        self._board = board
        messages = kept.read()
        options.setdefault("keepalive", 60)
        client = Client(RtcStore(store, kept, enrolment), **options)
        Living.__init__(self, client, wlan, box, clean=clean)
        self._budget = 1000 * budget
        self._batch = batch
        self._quiet = listen
        self._snapshot: "list[Item]" = []
        self._filters = b""  # those that are asked for in this wake
        for i in range(kept.done, len(messages)):
            box.put(*messages[i])
            if i < kept.begun:
                # A wake that did not come to its end had sealed it.
                box.waiting[-1].ctr = 1
        box.queue_bytes = most

    # Publishes, if it is time to, and sleeps for so many seconds. A board does not return from
    # this.
    def sleep(self, seconds: int) -> None:
        kept = self.rtc
        if self._time_to():
            self._save()
            well = self._wake()
            if not (self.asks or self.core.missing):
                kept.filters = self._filters
            if well:
                kept.failures = kept.skip = 0
            else:
                kept.failures = min(kept.failures + 1, 255)
                kept.skip = self.backoff.draw() * (1 << min(kept.failures, _LONGEST)) >> 16
        elif kept.skip:
            kept.skip -= 1
        self.disconnect()
        if self.radio is not None:
            self.radio.off()
        self._save()
        self._board.deepsleep(1000 * seconds)

    def _time_to(self) -> bool:
        if self.rtc.skip:
            return False
        box = self.outbox
        full = 2 * box.bytes >= box.queue_bytes
        return full or len(box) >= self._batch or len(self.asks) > 0

    # False: something is left to be done.
    def _wake(self) -> bool:
        c = self.core
        end = c.mono() + self._budget
        while self.failures < _TRIES:
            left = end - c.mono()
            if left <= 0 or (not self.up and self.at >= end):
                return False
            # What is refused for the moment is left to another wake.
            asks = self.asks and c.mono() >= self._asks_at
            try:
                if self.up and not (len(self.outbox) or asks):
                    # A wait that brought nothing ends it.
                    if not c._subscribed or not self.turn(min(self._quiet, left)):
                        return True
                else:
                    self.turn(min(left, 1000))
            except Exception as error:
                # Whatever the program's callbacks do: on a battery it sleeps.
                sys.print_exception(error)  # type: ignore[attr-defined]
        return False

    # --- what lies in RTC memory ---

    def _save(self) -> None:
        box = self.outbox
        self._snapshot = box.owed + box.waiting
        self.rtc.write([item.args for item in self._snapshot])
        self._mark(None)

    # Before a message goes out for the first time, and when some are over: a reset in between finds
    # out which are in doubt.
    def _mark(self, sending: "Item | None") -> None:
        kept = self.rtc
        done = begun = 0
        for i in range(len(self._snapshot)):
            item = self._snapshot[i]
            if item.over and done == i:
                done = i + 1
            if item.over or item.ctr or item is sending:
                begun = i + 1
        kept.done = done
        kept.begun = max(kept.begun, begun)
        kept.mark()

    def _do(self, what: int, arg: "Any", ms: int) -> int:
        if what == SEND:
            self._mark(arg)
        kept = self.rtc
        held = kept.filters
        if what == CONNECT:
            # Until all have been answered. It is written with the boot number, before CONNECT: the
            # session may be a new one, whatever becomes of this wake.
            kept.filters = bytes(4)
        done = Living._do(self, what, arg, ms)
        if what == CONNECT:
            self._spare(held)
        return done

    # A session that the mediator still holds has its subscriptions. held: the digest of these.
    def _spare(self, held: bytes) -> None:
        c = self.core
        asks = self.asks
        filters = sha256(repr(asks).encode()).digest()[:4]
        if c._present and filters == held and self.rtc.boot % _OFTEN:
            for filt, qos in asks:
                if qos >= 0:
                    c._subscribed[filt] = qos
            # Commands go out.
            self.asks = [ask for ask in asks if ask[1] == COMMAND]
        if asks:
            self._filters = filters
