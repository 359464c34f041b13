"""What clients publish, from the session to the acknowledgements of broker and journal, and what
becomes of messages that the broker does not take (gateway/DESIGN.md, custody, rows 2 to 4).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .control_link import ControlLink
from .core.effects import BrokerAway, Forward
from .core.session import Session
from .core.site import Site
from .core.wrap import may_go_out
from .events import Events
from .journal import Journal
from .links import BrokerAddress, Credit, NotTaken, PublishLink
from .links.publish import OVER, Item
from .messages import MessageConnection
from .questions import Questions
from .server import Pressure
from .set_aside import SetAside
from .wills import over

# One that was never answered: its connection may have gone.
_GIVE_UP_S = 60.0


class Latency:
    """How long it takes until broker and journal have answered: of one message at a time, so that
    it costs the others nothing. seconds, count: of all that were measured.
    """

    def __init__(self) -> None:
        self.seconds, self.count = 0.0, 0
        self._of, self._since = -1, 0.0

    def sent(self, seq: int) -> None:
        """A message goes out."""
        if self._of < 0 or time.monotonic() - self._since > _GIVE_UP_S:
            self._of, self._since = seq, time.monotonic()

    def done(self, seq: int) -> None:
        """It is there."""
        if seq == self._of:
            self.seconds += time.monotonic() - self._since
            self.count += 1
            self._of = -1


class Forwarding:
    """`name`: of the mediator at the broker. `changed`: as ReconnectingLink has it."""

    def __init__(
        self,
        address: BrokerAddress,
        name: str,
        site: Site,
        events: Events,
        questions: Questions,
        journal: Journal,
        control: ControlLink,
        messages: MessageConnection,
        aside: SetAside,
        credit: Credit,
        changed: Callable[[], None],
    ) -> None:
        self._site, self._events, self._questions = site, events, questions
        self._journal, self._control, self._messages = journal, control, messages
        self._aside = aside
        self.pressure = Pressure()
        self.latency = Latency()
        self.link = PublishLink(
            address,
            f"{name}/publish",
            self._alone,
            self._accepted,
            self._not_taken,
            self.pressure.change,
            changed,
            credit,
            self._may,
            self._has_all,
            events.run,
        )

    def forward(self, session: Session, effect: Forward) -> None:
        """As Forward."""
        sent, topic, payload, qos, retain, client = effect
        gen = session.link.gen
        journal = self._journal
        if sent is not None:
            sent.seq = journal.append(topic, payload, qos, retain, client, gen)
            self.latency.sent(sent.seq)
        elif retain:
            journal.append(topic, payload, 0, True, client, gen)
        self.link.publish((session, effect), topic, payload, qos, retain, client, gen)
        if self.pressure.on:
            peer = self._events.peers.get(session)
            if peer is not None:
                self.pressure.stop(peer)

    async def will(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, client: int, gen: int
    ) -> None:
        """Publishes a will; returns when the broker has it. Raises NotTaken; DeniedByRule if
        its client may not publish it any more.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.link.publish(done, topic, payload, qos, retain, client, gen)
        if qos:
            await done

    # --- what the publish link says. `token`: of a client's message (session, effect); of a will
    # the future that waits for it ---

    def _accepted(self, token: Any) -> None:
        if isinstance(token, asyncio.Future):
            if not token.done():
                token.set_result(None)
            return
        session, effect = token
        sent = effect.sent
        if sent is None:
            return
        self._journal.acked(sent.seq)
        self._journal.when(sent.seq, self._durable, session, effect, self._control.losses)

    # The journal has it. If the broker was lost since it acknowledged it, that may have been lost
    # with the broker.
    def _durable(self, session: Session, effect: Forward, losses: int) -> None:
        if self._control.losses == losses:
            if effect.sent is not None:
                self.latency.done(effect.sent.seq)
            self._events.run(session.accepted, effect.sent)
            return
        item = Item((session, effect), *effect[1:], session.link.gen)
        if self._may(item):
            self.link.publish(*item[:7])
        else:
            self._not_taken(item.sent, OVER)

    def _not_taken(self, token: Any, why: str) -> None:
        if isinstance(token, asyncio.Future):
            if not token.done():
                token.set_exception(over() if why == OVER else NotTaken(why))
            return
        session, effect = token
        self._questions.spawn(self._refused(session, effect, why), "set aside")

    # It is on disk before its publisher hears of it: so the journal does not try it again either.
    async def _refused(self, session: Session, effect: Forward, why: str) -> None:
        sent, topic, payload, qos, retain, client = effect
        if may_go_out(self._site.ring, client, session.link.gen, payload):
            await self._aside.put(topic, payload, qos, retain, client, why)
        if sent is not None:
            self._journal.acked(sent.seq)
            self._events.run(session.not_taken, sent, why)

    # --- what the publish link asks ---

    # Returns once the broker has back what it lost. The control link is asked then and there:
    # another link may hear sooner that the broker was lost.
    async def _has_all(self) -> None:
        while True:
            await self._control.ready.wait()
            with suppress(BrokerAway):
                await self._control.life()
                if self._control.ready.is_set():
                    return

    # After a fall of the publish link; what the journal has to publish again goes first.
    async def _alone(self, item: Item) -> None:
        await self._control.ready.wait()
        may = partial(self._may, item)
        await self._messages.publish(item.topic, item.payload, item.qos, item.retain, may)

    def _may(self, item: Item) -> bool:
        return may_go_out(self._site.ring, item.client, item.gen, item.payload)
