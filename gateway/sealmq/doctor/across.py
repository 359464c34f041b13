"""Tries at somebody's broker: entering, reading and publishing across its access list.

Each "it did not come" has a control in the same round: who may read it has got it, and who may not
has got a later message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from sealmq.broker.errors import Closed, Silent, Untrusted
from sealmq.broker.peer import Peer
from sealmq.broker.target import Target
from sealmq.mqtt import Will

from .accounts import Account
from .probe import BREAKS_OFF, REFUSED, Back, Came, Lines, Probe, mark_of_ours, new_name
from .result import Failed, Unclear, Untried

_HUNG_UP = "hung up on"
_NOT_SENT = "taken, and not sent"


class Across:
    """`sessions`: those that it has made the broker keep."""

    def __init__(self, probe: Probe) -> None:
        self._probe, self._accounts = probe, probe.accounts
        self.sessions: list[tuple[Account, str]] = []

    async def allowed(self) -> str:
        """What the file allows, each reader and each writer: else a refusal would mean nothing."""
        each = self._accounts.each
        for one in each:
            async with self._probe.enter(one):
                pass
        for topic in self._accounts.topics:
            readers = [one for one in each if topic in one.read]
            writers = [one for one in each if topic in one.write]
            async with self._probe.lines(*readers, *writers) as lines:
                for one in readers:
                    await lines[one].subscribe(topic)
                for writer in writers:
                    try:
                        mark = await self._probe.publish(lines[writer], topic)
                        for one in readers:
                            await self._probe.until(lines[one], mark, Came())
                    except Silent:
                        raise Unclear(
                            f"{topic}: a message of {writer.name} does not come"
                        ) from None
        return "published, delivered, acknowledged"

    async def anonymous(self) -> str:
        said = [await self._stranger("who gives no name", None, None)]
        if self._probe.where.bare is not self._probe.where.context:
            whom = "who gives no name and no certificate"
            said.append(f"without a certificate: {await self._stranger(whom, None, None, True)}")
        return self._if_others_get_in(said)

    async def guess(self) -> str:
        name = self._accounts.each[0].name
        said = [await self._stranger(f"{name} with another password", name, new_name())]
        bare = await self._stranger(f"{name} without a password", name, None)
        return self._if_others_get_in([*said, f"without a password: {bare}"])

    def _if_others_get_in(self, said: Iterable[str]) -> str:
        if not self._probe.seen:
            raise Unclear("it lets nobody in, the accounts of the file neither")
        return ", ".join(said)

    async def _stranger(
        self, whom: str, user: str | None, password: str | None, bare: bool = False
    ) -> str:
        target = Target(self._probe.where.address, self._probe.where.port, user, password)
        try:
            async with self._probe.peer(None, target=target, bare=bare) as line:
                if line.code:
                    return f"CONNACK {line.code}"
                await line.held()
                raise Failed(f"{whom} is let in and served{await self._reads(line)}")
        except Closed:
            return _HUNG_UP
        except Untrusted:  # of the certificate that is missing
            return "no TLS"

    async def _reads(self, line: Peer) -> str:
        """What more there is to say of somebody who should not be there."""
        topic = self._accounts.topics[0]
        writer = self._accounts.writer(topic)
        came = Came()
        with contextlib.suppress(*BREAKS_OFF):
            await line.subscribe(topic)
            async with self._probe.enter(writer) as other:
                mark = await self._probe.publish(other, topic)
                await self._probe.now(line, came)
                if mark in came.marks:
                    return f", and reads {topic}"
        return ""

    async def plainly(self, who: Account, topic: str) -> str:
        head, _, last = topic.rpartition("/")
        return await self._read(who, topic, topic, *((f"{head}/+",) if last else ()))

    async def hash(self, who: Account, topic: str) -> str:
        return await self._read(who, topic, "#", "+/#")

    async def share(self, who: Account, topic: str) -> str:
        return await self._read(who, topic, f"$share/sealmq-doctor/{topic}")

    async def _read(self, who: Account, topic: str, *filters: str) -> str:
        probe = self._probe
        writer, reader = self._accounts.writer(topic, who), self._accounts.reader(topic, who)
        back, came = probe.back(who), Came()
        async with probe.lines(who, writer, reader, *([back[1]] if back else [])) as lines:
            await lines[reader].subscribe(topic)
            said = await self._subscribed(lines[who], back, filters)
            mark = await probe.carried(lines, writer, reader, topic)
            said = await self._heard(lines, who, back, said, came)
        if mark in came.marks:
            raise Failed(f"reads {topic}, subscribed to {' and '.join(filters)}")
        return said

    async def _subscribed(self, line: Peer, back: Back | None, filters: Sequence[str]) -> str:
        try:
            if back:
                await line.subscribe(back[0])
            codes = await line.subscribe(*filters)
        except Closed:
            return _HUNG_UP
        return "refused" if {*codes} == {REFUSED} else "granted, and nothing comes"

    async def _heard(
        self, lines: Lines, who: Account, back: Back | None, said: str, came: Came
    ) -> str:
        """What has come to it, up to a later message that it may read."""
        try:
            if back is None or said == _HUNG_UP:
                await self._probe.now(lines[who], came)
            else:
                last = await self._probe.publish(lines[back[1]], back[0])
                await self._probe.until(lines[who], last, came)
        except Closed:
            return _HUNG_UP
        return said

    async def write(self, who: Account, topic: str) -> str:
        writer = self._accounts.writer(topic)
        reader = self._accounts.reader(topic, who)
        mark, came = mark_of_ours(), Came()
        async with self._probe.lines(who, writer, reader) as lines:
            await lines[reader].subscribe(topic)
            self._probe.count()
            try:
                acknowledged = await lines[who].offer(topic, mark)
                said = "acknowledged, and dropped" if acknowledged else "not acknowledged"
            except Closed:
                said = _HUNG_UP
            last = await self._probe.publish(lines[writer], topic)
            await self._probe.until(lines[reader], last, came)
        if mark in came.marks:
            raise Failed(f"what it publishes to {topic} is delivered")
        return said

    async def will(self, who: Account, topic: str) -> str:
        accounts = self._accounts
        reader, writer = accounts.reader(topic, who), accounts.writer(topic)
        # Who may leave a will, and who sees that one: without it nothing shows that wills work.
        heir = who if who.write else writer
        other = accounts.reader(heir.write[0], heir)
        if reader in (who, heir) or other in (who, heir):
            raise Untried("it takes another account that may read it, and one that sees a will")
        good, bad, came = mark_of_ours(), mark_of_ours(), Came()
        async with self._probe.lines(reader, other) as lines:
            await lines[reader].subscribe(topic)
            await lines[other].subscribe(heir.write[0])
            self._probe.count()
            said = await self._left(who, Will(topic, bad, 1))
            self._probe.count()
            if await self._left(heir, Will(heir.write[0], good, 1)) != _NOT_SENT:
                raise Unclear(f"{heir.name} may not leave a will where it may publish")
            await self._probe.until(lines[other], good, came)
            async with AsyncExitStack() as stack:
                if writer not in lines:
                    lines[writer] = await stack.enter_async_context(self._probe.enter(writer))
                last = await self._probe.publish(lines[writer], topic)
                await self._probe.until(lines[reader], last, came)
        if bad in came.marks:
            raise Failed(f"its will is published to {topic}")
        return said

    async def _left(self, who: Account, will: Will) -> str:
        try:
            async with self._probe.peer(who, will=will) as line:
                if line.code:
                    return f"CONNACK {line.code}"
                line.cut()
        except Closed:
            return _HUNG_UP
        return _NOT_SENT

    async def sys(self, who: Account, topic: str) -> str:
        probe = self._probe
        sees = next((one for one in self._accounts.each if one.sys), None)
        back, came, there = probe.back(who), Came(), Came()
        helpers = [one for one in (sees, back[1] if back else None) if one]
        async with probe.lines(who, *helpers) as lines:
            said = await self._subscribed(lines[who], back, [topic])
            if sees:
                await lines[sees].subscribe(topic)
                with contextlib.suppress(Silent):
                    while not there.sys:
                        await probe.take(lines[sees], there)
            said = await self._heard(lines, who, back, said, came)
        if came.sys:
            raise Failed(f"reads {topic}")
        if sees is None:
            raise Unclear(f"{said}, but no account of the file may read it (sys = true) to compare")
        if not there.sys:
            raise Unclear(f"{said}, but to {sees.name} nothing comes either (sys_interval?)")
        return said

    async def takeover(self) -> str:
        """The thief has an account of its own, and knows the victim's client id."""
        accounts = self._accounts
        cast = [
            (victim, thief, topic, writer)
            for victim in accounts.each
            for thief in accounts.each
            for topic in victim.read
            for writer in accounts.each
            if victim != thief and topic in writer.write and writer not in (victim, thief)
        ]
        if not cast:
            raise Untried("it takes three accounts, of which one writes what another may read")
        # Best a topic that the thief may not read: its session would be worth most.
        cast.sort(key=lambda roles: roles[2] in roles[1].read)
        victim, thief, topic, writer = cast[0]
        name = victim.client_id or new_name()
        self.sessions += [(victim, name), (thief, name)]
        got, mark = Came(), b""
        probe = self._probe
        async with probe.enter(writer) as other, probe.enter(victim, name, clean=False) as line:
            await line.subscribe(topic)
            await probe.until(line, await probe.publish(other, topic), Came())
            try:
                async with probe.peer(thief, name, clean=False) as stolen:
                    said = f"CONNACK {stolen.code}" if stolen.code else "both are served"
                    if not stolen.code:
                        mark = await probe.publish(other, topic)
                        await probe.now(stolen, got)
            except Closed:
                said = _HUNG_UP
            try:
                await probe.until(line, await probe.publish(other, topic), Came())
                ended = False
            except Closed:
                ended = True
        found = []
        if ended:
            found.append(f"{thief.name} ends {victim.name}'s connection")
        if topic not in thief.read and mark in got.marks:
            found.append(f"{thief.name} gets what {victim.name} has subscribed to")
        if found:
            raise Failed(" and ".join(found) + ", by its client id alone")
        return said
