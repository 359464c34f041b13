"""The key generator's unix socket: frames in, frames out; who asks is SO_PEERCRED's word.

Who has no role here is sent away at once. Each user has places of its own, and its connection that
has been idle longest makes place for one more, so nobody keeps another one out. Every read is
bounded and every frame has a deadline; what is garbage gets a clear error and touches nobody else.
Operations run one after another in one thread, so an fsync never stalls the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sealmq.kglink import MAX_FRAME
from sealmq.site import borders
from sealmq.site.layout import Layout
from sealmq.unix import credentials, short_path

from .errors import KgRefusal
from .ops import ADMIN, BORDER, BRIDGE, MEDIATOR, Ops, Peer

log = logging.getLogger("sealmq.kg")

_FRAME_S = 10.0
# Of one user. Six have a role at most: we, the mediator's, root, the site's owner, bridge, borders.
# All borders are one user's, and without separate users all processes and commands are: none of
# those that stay may be the one that makes place.
_MAX_CONNECTIONS = 16 + borders.MOST
# A watcher that does not read its events is dropped before they pile up.
_MAX_UNREAD = 1 << 20
# Whoever watches is shown what `changed` gives that role.
_WATCHES = {"watch": MEDIATOR, "peer-watch": BRIDGE, "border-watch": BORDER}


class TooMuch(Exception):
    """A frame that cannot be skipped; the connection has to end."""


class Connection:
    """One peer. `watching`: as which role it gets events, "" for none. `busy`: an operation of its
    is under way.
    """

    def __init__(self, peer: Peer, writer: asyncio.StreamWriter) -> None:
        self.peer, self.writer = peer, writer
        self.watching, self.busy = "", False

    def send(self, frame: dict[str, Any]) -> None:
        """Queue a frame."""
        body = json.dumps(frame, separators=(",", ":")).encode()
        if len(body) > MAX_FRAME:
            error = KgRefusal(f"the answer has {len(body)} bytes; at most {MAX_FRAME} fit")
            body = json.dumps(_refused(int(frame.get("id", 0)), error)).encode()
        self.writer.write(len(body).to_bytes(4, "big") + body)


class Server:
    """Serves `ops` on run/kg/kg.sock. `worker` is the one thread in which they run."""

    def __init__(self, layout: Layout, ops: Ops, worker: ThreadPoolExecutor) -> None:
        self._layout, self._ops, self._worker = layout, ops, worker
        # Those of each user, the one that was idle longest first.
        self._connections: dict[int, dict[Connection, None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Who may connect is decided then, what it may do for each request."""
        path = self._layout.kg_socket
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(path) as short:
            sock.bind(short)
        self._open_to_roles(path)
        self._server = await asyncio.start_unix_server(self._accept, sock=sock)

    # The kernel keeps out whom it can; SO_PEERCRED decides in any case. Root needs no permission.
    def _open_to_roles(self, path: Path) -> None:
        others = {self._layout.root.stat().st_uid, self._layout.state_of("mediator").stat().st_uid}
        for role in (BRIDGE, BORDER):
            state = self._layout.state_of(role)
            if state.is_dir():
                others.add(state.stat().st_uid)
        os.chmod(path, 0o600 if others <= {0, os.geteuid()} else 0o666)

    async def stop(self) -> None:
        """Close everything; the socket's file is removed."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._layout.kg_socket)

    def changed(self, kseq: int, client: int | None) -> None:
        """Tell everyone who watches: mediators of each client, bridges and borders of none, only
        that keys or the policy may be others now.
        """
        event: dict[str, Any] = {"event": "changed", "kseq": kseq}
        if client is not None:
            event["client"] = client
        across = {"event": "now", "kseq": kseq, "policy": self._ops.policy_digest}
        for connection in [one for row in self._connections.values() for one in row]:
            if connection.watching == MEDIATOR:
                connection.send(event)
            elif connection.watching and client is None:
                connection.send(across)
            else:
                continue
            if connection.writer.transport.get_write_buffer_size() > _MAX_UNREAD:
                log.warning("a watcher (pid %d) does not read; dropped", connection.peer.pid)
                connection.writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        task.set_name("kg-connection")
        self._tasks.add(task)
        connection = Connection(_peer(writer, self._layout), writer)
        uid = connection.peer.uid
        row = self._connections.get(uid, {})
        try:
            if not self._admit(connection, row):
                return
            self._connections[uid] = row
            row[connection] = None
            self._told()
            await self._serve(connection, reader)
        except (OSError, TimeoutError, TooMuch, asyncio.IncompleteReadError) as error:
            log.info("connection of pid %d ends: %s", connection.peer.pid, _reason(error))
        finally:
            row.pop(connection, None)
            if not row and self._connections.get(uid) is row:
                del self._connections[uid]
            self._told()
            self._tasks.discard(task)
            writer.close()

    # The operations run in another thread.
    def _told(self) -> None:
        self._ops.peers = tuple(one.peer for row in self._connections.values() for one in row)

    def _admit(self, connection: Connection, row: dict[Connection, None]) -> bool:
        peer = connection.peer
        if not peer.roles:
            log.info("user %s (pid %d) has no role here and was sent away", peer.user, peer.pid)
            error = KgRefusal(
                f"user {peer.user} has no role here",
                "only root, the site's owner and its own processes may ask the key generator",
            )
            error.kind = "denied"
            connection.send(_refused(0, error))
            return False
        if len(row) < _MAX_CONNECTIONS:
            return True
        for other in row:
            if not other.busy and not other.watching:
                other.writer.transport.abort()
                row.pop(other)
                return True
        connection.send(_refused(0, KgRefusal(f"user {peer.user} has too many connections")))
        return False

    async def _serve(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        row = self._connections[connection.peer.uid]
        # Whoever connects has something to ask; between two questions it may take its time.
        patience: float | None = _FRAME_S
        while True:
            async with asyncio.timeout(patience):
                first = await reader.read(1)
            if not first:
                return
            patience = None
            async with asyncio.timeout(_FRAME_S):
                size = int.from_bytes(first + await reader.readexactly(3), "big")
                if size > MAX_FRAME:
                    error = KgRefusal(f"a frame of {size} bytes; at most {MAX_FRAME} fit")
                    error.kind = "bad"
                    connection.send(_refused(0, error))
                    raise TooMuch(str(error))
                body = await reader.readexactly(size)
            connection.busy = True
            connection.send(await self._one(connection, body))
            async with asyncio.timeout(_FRAME_S):
                await connection.writer.drain()
            connection.busy = False
            if connection in row:
                row[connection] = row.pop(connection)

    async def _one(self, connection: Connection, body: bytes) -> dict[str, Any]:
        number = 0
        try:
            request = _request(body)
            number = request["id"] if type(request.get("id")) is int else 0
            role = _WATCHES.get(str(request.get("op")), "")
            if role in connection.peer.roles:
                connection.watching = role
            answer = await asyncio.get_running_loop().run_in_executor(
                self._worker, self._ops.run, connection.peer, request.get("op"), request
            )
        except KgRefusal as error:
            if error.kind != "changed":
                log.info("refused to pid %d: %s", connection.peer.pid, error)
            return _refused(number, error)
        except Exception as error:
            # A defect of ours; its text could quote what it worked on.
            log.error("operation failed: %s", type(error).__name__)
            return _refused(number, KgRefusal("internal error of the key generator"))
        return {"id": number, "ok": True, **answer}


def _request(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        error = KgRefusal(f"{len(body)} bytes that are no JSON object")
        error.kind = "bad"
        raise error
    return request


def _refused(number: int, error: KgRefusal) -> dict[str, Any]:
    frame = {"id": number, "ok": False, "code": error.kind, "error": str(error)}
    if error.hint:
        frame["hint"] = error.hint
    return frame


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no whole frame in {_FRAME_S:.0f} s"
    if isinstance(error, asyncio.IncompleteReadError):
        return "it closed in the middle of a frame"
    return str(error) or type(error).__name__


def _peer(writer: asyncio.StreamWriter, layout: Layout) -> Peer:
    pid, uid, _ = credentials(writer.get_extra_info("socket"))
    return Peer(pid, uid, roles_of(uid, layout))


def roles_of(uid: int, layout: Layout, own: int | None = None) -> frozenset[str]:
    """What a user may do: state/mediator's owner is a mediator, root and SITE's owner administer.

    Whoever runs as our own user (`own`) is a mediator too: then the processes share one user, and
    it could read our files anyway.
    """
    roles = set()
    ours = os.geteuid() if own is None else own
    if uid in (ours, layout.state_of("mediator").stat().st_uid):
        roles.add(MEDIATOR)
    if uid in (0, layout.root.stat().st_uid):
        roles.add(ADMIN)
    for role in (BRIDGE, BORDER):
        state = layout.state_of(role)
        if uid == ours or (state.is_dir() and uid == state.stat().st_uid):
            roles.add(role)
    return frozenset(roles)
