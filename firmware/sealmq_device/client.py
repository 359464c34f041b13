# The client that applications use: umqtt.simple's operations, sealed.
import errno

from micropython import const

from sealmq_spec.const import CLEAR, LIFE_FOREVER, RETAINED
from sealmq_spec.envelope import publish_overhead
from sealmq_spec.errors import (
    Misuse,
    RateLimited,
    SealError,
    TooLarge,
    Unavailable,
    WrongEpoch,
    from_notice,
)
from sealmq_spec.session import Session
from sealmq_spec.tlv import EMPTY
from sealmq_spec.topics import check_topic

from .incoming import LAST_CTR, Incoming
from .link import PUBLISH, START
from .subscribing import ASK, END, granted, request, subscribing, to_filter, to_text

_TYPING = False
if _TYPING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from .link import Steps

_TOPICS = const(32)
UNACKED = const(8)  # packets that are kept until their PUBACK
PUBACK = const(0x40)
_CHECK = const(90)  # as in open_fast.py
_OFTEN = const(8)  # so many messages in a connection are no wake for one
_RESERVED = b"$!@"
_PURPOSES = "purposes"
_QOS1 = const(2)
_PLAIN = const(37)  # where the plaintext stands in an m2 with an empty TLV block
_TAGS = const(32)  # and what comes after it
if _PLAIN + _TAGS != publish_overhead():
    raise ImportError("client.py and SPEC.md 3 differ")

# publish_fast.py's function, once loaded; None where it cannot run.
_at_hand: "Any" = False

# A method costs 1,500 instructions to look up, a built-in name 420, a name of this module 100.
_answer = Incoming._answer
_seal_publish = Session.seal_publish


