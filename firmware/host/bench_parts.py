# Run by MicroPython: single operations that connecting and publishing consist of, for
# bench_device.py.
#     bench_parts.py PORT WHAT,SIZE,N,0
# Does WHAT N times, over buffers of SIZE bytes where it has any, and 20 times before.
import gc
import socket
import sys
from hashlib import sha256

import ffi
from cryptolib import aes

from sealmq_device.aead import CCM, make

_TYPING = False
if _TYPING:
    from typing import Any

BEFORE = 20
MOST = 20
_exit = ffi.open("libc.so.6").func("v", "_exit", "i")
connections: "list[Any]" = []


def opened() -> "Any":
    found = socket.getaddrinfo("127.0.0.1", int(sys.argv[1]), 0, socket.SOCK_STREAM)[0]
    sock: Any = socket.socket(*found[:3])
    sock.settimeout(10)
    sock.connect(found[-1])
    sock.setsockopt(6, 1, 1)
    connections.append(sock)
    return sock


def part_sha256(n: int, buf: bytearray) -> None:
    for _ in range(n):
        sha256(buf).digest()


def part_aead_key(n: int, buf: bytearray) -> None:
    key = bytes(32)
    for _ in range(n):
        make(CCM, key)


def part_aead(n: int, buf: bytearray) -> None:
    seal = make(CCM, bytes(32)).seal_into
    nonce, aad = bytes(12), bytes(50)
    buf = bytearray(len(buf) + 16)
    size = len(buf) - 16
    for _ in range(n):
        seal(nonce, aad, buf, 0, size)


def part_cbc(n: int, buf: bytearray) -> None:
    encrypt = aes(bytes(32), 2, bytes(16)).encrypt
    for _ in range(n):
        encrypt(buf, buf)


def part_ecb(n: int, buf: bytearray) -> None:
    encrypt = aes(bytes(32), 1).encrypt
    for _ in range(n):
        encrypt(buf, buf)


def part_socket(n: int, buf: bytearray) -> None:
    for _ in range(n):
        opened()


# Packets that the server takes for messages.
def part_write(n: int, buf: bytearray) -> None:
    sock = connections[0]
    buf[:5] = b"\x30" + bytes((len(buf) - 2,)) + b"\x00\x01t"
    write = sock.write
    for _ in range(n):
        write(buf)


# Four bytes that are there already: the acknowledgements of messages.
def part_read(n: int, buf: bytearray) -> None:
    sock = connections[0]
    read = sock.readinto
    for _ in range(n):
        read(buf)


# Asks for n acknowledgements, in each run for the same number.
def ask(n: int) -> None:
    for _ in range(n):
        connections[0].write(b"\x32\x06\x00\x01t\x00\x01x")


class Thing:
    def method(self, a: int) -> int:
        return a


def part_call(n: int, buf: bytearray) -> None:
    thing = Thing()
    for _ in range(n):
        thing.method(1)


def part_slice(n: int, buf: bytearray) -> None:
    for _ in range(n):
        buf[0:64]


def main(what: str, size: int, n: int) -> None:
    act = {
        "part_sha256": part_sha256,
        "part_aead_key": part_aead_key,
        "part_aead": part_aead,
        "part_cbc": part_cbc,
        "part_ecb": part_ecb,
        "part_socket": part_socket,
        "part_write": part_write,
        "part_read": part_read,
        "part_call": part_call,
        "part_slice": part_slice,
    }[what]
    buf = bytearray(size)
    opened().write(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01p")
    connections[0].read(4)
    if what == "part_read":
        ask(BEFORE + MOST)
    act(BEFORE, buf)
    gc.collect()
    gc.disable()
    act(n, buf)


what, size, n, _ = sys.argv[2].split(",")
main(what, int(size), int(n))
_exit(0)
