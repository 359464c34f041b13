# The MQTT side of a client, and how a blocking one waits. One socket write a packet, at most
# `limit` bytes of one kept, typed errors. Whatever leaves the stream in doubt closes the socket.
#
# What a client does is written once for the blocking and the asyncio interface. Writing never waits
# (aio.py's socket keeps what does not go out at once), so it is plain code; whatever has to wait is
# a generator, and yields what it waits for:
#     OPEN            a connection, in self.sock
#     CONNACK         four bytes, in self._four
#     READ            the next packet: (first byte, rest); of one who has proved nothing yet
#     IDLE            until nothing is awaited, as the connection is going to be left
#     PAUSE           a second; of a task alone (finding.py)
#     kind << 16 | pid    that acknowledgement: its body; or the notice, a tuple, that refuses what
#                     self._awaited was set to before. ROOTS: the key generator's answer
# OSError and SealError of a wait are raised in the generator. Link._run waits as a blocking client
# does.
import errno
import socket as net

from micropython import const

from sealmq_spec.const import ANSWER, CONTROL
from sealmq_spec.errors import Malformed, SealError, TooLarge, Unavailable

from .entropy import monotonic

_TYPING = False
if _TYPING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    Steps = Generator[int, Any, Any]

OPEN = const(0)
CONNACK = const(1)
READ = const(2)
IDLE = const(3)
PAUSE = const(-1)
ROOTS = const(0x300000)

# Where a packet's variable header begins in the send buffer, its fixed one before it. In what ships
# such a name stands as its number, in other files too.
START = const(5)
PREPARED = const(3)  # as in publish_fast.py, with what follows
_CLOCK = const(8)
_ROOM = const(16)  # in bytes

PUBLISH = const(0x30)
# What a client may be sent after CONNACK besides PUBLISH, and how long that is: PUBACK, SUBACK,
# UNSUBACK, PINGRESP.
_LENGTH = {0x40: 2, 0x90: 3, 0xB0: 2, 0xD0: 0}
_PIECE = const(256)
TCP = const(6)
NODELAY = getattr(net, "TCP_NODELAY", 1)  # lwIP has another number than BSD


