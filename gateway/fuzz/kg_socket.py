"""The key generator's socket: frames from any local user, against a real store in memory.

An input is a stream of frames. Every answer is a frame of its own with a plain refusal or a result;
"internal error" counts as a finding. What an input writes is undone behind it, so each one stands
for itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, cast

from sealmq.aead import make
from sealmq.cli.main import main
from sealmq.kg.core import Kg
from sealmq.kg.ops import ADMIN, MEDIATOR, Ops, Peer
from sealmq.kg.server import Connection, Server, TooMuch
from sealmq.kg.store import KgStore
from sealmq.kglink import MAX_FRAME
from sealmq.site import masterkey
from sealmq.site.config import load
from sealmq.site.layout import Layout
from sealmq_spec import provision

from .target import Draw, Finding, Target

_ROLES = ((MEDIATOR, ADMIN), (MEDIATOR,), (ADMIN,), ())
# The site's tables, whole, behind any input.
_MOST_PAGES = 4096


class _Inline(ThreadPoolExecutor):
    """Runs at once, so that an input's work is done when its answer is there."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class _Writer:
    """What a connection writes."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        """Nothing waits."""


class Fuzz(Target):
    """Frames to the server's own loop; the store is a real one on tmpfs."""

    longest: ClassVar[int] = 1024
    words: ClassVar[tuple[bytes, ...]] = tuple(
        json.dumps(word).encode()
        for word in (
            "op", "id", "hello", "snapshot", "answer", "time", "watch", "confirm", "reload",
            "rekey", "enrol", "lend", "clients", "labels", "status", "mediator", "at", "kseq",
            "packet", "client", "nonce", "suite", "gen", "handover_s", "below", "names", "low", "a",
            "reopen", "store",
        )
    )  # fmt: skip

    def __init__(self) -> None:
        logging.getLogger("sealmq").setLevel(logging.CRITICAL)
        # The runner puts it on tmpfs, and removes it: libFuzzer ends a process without a word.
        self._folder = Path(tempfile.mkdtemp(prefix="sealmq-fuzz-"))
        site, key = self._folder / "site", self._folder / "site.key"
        with redirect_stdout(StringIO()):
            if main(["init", str(site), "--key-file", str(key), "--example", "factory"]) != 0:
                raise Finding("no site to try")
        self._layout = Layout.open(site)
        self._config = load(self._layout.config)
        kg_key = masterkey.role_keys(self._layout, self._config).kg
        self._store = KgStore.open(self._layout.kg_db, kg_key, self._config.site.id)
        kg = Kg(self._store, self._config)
        kg.apply(self._config)
        self._clients = [row["name"] for row in kg.clients()]
        self._labels = list(self._config.labels)
        self._enrolment = kg.enrol(self._clients[0])
        self._loop = asyncio.new_event_loop()
        self._pristine = sqlite3.connect(":memory:")
        self._raw.backup(self._pristine)
        self._fresh()

    @property
    def _raw(self) -> sqlite3.Connection:
        """The store's one connection."""
        with vars(self._store)["_engine"].connect() as connection:
            return cast(sqlite3.Connection, connection.connection.driver_connection)

    def _fresh(self) -> None:
        """The key generator as it was, and how much it has written by now."""
        kg = Kg(self._store, self._config)
        ops = Ops(kg, self._layout.config, lambda event, **fields: None)
        self._server = Server(self._layout, ops, _Inline(1))
        self._writes = self._raw.total_changes

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        roles, framed = draw.pick(_ROLES), draw.number() % 2 == 0
        body = draw.rest()
        if framed:
            frames = body.split(b"\n")
            body = b"".join(len(f).to_bytes(4, "big") + f for f in frames)
        writer = _Writer()
        peer = Peer(1, 12345, frozenset(roles))
        self._loop.run_until_complete(self._serve(peer, writer, body))
        self._answers(bytes(writer.written))
        if self._raw.total_changes != self._writes:
            if self._raw.execute("PRAGMA page_count").fetchone()[0] > _MOST_PAGES:
                raise Finding("one input has made the store grow")
            self._pristine.backup(self._raw)
            self._fresh()

    async def _serve(self, peer: Peer, writer: _Writer, body: bytes) -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(body)
        reader.feed_eof()
        connection = Connection(peer, cast(asyncio.StreamWriter, writer))
        vars(self._server)["_connections"][peer.uid] = {connection: None}
        try:
            await vars(Server)["_serve"](self._server, connection, reader)
        except (TooMuch, asyncio.IncompleteReadError):
            return

    def _answers(self, raw: bytes) -> None:
        while raw:
            size = int.from_bytes(raw[:4], "big")
            frame = json.loads(raw[4 : 4 + size])
            if size > MAX_FRAME or len(raw) < 4 + size or not isinstance(frame, dict):
                raise Finding("an answer that is no frame")
            if "internal error" in str(frame.get("error")):
                raise Finding("an operation failed inside: " + json.dumps(frame))
            raw = raw[4 + size :]

    def seeds(self) -> Iterator[bytes]:
        e = self._enrolment
        who = bytes.fromhex(e["site"]), bytes.fromhex(e["ps"]), e["suite"], e["client"]
        ask = provision.ask(make, *who, 0, 1, b"N" * 16, e["mediator"]["number"])
        calls: list[dict[str, Any]] = [
            {"op": "hello", "mediator": 1, "store": "00" * 16},
            {"op": "reopen"},
            {"op": "snapshot"},
            {"op": "snapshot", "at": 3, "kseq": 1},
            {"op": "answer", "packet": ask.hex()},
            {"op": "time", "client": e["client"], "nonce": "00" * 16, "suite": 1},
            {"op": "confirm", "client": e["client"], "gen": 1},
            {"op": "watch"},
            {"op": "reload"},
            {"op": "rekey", "labels": self._labels[:1], "handover_s": 60, "below": True},
            {"op": "enrol", "clients": self._clients[:1]},
            {"op": "lend", "client": self._clients[-1]},
            {"op": "clients"},
            {"op": "labels"},
            {"op": "status"},
        ]
        texts = [json.dumps({"id": n, **call}).encode() for n, call in enumerate(calls)]
        for text in texts:
            yield b"\0\0" + text
            yield b"\0\1" + len(text).to_bytes(4, "big") + text
        yield b"\0\0" + texts[0] + b"\n" + texts[3] + b"\n" + texts[5]
        yield b"\3\0" + texts[8]

    def close(self) -> None:
        self._loop.close()
        self._store.close()
        shutil.rmtree(self._folder, ignore_errors=True)
