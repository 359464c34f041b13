"""What passes between the processes of one mediator: calls, their answers, and notices, which have
no answer.

A frame is a u32 length and that many bytes of JSON, `[kind, number, name, words]`. Bytes stand as
`{"%b": hex}`, a record as `{"%r": [its type, its fields]}`; only the types of RECORDS exist, and
each field is checked. Both ends are ours and run as one user; a frame that is wrong all the same
ends the connection, and with it the worker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any

from sealmq.families.records import FamilyRecord, ResetDone, TopicLabel, TopicReset
from sealmq.kglink import KgError
from sealmq.kgtypes import KINDS, Answer
from sealmq.site.errors import SiteError
from sealmq.store import StoreError, StoreUnavailable
from sealmq.store.errors import StoreCorrupt, StoreFull
from sealmq.store.records import (
    CacheBlob,
    KeptGone,
    KeptLeft,
    KeptSession,
    KeptSub,
    KeptSubGone,
    KeptSubs,
    SessionMark,
    WillGone,
    WillRecord,
)

log = logging.getLogger("sealmq.mediator")

# The largest is a whole snapshot of the key generator's.
MAX_FRAME = 256 * 1024 * 1024
# The other end has left so much unread: it hangs, and the connection is ended.
MAX_UNREAD = 2 * MAX_FRAME

_TYPES = (
    TopicLabel, TopicReset, ResetDone, FamilyRecord, SessionMark, CacheBlob, WillRecord, WillGone,
    KeptSession, KeptLeft, KeptGone, KeptSub, KeptSubGone, KeptSubs, Answer,
)  # fmt: skip
RECORDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in _TYPES}
_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda v: type(v) is int,
    "bool": lambda v: type(v) is bool,
    "str": lambda v: type(v) is str,
    "bytes": lambda v: type(v) is bytes,
    "bytes | None": lambda v: v is None or type(v) is bytes,
    "tuple[KeptSub, ...]": lambda v: type(v) is tuple and all(type(x) is KeptSub for x in v),
    "list[dict[str, Any]]": lambda v: type(v) is list and all(type(x) is dict for x in v),
}
_FAULTS: Mapping[str, type[StoreError]] = {
    kind.__name__: kind for kind in (StoreError, StoreUnavailable, StoreFull, StoreCorrupt)
}

CALL, ANSWER, FAULT, TELL = "call", "answer", "fault", "tell"


class Gone(Exception):
    """The other process has ended, or its connection broke."""


class BadFrame(Exception):
    """What came is no frame of ours."""


def pack(value: Any) -> bytes:
    """A frame's body. ValueError for what cannot be one."""
    body = json.dumps(value, default=_default, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(f"a frame of {len(body)} bytes, at most {MAX_FRAME} fit")
    return body


def unpack(body: bytes) -> Any:
    """The value of a body. Raises BadFrame."""
    try:
        return json.loads(body, object_hook=_hook)
    except (ValueError, TypeError, RecursionError) as error:
        # The error's text could quote keys.
        raise BadFrame(f"{len(body)} bytes that are no frame: {type(error).__name__}") from None


def _default(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"%b": value.hex()}
    name = type(value).__name__
    if RECORDS.get(name) is not type(value):
        raise ValueError(f"a {name} is not sent")
    return {"%r": [name, *(getattr(value, f.name) for f in fields(value))]}


def _hook(found: dict[str, Any]) -> Any:
    if found.keys() == {"%b"}:
        return bytes.fromhex(found["%b"])
    if found.keys() != {"%r"}:
        return found
    name, *words = found["%r"]
    kind = RECORDS[name] if name in RECORDS else None
    if kind is None:
        raise ValueError("no record's type")
    shape = fields(kind)
    made = []
    for field, word in zip(shape, words, strict=True):
        value = tuple(word) if str(field.type).startswith("tuple") else word
        if not _CHECKS[str(field.type)](value):
            raise ValueError("a field of another type")
        made.append(value)
    return kind(*made)


Handler = Callable[..., Any]


class Peer:
    """One end of a connection between two processes.

    `handlers`: by name, what a call or a notice does; they run in the order in which frames come. A
    call whose handler returns an awaitable is answered when that is done, and holds up nothing
    that comes after it.
    """

    def __init__(self, sock: socket.socket, handlers: Mapping[str, Handler]) -> None:
        self._sock, self._handlers = sock, handlers
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone: Gone | None = None

    async def open(self) -> None:
        """Before anything else."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._sock)

    async def run(self) -> str:
        """Reads until the other end is gone, and returns why. Open calls then fail with Gone."""
        reason = "the other process has closed the connection"
        reader = self._reader
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > MAX_FRAME:
                    raise BadFrame(f"a frame of {size} bytes, at most {MAX_FRAME} fit")
                await self._take(unpack(await reader.readexactly(size)))
        except asyncio.IncompleteReadError:
            pass
        except (BadFrame, OSError) as error:
            reason = str(error)
        finally:
            self._end(reason)
        return reason

    async def call(self, name: str, *words: Any) -> Any:
        """Calls the other end; its answer. Raises Gone, and StoreError, KgError or SiteError as it
        did.
        """
        self._number += 1
        number = self._number
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[number] = done
        try:
            self._send([CALL, number, name, words])
            return await done
        finally:
            self._calls.pop(number, None)

    def tell(self, name: str, *words: Any) -> None:
        """Sends a notice. Does nothing if the other end is gone."""
        if self._gone is None:
            self._send([TELL, 0, name, words])

    def close(self) -> None:
        """Ends the connection."""
        if self._writer is not None:
            self._writer.transport.abort()

    def _send(self, frame: list[Any]) -> None:
        if self._gone is not None or self._writer is None:
            raise self._gone or Gone("not connected yet")
        body = pack(frame)
        self._writer.write(len(body).to_bytes(4, "big") + body)
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD:
            self.close()

    async def _take(self, frame: Any) -> None:
        if not isinstance(frame, list) or len(frame) != 4:
            raise BadFrame("a frame that has no four parts")
        kind, number, name, words = frame
        if kind in (CALL, TELL) and isinstance(words, list) and name in self._handlers:
            self._handle(kind, number, self._handlers[name], words)
        elif kind in (ANSWER, FAULT):
            done = self._calls.get(number)
            if done is None or done.done():
                return
            if kind == ANSWER:
                done.set_result(words)
            else:
                done.set_exception(_error(words))
            # The caller goes on before the next frame is looked at, so that commits are applied in
            # the order in which they were answered.
            await asyncio.sleep(0)
        else:
            raise BadFrame("a frame of no known kind")

    def _handle(self, kind: str, number: int, handler: Handler, words: list[Any]) -> None:
        try:
            result = handler(*words)
        except Exception as error:
            self._fault(kind, number, error)
            return
        if isinstance(result, Awaitable):
            task = asyncio.ensure_future(self._finish(kind, number, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == CALL:
            self._reply([ANSWER, number, "", result])

    async def _finish(self, kind: str, number: int, work: Awaitable[Any]) -> None:
        try:
            result = await work
        except Exception as error:
            self._fault(kind, number, error)
        else:
            if kind == CALL:
                self._reply([ANSWER, number, "", result])

    def _fault(self, kind: str, number: int, error: Exception) -> None:
        if not isinstance(error, StoreError | KgError | SiteError | Gone):
            # The error's text could quote what the call worked on.
            log.error("a call of another process failed: %s", type(error).__name__)
        if kind == CALL:
            self._reply([FAULT, number, "", _told(error)])

    # The other end may be gone by now, and waits for nothing.
    def _reply(self, frame: list[Any]) -> None:
        if self._gone is None:
            self._send(frame)

    def _end(self, reason: str) -> None:
        self._gone = Gone(reason)
        self.close()
        for task in self._tasks:
            task.cancel()
        for done in self._calls.values():
            if not done.done():
                done.set_exception(Gone(reason))


def _told(error: Exception) -> list[Any]:
    if isinstance(error, StoreError):
        return ["store", type(error).__name__, str(error), error.hint]
    if isinstance(error, KgError):
        return ["kg", error.kind, str(error), error.hint]
    if isinstance(error, SiteError):
        return ["site", "", str(error), error.hint]
    return ["other", "", "it failed; the gateway's log says why", None]


def _error(words: Any) -> Exception:
    if not isinstance(words, list) or len(words) != 4:
        return Gone("an answer that makes no sense")
    of, kind, text, hint = words
    if of == "store":
        return _FAULTS.get(kind, StoreError)(text, hint)
    if of == "kg":
        return KINDS.get(kind, KgError)(text, hint)
    if of == "site":
        return SiteError(text, hint)
    return StoreUnavailable(text)