class Link:
    # limit: bytes of a packet after its fixed header, both ways. timeout: seconds for one read and
    # for an acknowledgement; wait_msg waits for a packet's beginning without limit.
    def __init__(self, keepalive: int, limit: int, timeout: int) -> None:
        self._ear: "Any" = None  # while the fast path of receive is ready (incoming.py)
        self.client_id = b""
        self.sock: "Any" = None
        self.server = ""
        self.port = 0
        self.pid = 0
        self.cb: "Callable[[Any], object] | None" = None
        self.keepalive = keepalive
        self.limit = limit
        self.timeout = timeout
        self.mono = monotonic()
        self._two = bytearray(2)
        self._four = bytearray(4)
        self._ahead = b""  # bytes of the next packet that were read with the last one
        self._ack = bytearray(b"\x40\x02\0\0")
        self._out = bytearray(192)
        self._end = 192
        # What is being acknowledged, as a notice names it (SPEC.md 4.4): (what - 1) << 24 | ctr, so
        # ctr alone of a PUBLISH.
        self._awaited = 0
        self._denied: "Any" = None  # the notice that refuses it
        # Where the mediator may be (finding.py), if the enrolment says that it is to be looked for.
        self._places: "Any" = None
        # publish_fast.py's, and what that has at hand.
        self._quick: "Any" = None
        self._hand: "Any" = None

    # f(message) for each message that comes.
    def set_callback(self, f: "Callable[[Any], object]") -> None:
        self.cb = f
        self._ear = None

    # --- waiting ---

    # Runs a generator of what waits to its end. Gives what it returns.
    def _run(self, steps: "Steps") -> "Any":
        send: "Any" = steps.send
        step = send
        got: "Any" = None
        try:
            while True:
                want = step(got)
                step = send
                try:
                    if want > IDLE:
                        got = self._answer(want >> 16, want & 0xFFFF)
                    elif want == READ:
                        got = _read(self, False, self._places)
                    elif want == IDLE:
                        got = None
                    elif want:
                        if self.sock.readinto(self._four) != 4:
                            raise OSError(errno.ECONNRESET)
                    else:
                        self._open()
                        got = None
                except (OSError, SealError) as error:
                    step = steps.throw
                    got = error
        except StopIteration as end:
            return end.value

    # --- socket ---

    def _open(self) -> None:
        if self.sock is not None:
            self._close()
        try:
            found = net.getaddrinfo(self.server, self.port, 0, net.SOCK_STREAM)[0]
        except OSError:
            raise unknown(self) from None
        sock = net.socket(*found[:3])
        try:
            sock.settimeout(self.timeout)
            sock.connect(found[4])
            # Each write is a whole packet: none has to wait for the acknowledgement of the last.
            sock.setsockopt(TCP, NODELAY, 1)
        except OSError:
            sock.close()
            raise
        self.sock = sock

    def _close(self) -> None:
        sock = self.sock
        self.sock = None
        self._ear = None
        self._ahead = b""
        if self._hand is not None:
            self._hand[PREPARED] = None
        if sock is not None:
            sock.close()

    def _alive(self) -> "Any":
        if self.sock is None:
            raise OSError(errno.ENOTCONN)
        return self.sock

    # The peer broke MQTT: nothing after this can be trusted to be a packet.
    def _broken(self, text: str) -> Malformed:
        self._close()
        return Malformed(text)

    # --- what goes out ---

    # Makes the publish buffer one of `end` bytes. start: where the variable header begins.
    def _room(self, start: int, end: int) -> None:
        if end - start > self.limit:
            raise TooLarge("a packet of %d bytes, the limit is %d" % (end - start, self.limit))
        self._out = bytearray(end)
        self._end = end
        if self._hand is not None:
            # It has the old one: none of its bytes are taken before it is given this.
            self._hand[_CLOCK][_ROOM : _ROOM + 4] = bytes(4)

    def _write(self, buf: "bytes | bytearray", at: int, n: int) -> None:
        try:
            self._alive().write(buf, at, n)
        except OSError:
            self._close()
            raise

    def _pid(self) -> int:
        pid = self.pid % 65535 + 1
        self.pid = pid
        return pid

    # Does not wait for the answer, which check_msg and wait_msg take.
    def ping(self) -> None:
        self._write(b"\xc0\0", 0, 2)

    # The boot session stays: connect() goes on with it.
    def disconnect(self) -> None:
        if self.sock is not None:
            try:
                self._write(b"\xe0\0", 0, 2)
            finally:
                self._close()

    # --- what comes in ---

    # Reads as much as buf holds, first what was read ahead, or raises.
    def _fill(self, buf: "bytearray | memoryview") -> None:
        sock = self._alive()
        ahead = self._ahead
        if ahead:
            k = min(len(ahead), len(buf))
            buf[:k] = ahead[:k]
            self._ahead = ahead[k:]
            if k == len(buf):
                return
            buf = memoryview(buf)[k:]
        if sock.readinto(buf) != len(buf):
            raise OSError(errno.ECONNRESET)

    # The next packet as (first byte, rest), if there is one or wait is set; then without limit.
    def _poll(self, wait: bool) -> "tuple[int, bytearray] | None":
        sock = self._alive()
        if self._ahead:
            return self._read()
        try:
            sock.settimeout(None if wait else 0)
            got = sock.readinto(self._two)
            sock.settimeout(self.timeout)
        except OSError:
            self._close()
            raise
        if got is None:
            return None
        if got != 2:
            self._ahead = bytes(self._two[:got])
        return self._read(got == 2)

    # The next packet, within the timeout. begun: its first two bytes are in _two already. strange:
    # what reads its rest, if it may be anybody's. TooLarge: one came and was thrown away; the
    # connection goes on.
    def _read(self, begun: bool = False, strange: "Any" = None) -> "tuple[int, bytearray]":
        sock = self.sock
        if sock is None:
            raise OSError(errno.ENOTCONN)
        two = self._two
        try:
            if not begun:
                if self._ahead:
                    self._fill(two)
                elif sock.readinto(two) != 2:
                    raise OSError(errno.ECONNRESET)
            first = two[0]
            n = two[1]
            if n > 127:
                n = self._long(n & 127)
            if first & 0xF0 != PUBLISH and _LENGTH.get(first) != n:
                self._unknown(first, n)
            if strange:
                return first, strange._rest(first, n)
            if n > self.limit:
                for piece in self._thrown_away(first, n):
                    self._fill(piece)
            body = bytearray(n)
            if self._ahead:
                self._fill(body)
            elif n and sock.readinto(body) != n:
                raise OSError(errno.ECONNRESET)
        except TooLarge:
            raise
        except BaseException:
            # No memory for it, too: what follows would be taken for packets.
            self._close()
            raise
        return first, body

    def _unknown(self, first: int, n: int) -> None:
        raise self._broken("packet begins with %02x and has %d bytes" % (first, n))

    def _long(self, n: int) -> int:
        one = bytearray(1)
        for shift in (7, 14, 21):
            self._fill(one)
            n |= (one[0] & 127) << shift
            if one[0] < 128:
                return n
        raise self._broken("remaining length over four bytes")

    # A PUBLISH over the limit is read in pieces, each to be filled by the caller, and acknowledged:
    # else the broker sends it again.
    def _thrown_away(self, first: int, n: int) -> "Iterator[bytearray | memoryview]":
        two = bytearray(2)
        yield two
        topic = two[0] << 8 | two[1]
        left = n - 2 - topic - (2 if first & 6 else 0)
        if left < 0:
            raise self._broken("PUBLISH of %d bytes with a topic of %d" % (n, topic))
        piece = memoryview(bytearray(_PIECE))
        while topic > 0:
            yield piece[:topic]
            topic -= _PIECE
        if first & 6:
            yield two
        while left > 0:
            yield piece[:left]
            left -= _PIECE
        self._acknowledge(first, two[0], two[1])
        raise TooLarge("a packet of %d bytes came, the limit is %d" % (n, self.limit))

    def _acknowledge(self, first: int, high: int, low: int) -> None:
        if first & 4:
            raise self._broken("PUBLISH with QoS 2, asked for 1")
        if first & 2:
            ack = self._ack
            ack[2] = high
            ack[3] = low
            self._write(ack, 0, 4)

    # (topic, payload) of a PUBLISH, which is acknowledged before anybody can choke on it.
    def _split(self, first: int, body: bytearray) -> "tuple[bytes, bytearray]":
        n = len(body)
        end = 2 + (body[0] << 8 | body[1]) if n > 1 else 2
        start = end + 2 if first & 6 else end
        if end == 2 or start > n:
            raise self._broken("PUBLISH of %d bytes" % n)
        if first & 6:
            self._acknowledge(first, body[end], body[end + 1])
        return bytes(body[2:end]), body[start:]

    # An acknowledgement's body, or the notice that refuses what it was to acknowledge.
    def _answer(self, kind: int, pid: int) -> "Any":
        body: "Any" = None
        try:
            body = _await(self, kind, pid)
        except (OSError, SealError):
            if self._denied is None:
                raise
        finally:
            self._awaited = 0
        if self._denied is None:
            return body
        body = self._denied
        self._denied = None
        return body

    # The body of the acknowledgement `kind` of `pid`. What comes before it goes to _take.
    def _await(self, kind: int, pid: int) -> bytearray:
        until = 0
        while True:
            try:
                first, body = _read(self)
                if first == kind:
                    if kind == PUBLISH:
                        if body.startswith(ANSWERED):
                            return body
                    elif body[0] << 8 | body[1] == pid:
                        return body
                self._take(first, body)
            except TooLarge as error:
                self._refuse(error)
            self._check()
            now = self.mono()
            if not until:
                until = now + 1000 * self.timeout
            elif now > until:
                if kind == PUBLISH:
                    raise Unavailable("no answer from the key generator")
                self._close()
                raise OSError(errno.ETIMEDOUT)

    # For those who build on this: a packet that nobody waits for; a refusal to note.
    def _take(self, first: int, body: bytearray) -> None:
        raise NotImplementedError

    def _refuse(self, error: SealError) -> None:
        raise NotImplementedError

    # While an acknowledgement is awaited: raises when none will come.
    def _check(self) -> None:
        raise NotImplementedError


