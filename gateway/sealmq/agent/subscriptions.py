"""What one local client subscribes to: SUBSCRIBE and UNSUBSCRIBE, one after the other.

Each is answered once the site has, filter by filter. What MQTT 5 asks for besides QoS is in force
before the site's answer, which messages follow at once.
"""

from __future__ import annotations

import asyncio
import logging

from sealmq.client import Client, ClientError
from sealmq.client import Refused as SiteRefused
from sealmq_spec.errors import SealError

from .account import Account
from .delivery import Delivery, Out
from .seat import Seat
from .sessions import Asked, Session
from .wire import Dialect, End, Refusal, Sub

log = logging.getLogger("sealmq.agent")

# Refusals that nothing else tells, for local clients that subscribe to it.
REFUSED = "$SYS/sealmq/refused"
_WAITING = 32


class Subscriptions:
    """asking: SUBSCRIBEs and UNSUBSCRIBEs that have no answer yet; notes: whether the client
    listens for refusals."""

    def __init__(
        self,
        account: Account,
        wire: Dialect,
        session: Session,
        seat: Seat,
        delivery: Delivery,
        out: Out,
    ) -> None:
        self._account, self._wire, self._session = account, wire, session
        self._seat, self._delivery, self._out = seat, delivery, out
        self._queue: asyncio.Queue[Sub] = asyncio.Queue(_WAITING)
        self._answered = asyncio.Event()
        self.asking = 0
        self.notes = False
        # What was said to policy families with each filter that is subscribed.
        self.said: dict[str, dict[str, str | None]] = {}

    async def put(self, asked: Sub) -> None:
        """One more; waits where very many have no answer."""
        self.asking += 1
        await self._queue.put(asked)

    async def answered(self) -> None:
        """Returns once none waits for its answer."""
        while self.asking:
            self._answered.clear()
            await self._answered.wait()

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Answer until cancelled; tasks beside it are the group's. End."""
        if self._seat.client is not None:
            self._deliver(group)
        while True:
            asked = await self._queue.get()
            answers = await self._answers(asked, group)
            for (filt, _), answer in zip(asked.filters, answers, strict=True):
                if isinstance(answer, Refusal):
                    log.info("%s", f"{self._session.client_id}: {filt}: refused: {answer}")
            if self._wire.tells:
                self._account.sessions.chosen(self._session)
                await self._account.sessions.save(self._session)
            self._out.send(self._wire.granted(asked, answers))
            self.asking -= 1
            if not self.asking:
                self._answered.set()

    def _deliver(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._delivery.run(self._session, group), name="agent: deliver")

    async def _answers(self, asked: Sub, group: asyncio.TaskGroup) -> list[int | Refusal]:
        answers: list[int | Refusal] = [0] * len(asked.filters)
        # Filters of one QoS are asked together. One that stood there before goes after that.
        groups: list[tuple[int, list[int]]] = []
        open_: dict[int, list[int]] = {}
        stood: set[str] = set()
        for i, (filt, qos) in enumerate(asked.filters):
            if asked.faults and asked.faults[i]:
                answers[i] = Refusal("impossible", "agent.property", asked.faults[i])
            elif filt == REFUSED:
                self.notes = asked.add
            elif filt not in stood and (granted := self._has(asked, i)) is not None:
                answers[i] = granted
            else:
                if filt in stood:
                    open_.clear()
                stood.add(filt)
                if qos not in open_:
                    groups.append((qos, open_.setdefault(qos, [])))
                open_[qos].append(i)
        for qos, which in groups:
            found = await self._ask(asked, qos, which, group)
            for i, answer in zip(which, found, strict=True):
                answers[i] = answer
        return answers

    def _has(self, asked: Sub, i: int) -> int | None:
        """The QoS of a subscription that the site has granted, if no more is asked for: with retain
        handling 1 it brings nothing again."""
        if not asked.wishes or asked.said:
            return None
        (filt, qos), wishes = asked.filters[i], asked.wishes[i]
        held = self._session.filters.get(filt)
        if held is None or held.granted is None or held.qos != qos or wishes.retained != 1:
            return None
        self._session.put(filt, held._replace(wishes=wishes))
        return held.granted

    async def _ask(
        self, asked: Sub, qos: int, which: list[int], group: asyncio.TaskGroup
    ) -> list[int | Refusal]:
        """Filters of one QoS."""
        account, seat, session = self._account, self._seat, self._session
        filters = [asked.filters[i][0] for i in which]
        # The names are arguments of the client library: none but these may pass.
        if unknown := asked.said.keys() - account.sayable:
            why = f"{min(unknown)[:64]!r} is nothing that can be said with a subscription"
            return [Refusal("impossible", "agent.property", why)] * len(which)
        said: dict[str, str | None] = {**account.user.say, **asked.said}
        if seat.client is None and not asked.add:
            return [0] * len(which)
        if seat.client is None:
            refusal = await seat.take()
            if refusal is not None and refusal.kind == "away":
                # Clients take a refusal for the last word, and try a connection again.
                raise End(refusal)
            if refusal is not None:
                return [refusal] * len(which)
            self._delivery.begin(seat.client, False)
            self._deliver(group)
        if seat.client is None:
            raise End()
        # What is asked for, and what there was before.
        puts: list[tuple[Asked, Asked | None]] = []
        for i in which if asked.wishes else ():
            held, wishes = session.filters.get(asked.filters[i][0]), asked.wishes[i]
            new = held is None or held.granted is None
            retained = wishes.retained == 0 or (wishes.retained == 1 and new)
            one = Asked(qos, wishes, retained)
            puts.append((one, session.put(asked.filters[i][0], one)))
        for filt in () if asked.add else filters:
            # No answer may come: then nobody knows whether the site has it still.
            if (held := session.filters.get(filt)) is not None:
                session.put(filt, held._replace(granted=None))
        found = await self._settled(seat.client, asked, qos, filters, said)
        for filt, answer, (one, held) in zip(filters, found, puts, strict=False):
            # A filter may stand there twice, and be refused once.
            now = held if isinstance(answer, Refusal) else one._replace(granted=answer)
            session.put(filt, now)
        for filt, answer in () if asked.add else zip(filters, found, strict=True):
            if not isinstance(answer, Refusal):
                session.put(filt, None)
        return found

    async def _settled(
        self, seat: Client, asked: Sub, qos: int, filters: list[str], said: dict[str, str | None]
    ) -> list[int | Refusal]:
        try:
            if asked.add:
                found = await seat.subscribe_each(*filters, qos=qos, within=None, **said)
                for filt, answer in zip(filters, found, strict=True):
                    # As many as the site grants: a boot session has a bound (SPEC.md 9).
                    if not isinstance(answer, SiteRefused):
                        self.said[filt] = said
                return [Refusal.of(a) if isinstance(a, SiteRefused) else a for a in found]
            for filt in filters:
                await seat.unsubscribe(filt, within=None, **self.said.pop(filt, said))
            return [0] * len(filters)
        except SealError as error:
            return [Refusal.of(error)] * len(filters)
        except ClientError as error:
            raise End(Refusal("away", "agent.away", str(error))) from None
