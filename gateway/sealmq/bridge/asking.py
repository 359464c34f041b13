"""The bridge's socket: questions to its judge. A JSON object a line, and one as the answer.

Who asks is SO_PEERCRED's word: root, the site's owner, and we ourselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from sealmq.families.between import BadQuestion
from sealmq.site.layout import Layout
from sealmq.unix import credentials, short_path

from .told import MOST, ROLE

_LINE_S = 10.0
_CONNECTIONS = 16
_QUESTION = 1 << 16


class Asking:
    """answer: to an operation and its fields. BadQuestion."""

    def __init__(
        self, layout: Layout, answer: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    ) -> None:
        self._layout, self._answer = layout, answer
        self._path = layout.run_of(ROLE) / "ask.sock"
        self._open = 0

    async def serve(self) -> None:
        """Until cancelled. OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(self._path) as short:
            sock.bind(short)
        self._path.chmod(0o600 if self._may() <= {0, os.geteuid()} else 0o666)
        server = await asyncio.start_unix_server(self._accept, sock=sock, limit=_QUESTION)
        try:
            await server.serve_forever()
        finally:
            server.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    def _may(self) -> set[int]:
        return {0, os.geteuid(), self._layout.root.stat().st_uid}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            _, uid, _ = credentials(writer.get_extra_info("socket"))
            if self._open <= _CONNECTIONS and uid in self._may():
                await self._serve(reader, writer)
        except (OSError, TimeoutError, ValueError):
            return  # a line that is too long, or none
        finally:
            self._open -= 1
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(_LINE_S):
                line = await reader.readline()
            if not line.endswith(b"\n"):
                return
            body = json.dumps(self._one(line)).encode()
            if len(body) >= MOST:
                body = json.dumps({"ok": False, "error": "the answer is too long"}).encode()
            writer.write(body + b"\n")
            async with asyncio.timeout(_LINE_S):
                await writer.drain()

    def _one(self, line: bytes) -> dict[str, Any]:
        try:
            said = json.loads(line)
            op = said.pop("op")
            if not isinstance(op, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {"ok": False, "error": "a question is a JSON object with an op"}
        try:
            return {"ok": True, **self._answer(op, said)}
        except BadQuestion as error:
            return {"ok": False, "error": str(error)}