class Client(Incoming):
    # store: None for what the board was given (given.py); path of the enrolment file, or an object
    # with the port of store.py. make: the cipher backend, for hosts. keepalive: seconds, 0 for
    # none. limit: bytes of the largest packet. timeout: seconds for one read. By position or by
    # name, in this order.
    def __init__(self, *args: "Any", **kw: "Any") -> None:
        self._attributes()
        self._set_up(*args, **kw)
        self._enrol()

    def _attributes(self) -> None:
        Incoming._attributes(self)
        self._topics: "dict[str | bytes, bytes]" = {}
        # Where in the publish buffer the last packet with QoS 1 begins, and its length.
        self._sent = 0
        self._size = 0
        self._again = False  # publishing anew what was refused for its epoch

    # --- session ---

    def _resubscribing(self) -> "Steps":
        self._gone = []
        for filt, qos in list(self.missing.items()):
            try:
                yield from subscribing(self, filt, qos)
            except SealError as error:
                # What passes, and what no notice says, is no last word.
                if error.ctr and not isinstance(error, (RateLimited, Unavailable)):
                    del self._subscribed[filt], self.missing[filt]
                    self._gone.append(error)

    # What the mediator publishes when this client goes without a word. Counts from connect() on.
    def set_last_will(
        self,
        topic: "str | bytes",
        msg: "bytes | str",
        retain: bool = False,
        qos: int = 0,
        life: int = 0,
    ) -> None:
        if isinstance(msg, str):
            msg = msg.encode()
        if len(msg) + (_PLAIN + _TAGS) > self.limit:
            raise TooLarge("a will of %d bytes, the limit is %d" % (len(msg), self.limit))
        self._will = self._topic(topic), msg, _flags(qos, retain, life) & 3, life

    # --- what comes in ---

    # Handles one packet that is there, or delivers one queued message. False: nothing to do.
    def check_msg(self) -> bool:
        if self._ear is not None:
            self._ear[1][_CHECK] = 1
            return self.wait_msg()
        if self._fast is not None:
            return self._fast.general(False)  # type: ignore[no-any-return]
        return self._step(False)

    # The same, but waits for a packet. What the fast path (receive_fast.py) does not take goes the
    # general way. With one more variable this would have its frame on the heap.
    def wait_msg(self) -> bool:
        ear = self._ear
        if ear is None:
            if self._fast is not None:
                return self._fast.general(True)  # type: ignore[no-any-return]
            return self._step(True)
        try:
            ear = ear[0](0, 0, ear)
        except OSError:
            if self._fast.lost():
                raise
            ear = None
        except BaseException:
            self._fast.broken()
            raise
        if ear is None:
            return self._fast.rest()  # type: ignore[no-any-return]
        return ear  # type: ignore[no-any-return]

    # --- what goes out ---

    # qos: 0 or 1. life: 0 a minute, 1 to 31 two to that many seconds, 255 for ever (SPEC.md 3.1).
    # An empty retained message clears the topic. tlv: items for the site's policy families, {type:
    # value} (SPEC.md 3.4). Gives the message's ctr, for receipted(). Denied and other SealErrors
    # carry `rule` and `reason`; after OSError and qos 1 see resend().
    def publish(
        self,
        topic: "str | bytes",
        msg: "bytes | str",
        retain: bool = False,
        qos: int = 0,
        life: int = 0,
        tlv: "Mapping[int, bytes] | None" = None,
    ) -> int:
        # With one more on its stack this would have its frame on the heap.
        if qos or retain or life:
            life = _flags(qos, retain, life)
        if tlv:
            tlv = (topic, msg, tlv)  # type: ignore[assignment]
            return _with_items(self, tlv, life)
        return (self._quick or self._seal)(topic, msg, life)

    # What is left of publishing with QoS 1 when it is written. Its packet identifier is self.pid,
    # and it stands in self._out, where self._sent and self._size say.
    def _settle(
        self,
        ctr: int,
        topic: "str | bytes",
        msg: "bytes | str",
        how: int,
        tlv: bytes = b"",
    ) -> int:
        pid = self.pid
        self._awaited = ctr
        try:
            # Mostly the four bytes that come next are the PUBACK, and one read does.
            four = self._four
            got = 0 if self._ahead else self.sock.readinto(four)
            if got != 4 or four[0] != PUBACK or four[1] != 2 or four[2] << 8 | four[3] != pid:
                if got:
                    self._ahead = bytes(four[:got])
                self._await(PUBACK, pid)
            self._awaited = 0
        except BaseException as error:
            self._unacknowledged(error, ctr, self.pid, self._out, self._sent, self._size)
        if self._denied is None:
            return ctr
        # A notice refuses it: once more if that is for its epoch.
        why = self._denial(self._denied)
        if not isinstance(why, WrongEpoch) or self._again:
            raise why
        if not self._run(self._newer(self.ident.own.epoch)):
            raise why
        self._again = True
        try:
            return self._seal(topic, msg, how, tlv)
        finally:
            self._again = False

    # publish for any message; it lays out for publish_fast.py what comes again. how: as of _flags.
    # tlv: m2's block, if it is not empty.
    def _seal(self, topic: "str | bytes", msg: "bytes | str", how: int, tlv: bytes = b"") -> int:
        if isinstance(msg, str):
            msg = msg.encode()
        flags = how & 3
        life = how >> 2
        s = self.session
        if s.due or s.ctr > LAST_CTR or self._astray:
            self._upkeep()
        raw = self._topics.get(topic) or _checked(self, topic)
        sock = self.sock or self._alive()
        # What is sealed begins a word. Bytes stored singly are cheaper than joined ones.
        q = flags & 2
        k = len(raw)
        start = START + (-k - q & 3)
        at = start + 2 + k + q
        p = at + _PLAIN
        if tlv:
            p += len(tlv) - 1
        n = len(msg)
        if p + n + _TAGS > self._end:
            self._room(start, p + n + _TAGS)
        buf = self._out
        buf[p : p + n] = msg
        buf[start] = k >> 8
        buf[start + 1] = k & 255
        p = start + 2
        buf[p : p + k] = raw
        pid = 0
        if q:
            self.pid = pid = self.pid % 65535 + 1
            buf[at - 2] = pid >> 8
            buf[at - 1] = pid & 255
        kind = 0
        if flags & 1:
            kind = RETAINED if n else CLEAR
        n = (
            at
            - start
            + _seal_publish(s, buf, at, n, raw, flags, kind, life, self.mono(), tlv or EMPTY)
        )
        at = start - (2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5)
        buf[at] = PUBLISH | flags
        p = at + 1
        left = n
        n += start - at
        while left > 127:
            buf[p] = left & 127 | 128
            left >>= 7
            p += 1
        buf[p] = left
        self._sent = at
        self._size = n
        ctr: int = s.ctr
        try:
            # A connection's first message may be its last.
            if ctr - self._since > (1 if self._quick else _OFTEN):
                self._quicken(topic, raw, flags, len(msg))
            if sock.write(buf, at, n) != n:
                raise OSError(errno.ETIMEDOUT)
        except BaseException as error:
            self._unacknowledged(error, ctr, pid, buf, at, n)
        return self._settle(ctr, topic, msg, how, tlv) if pid else ctr

    def _quicken(self, topic: "str | bytes", raw: bytes, flags: int, n: int) -> None:
        global _at_hand
        try:
            if _at_hand is False:
                _at_hand = None
                from .publish_fast import at_hand

                _at_hand = at_hand
            if _at_hand:
                if self._hand is None:
                    self._hand = _at_hand(self)
                self._hand[0](self._hand, self, topic, raw, flags, n)
        except (SyntaxError, NotImplementedError, ImportError, MemoryError):
            pass  # no viper here, or no room for it: all goes on as before

    # A message refused for its epoch was not forwarded: it is published anew, once, under the roots
    # of the new one, which are asked for first (SPEC.md 7.4). False: there are none.
    def _newer(self, epoch: int) -> "Steps":
        if self.ident.own.epoch == epoch:
            self._renew_at = 0
            if self.sock is None or not (yield from self._renewed()):
                return False
        return self.ident.own.epoch != epoch

    # A PUBACK did not come, or the packet buf[at:at+n] did not go out: whatever came up, the stream
    # is in doubt. Kept for resend(), unless a notice says why.
    def _unacknowledged(
        self, error: BaseException, ctr: int, pid: int, buf: bytearray, at: int, n: int
    ) -> None:
        self._awaited = 0
        if not isinstance(error, SealError):
            self._close()
        if self._denied is not None:
            if isinstance(error, (OSError, SealError)):
                return
            self._denied = None
        if pid:
            self._keep(ctr, pid, bytes(buf[at : at + n]))
        raise error

    def _keep(self, ctr: int, pid: int, raw: bytes) -> None:
        if len(self.unacked) >= UNACKED and ctr not in self.unacked:
            del self.unacked[min(self.unacked)]
        self.unacked[ctr] = pid, raw

    # Sends again, byte by byte the same, what no PUBACK came for; after a reconnect.
    def resend(self) -> None:
        self._run(self._resending())

    def _resending(self) -> "Steps":
        for ctr in sorted(self.unacked):
            if ctr not in self.unacked:
                continue  # a new boot session in between
            pid, raw = self.unacked[ctr]
            buf = bytearray(raw)
            buf[0] |= 8
            self._awaited = ctr
            try:
                self._write(buf, 0, len(buf))
                got = yield PUBACK << 16 | pid
            except OSError:
                self._close()
                raise
            finally:
                self._awaited = 0
            self.unacked.pop(ctr, None)
            if isinstance(got, tuple):
                raise from_notice(got)

    # The QoS that was granted. Denied when it was refused. purpose: what its messages are for,
    # which is kept for a reconnect with the filter.
    def subscribe(self, topic: "str | bytes", qos: int = 0, purpose: "str | None" = None) -> int:
        if self.cb is None:
            raise Misuse("set_callback before subscribe")
        if purpose is not None:
            topic = self._for(topic, purpose)
        filt = to_filter(topic)
        if qos != 0 and qos != 1:
            raise Misuse("QoS is 0 or 1")
        s = self.session
        if s.due or s.ctr > LAST_CTR or self._astray:
            self._upkeep()
        want = request(self, ASK, filt, qos)
        return granted(self, filt, qos, _answer(self, want >> 16, want & 0xFFFF))

    # purpose: the one that it was subscribed for.
    def unsubscribe(self, topic: "str | bytes", purpose: "str | None" = None) -> None:
        if purpose is not None:
            topic = self._for(topic, purpose)
        filt = to_filter(topic)
        self._upkeep()
        self._alive()
        self._run(self._unsubscribing(filt))

    def _unsubscribing(self, filt: bytes) -> "Steps":
        self._subscribed.pop(filt, None)
        self.missing.pop(filt, None)
        body = yield request(self, END, filt, 0)
        if isinstance(body, tuple):
            raise from_notice(body)

    # --- policy families ---

    # Sends a policy family's own command and gives what it replies (SPEC.md 4.4).
    def command(self, family: str, body: "bytes | str") -> bytes:
        from .commanding import commanding

        self._upkeep()
        self._alive()
        reply: bytes = self._run(commanding(self, family, body))
        return reply

    # What data may be used for (PURPOSES.md), by commands like others: the asyncio client and
    # those that live have these methods, too.

    # What the messages of a filter may be used for and what they may not; durable at the gateway
    # when it returns, so not repeated by itself. Denied when this client is not entitled to it.
    def reserve(
        self: "Any", topic: "str | bytes", aip: "Iterable[str]" = (), pip: "Iterable[str]" = ()
    ) -> "Any":
        from sealmq_spec.purposes import reserve

        return self.command(_PURPOSES, reserve(to_text(topic), aip, pip))

    # Takes the reservation of this filter back.
    def release(self: "Any", topic: "str | bytes") -> "Any":
        from sealmq_spec.purposes import release

        return self.command(_PURPOSES, release(to_text(topic)))

    # Says what a client's subscriptions to a filter are for that do not say so themselves. purpose:
    # None takes it back.
    def presubscribe(
        self: "Any", client: str, topic: "str | bytes", purpose: "str | None"
    ) -> "Any":
        from sealmq_spec.purposes import check_purpose, presubscribe

        if purpose is not None:
            check_purpose(purpose)
        return self.command(_PURPOSES, presubscribe(client, to_text(topic), purpose or ""))

    # The filter as it goes after the token, for a purpose.
    def _for(self: "Any", topic: "str | bytes", purpose: str) -> str:
        from sealmq_spec.purposes import access

        return access(to_text(topic), purpose)

    # Checked once for each topic. Raises Malformed, Misuse.
    def _topic(self, topic: "str | bytes") -> bytes:
        name = topic if isinstance(topic, str) else to_text(topic)
        raw = check_topic(name)
        if raw[0] in _RESERVED:
            raise Misuse("a reserved topic ($, !, @): %r" % name)
        topics = self._topics
        if len(topics) >= _TOPICS:
            topics.clear()
        topics[topic] = raw
        return raw


_checked = Client._topic


# publish with items. said: topic, message, items.
def _with_items(self: Client, said: "Any", how: int) -> int:
    from sealmq_spec.tlv import publishers

    topic, msg, tlv = said
    return self._seal(topic, msg, how, publishers(tlv.items()))


# PUBLISH's flags, after them the life.
def _flags(qos: int, retain: bool, life: int) -> int:
    if qos != 0 and qos != 1:
        raise Misuse("QoS is 0 or 1")
    if not (0 <= life <= 31 or life == LIFE_FOREVER):
        raise Misuse("life is 0 to 31 or 255")
    return life << 2 | qos << 1 | (1 if retain else 0)
