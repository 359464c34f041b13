"""`python -m sealmq.border.process SITE`: one border of a site, started by `sealmq up`.

It holds the roots of the two labels that its table in sealmq.toml names, and sees in clear what it
lets pass, for as long as that takes; nothing of that is ever on disk. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from sealmq.audit import Audit
from sealmq.bridge import serving
from sealmq.bridge.line import LineLost
from sealmq.bridge.serving import (
    Changed,
    Since,
    deliver,
    forever,
    mediator_at,
    opened,
    write_told,
)
from sealmq.client import ClientError, Options
from sealmq.client.errors import NotAuthorised
from sealmq.client.values import Message as Delivered
from sealmq.kglink import Across, KgClient, KgDenied
from sealmq.loops import first_error
from sealmq.run.errors import BadHandOver
from sealmq.site.config import loads
from sealmq.site.layout import Layout, border_role
from sealmq_spec.errors import SealError

from .ends import Publishing, Reading
from .passage import Passage
from .spool import Message, Spool, Waiting

log = logging.getLogger("sealmq.border")

_TICK_S = 1.0
# Messages that are published at once.
_BATCH = 20
# The reader's windows drop what comes again after a connection was lost.
_HARMLESS = frozenset({"Replay"})


class Crossing:
    """One run of a border, as its table says now; begun anew when that changes."""

    def __init__(
        self,
        layout: Layout,
        name: str,
        across: Across,
        kg: KgClient,
        audit: Audit,
        since: Since,
    ) -> None:
        self._layout, self._name, self._across, self._kg = layout, name, across, kg
        self._audit, self._since = audit, since
        self._border = loads(across.text).borders[name]
        address, reads = mediator_at(layout), across.reads["enrolment"]
        state = layout.state_of("border")
        boot = state / f"{name}.boot"
        self._publishing = Publishing.at(across.publishes["enrolment"], address, boot)
        self._keeps = Options(client_id="border", clean=False)
        self._reads = reads, address
        self._reading = Reading.of(*self._reads, self._keeps, self._take)
        # What fails before leaves no file open; `run` closes it.
        self._spool = Spool(state / f"{name}.db", self._lost)
        self._passage = Passage(
            self._border, across.senders, self._spool, self._publishing.seal, audit.write
        )
        self._news = asyncio.Event()
        self._refused: Mapping[str, int] = {}
        self._written = ""

    async def run(self) -> None:
        """Until cancelled. Changed, or what a client has ended with."""
        try:
            disabled = [end for end in ("reads", "publishes") if self._end(end)["disabled"]]
            if disabled:
                raise KgDenied(f"its client is disabled ({self._name}.{_WORD[disabled[0]]})")
            await self._publishing.connect()
            await self._connect()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publish(), name="border: publish")
                group.create_task(self._watch(), name="border: watch")
                group.create_task(self._tick(), name="border: tick")
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            for client in (self._reading, self._publishing):
                with contextlib.suppress(ClientError, SealError):
                    await client.disconnect()
            self._spool.close()

    def _end(self, which: str) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self._across, which)
        return found

    async def _connect(self) -> None:
        try:
            await self._reading.connect()
        except NotAuthorised:
            # Its broker keeps no sessions: what comes while the border is away does not cross.
            self._reading = Reading.of(*self._reads, Options(), self._take)
            await self._reading.connect()
            log.warning("%s: the broker keeps no session for it", self._name)
        await self._reading.subscribe(*self._border.topics, qos=1)

    # The reader's windows have it by now, and a client that only connects again keeps them: what
    # comes again would be dropped there as a replay. So the run ends, and the next one has none.
    def _take(self, message: Delivered) -> None:
        try:
            waits = self._passage.take(message, self._reading.label)
        except (ClientError, SealError) as error:
            raise LineLost(f"a message could not be sealed: {error}") from None
        if waits:
            self._news.set()

    def _lost(self, one: Message, why: str) -> None:
        self._passage.lost(one, why)

    # --- what waits ---

    async def _publish(self) -> None:
        while True:
            self._news.clear()
            if not self._spool.count:
                await self._news.wait()
            some = self._passage.waiting(_BATCH)
            await self._audit.synced()
            async with asyncio.TaskGroup() as group:
                sent = [
                    group.create_task(self._one(one), name=f"border: message {one.seq}")
                    for one in some
                ]
            # In the order in which they came: what is sent again after a kill is all from one of
            # them on, so that nothing that was retained stands again where it has been cleared.
            for one, task in zip(some, sent, strict=True):
                self._passage.ended(one, task.result())

    async def _one(self, one: Waiting) -> str:
        """Why it will never be taken, "": the broker has it."""
        message = one.message
        try:
            await deliver(self._publishing, message.topic, message.m1, message.retain)
        except SealError as error:
            return str(error)
        return ""

    # --- what it tells ---

    async def _watch(self) -> None:
        held = self._across.kseq, self._across.policy
        async for now in self._kg.border_watch():
            if now != held:
                held = now
                found = await self._kg.border_enrol(self._name)
                if _what(found, self._name) != _what(self._across, self._name):
                    raise Changed

    async def _tick(self) -> None:
        while True:
            for client in (self._reading, self._publishing):
                if client.error is not None:
                    raise client.error
            self._unopened()
            self._write()
            await asyncio.sleep(_TICK_S)

    # Its client has dismissed them, and acknowledged them.
    def _unopened(self) -> None:
        for kind, count in self._reading.refused.items():
            more = count - self._refused.get(kind, 0)
            if more > 0 and kind not in _HARMLESS:
                self._passage.drop("-", f"unopened: {kind}, {more} messages")
        self._refused = self._reading.refused

    def _write(self) -> None:
        lines = {
            self._name: {
                "line": "up",
                "since_ms": self._since.of(self._name, True),
                "waiting": self._spool.count,
                "crossed": self._passage.crossed,
                "dropped": dict(self._passage.dropped),
            }
        }
        text = json.dumps(lines)
        if text != self._written and write_told(self._layout, border_role(self._name), lines):
            self._written = text


_WORD = {"reads": "in", "publishes": "out"}


def _what(of: Across, name: str) -> Any:
    return loads(of.text).borders.get(name), of.reads, of.publishes, of.senders


async def _serve(layout: Layout, secrets: dict[str, object]) -> None:
    name = secrets.get("border")
    if not isinstance(name, str):
        raise BadHandOver("the hand-over names no border")
    role = border_role(name)
    audit, since = opened(layout, role, "border", secrets), Since()

    async def once() -> None:
        async with await KgClient.connect(layout.kg_socket) as kg:
            await Crossing(layout, name, await kg.border_enrol(name), kg, audit, since).run()

    def fails(why: str) -> None:
        write_told(layout, role, {name: {"line": why, "since_ms": since.of(name, False)}})

    await forever(layout, role, audit, once, fails)


def main(arguments: list[str] | None = None) -> int:
    """As `serving.main`."""
    return serving.main("border", arguments, _serve)


if __name__ == "__main__":
    sys.exit(main())
