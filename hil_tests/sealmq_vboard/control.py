"""The control interface: DIR/control.sock, one JSON object a line each way.

{"do": …} as board.py's `ctl_here` and child.py's `ctl` have it; {"ok": true, …} or {"ok": false,
"error": …}. Its owner alone may use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .errors import BoardError

_NAME = "control.sock"
_LINE = 1 << 16
_ANSWER_S = 60.0


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """The socket's path, short enough for the kernel however long the folder's is."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{_NAME}"
    finally:
        os.close(fd)


async def serve(
    folder: Path, ctl: Callable[[dict[str, Any]], dict[str, Any]], up: asyncio.Event
) -> None:
    """Until cancelled; `up` is set when it can be asked."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                writer.write(json.dumps(_answer(line, ctl)).encode() + b"\n")
                await writer.drain()
        writer.close()

    (folder / _NAME).unlink(missing_ok=True)  # of a board that was killed
    listener = socket.socket(socket.AF_UNIX)
    with _short(folder) as path:
        listener.bind(path)
        # Nobody is let in before it listens.
        os.chmod(path, 0o600)
    server = await asyncio.start_unix_server(client, sock=listener, limit=_LINE)
    up.set()
    try:
        async with server:
            await server.serve_forever()
    finally:
        (folder / _NAME).unlink(missing_ok=True)


def _answer(line: bytes, ctl: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except ValueError:
        return {"ok": False, "error": "no JSON"}
    if not isinstance(request, dict):
        return {"ok": False, "error": "no JSON object"}
    return ctl(request)


def ask(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One request to a running board. BoardError: it does not run, or it refuses."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_ANSWER_S)
        try:
            with _short(folder) as path:
                client.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise BoardError(
                f"{folder} is no running board", hint=f"sealmq vboard run {folder}"
            ) from None
        with client.makefile("rwb") as stream:
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
            line = stream.readline()
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        raise BoardError(f"{folder} gave no answer: it has ended meanwhile") from None
    if not found.get("ok"):
        raise BoardError(str(found.get("error", "refused")))
    return found
