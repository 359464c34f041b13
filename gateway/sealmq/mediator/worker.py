"""`python -m sealmq.mediator.worker SITE`: one worker of a mediator, started by its owner.

It has no store and no connection to the key generator: it asks its owner for both over one socket,
and connections come on another one. It dies with its owner, since nobody else tells it of new keys.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sealmq import garbage, logs, loops
from sealmq.audit.chain import Chain, NoChain, chain
from sealmq.families.api import FamilyError
from sealmq.families.attributes import Attribute
from sealmq.kgtypes import Answer, KgUnavailable
from sealmq.run.errors import BadHandOver
from sealmq.run.secrets import receive
from sealmq.site.config import loads
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout
from sealmq.store import (
    Held,
    KeptSession,
    StoreError,
    StoreRecord,
    StoreUnavailable,
    WillRecord,
)
from sealmq.store.store import Reader

from .acceptor import CHUNK
from .core.keyring import Keyring
from .core.limits import MAX_CONNECT_BODY
from .events import MissingExecutor
from .frames import Gone, Peer
from .shared import Begin, Mediates, Row, Shared
from .workers import own_sockets

log = logging.getLogger("sealmq.mediator")

_PR_SET_PDEATHSIG = 1
# Connections that are taken before others have a turn.
_AT_ONCE = 64


Build = Callable[[Begin, Shared], Awaitable[Mediates]]


class RemoteStore:
    """SharedStore: reads from the file itself, and the owner's writer."""

    def __init__(self, peer: Peer, reader: Reader, mine: Callable[[int], bool]) -> None:
        self._peer, self._reader, self._mine = peer, reader, mine
        self.records, self.sessions = reader.records, reader.sessions

    def wills(self) -> list[WillRecord]:
        return [will for will in self._reader.wills() if self._mine(will.client)]

    def kept(self) -> list[KeptSession]:
        return [kept for kept in self._reader.kept() if self._mine(kept.client)]

    async def commit(
        self, records: Sequence[StoreRecord], urgent: bool = False, part: str = ""
    ) -> list[Held]:
        try:
            rows = await self._peer.call("commit", records, urgent, part)
        except Gone as error:
            raise StoreUnavailable(str(error)) from None
        return [Held(*row) for row in rows]


class RemoteKg:
    """SharedKg: the owner's connection."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.lost = False

    async def answer(self, packet: bytes) -> Answer:
        answer: Answer = await self._call("answer", packet)
        return answer

    async def time(self, client: int, nonce: bytes, suite: int) -> bytes:
        blob: bytes = await self._call("time", client, nonce, suite)
        return blob

    async def confirm(self, client: int, gen: int) -> None:
        await self._call("confirm", client, gen)

    async def _call(self, name: str, *words: Any) -> Any:
        try:
            return await self._peer.call(name, *words)
        except Gone as error:
            raise KgUnavailable(str(error)) from None


class RemoteLocks:
    """SharedLocks: the owner's."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def take(self, rows: frozenset[Row]) -> bool:
        return bool(await self._peer.call("take", sorted(rows)))

    def free(self, rows: Iterable[Row]) -> None:
        self._peer.tell("free", sorted(rows))

    async def alone(self) -> None:
        await self._peer.call("alone")

    def together(self) -> None:
        self._peer.tell("together")


