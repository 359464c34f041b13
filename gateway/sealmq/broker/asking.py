"""What an external broker really does, found out by asking it at the start, not by believing.

With the mediator's own credentials, on topics below `@`, which no client can name; what that leaves
at the broker is taken away again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

from .credentials import PROBE_PREFIX
from .errors import Silent, Unreachable
from .peer import Peer
from .promises import Promises
from .target import Target

# For an answer that may never come. Long: a busy moment must not count as a missing promise.
ANSWER_S = 6.0
_REFUSED = 0x80
# Messages of QoS 2 that are under way at once; those for one who does not acknowledge; filters.
_WINDOW, QUEUE, _FILTERS = 64, 1000, 100
# How often what comes right after SUBACK is tried.
_TIMES = 3
_QUIET_S = 0.2
_MARKED = (
    "it marks what is published now as retained, like what it has kept: readers could not tell new "
    "from old, so retained messages are refused"
)
_NO_END = (
    "where that ends which it has retained for a filter cannot be told: retained messages are "
    "refused"
)
_LOWER = "of overlapping filters it delivers below the QoS that was granted: that QoS is refused"
_LATE = (
    "what is published right after it has granted a subscription does not come: readers may miss "
    "what is published while they subscribe"
)
_SHORT = (
    "it keeps {} messages for a connection that takes none, and drops more; all readers share one, "
    "so publishers wait for the slowest. {}"
)
SET = (
    "Set its limit higher (Mosquitto: max_queued_messages 100000; `sealmq broker config mosquitto` "
    "writes that)"
)


async def ask(target: Target, answer_s: float = ANSWER_S) -> Promises:
    """Its promises. It has to let the mediator in (`external.admitted`)."""
    asking = _Asking(target, answer_s)
    try:
        if not await _does(asking.at_once):
            asking.faults.append(_LATE)
            asking.settle_s = answer_s / 2
        qos = 2 if await _does(asking.qos, 2) else 1 if await _does(asking.qos, 1) else 0
        retained = await _does(asking.retained, qos)
        sessions, shared = await _does(asking.sessions), await _does(asking.shared)
        many = await _does(asking.filters, _FILTERS)
        inflight, queue = 1, QUEUE
        if qos == 2:
            inflight = await _count(asking.window, _WINDOW) or await _count(asking.window, 16) or 1
        if qos:
            # One that hangs up on a reader that is slow is worse than one that keeps little.
            queue = await _count(asking.queue, QUEUE) or 1
        if queue < QUEUE:
            asking.faults.append(_SHORT.format(queue, SET))
        return Promises(
            keeps_sessions=sessions,
            shared=shared,
            retained=retained,
            qos=qos,
            inflight=inflight,
            queue=queue,
            filters=_FILTERS if many else 2,
            faults=tuple(dict.fromkeys(asking.faults)),
        )
    finally:
        await asking.tidy()


async def _count(question: Callable[[int], Awaitable[int]], most: int) -> int:
    try:
        try:
            return await question(most)
        except Silent:
            return await question(most)
    except Unreachable:
        return 0


# A broker that hangs up on a question, or says nothing, does not do what it was asked for. Silence
# is believed the second time only: what is found missing is refused until the next start.
async def _does(question: Callable[..., Awaitable[bool]], *about: int) -> bool:
    try:
        try:
            return await question(*about)
        except Silent:
            return await question(*about)
    except Unreachable:
        return False


class _Asking:
    def __init__(self, target: Target, answer_s: float) -> None:
        self._target, self._answer_s = target, answer_s
        self._name = PROBE_PREFIX + os.urandom(8).hex()
        self._topic = "@" + self._name
        self.faults: list[str] = []
        # Topics on which it retained messages, to be cleared.
        self._left: list[str] = []
        self.settle_s = 0.0
        """Seconds from SUBACK until a subscription is taken to hold."""

    def _peer(self, who: str, clean: bool = True) -> Peer:
        return Peer(self._target, f"{self._name}-{who}", clean=clean, timeout_s=self._answer_s)

    async def _subscribe(self, peer: Peer, *filters: str, qos: int = 1) -> list[int]:
        codes = await peer.subscribe(*filters, qos=qos)
        await asyncio.sleep(self.settle_s)
        return codes

    async def sessions(self) -> bool:
        """Whether a message of QoS 1 waits for a client that is away, and it is told so."""
        topic = f"{self._topic}/queue"
        async with self._peer("away", clean=False) as away:
            if away.code or _REFUSED in await self._subscribe(away, topic):
                return False
        async with self._peer("here") as here:
            await here.publish(topic, b"waits")
        async with self._peer("away", clean=False) as away:
            return not away.code and away.present and (await away.message()).payload == b"waits"

    async def retained(self, qos: int) -> bool:
        """Whether retained messages wait for who subscribes later, all of them before the one that
        was asked for last, and only they are marked as retained.
        """
        # What an attempt before has left must not come.
        topic = f"{self._topic}/retained/{len(self._left)}"
        end = f"{topic}/end/of"
        self._left += [end, f"{topic}/live", *(f"{topic}/{n}" for n in range(qos + 1))]
        async with self._peer("here") as here, self._peer("other") as other:
            await self._subscribe(other, f"{topic}/live", qos=qos)
            await here.publish(f"{topic}/live", b"live", qos=min(1, qos), retain=True)
            if (await other.message()).retain:
                self.faults.append(_MARKED)
                return False
            wanted = {f"{topic}/live": min(1, qos)}
            for n in range(qos + 1):
                wanted[f"{topic}/{n}"] = n
                await here.publish(f"{topic}/{n}", b"kept", qos=n, retain=True)
            await here.publish(end, b"end", qos=qos, retain=True)
            came: dict[str, int] = {}
            # As the mediator does it: one SUBSCRIBE, its own message last.
            codes = await here.subscribe(f"{topic}/+", end, qos=qos)
            if codes != [qos, qos]:
                self.faults.append(_NO_END)
                return False
            try:
                while (message := await here.message()).topic != end:
                    if message.retain:
                        came[message.topic] = message.qos
            except Silent:
                if came:
                    self.faults.append(_NO_END)
                raise
            if came != wanted or not message.retain:
                self.faults.append(_NO_END)
                return False
            return True

    async def shared(self) -> bool:
        """Whether a group gets each message once, and all of them."""
        topic = f"{self._topic}/shared"
        async with self._peer("one") as one, self._peer("two") as two:
            for member in (one, two):
                filters = (f"$share/g/{topic}", f"{topic}/end")
                if _REFUSED in await self._subscribe(member, *filters):
                    return False
            for at in range(4):
                await two.publish(topic, b"%d" % at)
            # This one is for both, and comes after what was the group's.
            await two.publish(f"{topic}/end", b"end")
            got = []
            for member in (one, two):
                while (message := await member.message()).payload != b"end":
                    got.append(message.payload)
            return sorted(got) == [b"0", b"1", b"2", b"3"]

    async def qos(self, qos: int) -> bool:
        """Whether it both grants and takes it, for filters that overlap, too."""
        topic = f"{self._topic}/qos"
        filters = (f"{topic}/#", f"{topic}/x", f"{topic}/+")
        async with self._peer("here") as here:
            if await self._subscribe(here, *filters, qos=qos) != [qos] * len(filters):
                return False
            await here.publish(f"{topic}/x", b"qos", qos=qos)
            await here.publish(f"{topic}/end", b"end", qos=qos)
            copies = []
            while (message := await here.message()).topic != f"{topic}/end":
                copies.append(message.qos)
            if copies and min(copies) < qos:
                self.faults.append(_LOWER)
            return bool(copies) and min(copies) == qos

    async def at_once(self) -> bool:
        """Whether a subscription holds from its SUBACK on."""
        async with self._peer("here") as here, self._peer("other") as other:
            for n in range(_TIMES):
                topic = f"{self._topic}/once/{n}"
                if _REFUSED in await other.subscribe(topic, qos=0):
                    return False
                await here.publish(topic, b"once", qos=0)
                await other.message()
        return True

    async def filters(self, count: int) -> bool:
        """Whether it takes so many in one SUBSCRIBE."""
        async with self._peer("here") as here:
            codes = await here.subscribe(*(f"{self._topic}/many/{n}" for n in range(count)), qos=0)
            return len(codes) == count and _REFUSED not in codes

    async def window(self, count: int) -> int:
        """How many of so many messages of QoS 2 come that were not released one by one."""
        return await self._came(f"{self._topic}/window", count, 2)

    async def queue(self, count: int) -> int:
        """How many of so many messages come to one who acknowledges none until all are out."""
        return await self._came(f"{self._topic}/queue", count, 1)

    async def _came(self, topic: str, count: int, qos: int) -> int:
        async with self._peer("here") as here, self._peer("other") as other:
            if await self._subscribe(other, topic, f"{topic}/end", qos=qos) != [qos, qos]:
                return 0
            await here.publish_all(topic, [b"%d" % n for n in range(count)], qos)
            await other.held()
            came = {(await other.message()).payload}
            with contextlib.suppress(Silent):
                while len(came) < count:
                    came.add((await other.message(_QUIET_S)).payload)
            # By now there is room for one more: whatever was still to come comes before it.
            await here.publish(f"{topic}/end", b"end", qos=qos)
            while (message := await other.message()).payload != b"end":
                came.add(message.payload)
            return len(came)

    async def tidy(self) -> None:
        """Leave nothing behind: neither the session nor what was retained."""
        with contextlib.suppress(Unreachable):
            async with self._peer("away") as away:
                for topic in self._left:
                    await away.publish(topic, b"", qos=0, retain=True)
                await away.held()
