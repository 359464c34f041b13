# What comes in: acknowledged first (link.py), then judged, then delivered; a refusal is counted and
# never raised out of a wait. Messages that come while something else is awaited are queued, so a
# callback may publish without recursing.
from micropython import const

from sealmq_spec.const import (
    CONTROL,
    OP_GRANT,
    OP_NOTICE,
    OP_RECEIPT,
    OP_RECORD,
    OP_REPLY,
    OP_TIME,
    PUBLIC,
)
from sealmq_spec.errors import Malformed, RateLimited, SealError, TooLarge, from_notice

from .joining import Joined
from .link import IDLE, PREPARED, PUBLISH

_TYPING = False
if _TYPING:
    from typing import Any

    from sealmq_spec.reader import Message

    from .link import Steps

    Notice = tuple[int, int, int, str, str]

_QUEUE = const(16)
_NOTICES = const(8)
_WHAT_PUBLISH = const(1)
_WHAT_CONTROL = const(4)
_PINGRESP = const(0xD0)
_STALE = const(3)
_REPLY = const(-1)  # in the place of a notice's class
_SUITE = const(1)  # where m3 has its suite, in the upper three bits
_CCM = const(1)  # the one suite that code for frequent messages takes
_FETCH_MS = const(1000)  # between two questions for a label's records
LAST_CTR = const(0xFFFFFD)
_MANY = const(4)
_NEVER = const(-0x3FFFFFFF)


