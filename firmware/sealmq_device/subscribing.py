# Subscribing: a filter after its token (SPEC.md 4.2), and what the answer says. Functions, as
# methods cost more to look up.
import errno
from struct import pack_into

from micropython import const

from sealmq_spec.const import SUBSCRIBE, TAG, TOKEN, UNSUBSCRIBE
from sealmq_spec.errors import Denied, Malformed, from_notice
from sealmq_spec.session import Session
from sealmq_spec.topics import check_raw_filter

from .joining import put_b64u  # type: ignore[attr-defined]

_TYPING = False
if _TYPING:
    from typing import Any

    from .link import Steps

# First bytes of SUBSCRIBE and UNSUBSCRIBE.
ASK = const(0x82)
END = const(0xA2)
_SUBACK = const(0x90)
_UNSUBACK = const(0xB0)
_ASKED = const(0x1000000)  # what a notice is about, as link.py has it
_REMOVED = const(0x2000000)
# A filter after its token: "!s1/", u24 ctr and tag as text, "/".
_TOKEN = const(19)
_TOKEN_CHARS = const(26)
_TOKENED = const(31)
_SLASH = const(47)
if _TOKEN != 3 + TAG or len(TOKEN) != 4:
    raise ImportError("subscribing.py and SPEC.md 4.2 differ")

# A built-in name costs 420 instructions to look up, a method 1,500, a name of this module 100.
_bytearray = bytearray
_isinstance: "Any" = isinstance
_len = len
_tuple: "Any" = tuple
_seal_token = Session.seal_token


def subscribing(self: "Any", filt: bytes, qos: int) -> "Steps":
    body = yield request(self, ASK, filt, qos)
    return granted(self, filt, qos, body)


# What SUBACK, or a notice, says.
def granted(self: "Any", filt: bytes, qos: int, body: "Any") -> int:
    if _isinstance(body, _tuple):
        raise from_notice(body)
    level: int = body[2]
    if level == 0x80:
        raise Denied("the subscription to %r was refused" % filt)
    if level > qos:
        raise self._broken("SUBACK with code %d for QoS %d" % (level, qos))
    self._subscribed[filt] = qos
    self.missing.pop(filt, None)
    return level


# Writes SUBSCRIBE or UNSUBSCRIBE of one filter after its token. Gives what to wait for.
def request(self: "Any", first: int, filt: bytes, qos: int) -> int:
    pid: int = self.pid % 65535 + 1
    self.pid = pid
    n = _len(filt) + _TOKENED
    size = n + 4
    at = 2
    op = UNSUBSCRIBE
    ack = _UNSUBACK
    what = _REMOVED
    if first == ASK:
        op = SUBSCRIBE
        ack = _SUBACK
        what = _ASKED
        size += 1
    if size > 127:
        at = 3
    end = at + size
    buf = _bytearray(end)
    if at == 2:
        pack_into(">BBHH4s", buf, 0, first, size, pid, n, TOKEN)
    else:
        pack_into(">BBBHH4s", buf, 0, first, size & 127 | 128, size >> 7, pid, n, TOKEN)
    at += 8
    ctr: int = _seal_token(self.session, buf, at, filt, qos, op)
    put_b64u(buf, at, _TOKEN)
    at += _TOKEN_CHARS
    buf[at] = _SLASH
    buf[at + 1 : at + 1 + n - _TOKENED] = filt
    if ack == _SUBACK:
        buf[end - 1] = qos
    sock = self.sock
    if sock is None:
        raise OSError(errno.ENOTCONN)
    try:
        sock.write(buf, 0, end)
    except BaseException:
        self._close()  # the stream is in doubt
        raise
    self._awaited = what | ctr
    return ack << 16 | pid


def to_filter(topic: "Any") -> bytes:
    try:
        raw: bytes = topic.encode()
    except AttributeError:
        raw = to_text(topic).encode()
    check_raw_filter(raw)
    return raw


def to_text(topic: "str | bytes") -> str:
    if isinstance(topic, str):
        return topic
    try:
        return topic.decode()
    except ValueError:
        raise Malformed("a topic that is no UTF-8: %r" % topic) from None
