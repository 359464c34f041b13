"""Where answers meet those who wait for them: acknowledgements, receipts, notices, messages.

Nothing here waits, so that no answer ever stands behind a message that nobody has read yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from sealmq.mqtt import build
from sealmq_spec.errors import Denied
from sealmq_spec.session import Session

from . import events as ev
from .bell import Bell
from .errors import ConnectionLost, Refused, refusal
from .inbox import Inbox
from .values import Message, News, Notice, Options
from .waiters import Waiters

log = logging.getLogger("sealmq.client")

_NOTICE_S = 1.0
_NOTICES = 256
_REFUSED = 0x80


class Desk:
    """One client's. acks: answers of MQTT; receipts, replies: the gateway's own (SPEC.md 4.4)."""

    def __init__(
        self,
        options: Options,
        on_notice: Callable[[Notice], None] | None,
        on_news: Callable[[News], None] | None = None,
    ) -> None:
        self.bell = Bell()
        self.inbox = Inbox(options.inbox_messages, options.inbox_bytes, self.bell)
        self.acks: Waiters[None] = Waiters(self.bell)
        # SUBACK's code; 0 for UNSUBACK.
        self.grants: Waiters[int] = Waiters(self.bell)
        self.receipts: Waiters[None] = Waiters(self.bell)
        self.replies: Waiters[bytes] = Waiters(self.bell)
        self.notices: deque[Notice] = deque(maxlen=_NOTICES)
        self.news: deque[News] = deque(maxlen=_NOTICES)
        self._on_notice, self._on_news = on_notice, on_news
        # Whoever takes messages before they are acknowledged; None: they wait in the inbox.
        self.take: Callable[[list[Message]], None] | None = None
        # Told of each PUBREL, where the application settles what came; None: that is answered here.
        self.on_release: Callable[[int], None] | None = None
        # Messages that a notice refuses, by ctr, until their acknowledgement comes: up to then a
        # receipt may say that they were accepted, and beats the notice (SPEC.md 4.4).
        self._refused: dict[int, Refused] = {}

    def waits(self) -> bool:
        """Whether an operation waits for an answer."""
        return any((self.acks, self.grants, self.receipts, self.replies))

    def handle(self, event: ev.Event, session: Session) -> bytes | bytearray:
        """Hand an event on; returns what has to be sent for it. A Fault raises its error."""
        match event:
            case ev.Arrived():
                if self.take is not None:
                    self.take(event.messages)
                else:
                    self.inbox.add(event.messages)
                return event.due
            case ev.Acked():
                for ctr in event.ctrs if self._refused else ():
                    self._settle(ctr)
                self.acks.resolve(event.ctrs, None)
            case ev.Released():
                if self.on_release is None:
                    return build.pubcomp(event.packet_id)
                self.on_release(event.packet_id)
            case ev.Dismissed():
                log.debug("refused on %s: %s", event.topic, event.error)
                return event.ack
            case ev.Removed():
                self.grants.resolve((event.ctr,), 0)
            case ev.Pong():
                # A receipt that was owed came before it. QoS 0 has no other answer.
                for ctr in [c for c in self._refused if self.acks.subject(c) is None]:
                    self._settle(ctr)
            case ev.Replied():
                self.replies.resolve((event.ctr,), event.data)
            case ev.Granted():
                self._granted(event)
            case ev.Told():
                self._told(event.notice)
            case ev.Heard():
                self.news.append(event.news)
                if self._on_news is not None:
                    self._on_news(event.news)
            case ev.Receipted():
                self._receipted(session)
            case ev.Lost():
                broke = ConnectionLost("the connection broke within an exchange of QoS 2")
                self.acks.reject(event.ctr, broke)
            case ev.Doubtful():
                text = "refused for its old epoch when it was sent again; whether it was accepted "
                self.acks.reject(event.ctr, ConnectionLost(text + "before is unknown"))
            case ev.Fault():
                raise event.error
            case _:
                pass
        return b""

    def resumed(self, session: Session) -> None:
        """A connection begins: its welcome carries a receipt. What that does not cover and nothing
        sends again is lost."""
        self._receipted(session)
        for ctr in self.receipts:
            if self.acks.subject(ctr) is None:  # else it is sent again, or was resolved above
                lost = ConnectionLost("the connection broke before the gateway's receipt came")
                self.receipts.reject(ctr, lost)

    def dropped(self, error: Exception) -> None:
        """The connection is over: what was asked in it will not be answered (SPEC.md 7.4)."""
        for waiters in (self.grants, self.replies):
            waiters.fail(error)

    def fail(self, error: Exception) -> None:
        """No answer will come any more to what waits now."""
        for ctr in list(self._refused):
            self._settle(ctr)
        for waiters in (self.acks, self.grants, self.receipts, self.replies):
            waiters.fail(error)
        self.bell.ring()

    def _receipted(self, session: Session) -> None:
        for ctr in self.receipts:
            if session.receipted(ctr):
                self.receipts.resolve((ctr,), None)
        for ctr in list(self._refused):
            if session.receipted(ctr):
                del self._refused[ctr]

    # Nothing more will say that a refused message was accepted.
    def _settle(self, ctr: int) -> None:
        error = self._refused.pop(ctr, None)
        if error is not None:
            self.acks.reject(ctr, error)
            self.receipts.reject(ctr, error)

    def _granted(self, event: ev.Granted) -> None:
        if event.code != _REFUSED:
            self.grants.resolve((event.ctr,), event.code)
            return
        # The notice may stand behind the SUBACK; without one it is a refusal all the same.
        filt = self.grants.subject(event.ctr) or ""
        error = refusal("subscribe", filt, Denied.code, "", "SUBACK says so, without a notice")
        asyncio.get_running_loop().call_later(_NOTICE_S, self.grants.reject, event.ctr, error)

    def _told(self, notice: Notice) -> None:
        somebody = False
        for waiters in (self.acks, self.grants, self.receipts, self.replies):
            subject = waiters.subject(notice.ctr)
            if subject is not None:
                somebody = True
                error = refusal(notice.what, subject, notice.code, notice.rule, notice.reason)
                if notice.what == "publish":
                    self._refused[notice.ctr] = error
                    loop = asyncio.get_running_loop()
                    loop.call_later(_NOTICE_S, self._settle, notice.ctr)
                else:
                    waiters.reject(notice.ctr, error)
        if not somebody:
            self.told(notice)

    def told(self, notice: Notice) -> None:
        """One that answers nobody."""
        self.notices.append(notice)
        if self._on_notice is not None:
            self._on_notice(notice)