class Remote:
    """Shared (shared.py) over the socket."""

    def __init__(self, peer: Peer, reader: Reader, mine: Callable[[int], bool]) -> None:
        self._peer = peer
        self.store = RemoteStore(peer, reader, mine)
        self.kg, self.locks = RemoteKg(peer), RemoteLocks(peer)

    async def renew(self) -> Keyring | None:
        found = await self._peer.call("renew")
        return None if found is None else _ring_of(*found)

    async def reopened(self) -> None:
        with suppress(Gone):
            await self._peer.call("reopened")

    def passed(self, topic: str, ms: int, seq: int, origin: tuple[int, int] | None) -> None:
        self._peer.tell("passed", topic, ms, seq, origin)

    def took(self, topic: str, client: int, size: int) -> None:
        self._peer.tell("took", topic, client, size)

    def live(self, there: bool) -> None:
        self._peer.tell("live", there)

    def marked(self, worker: int, number: int) -> None:
        self._peer.tell("marked", worker, number)

    async def derived(self, rows: list[Attribute]) -> list[Attribute]:
        return [Attribute(*row) for row in await self._peer.call("derived", rows)]

    def inform(self, client: int, family: str, said: bytes) -> None:
        self._peer.tell("inform", client, family, said)

    def tell(self, news: dict[str, Any]) -> None:
        self._peer.tell("tell", news)


