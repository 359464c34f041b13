"""Ports for servers that a test starts."""

from __future__ import annotations

import itertools
import os
import socket

# Each pytest worker has a range of its own below the ephemeral ports (32768 up), and a number comes
# again only after all others: it stays ours between this call and the listener that takes it.
_RANGE = 1000
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 20
_FIRST = 11_000 + _RANGE * _WORKER
_ports = (_FIRST + (os.getpid() + n) % _RANGE for n in itertools.count())


def free_port() -> int:
    """A port on loopback that nobody listens on right now."""
    for port in _ports:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the ports never end")
