# Where this client's site is announced to be, by mDNS (RFC 6762). Anybody in the network announces
# anything, so it is a hint: whoever a lie leads to has no key, and joining.py refuses him. What a
# lie costs is one connect that fails.
#
# One place is tried a connect: first where the last session was, so that nobody is asked as long as
# that is right. When it fails, what is found, the enrolment's, and that one again; then others are
# asked for once more. The question goes out from a port of its own: the answer comes to that alone
# (RFC 6762 6.7), and no group has to be joined, which not every port of MicroPython can.
import errno
import os
import socket as net
import time
from binascii import hexlify

from micropython import const

from .link import PAUSE
from .store import _read

_TYPING = False
if _TYPING:
    from typing import Any

    from .link import Steps

    Place = tuple[str, int]

GROUP = ("224.0.0.251", 5353)
_SERVICE = b"\x07_sealmq\x04_tcp\x05local"
_ASK = b"\0\0\0\1\0\0\0\0\0\0" + _SERVICE + b"\0\0\x0c\0\1"
_LONGEST = const(1472)  # of a packet; what is longer is cut off, and counts for nothing
_PACKETS = const(16)
_RECORDS = const(32)  # of a packet
_STEPS = const(16)  # labels of a name and jumps in it; ours have four and one
_MOST = const(4)  # places of one question; the liar of many has one in five
_FOUND = "found"
_A = const(1)
_TXT = const(16)
_SRV = const(33)


# A name of a packet in small letters, and where what follows it begins. IndexError, ValueError.
def _name(raw: bytes, at: int) -> "tuple[bytes, int]":
    found = b""
    end = 0
    for _ in range(_STEPS):
        n = raw[at]
        if n > 191:
            end = end or at + 2
            at = (n & 63) << 8 | raw[at + 1]
        elif n > 63:
            break
        elif n:
            found += raw[at : at + n + 1]
            at += n + 1
        else:
            return found.lower(), end or at + 1
    raise ValueError


# What an answer says: where a site is whose announcement holds `mark`. None: nothing that counts.
# One place a packet: a liar with many needs many. Only what leads there is read: SRV and TXT of one
# name, and an IPv4 address of the host that SRV names. No other name is ever looked up.
def read(raw: bytes, ident: bytes, mark: bytes) -> "Place | None":
    ours = []
    at_port: "dict[bytes, tuple[int, bytes]]" = {}
    address = {}
    try:
        if raw[:2] != ident or raw[2] & 0xF8 != 0x80:
            return None
        at = 12
        for _ in range(min(raw[4] << 8 | raw[5], 2)):
            at = _name(raw, at)[1] + 4
        count = (raw[6] + raw[8] + raw[10] << 8) + raw[7] + raw[9] + raw[11]
        for _ in range(min(count, _RECORDS)):
            owner, at = _name(raw, at)
            kind = raw[at] << 8 | raw[at + 1]
            n = raw[at + 8] << 8 | raw[at + 9]
            at += 10
            end = at + n
            if end > len(raw):
                return None
            if kind == _TXT and mark in raw[at:end]:
                ours.append(owner)
            elif kind == _SRV:
                at_port[owner] = raw[at + 4] << 8 | raw[at + 5], _name(raw, at + 6)[0]
            elif kind == _A and n == 4:
                address[owner] = "%d.%d.%d.%d" % tuple(raw[at:end])
            at = end
    except (IndexError, ValueError):
        return None
    for owner in ours:
        port, host = at_port.get(owner, (0, b""))
        if port and host in address and owner.endswith(_SERVICE):
            return address[host], port
    return None


# A FileStore's, as NvsStore has them.
class Beside:
    def __init__(self, path: str) -> None:
        self._path = path

    def get(self, key: str) -> bytes:
        return _read(self._path + key)

    def put(self, key: str, blob: bytes) -> None:
        with open(self._path + key, "wb") as f:
            f.write(blob)


# What has get and put for a client's store. To name FileStore here, or ask one for what it has not,
# would load all that a wake does without.
def lasting(store: "Any") -> "Any":
    for _ in range(2):
        try:
            return Beside(store._state[:-5])
        except AttributeError:
            store = getattr(store, "lasting", store)  # rtc.py's
    return store


class Places:
    task = False  # it is of an asyncio client (tasks.py)

    # core: a Client. Its store may be a FileStore or has get(key) and put(key, blob) as NvsStore.
    def __init__(self, core: "Any", site: bytes) -> None:
        self._core = core
        # A text of TXT, its length in front.
        self._mark = b"\x0dsite=" + hexlify(site)
        self._given: "Place" = (core.server, core.port)
        self._kept: "Place | None" = None
        self._left: "list[Place]" = []
        self._store = lasting(core.store)
        try:
            host, _, number = self._store.get(_FOUND).decode().rpartition(":")
            port = int(number)
            if host and 0 < port < 65536:
                self._kept = core.server, core.port = host, port
        except ValueError:
            pass
        self._good = self._kept is not None

    # Before a connect: says where it goes.
    def _next(self) -> "Steps":
        core = self._core
        if self._good:
            self._good = False
            return
        if not self._left:
            self._left = yield from self._asked()
        core.server, core.port = self._left.pop(0)

    # The n bytes of a packet of one who has proved nothing yet. They are to be there within the
    # timeout: readinto would wait as long for each, and one at a time would hold this board for
    # hours.
    def _rest(self, first: int, n: int) -> bytearray:
        core = self._core
        if n > core.limit:
            core._unknown(first, n)
        until = core.mono() + 1000 * core.timeout
        raw = b""
        while len(raw) < n:
            more = core.sock.recv(n - len(raw))
            if not more:
                raise OSError(errno.ECONNRESET)
            if core.mono() > until:
                raise OSError(errno.ETIMEDOUT)
            raw += more
        return bytearray(raw)

    # There is a session with the mediator itself.
    def _proved(self) -> None:
        core = self._core
        self._good = True
        self._left = []
        place = core.server, core.port
        if place != self._kept:
            self._kept = place
            try:
                self._store.put(_FOUND, ("%s:%d" % place).encode())
            except OSError:
                pass  # a full flash, say: it is asked for again after the next start

    # All that is left to try, once others have been asked. Without a network there is no answer.
    def _asked(self) -> "Steps":
        found: "list[Place]" = []
        sock = None
        try:
            ident = os.urandom(2)
            sock = net.socket(net.AF_INET, net.SOCK_DGRAM)
            sock.settimeout(0)
            at = net.getaddrinfo(GROUP[0], GROUP[1], 0, net.SOCK_DGRAM)[0][4]
            sock.sendto(ident + _ASK, at)
            if self.task:
                yield PAUSE
            else:
                time.sleep(1)
            for _ in range(_PACKETS):
                place = read(sock.recv(_LONGEST), ident, self._mark)
                if place and place not in found:
                    # In no order of theirs: who always answers first shall not always be first.
                    found.insert(_drawn(len(found)), place)
                    del found[_MOST:]
        except (OSError, MemoryError):
            pass  # so far
        finally:
            if sock:
                sock.close()
        # A wake has two connects, the first to the last place. So the enrolment's is drawn, too.
        if self._given not in found:
            n = len(found)
            found.insert(_drawn(n) if self._kept else n, self._given)
        if self._kept and self._kept not in found:
            found.append(self._kept)
        return found


# 0 to n.
def _drawn(n: int) -> int:
    return os.urandom(1)[0] % (n + 1)
