# The client that applications use: umqtt.simple's operations, sealed. publish is one long function
# on purpose: on a device a call costs as much as ten operations.
import errno

from micropython import const

from sealmq_spec.const import (
    CLEAR,
    LIFE_FOREVER,
    RETAINED,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from sealmq_spec.envelope import publish_overhead
from sealmq_spec.errors import (
    Denied,
    Malformed,
    Misuse,
    SealError,
    TooLarge,
    WrongEpoch,
)
from sealmq_spec.topics import check_filter, check_topic

from .incoming import Incoming
from .link import packet, text

_TYPING = False
if _TYPING:
    from typing import Any

_TOPICS = const(32)
_UNACKED = const(8)
_START = const(5)  # as in link.py
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_SUBACK = const(0x90)
_UNSUBACK = const(0xB0)
_LAST_CTR = const(0xFFFFFD)
_RESERVED = b"$!@"
_QOS1 = const(2)
_PLAIN = const(37)  # where the plaintext stands in an m2 with an empty TLV block
_TAGS = const(32)  # and what comes behind it
if _PLAIN + _TAGS != publish_overhead():
    raise ImportError("client.py and SPEC.md 3 differ")


class Client(Incoming):
    # store: path of the enrolment file, or an object with the port of store.py. make: the cipher
    # backend, for hosts. keepalive: seconds, 0 for none. limit: bytes of the largest packet.
    # timeout: seconds for one read. By position or by name, in this order.
    def __init__(self, *args: "Any", **kw: "Any") -> None:
        self._attributes()
        self._set_up(*args, **kw)
        self._enrol()

    def _attributes(self) -> None:
        Incoming._attributes(self)
        self._topics: "dict[str | bytes, bytes]" = {}
        self._last = b""  # the topic that stands in the publish buffer
        self._again = False  # publishing anew what was refused for its epoch

    # --- session ---

    def _resubscribe(self) -> None:
        for filt in list(self._subscribed):
            try:
                self._subscribe(filt, self._subscribed[filt])
            except SealError as error:
                del self._subscribed[filt]
                self._refuse(error)

    # What the mediator publishes when this client goes without a word. Counts from connect() on.
    def set_last_will(
        self, topic: "str | bytes", msg: bytes, retain: bool = False, qos: int = 0, life: int = 0
    ) -> None:
        if len(msg) + (_PLAIN + _TAGS) > self.limit:
            raise TooLarge("a will of %d bytes, the limit is %d" % (len(msg), self.limit))
        self._will = self._topic(topic), msg, _flags(qos, retain, life), life

    # --- what goes out ---

    # qos: 0 or 1. life: 0 a minute, 1 to 31 two to that many seconds, 255 for ever (SPEC.md 3.1).
    # An empty retained message clears the topic. Gives the message's ctr, for receipted(). Denied
    # and other SealErrors carry `rule` and `reason`; after OSError and qos 1 see resend().
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
        raw = self._topics.get(topic) or self._topic(topic)
        flags = _QOS1
        if qos != 1 or retain or life:
            flags = _flags(qos, retain, life)
        s = self.session
        if s.due or s.ctr > _LAST_CTR or self._astray:
            self._upkeep()
        sock = self.sock
        if sock is None:
            raise OSError(errno.ENOTCONN)
        n = len(msg)
        k = len(raw)
        at = _START + 2 + k + qos + qos
        p = at + _PLAIN
        if p + n + _TAGS > self._end:
            self._room(p + n + _TAGS)
            self._last = b""
        buf = self._out
        if self._last is not raw:
            self._last = raw
            buf[_START] = k >> 8
            buf[_START + 1] = k & 255
            buf[_START + 2 : _START + 2 + k] = raw
        buf[p : p + n] = msg
        kind = 0
        if retain:
            kind = RETAINED if n else CLEAR
        pid = 0
        if qos:
            pid = self.pid % 65535 + 1
            self.pid = pid
            buf[at - 2] = pid >> 8
            buf[at - 1] = pid & 255
        n = at - _START + s.seal_publish(buf, at, n, raw, flags, kind, life, self.mono())
        if n < 128:
            buf[_START - 1] = n
            at = _START - 2
        elif n < 16384:
            buf[_START - 1] = n >> 7
            buf[_START - 2] = n & 127 | 128
            at = _START - 3
        else:
            at = self._frame(n)
        buf[at] = _PUBLISH | flags
        n += _START - at
        ctr = s.ctr
        try:
            if qos:
                self._awaited = ctr
                sock.write(buf, at, n)
                # Mostly the four bytes that come next are the PUBACK, and one read does.
                four = self._four
                got = 0 if self._ahead else sock.readinto(four)
                if got != 4 or four[0] != _PUBACK or four[2] << 8 | four[3] != pid:
                    if got:
                        self._ahead = bytes(four[:got])
                    self._await(_PUBACK, pid)
                self._awaited = 0
            else:
                sock.write(buf, at, n)
        except (OSError, SealError) as error:
            self._unacknowledged(error, ctr, pid, buf, at, n)
        if self._denied is not None:
            why = self._denial(self._denied)
            if isinstance(why, WrongEpoch) and not self._again:
                return self._anew(why, topic, msg, retain, qos, life)
            raise why
        return ctr

    # A message refused for its epoch was not forwarded: it is published anew, once, under the roots
    # of the new one, which are asked for first (SPEC.md 7.4).
    def _anew(
        self,
        why: SealError,
        topic: "str | bytes",
        msg: bytes,
        retain: bool,
        qos: int,
        life: int,
    ) -> int:
        epoch = self.ident.own.epoch
        self._renew_at = 0
        if self.sock is None or not self._renewed() or self.ident.own.epoch == epoch:
            raise why
        self._again = True
        try:
            return self.publish(topic, msg, retain, qos, life)
        finally:
            self._again = False

    # A PUBACK did not come. Kept for resend(), unless a notice says why.
    def _unacknowledged(
        self, error: Exception, ctr: int, pid: int, buf: bytearray, at: int, n: int
    ) -> None:
        self._awaited = 0
        if isinstance(error, OSError):
            self._close()
        if self._denied is None:
            if pid:
                self._keep(ctr, pid, bytes(buf[at : at + n]))
            raise error

    def _keep(self, ctr: int, pid: int, raw: bytes) -> None:
        if len(self.unacked) >= _UNACKED and ctr not in self.unacked:
            del self.unacked[min(self.unacked)]
        self.unacked[ctr] = pid, raw

    # Sends again, byte by byte the same, what no PUBACK came for; after a reconnect.
    def resend(self) -> None:
        for ctr in sorted(self.unacked):
            pid, raw = self.unacked[ctr]
            buf = bytearray(raw)
            buf[0] |= 8
            del self.unacked[ctr]
            self._awaited = ctr
            try:
                self._write(buf, 0, len(buf))
                self._await(_PUBACK, pid)
            except (OSError, SealError) as error:
                self._unacknowledged(error, ctr, pid, buf, 0, len(buf))
            self._awaited = 0
            if self._denied is not None:
                raise self._denial(self._denied)

    # The QoS that was granted. Denied when it was refused.
    def subscribe(self, topic: "str | bytes", qos: int = 0) -> int:
        if self.cb is None:
            raise Misuse("subscribe without a callback: set_callback first")
        filt = _filter(topic)
        if qos not in (0, 1):
            raise Misuse("QoS is 0 or 1")
        self._upkeep()
        granted = self._subscribe(filt, qos)
        self._subscribed[filt] = qos
        return granted

    def _subscribe(self, filt: str, qos: int) -> int:
        token, ctr = self.session.token(filt, qos, SUBSCRIBE)
        granted = self._request(0x82, text(token.encode()) + bytes((qos,)), _SUBACK, ctr)[2]
        if granted == 0x80:
            raise Denied("the subscription to %r was refused" % filt)
        if granted > qos:
            raise self._broken("SUBACK with code %d for QoS %d" % (granted, qos))
        return granted

    def unsubscribe(self, topic: "str | bytes") -> None:
        filt = _filter(topic)
        self._upkeep()
        self._alive()
        token, ctr = self.session.token(filt, 0, UNSUBSCRIBE)
        self._subscribed.pop(filt, None)
        self._request(0xA2, text(token.encode()), _UNSUBACK, ctr)

    def _request(self, first: int, fields: bytes, kind: int, ctr: int) -> "bytes | bytearray":
        pid = self._pid()
        raw = packet(first, pid.to_bytes(2, "big") + fields)
        body: "bytes | bytearray" = raw
        self._awaited = ctr
        try:
            self._write(raw, 0, len(raw))
            body = self._await(kind, pid)
        except (OSError, SealError):
            if self._denied is None:
                raise
        finally:
            self._awaited = 0
        if self._denied is not None:
            raise self._denial(self._denied)
        return body

    # Checked once for each topic. Raises Malformed, Misuse.
    def _topic(self, topic: "str | bytes") -> bytes:
        name = topic if isinstance(topic, str) else _text(topic)
        raw = check_topic(name)
        if raw[0] in _RESERVED:
            raise Misuse("topics that begin with $, ! or @ are reserved: %r" % name)
        topics = self._topics
        if len(topics) >= _TOPICS:
            topics.clear()
        topics[topic] = raw
        return raw


def _flags(qos: int, retain: bool, life: int) -> int:
    if qos not in (0, 1):
        raise Misuse("QoS is 0 or 1")
    if not (0 <= life <= 31 or life == LIFE_FOREVER):
        raise Misuse("life is 0 to 31 or 255")
    return qos << 1 | (1 if retain else 0)


def _filter(topic: "str | bytes") -> str:
    filt = _text(topic)
    check_filter(filt)
    return filt


def _text(topic: "str | bytes") -> str:
    if isinstance(topic, str):
        return topic
    try:
        return topic.decode()
    except ValueError:
        raise Malformed("a topic that is no UTF-8: %r" % topic) from None
