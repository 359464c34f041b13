# The module `socket` of a board: the host's sockets, with the interface of the ESP32's, and only
# while Wi-Fi is up. A connection that lived through a loss of Wi-Fi is over.
import errno
import io
import socket as _host
import struct

import vb_host
import vb_missing
from vb_network import link

AF_INET = _host.AF_INET
AF_INET6 = _host.AF_INET6
SOCK_STREAM = _host.SOCK_STREAM
SOCK_DGRAM = _host.SOCK_DGRAM
SOL_SOCKET = _host.SOL_SOCKET
SO_REUSEADDR = _host.SO_REUSEADDR
SO_BROADCAST = _host.SO_BROADCAST
IPPROTO_IP = 0
IPPROTO_TCP = 6
IPPROTO_UDP = 17
TCP_NODELAY = 1

_GET_FILENO = 10
_CLOSE = 4
_IP_MULTICAST_IF = 32  # the host's, where lwIP has 6
_LOOPBACK = b"\x7f\0\0\1"
_ECONNABORTED = 103
_EHOSTUNREACH = 113
_EAI_FAIL = -202


def _up():
    now = link()
    if now < 0:
        raise OSError(_EHOSTUNREACH)
    return now


def _packed(address):
    if isinstance(address, (bytes, bytearray)):
        return address
    return _host.getaddrinfo(address[0], address[1])[0][-1]


def _plain(packed):
    found = _host.sockaddr(packed)
    return (_host.inet_ntop(found[0], found[1]), found[2])


def getaddrinfo(host, port, af=0, type=0, proto=0, flags=0):
    if link() < 0:
        raise OSError(_EAI_FAIL)
    try:
        found = _host.getaddrinfo(host, port, AF_INET, type or SOCK_STREAM)
    except OSError as error:
        raise OSError(_EAI_FAIL) from error
    return [(e[0], e[1], 0, "", _plain(e[4])) for e in found]


class socket(io.IOBase):
    def __init__(self, af=AF_INET, type=SOCK_STREAM, proto=0, _made=None):
        self._sock = _host.socket(af, type, proto) if _made is None else _made
        self._blocks = True
        self._link = None  # the loss count that it was connected under

    # The host keeps a copy: a board that is reset or loses its power says no good-bye.
    def _keep(self, now):
        self._link = now
        vb_host.hand_over(b"S" + struct.pack("<I", self._sock.fileno()), self._sock.fileno())

    # --- raises when Wi-Fi is not what it was

    def _still(self):
        now = link()
        if now < 0 or (self._link is not None and now != self._link):
            raise OSError(_ECONNABORTED)

    # What the host's socket does; a timeout has one name, as on the board.
    def _do(self, what, *arguments):
        try:
            return what(*arguments)
        except OSError as error:
            if error.errno == errno.EAGAIN and self._blocks:
                raise OSError(errno.ETIMEDOUT)
            raise

    def connect(self, address):
        now = _up()
        try:
            self._do(self._sock.connect, _packed(address))
        finally:
            self._keep(now)

    def bind(self, address):
        self._sock.bind(_packed(address))

    def listen(self, backlog=2):
        self._sock.listen(backlog)

    def accept(self):
        now = _up()
        made, packed = self._do(self._sock.accept)
        new = socket(_made=made)
        new._keep(now)
        return new, _plain(packed)

    # --- the stream

    def read(self, n=-1):
        self._still()
        got = self._sock.read() if n < 0 else self._sock.read(n)
        return got if got else self._end(got)

    def readinto(self, buf, n=-1):
        self._still()
        got = self._sock.readinto(buf) if n < 0 else self._sock.readinto(buf, n)
        return got if got else self._end(got)

    def readline(self, n=-1):
        self._still()
        got = self._sock.readline() if n < 0 else self._sock.readline(n)
        return got if got else self._end(got)

    def recv(self, n, flags=0):
        self._still()
        got = self._do(self._sock.recv, n)
        return got if got else self._end(got)

    def recvfrom(self, n, flags=0):
        self._still()
        got, packed = self._do(self._sock.recvfrom, n)
        return got, _plain(packed)

    # An end that a loss of Wi-Fi made is none.
    def _end(self, got):
        if got is not None:
            self._still()
        return got

    def write(self, buf, a=None, b=None):
        self._still()
        if a is None:
            return self._sock.write(buf)
        if b is None:
            return self._sock.write(buf, a)
        return self._sock.write(buf, a, b)

    def send(self, buf, flags=0):
        self._still()
        return self._do(self._sock.send, buf)

    def sendall(self, buf, flags=0):
        self._still()
        view = memoryview(buf)
        done = 0
        while done < len(view):
            n = self._sock.write(view[done:])
            if n is None:
                raise OSError(errno.EAGAIN)
            done += n

    # What is for a group stays on this host, where a virtual board's site is.
    def sendto(self, buf, address):
        _up()
        packed = _packed(address)
        if 224 <= int(_plain(packed)[0].split(".")[0]) < 240:
            self._sock.setsockopt(IPPROTO_IP, _IP_MULTICAST_IF, _LOOPBACK)
        return self._do(self._sock.sendto, buf, packed)

    # --- the rest

    def setsockopt(self, level, option, value):
        self._sock.setsockopt(level, option, value)

    def settimeout(self, seconds):
        self._blocks = seconds is None or seconds > 0
        self._sock.settimeout(seconds)

    def setblocking(self, blocking):
        self._blocks = bool(blocking)
        self._sock.setblocking(blocking)

    def makefile(self, mode="rb", buffering=0):
        return self

    def fileno(self):
        return self._sock.fileno()

    def close(self):
        if self._link is not None:
            self._link = None
            vb_host.tell(b"s" + struct.pack("<I", self._sock.fileno()))
        self._sock.close()

    def ioctl(self, op, arg):
        if op == _GET_FILENO:
            return self._sock.fileno()
        if op == _CLOSE:
            self.close()
            return 0
        return -1

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


_MISSING = ("IP_ADD_MEMBERSHIP", "SOCK_RAW", "SO_BINDTODEVICE", "inet_ntop", "inet_pton")


vb_missing.fill(globals(), "socket", _MISSING)
__name__ = "socket"
