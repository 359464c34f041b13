"""`python -m sealmq.bridge.process SITE`: the bridge to one peer, started by `sealmq up`.

It has no key that opens a message, and no key of a label: those pass from key generator to key
generator, sealed for the other one. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from sealmq import logs, peerkeys
from sealmq.audit import Audit, AuditError
from sealmq.client import ClientError, Options
from sealmq.client.errors import ConnectRefused, Refused
from sealmq.client.values import Message
from sealmq.kglink import KgBad, KgClient, KgDenied, KgError, KgUnavailable
from sealmq.run import proc, ready
from sealmq.run.errors import BadHandOver
from sealmq.run.ready import Ready
from sealmq.run.secrets import receive
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout, write_atomically
from sealmq.site.model import Peer
from sealmq_spec.errors import SealError, Stale, Unavailable, WrongEpoch
from sealmq_spec.window import OLD, SEEN

from . import crossing, told
from .crossing import Crossing
from .line import (
    ANSWER,
    HELLO,
    KEYS,
    MESSAGE,
    PING,
    PING_S,
    PONG,
    TAKEN,
    Line,
    LineLost,
    Listener,
    Own,
    call,
)
from .passing import Passing, head
from .spool import Spool, Waiting

log = logging.getLogger("sealmq.bridge")

# Messages that the peer has not answered.
INFLIGHT = 64
_POLL_S = 1.0
# Between two tries to call a peer, at first and at most.
_WAIT_S = 0.5, 15.0
# The mediator may not have heard yet of keys that have come.
_KEYS_S = 10.0
_PUBLISH_S = 15.0


_HEALS = KgError, ClientError, SealError, LineLost, SiteError, OSError


class Changed(Exception):
    """What crosses is something else now, or nothing does."""


class Bridge:
    """One run with what crosses now; begun anew when that changes."""

    def __init__(
        self,
        layout: Layout,
        peer: Peer,
        rows: Sequence[dict[str, Any]],
        own: Own,
        kg: KgClient,
        audit: Audit,
    ) -> None:
        self._layout, self._peer, self._rows, self._own = layout, peer, rows, own
        self._site = peerkeys.read(own.der).site
        self._kg, self._audit = kg, audit
        self._in: dict[str, Passing] = {}
        self._out: dict[str, Passing] = {}
        self._numbers: dict[str, int] = {}
        self._theirs: dict[int, str] = {}
        self._their_site = b""
        self._dropped: Counter[str] = Counter()
        self._line: Line | None = None
        self._news = asyncio.Event()
        self._ours = asyncio.Event()  # the peer has taken our keys
        self._given: set[tuple[str, int]] = set()
        self._answered: dict[int, Waiting] = {}
        self._coming: set[tuple[bytes, int]] = set()
        self._queue: asyncio.Queue[Crossing] = asyncio.Queue(INFLIGHT)
        self._spool = Spool(
            layout.state_of(told.role_of(peer.name)) / "spool.db",
            lambda one, why: self._drop(one.topic, one.label, why),
        )
        self._said = "beginning"

    # --- life ---

    async def run(self) -> None:
        """Until cancelled. Changed, or KgError when the key generator is gone."""
        try:
            await self._clients()
            async with asyncio.TaskGroup() as group:
                for name, work in (
                    ("keys", self._keys()),
                    ("line", self._lines()),
                    ("publish", self._publish()),
                    ("tell", self._tell()),
                ):
                    group.create_task(work, name=f"bridge: {name}")
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            for client in (*self._out.values(), *self._in.values()):
                with contextlib.suppress(ClientError, SealError):
                    await client.disconnect()
            self._say("ended")
            self._spool.close()

    async def _clients(self) -> None:
        address = self._mediator()
        for row in self._rows:
            label, enrolment = row["label"], row["enrolment"]
            take = self._taker(label) if row["out"] else None
            if take is None:
                client = self._in[label] = Passing.of(enrolment, address, Options(), None)
            else:
                options = Options(client_id="bridge", clean=False)
                client = Passing.of(enrolment, address, options, take)
                self._out[label] = client
                self._numbers[label] = int(row["number"])
            try:
                await client.connect()
            except ConnectRefused:
                if not row["out"]:
                    raise
                # Its broker keeps no sessions: what comes while the bridge is away is lost.
                client = self._out[label] = Passing.of(enrolment, address, Options(), take)
                await client.connect()
                log.warning("%s: the broker keeps no session for it", label)
            if row["out"]:
                await client.subscribe("#", qos=1)

    def _mediator(self) -> tuple[str, int]:
        at = ready.read(self._layout, "mediator")
        if at is None or not at.ready:
            raise KgUnavailable("the mediator is not up")
        host, _, port = at.address.rpartition(":")
        host = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host)  # noqa: S104
        return host.strip("[]"), int(port)

    # --- from here to the peer ---

    def _taker(self, label: str) -> Any:
        def take(message: Message) -> None:
            try:
                head(message.payload)
                crossing.check(Crossing(0, 0, 1, bytes(4), 0, message.topic, b""), self._site)
            except SealError as error:
                self._drop(message.topic, label, str(error))
                return
            flags = min(message.qos, 1) << 1
            if head(message.payload).kind:
                flags |= 1
            self._spool.put(label, message.topic, flags, message.payload)
            self._news.set()

        return take

    async def _send(self, line: Line) -> None:
        last = 0
        self._answered.clear()
        while True:
            await self._ours.wait()
            some = self._spool.after(last, INFLIGHT - len(self._answered))
            if not some:
                self._news.clear()
                await self._news.wait()
                continue
            for one in some:
                # Keys first: what comes before them is refused there.
                epoch = head(one.m1).epoch
                if (one.label, epoch) not in self._given:
                    await self._give(line)
                    await self._ours.wait()
                    self._given.add((one.label, epoch))
                last = one.seq
                number = self._numbers.get(one.label)
                if number is None:
                    self._end(one, "its label is not exported any more")
                    continue
                self._answered[one.seq] = one
                site = self._site
                body = Crossing(one.seq, one.flags, 1, site, number, one.topic, one.m1).pack()
                line.send(MESSAGE, body)
            await line.flush()

    def _answer(self, body: bytes) -> None:
        seq, code, reason = crossing.read_answer(body)
        one = self._answered.pop(seq, None)
        if one is None:
            return
        if code == crossing.OK:
            self._spool.done(seq)
        else:
            self._end(one, f"{self._peer.name}: {reason}")
        self._news.set()

    def _end(self, one: Waiting, why: str) -> None:
        self._spool.done(one.seq)
        self._drop(one.topic, one.label, why)

    def _drop(self, topic: str, label: str, why: str) -> None:
        self._dropped[why.partition(":")[0][:60]] += 1
        self._audit.write(
            "bridge-dropped", peer=self._peer.name, topic=topic, label=label, reason=why
        )

    # --- from the peer ---

    # Begun in their order, so that they leave in it.
    async def _publish(self) -> None:
        room = asyncio.Semaphore(INFLIGHT)
        async with asyncio.TaskGroup() as group:
            while True:
                await room.acquire()
                one = await self._queue.get()
                task = group.create_task(self._one(one, self._line), name="bridge: message")
                task.add_done_callback(lambda _: room.release())

    async def _one(self, one: Crossing, line: Line | None) -> None:
        code, reason = await self._take(one)
        if self._line is line and line is not None:
            line.send(ANSWER, crossing.answer(one.seq, code, reason))

    async def _take(self, one: Crossing) -> tuple[int, str]:
        """What the peer is told of it."""
        try:
            crossing.check(one, self._site)
            said = head(one.m1)
            label = self._theirs.get(one.label)
            if label is None or one.site != self._their_site:
                return self._refused(one, "not exported: nothing of that label comes from there")
            origin = one.site + said.origin
            seen = self._spool.look(origin, said.ctr)
            if seen == SEEN:
                return crossing.OK, ""
            if seen == OLD:
                return self._refused(one, "late: 64 and more of its sender came before it")
            which = origin, said.ctr
            while which in self._coming:  # twice at once: the second waits for what becomes of it
                await asyncio.sleep(0.05)
                if self._spool.look(origin, said.ctr) == SEEN:
                    return crossing.OK, ""
            self._coming.add(which)
            try:
                await self._pass_on(label, one)
                self._spool.came(origin, said.ctr)
            finally:
                self._coming.discard(which)
        except SealError as error:
            return self._refused(one, str(error))
        return crossing.OK, ""

    async def _pass_on(self, label: str, one: Crossing) -> None:
        """SealError: it will never be taken. What may heal is waited for."""
        topic = f"@{self._peer.name}/{one.topic}"
        begun = time.monotonic()
        while True:
            try:
                qos, retain = one.flags >> 1 & 1, bool(one.flags & 1)
                await self._in[label].pass_on(topic, one.m1, max(qos, 1), retain, _PUBLISH_S)
                return
            except WrongEpoch:
                if time.monotonic() - begun > _KEYS_S:
                    raise
            except Stale:
                raise
            except Refused as error:
                if not isinstance(error, Unavailable):
                    raise
            except ClientError as error:
                log.info("publishing again: %s", error)
            await asyncio.sleep(0.2)

    def _refused(self, one: Crossing, why: str) -> tuple[int, str]:
        self._drop(f"@{self._peer.name}/{one.topic}", self._theirs.get(one.label, "-"), why)
        return crossing.DROPPED, why

    # --- keys ---

    async def _keys(self) -> None:
        """Gives the peer new keys as they are made, and sees when nothing crosses any more."""
        held = 0
        while True:
            line = self._line
            if line is None:
                now, _ = await self._kg.peer_enrol(self._peer.name)
            else:
                _, kseq, now = await self._kg.peer_give(self._peer.name, line.peer)
                if kseq != held:
                    held = kseq
                    await self._give(line)
            if now != self._peer:
                raise Changed
            for client in (*self._out.values(), *self._in.values()):
                if client.error is not None:
                    raise client.error
            await asyncio.sleep(_POLL_S)

    async def _give(self, line: Line) -> None:
        packet, _, _ = await self._kg.peer_give(self._peer.name, line.peer)
        self._ours.clear()
        line.send(KEYS, packet)
        await line.flush()

    async def _took(self, line: Line, packet: bytes) -> None:
        numbers = await self._kg.peer_take(self._peer.name, line.peer, packet)
        self._theirs = {number: label for label, number in numbers.items() if label in self._in}
        self._their_site = peerkeys.read(line.peer).site
        line.send(TAKEN)

    # --- the line ---

    async def _lines(self) -> None:
        if self._peer.listen is None:
            await self._calling()
            return
        async with Listener(self._own, self._peer, self._hear).serving() as listener:
            self._say("waiting for its call")
            line = await listener.next()
            while True:
                serving = asyncio.create_task(self._serve(line), name="bridge: serve")
                try:
                    # A newer line takes the place of one that hangs.
                    line = await listener.next()
                finally:
                    serving.cancel()
                    await asyncio.gather(serving, return_exceptions=True)
                _raise(serving)

    async def _calling(self) -> None:
        wait = _WAIT_S[0]
        while True:
            try:
                line = await call(self._own, self._peer)
                wait = _WAIT_S[0]
                await self._serve(line)
            except LineLost as error:
                self._say(str(error))
            await asyncio.sleep(wait)
            wait = min(2 * wait, _WAIT_S[1])

    def _hear(self, what: str) -> None:
        log.info("%s", what)

    async def _serve(self, line: Line) -> None:
        """One line, until it is lost."""
        self._line = line
        self._ours.clear()
        self._given.clear()
        self._audit.write("bridge-up", peer=self._peer.name)
        self._say("up")
        why = "ended"
        try:
            await self._give(line)
            async with asyncio.TaskGroup() as group:
                for work in (self._read(line), self._send(line), self._beat(line)):
                    group.create_task(work, name="bridge: line")
        except BaseExceptionGroup as errors:
            error = _first(errors)
            why = str(error)
            if not isinstance(error, LineLost | SealError | KgDenied | KgBad):
                raise error from None
        finally:
            self._line = None
            while not self._queue.empty():
                self._queue.get_nowait()
            await line.close()
            self._audit.write("bridge-down", peer=self._peer.name, reason=why)
            self._say(why)

    async def _read(self, line: Line) -> None:
        while True:
            kind, body = await line.receive()
            if kind == MESSAGE:
                await self._queue.put(crossing.unpack(body))
            elif kind == ANSWER:
                self._answer(body)
            elif kind == KEYS:
                await self._took(line, body)
            elif kind == TAKEN:
                self._ours.set()
            elif kind == PING:
                line.send(PONG)
            elif kind not in (HELLO, PONG):
                raise LineLost(f"a frame of type {kind}")

    async def _beat(self, line: Line) -> None:
        while True:
            await asyncio.sleep(PING_S)
            line.send(PING)

    # --- what it tells ---

    def _say(self, line: str) -> None:
        if line != self._said:
            self._said = line
            log.info("line: %s", line)
        self._write()

    async def _tell(self) -> None:
        while True:
            self._write()
            await asyncio.sleep(_POLL_S)

    def _write(self) -> None:
        write_told(self._layout, self._peer.name, self._said, self._spool.count, self._dropped)


def write_told(
    layout: Layout, peer: str, line: str, waiting: int = 0, dropped: Counter[str] | None = None
) -> None:
    """For `sealmq peer list`."""
    said = {
        "pid": os.getpid(),
        "start": proc.start_of(os.getpid()),
        "line": line,
        "waiting": waiting,
        "dropped": dict(dropped or {}),
    }
    path = layout.run_of(told.role_of(peer)) / "line.json"
    write_atomically(path, json.dumps(said).encode() + b"\n", 0o644)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _raise(task: asyncio.Task[None]) -> None:
    if task.done() and not task.cancelled() and task.exception() is not None:
        raise task.exception() or RuntimeError("no exception")


async def _forever(layout: Layout, name: str, key: bytes, der: bytes) -> None:
    role = told.role_of(name)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    audit = Audit(layout.audit(role), "bridge", os.getpid(), peerkeys.read(der).site.hex())
    ready.write(
        layout, Ready(role, os.getpid(), name, True), user=pwd.getpwuid(os.geteuid()).pw_name
    )
    audit.write("start", name=name)
    work = asyncio.create_task(_again(layout, name, Own(der, key), audit), name="bridge")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, stopping):
            task.cancel()
        await asyncio.gather(work, stopping, return_exceptions=True)
        ready.forget(layout, role)
        audit.write("stop")
        audit.close()


# Whatever fails is tried again: what the site lacks may come back.
async def _again(layout: Layout, name: str, own: Own, audit: Audit) -> None:
    wait, said = _WAIT_S[0], ""
    while True:
        begun = time.monotonic()
        try:
            await _once(layout, name, own, audit)
        except Changed:
            log.info("what crosses has changed")
            continue
        except (*_HEALS, sqlite3.Error) as error:
            if str(error) != said:
                said = str(error)
                log.warning("%s; it is tried again", said)
            write_told(layout, name, str(error))
        if time.monotonic() - begun > _WAIT_S[1]:
            wait = _WAIT_S[0]
        await asyncio.sleep(wait)
        wait = min(2 * wait, _WAIT_S[1])


async def _once(layout: Layout, name: str, own: Own, audit: Audit) -> None:
    async with await KgClient.connect(layout.kg_socket) as kg:
        peer, rows = await kg.peer_enrol(name)
        await Bridge(layout, peer, rows, own, kg, audit).run()


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr otherwise."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logs.begin("bridge: ")
    os.umask(0o077)
    if len(arguments) != 1:
        print("usage: python -m sealmq.bridge.process SITE", file=sys.stderr)
        return 2
    try:
        layout = Layout.open(Path(arguments[0]))
        name, key, der = _handed(receive())
        work: Coroutine[Any, Any, None] = _forever(layout, name, key, der)
        asyncio.run(work)
    except (SiteError, KgError, BadHandOver, AuditError, OSError) as error:
        print(f"bridge: {error}", file=sys.stderr)
        return 1
    return 0


def _handed(secrets: dict[str, object]) -> tuple[str, bytes, bytes]:
    try:
        name, key, der = (str(secrets[word]) for word in ("peer", "line", "certificate"))
        return name, bytes.fromhex(key), bytes.fromhex(der)
    except (KeyError, ValueError):
        raise BadHandOver("the hand-over holds no line key") from None


if __name__ == "__main__":
    sys.exit(main())