# A method costs 1,500 instructions to look up, a name 100.
_answer = Link._answer
_await = Link._await
_read = Link._read


# What a look-up of the mediator's name ends with: ports tell that in different ways.
def unknown(self: Link) -> OSError:
    what = "this network does not know the name; advertise an address and enrol again"
    return OSError(errno.ENOENT, "%s:%d: %s" % (self.server, self.port, what))


def text(s: bytes) -> bytes:
    return len(s).to_bytes(2, "big") + s


CONTROL_TOPIC = text(CONTROL)
ANSWERED = CONTROL_TOPIC + bytes((ANSWER,))  # how the key generator's answer begins


# A whole packet; for those that are not sent often.
def packet(first: int, rest: bytes) -> bytes:
    n = len(rest)
    head = bytes((first,))
    while n > 127:
        head += bytes((n & 127 | 128,))
        n >>= 7
    return head + bytes((n,)) + rest


# will: (topic, payload, flags as in PUBLISH) or None.
def connect_packet(
    client_id: bytes,
    keepalive: int,
    clean: bool,
    will: "tuple[bytes, bytes, int] | None",
    user: bytes,
    password: bytes,
) -> bytes:
    flags = 0xC2 if clean else 0xC0
    rest = text(client_id)
    if will is not None:
        flags |= 4 | (will[2] & 1) << 5 | (will[2] & 6) << 2
        rest += text(will[0]) + text(will[1])
    head = b"\x00\x04MQTT\x04" + bytes((flags, keepalive >> 8, keepalive & 255))
    return packet(0x10, head + rest + text(user) + text(password))
