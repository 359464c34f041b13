"""What a bridge's and a border's process share: they serve until SIGTERM, begin anew whenever what
they need is away or something else crosses, and say how they fare in a small file.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sealmq import garbage, logs, loops
from sealmq.audit import Audit, AuditError
from sealmq.audit.chain import NoChain, first
from sealmq.audit.retention import Retention
from sealmq.audit.totals import Totals
from sealmq.client import ClientError
from sealmq.client.errors import Refused
from sealmq.families.api import FamilyConfigError, FamilyError
from sealmq.kglink import KgError, KgUnavailable
from sealmq.run import proc, ready
from sealmq.run.errors import BadHandOver
from sealmq.run.ready import Persistent, Ready
from sealmq.run.secrets import receive
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout, write_atomically
from sealmq.site.values import ANYWHERE
from sealmq_spec.errors import SealError, Unavailable, WrongEpoch

from .line import LineLost
from .passing import Passing, which
from .traffic import Over

log = logging.getLogger("sealmq.bridge")

# A NamedTuple's own constructor is a Python function.
_new = tuple.__new__
Work = Coroutine[Any, Any, None]
Later = Callable[[Work], object]
WAIT_S = 0.5, 15.0
"""Between two runs, at first and at most."""
_PUBLISH_S = 15.0

_HEALS = (
    KgError, ClientError, SealError, LineLost, SiteError, FamilyError, FamilyConfigError, OSError,
    sqlite3.Error,
)  # fmt: skip


class _Waiting(NamedTuple):
    """number: in the order in which they came. since: by the monotonic clock."""

    number: int
    topic: str
    m1: bytes
    retain: bool
    over: Over
    since: float


class Changed(Exception):
    """What crosses is something else now, or nothing does."""


def opened(layout: Layout, role: str, named: str, secrets: dict[str, object]) -> Audit:
    """The audit log of a role, as it was handed over; its lines say that they are of `named`."""
    told = secrets.get("log")
    if not isinstance(told, dict):
        raise BadHandOver("the hand-over does not say how the audit log is kept")
    report = None if told.get("report") is None else Path(str(told["report"]))
    return Audit(
        layout.audit(role), named, os.getpid(), str(told["site"]),
        chain=first(secrets), retention=Retention(int(told["keep_ms"]), report),
        totals=Totals(layout.totals(role)) if told.get("totals") is True else None,
    )  # fmt: skip


def mediator_at(layout: Layout) -> tuple[str, int]:
    """Where the site's own mediator listens. KgUnavailable: it is not up."""
    at = ready.read(layout, "mediator")
    if at is None or not at.ready:
        raise KgUnavailable("the mediator is not up")
    host, _, port = at.address.rpartition(":")
    host = host.strip("[]")
    return ANYWHERE.get(host, host), int(port)


async def deliver(
    client: Passing, topic: str, m1: bytes, retain: bool, *, keys_s: float = 0.0
) -> None:
    """Publish an m1, again and again until the broker has it. SealError: it will never be taken.
    keys_s: so long the mediator may not have heard of its label's keys of its epoch yet.
    """
    begun = time.monotonic()
    while True:
        try:
            await client.pass_on(topic, m1, 1, retain, _PUBLISH_S)
            return
        except (ClientError, SealError) as error:
            if not _may_heal(error, keys_s - (time.monotonic() - begun)):
                raise
            log.info("publishing again: %s", error)
        await asyncio.sleep(0.2)


class Publishing:
    """What one client publishes of other sites, each message once and until the broker has it or
    never will: at once where it can be, and after those of its boot session that wait for room, the
    broker or keys, since readers refuse what comes much too late. What is under way already may
    pass them; there are fewer than a reader's window has places. later: runs what waits. keys_s: as
    of `deliver`.
    """

    def __init__(self, client: Passing, later: Later, keys_s: float = 0.0) -> None:
        self._client, self._later, self._keys_s = client, later, keys_s
        self._number = 0
        # By boot session; of one that has nothing left there is none.
        self._waiting: dict[bytes, list[_Waiting]] = {}

    def put(self, topic: str, m1: bytes, retain: bool, over: Over) -> None:
        """over: is told, once, None or the SealError."""
        self._number += 1
        fields = self._number, topic, m1, retain, over, time.monotonic()
        one: _Waiting = _new(_Waiting, fields)
        if self._waiting and (before := self._waiting.get(which(m1)[0])) is not None:
            heapq.heappush(before, one)
            return
        try:
            sent = self._client.pass_on_nowait(topic, m1, retain, partial(self._told, one))
        except SealError as error:  # a topic that is too long below @PEER/, say
            over(error)
            return
        if not sent:
            self._wait(one)

    def _told(self, one: _Waiting, error: Exception | None) -> None:
        if error is None or not _may_heal(error, self._keys_s):
            one.over(error)
        else:
            log.info("publishing again: %s", error)
            self._wait(one)

    def _wait(self, one: _Waiting) -> None:
        origin = which(one.m1)[0]
        if (before := self._waiting.get(origin)) is not None:
            heapq.heappush(before, one)
        else:
            self._waiting[origin] = [one]
            self._later(self._work(origin))

    async def _work(self, origin: bytes) -> None:
        waiting = self._waiting[origin]
        while waiting:
            one = heapq.heappop(waiting)
            left = max(0.0, self._keys_s - (time.monotonic() - one.since))
            try:
                await deliver(self._client, one.topic, one.m1, one.retain, keys_s=left)
            except SealError as error:
                one.over(error)
            else:
                one.over(None)
        del self._waiting[origin]