class Incoming(Joined):
    _heard = 0  # messages that came the general way
    _fast: "Any" = None  # receive_fast.py's, once loaded
    pongs = 0  # PINGRESPs

    def _attributes(self) -> None:
        # {class name: count} of what came and was not accepted; the last such error.
        self.refused: "dict[str, int]" = {}
        self.last_refused: "SealError | None" = None
        # The mediator's last notices, oldest first: (what, ctr, code, rule, reason).
        self.notices: "list[Notice]" = []
        self._queue: "list[Message]" = []
        self._doubt: "Notice | None" = None
        self._fetch_at = self._complain_at = 0
        self._complained = b"", 0  # salt and ctr

    # Unix time in ms, None before the first connect. By the key generator's clock or a mediator's?
    def now_ms(self) -> "int | None":
        now: "int | None" = self.session.now_ms(self.mono())
        return now

    def has_kg_time(self) -> bool:
        return bool(self.session.kg_time)

    # Whether a receipt proves that the mediator accepted ctr; a PUBACK alone can be forged.
    def receipted(self, ctr: int) -> bool:
        return bool(self.session.receipted(ctr))

    def _upkeep(self) -> None:
        s = self.session
        if self.sock is not None and (s.due or s.ctr > LAST_CTR or self._astray):
            self._run(self._upkeeping())

    # When due: new roots, which the open connection takes unless they are of another label; a new
    # boot session, in a new connection, when counters end or the clock has to be put right.
    def _upkeeping(self) -> "Steps":
        s = self.session
        if s.ctr > LAST_CTR or (self._astray and self._may_reset()):
            yield IDLE
            self.disconnect()
            if self._begin():
                yield from self._provision_apart()
        elif s.due and (yield from self._renewed()) and s.ident.own is not self.ident.own:
            yield IDLE
            self.disconnect()
        else:
            return
        yield from self._joining(self._clean)

    def _step(self, wait: bool) -> bool:
        if not self._queue:
            self._upkeep()
            try:
                got = self._poll(wait)
            except TooLarge as error:
                self._refuse(error)
                return True
            if got is None:
                return False
            self._take(got[0], got[1])
        return self._hand_over()

    def _hand_over(self) -> bool:
        if self._queue:
            message = self._queue.pop(0)
            if self.cb is not None:
                self.cb(message)
        return True

    def _take(self, first: int, body: bytearray) -> None:
        self._ear = None  # there may be something else to do first
        if first & 0xF0 != PUBLISH:
            self._acked(first, body)
            return
        topic, payload = self._split(first, body)
        self._judge(first, topic, payload, False)

    # opened: the outer layer of this message is.
    def _judge(self, first: int, topic: bytes, payload: bytearray, opened: bool) -> None:
        try:
            if topic == CONTROL:
                self._control(first, payload)
            elif topic.startswith(PUBLIC):
                self._reads().add(payload)
            else:
                reader = self._reads()
                opens = reader.open_inner if opened else reader.open
                self._deliver(opens(topic, payload, self.now_ms()))
                if payload[_SUITE] >> 5 == _CCM:
                    self._heard += 1
                    if self._heard > _MANY:
                        self._learn(topic, payload)
        except SealError as error:
            self._refuse(error)
            if topic.startswith(b"@") and getattr(self.reader, "bad", False):
                from .complaining import complain

                complain(self, topic)
            if error.label and topic != CONTROL and not topic.startswith(PUBLIC):
                self._fetch(error.label)

    # After several messages: code that takes more like this one at a tenth of the cost, where there
    # is viper for it and memory.
    def _learn(self, topic: bytes, payload: bytearray) -> None:
        try:
            if self._fast is None:
                from .receive_fast import Fast

                self._fast = Fast(self)
            self._fast.prepare(topic, payload)
        except (ImportError, SyntaxError, NotImplementedError, MemoryError):
            self._heard = _NEVER

    def _deliver(self, message: "Message") -> None:
        if len(self._queue) >= _QUEUE:
            raise RateLimited("%d messages wait for check_msg already" % _QUEUE)
        self._queue.append(message)

    # The reader keeps so many roots, and a record comes once in a connection: one that was given up
    # has to be asked for, so that the label's next messages open.
    def _fetch(self, label: int) -> None:
        now = self.mono()
        if now >= self._fetch_at and self.now_ms() is not None:
            self._fetch_at = now + _FETCH_MS
            self._send_control(self.session.fetch(label, now))

    def _control(self, first: int, payload: bytearray) -> None:
        if first != PUBLISH:
            raise Malformed("control packet with flags %d" % (first & 15))
        s = self.session
        conflict = s.clock_conflict
        op, said = s.down_in(payload, self.mono())
        if op != OP_RECEIPT and self._hand is not None:
            self._hand[PREPARED] = None
        if op == OP_RECORD:
            self._reads().add(said)
        elif op == OP_GRANT:
            self._reads().add_grant(said)
        elif op == OP_RECEIPT:
            said = self._denied
            if said is not None and said[0] == _WHAT_PUBLISH and s.receipted(said[1]):
                self._denied = None  # a receipt beats a notice (SPEC.md 4.4)
            self._daily()
        elif op == OP_TIME:
            if s.clock_conflict and not conflict:
                self._astray = True  # ours is wrong by more than can be waited out
        elif op == OP_NOTICE:
            if len(self.notices) >= _NOTICES:
                self.notices.pop(0)
            self.notices.append(said)
            if said[2] == _STALE and said[0] == _WHAT_PUBLISH and said[1] > self._since:
                self._astray = True
            self._noticed(said)
        elif op == OP_REPLY:
            # What a command is answered with ends its wait as a notice does.
            self._noticed((_WHAT_CONTROL, said[0], _REPLY, "", said[1]))

    # PINGRESP, or an acknowledgement that nobody waits for any more.
    def _acked(self, first: int, body: bytearray) -> None:
        if first == _PINGRESP:
            self.pongs += 1
            self._daily()

    # A notice that may be about what is awaited.
    def _noticed(self, said: "Notice") -> None:
        if said[1] and (said[0] - 1) << 24 | said[1] == self._awaited:
            self._denied = said
            if said[0] == _WHAT_CONTROL:
                self._doubt = said  # nothing acknowledges a command
        elif not said[1] and said[0] == _WHAT_CONTROL and self._asking:
            self._doubt = said

    # A command, or a request for roots, may be refused. A PUBLISH that did not verify says nothing
    # about ours: if it was, the connection ends and what is stored is sent again (SPEC.md 4.5).
    def _check(self) -> None:
        said = self._doubt
        if said is not None:
            self._doubt = None
            raise from_notice(said)

    def _refuse(self, error: SealError) -> None:
        name = type(error).__name__
        self.refused[name] = self.refused.get(name, 0) + 1
        self.last_refused = error

    def _denial(self, said: "Notice") -> SealError:
        self._denied = None
        return from_notice(said)
