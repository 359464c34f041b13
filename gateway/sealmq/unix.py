"""Unix sockets: paths of any length, and a connection to a server whose queue is short."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterator

_MOST = 107
_CRED = struct.Struct("3i")
# A server takes those that wait at its next turn.
_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


@contextlib.contextmanager
def short_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """A name of at most 107 bytes for a unix socket anywhere (unix(7) takes no longer one)."""
    name = os.fspath(path)
    if len(os.fsencode(name)) <= _MOST:
        yield name
        return
    folder = os.open(os.path.dirname(name), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(name)}"
    finally:
        os.close(folder)


def credentials(sock: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other end: the kernel's word (unix(7), SO_PEERCRED)."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size)
    pid, uid, gid = _CRED.unpack(raw)
    return pid, uid, gid


async def connected(path: str | os.PathLike[str]) -> socket.socket:
    """A connected socket, which does not block. OSError; waits while the server's queue is full.

    Where asyncio connects, a full queue (ten connections of Mosquitto's) passes for a connection
    that is made, and the first write to it fails (connect(2), EAGAIN).
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        pause = _PAUSE_S
        while True:
            with contextlib.suppress(BlockingIOError), short_path(path) as short:
                sock.connect(short)
                return sock
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
    except BaseException:
        sock.close()
        raise