def _may_heal(error: Exception, keys_s: float) -> bool:
    """Of what publishing raises. keys_s: for how long the mediator may not have heard of keys."""
    if isinstance(error, WrongEpoch):
        return keys_s > 0
    if isinstance(error, Refused):
        return isinstance(error, Unavailable)
    return isinstance(error, ClientError)


class Since:
    """When each line was last seen to begin, or to end, ms by the monotonic clock: over
    all runs of the process.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[bool, int]] = {}

    def of(self, name: str, up: bool) -> int:
        """Whether it is up now is said, too."""
        seen = self._seen.get(name)
        if seen is None or seen[0] != up:
            seen = self._seen[name] = up, time.monotonic_ns() // 1_000_000
        return seen[1]


def write_told(layout: Layout, role: str, lines: Mapping[str, Any]) -> bool:
    """For `sealmq status` and the like (told.py). Whether it could be written: a full disk ends no
    line for want of it.
    """
    said = {"pid": os.getpid(), "start": proc.start_of(os.getpid()), "lines": lines}
    path = layout.run_of(role) / "lines.json"
    try:
        # Each second of a load, from the event loop: no fsync, and none is needed.
        write_atomically(path, json.dumps(said).encode() + b"\n", 0o644, durable=False)
    except OSError:
        return False
    return True


def main(
    name: str,
    arguments: list[str] | None,
    work: Callable[[Layout, dict[str, object]], Coroutine[Any, Any, None]],
) -> int:
    """A process of the package `name`, for a site and what `sealmq up` has handed over. Exit code 0
    after a clean stop, 1 with one line on stderr otherwise.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    logs.begin(f"{name}: ")
    os.umask(0o077)
    if len(arguments) != 1:
        print(f"usage: python -m sealmq.{name}.process SITE", file=sys.stderr)
        return 2
    try:
        layout = Layout.open(Path(arguments[0]))
        garbage.started()
        loops.run(work(layout, receive()))
    except (SiteError, KgError, BadHandOver, AuditError, NoChain, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


async def forever(
    layout: Layout,
    role: str,
    audit: Audit,
    once: Callable[[], Awaitable[None]],
    fails: Callable[[str], None],
) -> None:
    """Run `once` again and again until SIGTERM or SIGINT. fails: told why it has ended."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    file = Persistent(f"run/{role}/ready.json", log.error)
    told, user = Ready(role, os.getpid(), role, True), proc.name_of(os.geteuid())
    file.put(lambda: ready.write(layout, told, user=user))
    audit.write("start")
    work = asyncio.create_task(_again(once, fails), name=role)
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, stopping):
            task.cancel()
        await asyncio.gather(work, stopping, return_exceptions=True)
        file.drop()
        ready.forget(layout, role)
        audit.write("stop")
        audit.close()


# Whatever fails is tried again: what the site lacks may come back.
async def _again(once: Callable[[], Awaitable[None]], fails: Callable[[str], None]) -> None:
    wait, said = WAIT_S[0], ""
    while True:
        begun = time.monotonic()
        try:
            await once()
        except Changed:
            log.info("what crosses has changed")
            continue
        except _HEALS as error:
            if str(error) != said:
                said = str(error)
                log.warning("%s; it is tried again", said)
            fails(said)
        if time.monotonic() - begun > WAIT_S[1]:
            wait = WAIT_S[0]
        await asyncio.sleep(wait)
        wait = min(2 * wait, WAIT_S[1])
