"""What an external broker really does, found out by asking it at the start, not by believing.

With the mediator's own credentials, on topics below `@`, which no client can name; what that leaves
at the broker is taken away again.
"""

from __future__ import annotations

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


async def ask(target: Target, answer_s: float = ANSWER_S) -> Promises:
    """Its promises. It has to let the mediator in (`external.admitted`)."""
    asking = _Asking(target, answer_s)
    try:
        return Promises(
            keeps_sessions=await _does(asking.sessions),
            shared=await _does(asking.shared),
            retained=await _does(asking.retained),
            qos=2 if await _does(asking.qos, 2) else 1 if await _does(asking.qos, 1) else 0,
        )
    finally:
        await asking.tidy()


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

    def _peer(self, who: str, clean: bool = True) -> Peer:
        return Peer(self._target, f"{self._name}-{who}", clean=clean, timeout_s=self._answer_s)

    async def sessions(self) -> bool:
        """Whether a message of QoS 1 waits for a client that is away, and it is told so."""
        topic = f"{self._topic}/queue"
        async with self._peer("away", clean=False) as away:
            if away.code or _REFUSED in await away.subscribe(topic):
                return False
        async with self._peer("here") as here:
            await here.publish(topic, b"waits")
        async with self._peer("away", clean=False) as away:
            return not away.code and away.present and (await away.message()).payload == b"waits"

    async def retained(self) -> bool:
        """Whether a retained message waits for who subscribes later."""
        topic = f"{self._topic}/retained"
        async with self._peer("here") as here:
            await here.publish(topic, b"kept", retain=True)
            await here.subscribe(topic)
            return (await here.message()).payload == b"kept"

    async def shared(self) -> bool:
        """Whether a group gets each message once, and all of them."""
        topic = f"{self._topic}/shared"
        async with self._peer("one") as one, self._peer("two") as two:
            for member in (one, two):
                if _REFUSED in await member.subscribe(f"$share/g/{topic}"):
                    return False
                await member.subscribe(f"{topic}/end")
            for at in range(4):
                await two.publish(topic, b"%d" % at)
            # This one is for both, and comes behind what was the group's.
            await two.publish(f"{topic}/end", b"end")
            got = []
            for member in (one, two):
                while (message := await member.message()).payload != b"end":
                    got.append(message.payload)
            return sorted(got) == [b"0", b"1", b"2", b"3"]

    async def qos(self, qos: int) -> bool:
        """Whether it both grants and takes it."""
        topic = f"{self._topic}/qos"
        async with self._peer("here") as here:
            granted = await here.subscribe(topic, qos=qos)
            await here.publish(topic, b"qos", qos=qos)
            return granted == [qos] and (await here.message()).qos == qos

    async def tidy(self) -> None:
        """Leave nothing behind: neither the session nor what was retained."""
        with contextlib.suppress(Unreachable):
            async with self._peer("away") as away:
                await away.publish(f"{self._topic}/retained", b"", retain=True)