class WorkerEnd:
    """Does what the owner says. What comes before its mediator has been built waits for that."""

    def __init__(self, layout: Layout, broker: dict[str, Any], calls: socket.socket,
                 hand: socket.socket, build: Build,
                 chain: Chain | None = None) -> None:  # fmt: skip
        self._layout, self._broker, self._hand, self._build = layout, broker, hand, build
        self._chain = chain
        self._mediator: Mediates | None = None
        self._remote: Remote
        # What has come before all that came before it was done; None: it is done at once.
        self._early: deque[Callable[[], object]] | None = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: asyncio.Task[None] | None = None
        self._failed: Exception | None = None
        self._peer = Peer(
            calls,
            {
                "begin": self._begin,
                "stop": self._stop,
                "ping": lambda: None,
                "apply": self._apply,
                "attributes": self._attributes,
                "ring": self._ring,
                "ended": lambda: self._it().ended(),
                "reopened": lambda: self._it().reopened(),
                "config": self._config,
                "links": lambda *w: self._do(lambda: self._it().links_came(*w)),
                "kg": self._kg,
                "passed": self._passed,
                "took": lambda *w: self._do(lambda: self._it().took(*w)),
                "live": lambda *w: self._do(lambda: self._it().live(*w)),
                "marked": lambda *w: self._do(lambda: self._it().marked(*w)),
                "inform": lambda *w: self._do(lambda: self._it().inform(*w)),
            },
        )

    async def run(self) -> None:
        """Until the owner ends it, or is gone. Raises the error of a mediator that fails."""
        await self._peer.open()
        try:
            await self._peer.run()
        finally:
            if self._running is not None:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)
            if self._mediator is not None:
                await self._mediator.close()
        if self._failed is not None:
            raise self._failed

    def _it(self) -> Mediates:
        if self._mediator is None:
            raise Gone("not begun yet")
        return self._mediator

    def _do(self, what: Callable[[], object]) -> object:
        if self._early is None:
            return what()
        self._early.append(what)
        return None

    async def _begin(self, *words: Any) -> None:
        try:
            mediator = await self._built(*words)
            self._mediator = mediator
            # Meanwhile more may come, which is newer.
            while self._early:
                result = self._early.popleft()()
                if isinstance(result, Awaitable):
                    await result
            self._early = None
            garbage.started()
        except Exception as error:
            self._failed = error
            self._peer.close()
            raise
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(self._run(mediator), name="mediator")
        loop.add_reader(self._hand, self._take)

    async def _built(
        self, number: int, workers: int, inst: int, site: bytes, text: str, order: list[str],
        snapshot: dict[str, Any], fresh: list[Any], kg_there: bool, blind_ms: int,
    ) -> Mediates:  # fmt: skip
        ring = _ring_of(site, inst, snapshot, fresh)
        config = loads(text, self._layout.config)
        # Another one counts from the mediator's next start on, at all workers alike.
        config = replace(config, policy=replace(config.policy, order=tuple(order)))
        begin = Begin(
            self._layout, config, ring, number, workers, self._broker, kg_there, blind_ms,
            self._chain,
        )  # fmt: skip
        reader = Reader.open_readonly(self._layout.mediator_db)
        self._remote = Remote(self._peer, reader, begin.mine)
        self._remote.kg.lost = not kg_there
        return await self._build(begin, self._remote)

    async def _run(self, mediator: Mediates) -> None:
        try:
            await mediator.run()
        except Exception as error:
            self._failed = error
        self._peer.close()

    async def _stop(self) -> bool:
        asyncio.get_running_loop().remove_reader(self._hand)
        if self._mediator is None:
            return False
        await self._mediator.stop()
        return await self._mediator.written()

    def _apply(self, groups: list[Any]) -> object:
        def apply() -> None:
            for part, records in groups:
                self._it().apply(records, part)

        return self._do(apply)

    def _attributes(self, rows: list[Any]) -> object:
        told = [Attribute(*row) for row in rows]
        return self._do(lambda: self._it().take_attributes(told))

    def _ring(self, site: bytes, inst: int, snapshot: dict[str, Any], fresh: list[Any]) -> object:
        ring = _ring_of(site, inst, snapshot, fresh)
        return self._do(lambda: self._it().take_ring(ring))

    async def _config(self, text: str) -> None:
        # What takes it over may hold the loop: the owner has to know that before it begins.
        self._peer.tell("reloading", True)
        await asyncio.sleep(0)
        try:
            config = loads(text, self._layout.config)
            done = self._do(lambda: self._it().reload(config))
            if isinstance(done, Awaitable):
                await done
        finally:
            self._peer.tell("reloading", False)

    def _kg(self, there: bool) -> object:
        self._remote.kg.lost = not there
        return self._do(lambda: self._it().set_kg(there))

    def _passed(self, topic: str, ms: int, seq: int, origin: list[int] | None) -> object:
        was = None if origin is None else (origin[0], origin[1])
        return self._do(lambda: self._it().passed(topic, ms, seq, was))

    # --- connections ---

    def _take(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, fds, _, _ = socket.recv_fds(
                    self._hand, MAX_CONNECT_BODY + 2 * CHUNK, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                asyncio.get_running_loop().remove_reader(self._hand)
                return
            for fd in fds:
                sock = socket.socket(fileno=fd)
                sock.setblocking(False)
                task = asyncio.ensure_future(self._connect(sock, data))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _connect(self, sock: socket.socket, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(partial(self._it().connection, data), sock)
        except OSError:
            sock.close()


def _ring_of(site: bytes, inst: int, snapshot: dict[str, Any], fresh: list[Any]) -> Keyring:
    ring = Keyring(site, inst, snapshot)
    for client, links in fresh:
        ring.set_links(client, links)
    return ring


def die_with_owner() -> None:
    """Has the system kill this process with its owner, even while it is stopped."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


async def serve(layout: Layout, secrets: dict[str, Any], build: Build) -> None:
    """Until the owner ends it."""
    broker = secrets.get("broker")
    if not isinstance(broker, dict):
        raise BadHandOver("the hand-over names no broker")
    calls, hand = own_sockets()
    loop = asyncio.get_running_loop()
    # The owner ends it; the supervisor's signals are for the owner.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)
    await WorkerEnd(layout, broker, calls, hand, build, chain(secrets)).run()


def main(arguments: list[str] | None = None, build: Build | None = None) -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr otherwise."""
    arguments = sys.argv[1:] if arguments is None else arguments
    die_with_owner()
    garbage.starting()
    logs.begin("")
    os.umask(0o077)
    if len(arguments) != 1:
        print("usage: python -m sealmq.mediator.worker SITE", file=sys.stderr)
        return 2
    if build is None:
        from .running import build as build_mediator

        build = build_mediator
    try:
        loops.run(serve(Layout.open(Path(arguments[0])), receive(), build))
    except (
        SiteError,
        StoreError,
        BadHandOver,
        FamilyError,
        MissingExecutor,
        NoChain,
        KeyError,
        Gone,
        OSError,
    ) as error:
        print(str(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
