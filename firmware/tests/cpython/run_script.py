"""Runs a device script under CPython, the oracle: `run_script.py SCRIPT ARGUMENTS`.

CPython gets what MicroPython has besides: `micropython`, the u-modules, ticks, and sockets that
read exactly and write from an offset, tasks that wait for them. The cipher backend is the scripted
peer's.
"""

from __future__ import annotations

import binascii
import errno
import runpy
import socket
import struct
import sys
import time
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("firmware", "shared_spec", "build/micropython/lib", "firmware/host")


class Socket(socket.socket):
    """A socket with MicroPython's stream methods."""

    def readinto(self, buf: Any) -> int | None:
        """How many bytes were read: len(buf), less at the end; None when none are there yet."""
        view = memoryview(buf)
        done = 0
        while done < len(view):
            try:
                n = self.recv_into(view[done:])
            except BlockingIOError:
                return done or None
            except TimeoutError as error:
                raise OSError(errno.ETIMEDOUT) from error
            if not n:
                break
            done += n
        return done

    def recv(self, n: int, flags: int = 0) -> bytes:
        """What is there, at most n bytes."""
        try:
            return super().recv(n, flags)
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT) from error

    def write(self, buf: Any, at: int = 0, n: int | None = None) -> int | None:
        """Sends buf[at:at+n]; how much of it went out, None: nothing yet."""
        view = memoryview(buf)[at:]
        if n is not None:
            view = view[:n]
        if self.gettimeout() == 0:
            try:
                return self.send(view)
            except BlockingIOError:
                return None
        self.sendall(view)
        return len(view)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


# asyncio takes longer to load than most scripts to run, so those load it that wait.


async def readable(sock: socket.socket) -> None:
    """As waiting.py's."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(sock)


async def writable(sock: socket.socket) -> None:
    """As waiting.py's."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(sock, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(sock)


def module(name: str, **content: Any) -> None:
    """Makes a module importable."""
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


def main() -> None:
    """Sets the interpreter up and runs the script."""
    sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]
    ticks = 1 << 30
    vars(time)["ticks_ms"] = lambda: time.monotonic_ns() // 1_000_000 % ticks
    vars(time)["ticks_add"] = lambda a, b: (a + b) % ticks
    module("micropython", const=lambda value: value)
    module("ustruct", **vars(struct))
    module("ubinascii", **vars(binascii))
    vars(sys)["print_exception"] = lambda error: traceback.print_exception(error, file=sys.stdout)
    vars(socket)["socket"] = Socket
    module("usocket", **vars(socket))
    from peer_site import make
    from sealmq_spec.b64 import put_b64u

    module("sealmq_device.aead", make=make)
    module("sealmq_device.text64", put_b64u=put_b64u)
    module("sealmq_device.waiting", readable=readable, writable=writable)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
