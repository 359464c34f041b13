"""The broker is back after it was lost: what may not have been on its disk is published again
(GATEWAY.md G4), before any client is let in.

Messages are sealed again as queued and go out oldest first, at the QoS they had. Readers' windows
drop those that they had. RETAIN stays on the newest of each topic alone. What lies ahead of the
clock, which is wrong then, stays in the journal until the clock has come there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from sealmq.audit import Audit
from sealmq_spec.const import QUEUED, RETAINED, WILL, WINDOW_S
from sealmq_spec.errors import SealError

from .control_link import ControlLink
from .core.effects import BrokerAway
from .core.site import Site
from .core.wrap import look_m3, may_go_out, open_m3, rewrap_for_broker
from .journal import Journal
from .journal_file import Ahead, Entry, Segment
from .links import NotTaken
from .links.publish import OVER, Over
from .set_aside import SetAside

log = logging.getLogger("sealmq.mediator")

_AT_ONCE = 64
_RACES = 3

Publish = Callable[[bytes, bytes, int, bool, Callable[[], bool]], Awaitable[None]]


class Replay:
    """`publish`: topic, payload, QoS, RETAIN, and whether its client may still publish it; returns
    when the broker has it, raises BrokerAway, NotTaken, and Over where it may not. What the broker
    does not take is set aside, and the rest goes on.
    """

    def __init__(
        self,
        site: Site,
        journal: Journal,
        control: ControlLink,
        aside: SetAside,
        publish: Publish,
        audit: Audit,
    ) -> None:
        self._site, self._journal, self._control = site, journal, control
        self._aside, self._publish, self._audit = aside, publish, audit
        self._known_tlv = tuple(site.engine.tlvs)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._sent = self._left_out = 0
        self._ahead: dict[Segment, Ahead] = {}
        # Topics of which other workers' journals have a retained message: when the newest came.
        self._elsewhere: dict[bytes, int] = {}
        # Topics whose retained message was published here, with its order.
        self._retained: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        """Raises BrokerAway; then all of it has to be published once more."""
        journal, losses = self._journal, self._control.losses
        segments = journal.lost()
        # Also where there is nothing: what comes here is newer than what others have.
        self._elsewhere = await asyncio.to_thread(journal.retained_elsewhere)
        if segments:
            await self._pass(segments, None)
            # A message of a worker whose links the broker did not lose may have come between.
            for _ in range(_RACES):
                newer = self._site.retained.newer
                raced = {t.encode() for t, order in self._retained.items() if newer(t, *order)}
                self._retained.clear()
                if not raced:
                    break
                await self._pass(journal.all(), raced)
            log.warning(
                "journal: %d messages published again, %d left out", self._sent, self._left_out
            )
            if self._ahead:
                log.warning(
                    "journal: what is in %d of its files lies ahead of the clock, and is published "
                    "when that has been set",
                    len(self._ahead),
                )
        if self._control.losses != losses:
            raise BrokerAway("the broker was lost after its last acknowledgement")
        journal.broker_back(segments, self._ahead)

    # only: publishes nothing but the newest retained message of each of these topics.
    async def _pass(self, segments: list[Segment], only: set[bytes] | None) -> None:
        again = set(segments)
        newest: dict[bytes, tuple[int, int]] = {}
        # What lay ahead may be older than what is not published again now.
        for number, (_, entry) in enumerate(self._all()):
            # The files of journals that were put together may overlap in time.
            if entry.retain:
                newest[entry.topic] = max(newest.get(entry.topic, (0, 0)), (entry.ms, number))
        tasks: set[asyncio.Task[None]] = set()
        twos: set[asyncio.Task[None]] = set()
        try:
            for number, (segment, entry) in enumerate(self._all()):
                if segment not in again:
                    continue
                last = entry.retain and newest[entry.topic] == (entry.ms, number)
                # Clients of other workers publish there, too: theirs may be the newest.
                last = last and self._elsewhere.get(entry.topic, 0) <= entry.ms
                if only is not None and (not last or entry.topic not in only):
                    continue
                if entry.qos != 2 and twos:
                    # The broker hands QoS 2 on at PUBREL. What overtakes it could move a reader's
                    # window beyond it.
                    await asyncio.wait(twos)
                await self._slots.acquire()
                # Tasks begin in their order, and each sends before it first waits.
                task = asyncio.create_task(self._one(segment, entry, last), name="journal")
                task.add_done_callback(lambda _: self._slots.release())
                tasks.add(task)
                if entry.qos == 2:
                    twos.add(task)
                    task.add_done_callback(twos.discard)
                for done in [t for t in tasks if t.done()]:
                    tasks.discard(done)
                    done.result()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _all(self) -> Iterator[tuple[Segment, Entry]]:
        for segment in self._journal.all():
            for entry in self._journal.entries([segment]):
                yield segment, entry

    async def _one(self, segment: Segment, entry: Entry, last: bool) -> None:
        site = self._site
        topic = entry.topic.decode()
        now_ms = site.now_ms
        if self._aside.holds(entry.topic, entry.payload):
            self._left_out += 1
            return
        if not entry.payload:
            # A clear has no payload that says whose it is.
            if not self._may(entry, entry.client):
                return
            if last and not site.retained.newer(topic, entry.ms + 1, 0):
                self._retained[topic] = site.order.next(now_ms)
                await self._again(entry, b"", 1, True, None)
            return
        try:
            seen = look_m3(site.ring, entry.payload)
            raw, sealed = entry.topic, entry.payload
            inside = open_m3(site.ring, seen, raw, sealed, self._known_tlv, site.engine.passes)
            if not self._may(entry, inside.sender or entry.client):
                return
            if inside.age_s(now_ms) < -WINDOW_S:
                ahead = self._ahead.setdefault(segment, Ahead(0, set()))
                topics = ahead.topics | ({entry.topic} if entry.retain else set())
                self._ahead[segment] = Ahead(max(ahead.until, inside.at), topics)
                return
            how = seen.how if seen.how in (WILL, RETAINED) else QUEUED
            given = site.ring, site.order, seen, inside, how, entry.topic, now_ms
            payload = rewrap_for_broker(*given)
        except SealError as error:
            self._left_out += 1
            log.info("journal: left out: %s", error)
            return
        retain = last and not site.retained.newer(topic, seen.s2, seen.seq)
        if retain:
            self._retained[topic] = order = (site.order.ms, site.order.seq)
            site.retained.passed(topic, *order, origin=(seen.s2, seen.seq))
        elif not entry.qos:
            return
        await self._again(entry, payload, entry.qos, retain, inside.sender)

    # What was accepted of a client that has been put out since is not published again.
    def _may(self, entry: Entry, sender: int) -> bool:
        ring = self._site.ring
        if not sender or may_go_out(ring, sender, entry.gen, entry.payload):
            return True
        self._left_out += 1
        client = ring.clients.get(sender)
        self._audit.write(
            "publish-refused",
            client=client.name if client is not None else str(sender),
            topic=entry.topic.decode()[:200],
            rule="mediator.journal.disabled",
            reason=f"it is not published again: {OVER}",
        )
        return False

    async def _again(
        self, entry: Entry, payload: bytes, qos: int, retain: bool, sender: int | None
    ) -> None:
        may = partial(self._may, entry, sender or entry.client)
        try:
            await self._publish(entry.topic, payload, qos, retain, may)
        except Over:
            return
        except NotTaken as error:
            self._left_out += 1
            # As it stands in the journal, so that it is recognised at the next replay.
            await self._aside.put(entry.topic, entry.payload, qos, entry.retain, sender, str(error))
            return
        self._sent += 1
