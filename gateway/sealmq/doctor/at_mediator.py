"""Tries at the mediator, with three canaries: a writer, a reader above, a stranger beside them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from sealmq.mqtt import build
from sealmq.site import reach
from sealmq.site.canary import ALL_TOPICS
from sealmq.site.model import Mediator
from sealmq_spec.const import CLEAR, USER

from .canary import Canary
from .errors import Broken
from .result import Failed, Untried

LOW_TOPIC, HIGH_TOPIC, SIDE_TOPIC = (f"sealmq-doctor/{word}" for word in ("low", "high", "side"))
_UNAVAILABLE = 3  # CONNACK's code
_RETAINED_TRIES, _RETAINED_PAUSE_S = 50, 0.1
NOT_ENFORCED = "is policy enforced ([policy] enforce, `sealmq status`)?"


AsSent = Callable[[str], str]


class AtMediator:
    """All three are connected, and the first two have subscribed to all topics of the doctor's."""

    def __init__(
        self, writer: Canary, reader: Canary, stranger: Canary, as_sent: Sequence[AsSent]
    ) -> None:
        """`as_sent`: how the site's policy families want a filter to be subscribed to."""
        self.writer, self.reader, self.stranger = writer, reader, stranger
        self._as_sent = as_sent

    def filter(self, filt: str) -> str:
        """As a client subscribes to it."""
        for as_sent in self._as_sent:
            filt = as_sent(filt)
        return filt

    async def subscribe(self) -> None:
        """Before the tries."""
        for canary in (self.writer, self.reader, self.stranger):
            await self._listen(canary)

    async def drain(self) -> None:
        """Before each try: all three are connected, and nothing of the one before is left to hear.

        A try may cost a connection: the mediator hangs up on what does not verify.
        """
        self.writer = await self._connected(self.writer)
        self.reader = await self._connected(self.reader)
        self.stranger = await self._connected(self.stranger)
        await self.last()

    async def _listen(self, who: Canary) -> None:
        if not await who.subscribe(self.filter(ALL_TOPICS)):
            raise Broken(f"{who.name} may not subscribe to {ALL_TOPICS}")

    async def _connected(self, who: Canary) -> Canary:
        """It, or the same one with a new connection where it has lost its own."""
        if await who.pinged():
            return who
        who.close()
        again = who.again()
        await again.connect()
        await self._listen(again)
        return again

    def close(self) -> None:
        """Hang up."""
        for canary in (self.writer, self.reader, self.stranger):
            canary.close()

    # A last word tells that all before it has come.
    async def last(self) -> list[tuple[str, bytes | None]]:
        """What the reader heard until now: (topic, payload)."""
        # The writer alone may come back: with a new connection of the reader's, what it was sent
        # during the try would be lost, and with it what the try is about.
        self.writer = await self._connected(self.writer)
        last = os.urandom(8)
        await self.honest_publish(self.writer, LOW_TOPIC, last)
        await self.writer.heard(last)
        return await self.reader.heard(last)

    async def honest_publish(self, who: Canary, topic: str, payload: bytes) -> None:
        """Raises Broken when it is refused."""
        refused = await who.publish(topic, who.seal(topic, payload))
        if refused is not None:
            raise Broken(f"an honest message of {who.name} was refused: {refused or 'no answer'}")

    async def arrives(self, topic: str) -> bool:
        """Whether the reader gets what the writer publishes there now."""
        payload = os.urandom(8)
        await self.honest_publish(self.writer, topic, payload)
        return (topic, payload) in await self.last()

    async def honest(self) -> str:
        """What must succeed: else the rest would show nothing.

        A site that lets nothing through is not open: the try then says nothing.
        """
        try:
            await self.last()
        except Broken as error:
            raise Untried(f"an honest message does not arrive: {error}") from None
        return "published, wrapped, delivered and opened"

    # --- who may connect ---

    async def no_proof(self) -> str:
        """A CONNECT without a proof, and one whose proof is not the client's."""
        forged = bytearray(self.stranger.again().make_hello())
        forged[-5] = ord("A") if forged[-5] != ord("A") else ord("B")
        bare = build.connect("nobody")
        user = build.connect("nobody", username=USER.decode(), password=b"x" * 54)
        return await self._not_welcome(bytes(forged), bare, user)

    async def replayed_connect(self) -> str:
        """What the network has seen the reader send before."""
        return await self._not_welcome(self.reader.hello)

    # Enrolment files carry this address; what listens there must be us, not a broker beside.
    async def advertised(self, mediator: Mediator) -> str:
        """Whoever listens there proves that it is this mediator."""
        here = self.reader
        host, port = mediator.advertise_host, mediator.advertise_port
        at = reach.written(host, port)
        wrong = reach.stray(host, mediator.host)
        beside = "" if wrong is None else f"; {wrong}"
        if (host, port) == (here.host, here.port):
            return f"{at}{beside}"
        # A client has one session at a time: a second connection of the same one would shift the
        # counters of the first, which then looks refused in every later try.
        there = here.again(host, port)
        try:
            code = await there.knock(there.make_hello())
            if code == _UNAVAILABLE:
                raise Untried(f"{at} answers CONNACK {code}: it cannot serve just now")
            if code or not await there.welcomed():
                raise Failed(f"what listens at {at} is not this mediator")
        except Broken as error:
            raise Untried(f"from here: {error}{beside}") from None
        finally:
            there.close()
            here.close()
            self.reader = there.again(here.host, here.port)
        return f"{at}{beside}"

    async def _not_welcome(self, *hellos: bytes) -> str:
        told = set()
        for hello in hellos:
            thief = self.reader.again()
            try:
                code = await thief.knock(hello)
                told.add(f"CONNACK {code}" if code else "behind, and hung up on")
                # CONNACK 0 alone is no entry: the welcome may say "behind", and then it ends.
                if not code and await thief.pinged():
                    raise Failed("it is let in")
            except Broken:
                told.add("hung up on")
            finally:
                thief.close()
        return ", ".join(sorted(told))

    # --- who may publish ---

    async def must_be_refused(self, topic: str) -> str:
        """The writer publishes there: what says no. Failed: that is taken."""
        rule = await self.writer.publish(topic, self.writer.seal(topic, os.urandom(8)))
        if rule is None:
            raise Failed(f"a message on {topic} is taken; {NOT_ENFORCED}")
        return rule or "no acknowledgement"

    async def foreign_publish(self) -> str:
        """The stranger writes on the writer's topic."""
        stranger = self.stranger
        rule = await stranger.publish(LOW_TOPIC, stranger.seal(LOW_TOPIC, b"forged"))
        await self._only_honest("the stranger's message")
        if rule is None:
            raise Failed(f"a publish to another label's topic is taken; {NOT_ENFORCED}")
        return rule or "no acknowledgement"

    async def upward_publish(self) -> str:
        """The reader writes downwards: what it knows would leak."""
        reader = self.reader
        rule = await reader.publish(LOW_TOPIC, reader.seal(LOW_TOPIC, b"leaked"))
        await self._only_honest("a message of a label above")
        if rule is None:
            raise Failed(f"a client above writes to a topic below; {NOT_ENFORCED}")
        return rule or "no acknowledgement"

    async def replayed_publish(self) -> str:
        """The same message again, by its sender and by the stranger."""
        writer, stranger = self.writer, self.stranger
        payload = os.urandom(8)
        m2 = writer.seal(LOW_TOPIC, payload)
        if await writer.publish(LOW_TOPIC, m2) is not None:
            raise Broken("an honest message was refused")
        again = await writer.publish(LOW_TOPIC, m2)
        stolen = await stranger.publish(LOW_TOPIC, m2)
        heard = [found for topic, found in await self.last() if topic == LOW_TOPIC]
        if heard != [payload]:
            raise Failed(f"a replayed message came {len(heard)} times to the reader")
        if stolen is None:
            raise Failed("another client's message is taken when somebody else sends it")
        return (
            f"acknowledged, not forwarded; stolen: {stolen or 'no acknowledgement'}"
            if (again is None)
            else (again or "no acknowledgement")
        )

    async def moved(self) -> str:
        """A message sealed for one topic, published to another one of the same label."""
        writer = self.writer
        rule = await writer.publish(LOW_TOPIC, writer.seal(LOW_TOPIC + "/elsewhere", b"moved"))
        await self._only_honest("the moved message")
        if rule is None:
            raise Failed("a message is taken on a topic that it was not sealed for")
        return rule or "no acknowledgement"

    async def unsealed(self) -> str:
        """Plaintext, as any MQTT client sends it."""
        rule = await self.writer.publish(LOW_TOPIC, b"plaintext")
        await self._only_honest("plaintext")
        if rule is None:
            raise Failed("plaintext is taken")
        return rule or "no acknowledgement"

    async def reserved(self) -> str:
        """Topics of the protocol and of brokers."""
        told = set()
        writer = self.writer
        for topic in ("!x/sealmq-doctor", "$SYS/sealmq-doctor", "@sm1/sealmq-doctor"):
            rule = await writer.publish(topic, writer.seal(topic, b"reserved"))
            if rule is None:
                raise Failed(f"a publish to {topic} is taken")
            told.add(rule)
        return ", ".join(sorted(told)) or "no acknowledgement"

    async def in_place_of_a_border(self, mounts: Sequence[str]) -> str:
        """What stands there has passed the border, as readers take it."""
        told = set()
        for mount in mounts:
            topic = f"{mount}sealmq-doctor"
            rule = await self.writer.publish(topic, self.writer.seal(topic, b"in its place"))
            if rule is None:
                raise Failed(f"a publish to {topic} by another client is taken")
            told.add(rule)
        return ", ".join(sorted(told)) or "no acknowledgement"

    async def empty_retained(self) -> str:
        """Whoever can write into the connection clears a retained message with an empty one."""
        writer = self.writer
        kept = os.urandom(8)
        m2 = writer.seal(LOW_TOPIC, kept, retain=True)
        refused = await writer.publish(LOW_TOPIC, m2, retain=True)
        if refused is not None:
            if refused.startswith("broker.promise"):
                return "this broker retains nothing"
            raise Broken(f"an honest retained message was refused: {refused or 'no answer'}")
        try:
            rule = await writer.publish(LOW_TOPIC, b"", retain=True)
            await self.last()
            # The reader subscribes again, which brings what is retained.
            await self.reader.subscribe(self.filter(ALL_TOPICS))
            # Beside what is live, so it may come later.
            for _ in range(_RETAINED_TRIES):
                if kept in [payload for _, payload in await self.last()]:
                    break
                await asyncio.sleep(_RETAINED_PAUSE_S)
            else:
                raise Failed("an empty message that nobody has sealed clears a retained one")
        finally:
            writer = self.writer = await self._connected(self.writer)
            m2 = writer.seal(LOW_TOPIC, b"", retain=True, kind=CLEAR)
            await writer.publish(LOW_TOPIC, m2, retain=True)
        return rule or "no acknowledgement"

    # --- who may read ---

    async def foreign_subscribe(self) -> str:
        """The stranger asks for the writer's topic by its name."""
        if await self.stranger.subscribe(self.filter(LOW_TOPIC)):
            raise Failed(f"a topic of a label that is not below is granted; {NOT_ENFORCED}")
        return "SUBACK 0x80"

    async def foreign_read(self) -> str:
        """The stranger has a filter that matches, and must get nothing but its own."""
        return await self._gets_only(self.stranger, SIDE_TOPIC)

    async def lower_reader(self) -> str:
        """The writer, below, must not get what is published above it."""
        await self.honest_publish(self.reader, HIGH_TOPIC, b"secret")
        return await self._gets_only(self.writer, LOW_TOPIC)

    async def _gets_only(self, who: Canary, own: str) -> str:
        last = os.urandom(8)
        await self.honest_publish(who, own, last)
        got = sorted({topic for topic, _ in await who.heard(last)} - {own})
        if got:
            raise Failed(f"{who.name} got messages of {', '.join(got)}; {NOT_ENFORCED}")
        return "nothing is delivered"

    async def _only_honest(self, what: str) -> None:
        if any(topic == LOW_TOPIC for topic, _ in await self.last()):
            raise Failed(f"{what} was delivered to the reader; {NOT_ENFORCED}")
