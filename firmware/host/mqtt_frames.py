"""MQTT packets, read and written by hand, for the scripted peers."""

from __future__ import annotations

import socket


def frame(first: int, body: bytes) -> bytes:
    """An MQTT packet."""
    n = len(body)
    size = bytearray()
    while True:
        size.append(n & 127 | (128 if n > 127 else 0))
        n >>= 7
        if not n:
            return bytes((first,)) + bytes(size) + body


def text(raw: bytes) -> bytes:
    """An MQTT string."""
    return len(raw).to_bytes(2, "big") + raw


class ConnectionClosed(Exception):
    """The client is gone, or says what no client may."""


def exactly(sock: socket.socket, n: int) -> bytes:
    """The next n bytes. ConnectionClosed when they do not come."""
    out = b""
    while len(out) < n:
        piece = sock.recv(n - len(out))
        if not piece:
            raise ConnectionClosed("closed")
        out += piece
    return out


def read_packet(sock: socket.socket) -> tuple[bytes, int, bytes]:
    """(the whole packet, its first byte, its body)"""
    raw = exactly(sock, 2)
    n, shift = raw[1] & 127, 7
    while raw[-1] > 127:
        raw += exactly(sock, 1)
        n |= (raw[-1] & 127) << shift
        shift += 7
    body = exactly(sock, n)
    return raw + body, raw[0], body
