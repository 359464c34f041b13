"""Tries at somebody's broker, with accounts of its owner's: what must fail there, and does it?

A SUBACK or a PUBACK proves nothing either way: brokers grant what they do not deliver, and
acknowledge what they drop. So each try ends with an observation, and each "it did not come" has a
control in the same round: who may read it has got it, and who may not has got a later message.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from sealmq.broker.errors import BrokerError, Closed, Refused, Silent
from sealmq.broker.peer import Peer
from sealmq.broker.target import Target
from sealmq.mqtt import Publish, Will

from .accounts import Account, Accounts
from .result import Failed, Finding, Unclear, Untried
from .revoking import Revoking

_REFUSED = 0x80
_SYS = "$SYS/"
_PREFIX = b"sealmq doctor, may be deleted: "
_TIDY_S = 15.0
_PAUSE_S = 0.2
_ALIVE_S = 15.0
AFTER = ("anew", "live", "kept", "retained")
# Deliveries may come after the answer to a ping; a second message missed is no accident.
_MISSED = 2
_TRY_ERRORS = (BrokerError, Unclear, OSError)
Lines: TypeAlias = dict[Account, Peer]


@dataclass(frozen=True, slots=True)
class Where:
    """host: its name, of which its certificate has to be. address: what that was resolved to.

    context, bare: for TLS, with the client's certificate and without one; None: no TLS.
    """

    host: str
    address: str
    port: int
    context: ssl.SSLContext | None = None
    bare: ssl.SSLContext | None = None

    @property
    def exposed(self) -> bool:
        """Whether passwords cross a network without TLS."""
        return self.context is None and not ipaddress.ip_address(self.address).is_loopback


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a visit: seconds for all of it, seconds for an answer, messages sent and received."""

    seconds: float = 120.0
    answer_s: float = 5.0
    messages: int = 2000


async def examine(
    where: Where, accounts: Accounts, limits: Limits, revoking: Revoking
) -> list[Finding]:
    """Every try's result. It ends by itself, and takes away what it has left at the broker."""
    visit = _Visit(where, accounts, limits, revoking)
    try:
        await visit.tries()
    finally:
        await visit.tidy()
    return visit.found


@dataclass(slots=True)
class _Came:
    """What came to one account: marks, those that came as retained (b"": of somebody else's), and
    whether anything came of `$SYS`. Nobody else's payload is kept.
    """

    marks: set[bytes] = field(default_factory=set)
    retained: set[bytes] = field(default_factory=set)
    sys: bool = False

    def add(self, message: Publish) -> None:
        own = message.payload.startswith(_PREFIX)
        if own:
            self.marks.add(message.payload)
        if message.retain:
            self.retained.add(message.payload if own else b"")
        self.sys = self.sys or message.topic.startswith(_SYS)


@dataclass(frozen=True, slots=True)
class _Scene:
    """who: will lose its rights. writer, reader: of `read`; over, looks: of `write`."""

    who: Account
    read: str
    write: str
    writer: Account
    reader: Account
    over: Account
    looks: Account


def _mark() -> bytes:
    return _PREFIX + os.urandom(16).hex().encode()


def _name() -> str:
    return f"sealmq-doctor-{os.urandom(6).hex()}"


class _Visit:
    def __init__(
        self, where: Where, accounts: Accounts, limits: Limits, revoking: Revoking
    ) -> None:
        self._where, self._accounts, self._limits = where, accounts, limits
        self._revoking = revoking
        self.found: list[Finding] = []
        self._end = asyncio.get_running_loop().time() + limits.seconds
        self._messages = 0
        self._seen = False
        """Whether any account was let in."""
        # What is at the broker until it is taken away: topics with a message, kept sessions.
        self._retained: list[str] = []
        self._sessions: list[tuple[Account, str]] = []

    # --- all of it ---

    async def tries(self) -> None:
        each, topics = self._accounts.each, self._accounts.topics
        await self._try("allowed", "", self._allowed)
        await self._try("anonymous", "", self._anonymous)
        await self._try("guess", "", self._guess)
        if self.found[0].ok is not True:
            why = f"what is allowed does not work: {self.found[0].reason}"
            for rule in ("read", "hash", "share", "write", "will", "sys", "takeover", *AFTER):
                self.found.append(Finding.of(rule, "", Untried(why)))
            return
        for rule, work in (("read", self._plainly), ("hash", self._hash), ("share", self._share)):
            for one in each:
                shut = [topic for topic in topics if topic not in one.read]
                await self._each(rule, one, shut, work)
            self._any(rule)
        for rule, work in (("write", self._write), ("will", self._will)):
            for one in each:
                shut = [topic for topic in topics if topic not in one.write]
                await self._each(rule, one, shut, work)
            self._any(rule)
        for one in each:
            if not one.sys:
                await self._each("sys", one, [_SYS + "#"], self._sys)
        self._any("sys")
        await self._try("takeover", "", self._takeover)
        await self._revocation()

    def _any(self, rule: str) -> None:
        if all(one.rule != rule for one in self.found):
            self.found.append(Finding.of(rule, "", Untried("every account of the file may")))

    async def _each(
        self,
        rule: str,
        who: Account,
        topics: Sequence[str],
        work: Callable[[Account, str], Awaitable[str]],
    ) -> None:
        """One row for all topics: one that is open decides, then one that says nothing."""
        if not topics:
            return
        opened: list[str] = []

        async def all_of_them() -> str:
            unclear: list[str] = []
            said: dict[str, None] = {}
            for topic in topics:
                try:
                    said[await work(who, topic)] = None
                except Failed as error:
                    opened.append(str(error))
                except _TRY_ERRORS as error:
                    unclear.append(f"{topic}: {error}")
            if opened:
                raise Failed("; ".join(opened))
            if unclear:
                raise Unclear("; ".join(unclear))
            return ", ".join(said)

        await self._try(rule, who.name, all_of_them, opened)

    async def _try(
        self, rule: str, who: str, work: Callable[[], Awaitable[str]], opened: Sequence[str] = ()
    ) -> None:
        """Its row. `opened`: what it has found when its time ends."""
        came: str | Exception
        if asyncio.get_running_loop().time() >= self._end:
            came = Untried(self._over())
        else:
            try:
                async with asyncio.timeout_at(self._end):
                    came = await work()
            except TimeoutError:
                came = Failed("; ".join(opened)) if opened else Unclear(self._over())
            except (Failed, Untried, *_TRY_ERRORS) as error:
                came = error
        self.found.append(Finding.of(rule, who, came))

    def _over(self) -> str:
        return f"its time of {self._limits.seconds:g} s is over (--seconds)"

    # --- connections and messages ---

    def _peer(
        self,
        who: Account | None,
        name: str = "",
        *,
        clean: bool = True,
        will: Will | None = None,
        target: Target | None = None,
        bare: bool = False,
    ) -> Peer:
        where = self._where
        if target is None:
            user, password = (None, None) if who is None else (who.name, who.password)
            target = Target(where.address, where.port, user, password)
        return Peer(
            target,
            name or (who.client_id if who else "") or _name(),
            clean=clean,
            timeout_s=self._limits.answer_s,
            context=where.bare if bare else where.context,
            name=where.host,
            will=will,
        )

    @asynccontextmanager
    async def _in(
        self, who: Account, name: str = "", *, clean: bool = True, will: Will | None = None
    ) -> AsyncIterator[Peer]:
        """A connection that has been let in."""
        async with self._peer(who, name, clean=clean, will=will) as line:
            if line.code:
                raise Refused(f"{who.name} is refused, CONNACK {line.code}", line.code)
            self._seen = True
            yield line

    @asynccontextmanager
    async def _lines(self, *who: Account) -> AsyncIterator[Lines]:
        """One connection for each account: some brokers let in one at a time."""
        async with AsyncExitStack() as stack:
            yield {one: await stack.enter_async_context(self._in(one)) for one in {*who}}

    def _count(self) -> None:
        self._messages += 1
        if self._messages > self._limits.messages:
            raise Unclear(f"its {self._limits.messages} messages are spent (--messages)")

    async def _publish(self, line: Peer, topic: str, *, retain: bool = False) -> bytes:
        """A message of its own kind; returns when it is acknowledged."""
        self._count()
        mark = _mark()
        await line.publish(topic, mark, retain=retain)
        return mark

    async def _until(self, line: Peer, mark: bytes, came: _Came) -> None:
        """Reads on until the mark has come."""
        while mark not in came.marks:
            came.add(await line.message())
            self._count()

    async def _carried(self, lines: Lines, writer: Account, reader: Account, topic: str) -> bytes:
        """The control: a message that the reader, who has subscribed, gets."""
        mark = await self._publish(lines[writer], topic)
        await self._until(lines[reader], mark, _Came())
        return mark

    async def _now(self, line: Peer, came: _Came) -> None:
        """What has come to it by now, as far as the answer to a ping tells."""
        await line.held()
        with contextlib.suppress(Silent):
            while True:
                came.add(await line.message(0))
                self._count()

    def _back(self, who: Account) -> tuple[str, Account] | None:
        """What it may read, and who may write that: a later message must come to it."""
        for topic in who.read:
            if writer := self._accounts.writer(topic, who):
                return topic, writer
        return None

    # --- tries ---

    async def _allowed(self) -> str:
        """What the file allows, each reader and each writer: else a refusal would mean nothing."""
        each = self._accounts.each
        for one in each:
            async with self._in(one):
                pass
        for topic in self._accounts.topics:
            readers = [one for one in each if topic in one.read]
            writers = [one for one in each if topic in one.write]
            async with self._lines(*readers, *writers) as lines:
                for one in readers:
                    await lines[one].subscribe(topic)
                for writer in writers:
                    try:
                        mark = await self._publish(lines[writer], topic)
                        for one in readers:
                            await self._until(lines[one], mark, _Came())
                    except Silent:
                        raise Unclear(
                            f"{topic}: a message of {writer.name} does not come"
                        ) from None
        return "published, delivered, acknowledged"

    async def _anonymous(self) -> str:
        said = [await self._stranger(None, None)]
        if self._where.bare is not self._where.context:
            said.append("without a certificate: " + await self._stranger(None, None, bare=True))
        return await self._said(said)

    async def _guess(self) -> str:
        who = self._accounts.each[0]
        said = [await self._stranger(who.name, _name())]
        said.append("without a password: " + await self._stranger(who.name, None))
        return await self._said(said)

    async def _said(self, said: Iterable[str]) -> str:
        if not self._seen:
            raise Unclear("it lets nobody in, the accounts of the file neither")
        return ", ".join(said)

    async def _stranger(self, user: str | None, password: str | None, bare: bool = False) -> str:
        target = Target(self._where.address, self._where.port, user, password)
        try:
            async with self._peer(None, target=target, bare=bare) as line:
                if line.code:
                    return f"CONNACK {line.code}"
                await line.held()
                reads = await self._reads(line)
                whom = "who gives no name" if user is None else f"who gives the name {user!r} alone"
                raise Failed(f"{whom} is let in and served{reads}")
        except Closed:
            return "hung up on"
        except ssl.SSLError as error:  # the certificate that is missing
            return f"no TLS: {error.reason}"

    async def _reads(self, line: Peer) -> str:
        """What more there is to say of somebody who should not be there."""
        topic = self._accounts.topics[0]
        writer = self._accounts.writer(topic)
        if writer is None:
            return ""
        came = _Came()
        with contextlib.suppress(*_TRY_ERRORS):
            await line.subscribe(topic)
            async with self._in(writer) as other:
                mark = await self._publish(other, topic)
                await self._now(line, came)
                if mark in came.marks:
                    return f", and reads {topic}"
        return ""

    async def _plainly(self, who: Account, topic: str) -> str:
        head, _, last = topic.rpartition("/")
        return await self._read(who, topic, topic, *((f"{head}/+",) if last else ()))

    async def _hash(self, who: Account, topic: str) -> str:
        return await self._read(who, topic, "#", "+/#")

    async def _share(self, who: Account, topic: str) -> str:
        return await self._read(who, topic, f"$share/sealmq-doctor/{topic}")

    async def _read(self, who: Account, topic: str, *filters: str) -> str:
        writer = self._accounts.writer(topic, who)
        reader = self._accounts.reader(topic, who)
        if writer is None or reader is None:
            raise Unclear("nobody may write or read it")
        back = self._back(who)
        came = _Came()
        async with self._lines(who, writer, reader, *([back[1]] if back else [])) as lines:
            line = lines[who]
            await lines[reader].subscribe(topic)
            try:
                if back:
                    await line.subscribe(back[0])
                codes = await line.subscribe(*filters)
                said = "refused" if {*codes} == {_REFUSED} else "granted, and nothing comes"
            except Closed:
                said = "hung up on"
            mark = await self._carried(lines, writer, reader, topic)
            try:
                if said == "hung up on" or back is None:
                    await self._now(line, came)
                else:
                    await self._until(line, await self._publish(lines[back[1]], back[0]), came)
            except Closed:
                said = "hung up on"
        if mark in came.marks:
            raise Failed(f"reads {topic}, subscribed to {' and '.join(filters)}")
        return said

    async def _write(self, who: Account, topic: str) -> str:
        writer = self._accounts.writer(topic)
        reader = self._accounts.reader(topic, who)
        if writer is None or reader is None:
            raise Unclear("nobody may write or read it")
        mark, came = _mark(), _Came()
        async with self._lines(who, writer, reader) as lines:
            await lines[reader].subscribe(topic)
            self._count()
            try:
                acknowledged = await lines[who].offer(topic, mark)
                said = "acknowledged, and dropped" if acknowledged else "not acknowledged"
            except Closed:
                said = "hung up on"
            await self._until(lines[reader], await self._publish(lines[writer], topic), came)
        if mark in came.marks:
            raise Failed(f"what it publishes to {topic} is delivered")
        return said

    async def _will(self, who: Account, topic: str) -> str:
        accounts = self._accounts
        reader, writer = accounts.reader(topic, who), accounts.writer(topic)
        # Who may leave a will, and who sees that one: without it nothing shows that wills work.
        heir = who if who.write else writer
        other = accounts.reader(heir.write[0], heir) if heir else None
        if reader in (None, who, heir) or other in (None, who, heir):
            raise Unclear("it takes another account that may read it, and one that sees a will")
        if reader is None or other is None or heir is None or writer is None:
            raise Unclear("nobody may write or read it")
        good, bad, came = _mark(), _mark(), _Came()
        async with self._lines(reader, other) as lines:
            await lines[reader].subscribe(topic)
            await lines[other].subscribe(heir.write[0])
            self._count()
            said = await self._left(who, Will(topic, bad, 1))
            self._count()
            if await self._left(heir, Will(heir.write[0], good, 1)) != "taken, and not sent":
                raise Unclear(f"{heir.name} may not leave a will where it may publish")
            await self._until(lines[other], good, came)
            async with AsyncExitStack() as stack:
                if writer not in lines:
                    lines[writer] = await stack.enter_async_context(self._in(writer))
                await self._until(lines[reader], await self._publish(lines[writer], topic), came)
        if bad in came.marks:
            raise Failed(f"its will is published to {topic}")
        return said

    async def _left(self, who: Account, will: Will) -> str:
        try:
            async with self._peer(who, will=will) as line:
                if line.code:
                    return f"CONNACK {line.code}"
                line.cut()
        except Closed:
            return "hung up on"
        return "taken, and not sent"

    async def _sys(self, who: Account, topic: str) -> str:
        sees = next((one for one in self._accounts.each if one.sys), None)
        back = self._back(who)
        came = _Came()
        helpers = [one for one in (sees, back[1] if back else None) if one]
        async with self._lines(who, *helpers) as lines:
            line = lines[who]
            try:
                if back:
                    await line.subscribe(back[0])
                [code] = await line.subscribe(topic)
                said = "refused" if code == _REFUSED else "granted, and nothing comes"
            except Closed:
                said = "hung up on"
            there = _Came()
            if sees:
                await lines[sees].subscribe(topic)
                with contextlib.suppress(Silent):
                    while not there.sys:
                        there.add(await lines[sees].message())
                        self._count()
            try:
                if said == "hung up on" or back is None:
                    await self._now(line, came)
                else:
                    await self._until(line, await self._publish(lines[back[1]], back[0]), came)
            except Closed:
                said = "hung up on"
        if came.sys:
            raise Failed(f"reads {topic}")
        if sees is None:
            raise Unclear(f"{said}, but no account of the file may read it (sys = true) to compare")
        if not there.sys:
            raise Unclear(f"{said}, but to {sees.name} nothing comes either (sys_interval?)")
        return said

    async def _takeover(self) -> str:
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
        name = victim.client_id or _name()
        self._sessions += [(victim, name), (thief, name)]
        came, got, mark = _Came(), _Came(), b""
        async with self._in(writer) as other, self._in(victim, name, clean=False) as line:
            await line.subscribe(topic)
            await self._until(line, await self._publish(other, topic), _Came())
            present = False
            try:
                async with self._peer(thief, name, clean=False) as stolen:
                    said = f"CONNACK {stolen.code}" if stolen.code else "both are served"
                    present = stolen.present
                    if not stolen.code:
                        mark = await self._publish(other, topic)
                        await self._now(stolen, got)
            except Closed:
                said = "hung up on"
            try:
                await self._until(line, await self._publish(other, topic), came)
                ended = False
            except Closed:
                ended = True
        found = []
        if ended:
            found.append(f"{thief.name} ends {victim.name}'s connection")
        if topic not in thief.read and mark in got.marks:
            found.append(f"{thief.name} gets what {victim.name} has subscribed to")
        elif present:
            found.append(f"{thief.name} gets {victim.name}'s session")
        if found:
            raise Failed(" and ".join(found) + ", by its client id alone")
        return said

    # --- after a revocation ---

    async def _revocation(self) -> None:
        who = self._accounts.revoke
        outcome: dict[str, str | Exception] = {}
        rest: Exception = Unclear("the try before it came to nothing")
        try:
            scene = self._scene(who)
            async with asyncio.timeout_at(self._end) as limit:
                await self._revoked(scene, outcome, limit)
        except TimeoutError:
            rest = Unclear(self._over())
        except (Untried, *_TRY_ERRORS) as error:
            rest = error
        for rule in AFTER:
            found = outcome.get(rule, rest)
            # What is allowed still is no leftover.
            if rule != "anew" and isinstance(found, Failed) and not _holds(outcome.get("anew")):
                found = Unclear("whether the revocation has taken effect at all is not known")
            self.found.append(Finding.of(rule, who.name if who else "", found))

    def _scene(self, who: Account | None) -> _Scene:
        self._revoking.check()
        if who is None:
            raise Untried('the file does not say which account to revoke (revoke = "NAME")')
        accounts = self._accounts
        for read in who.read:
            for write in who.write:
                writer, reader = accounts.writer(read, who), accounts.reader(read, who)
                over, looks = accounts.writer(write, who), accounts.reader(write, who)
                if writer and reader and over and looks:
                    if who not in (writer, reader, over, looks):
                        return _Scene(who, read, write, writer, reader, over, looks)
        raise Untried(f"it takes others that may read and write a topic that {who.name} may too")

    async def _revoked(
        self, at: _Scene, outcome: dict[str, str | Exception], limit: asyncio.Timeout
    ) -> None:
        name = at.who.client_id or _name()
        self._sessions.append((at.who, name))
        async with self._lines(at.writer, at.reader, at.over, at.looks) as lines:
            await lines[at.reader].subscribe(at.read)
            async with self._in(at.who, name, clean=False) as line:
                await line.subscribe(at.read)
                await self._until(line, await self._publish(lines[at.writer], at.read), _Came())
                left = await self._leave(line, lines, at)
                await self._take_away(at.who, [*lines.values(), line], limit)
                outcome["live"] = await self._live(line, lines, at)
            outcome["kept"] = await self._kept(name, lines, at)
            outcome["anew"] = await self._anew(lines, at)
            outcome["retained"] = (
                left if isinstance(left, Exception) else await self._old(left, lines, at)
            )

    async def _take_away(self, who: Account, lines: Sequence[Peer], limit: asyncio.Timeout) -> None:
        """Revoke, and keep the connections alive meanwhile. An operator's time does not count."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._revoking.by_hand:
            limit.reschedule(None)
        doing = asyncio.create_task(self._revoking.revoke(who.name), name="doctor: revoke")
        try:
            while not (await asyncio.wait({doing}, timeout=_ALIVE_S))[0]:
                for line in lines:
                    with contextlib.suppress(BrokerError):
                        await line.held()
            await doing
        finally:
            doing.cancel()
        if self._revoking.by_hand:
            self._end += loop.time() - began
            limit.reschedule(self._end)

    async def _live(self, line: Peer, lines: Lines, at: _Scene) -> str | Exception:
        """The connection that it had. A broker may take some time to hear of a revocation."""
        end = asyncio.get_running_loop().time() + self._limits.answer_s
        missed = 0
        while missed < _MISSED:
            came = _Came()
            await self._carried(lines, at.writer, at.reader, at.read)
            try:
                await self._now(line, came)
            except Closed:
                return "hung up on"
            missed = 0 if came.marks else missed + 1
            if asyncio.get_running_loop().time() >= end and not missed:
                return Failed(
                    f"{self._limits.answer_s:g} s after it, {at.who.name} still gets {at.read} in "
                    "the connection that it had"
                )
            await asyncio.sleep(_PAUSE_S)
        return "nothing comes any more"

    async def _kept(self, name: str, lines: Lines, at: _Scene) -> str | Exception:
        """It comes back to its session, and subscribes to nothing."""
        came = _Came()
        marks = {await self._carried(lines, at.writer, at.reader, at.read)}
        try:
            async with self._peer(at.who, name, clean=False) as line:
                if line.code:
                    return f"CONNACK {line.code}"
                said = "its session is there" if line.present else "its session is gone"
                for _ in range(_MISSED):
                    await self._now(line, came)
                    marks.add(await self._carried(lines, at.writer, at.reader, at.read))
                await self._now(line, came)
        except Closed:
            said = "hung up on"
        if came.marks & marks:
            return Failed(f"{at.who.name} comes back and gets {at.read} without subscribing to it")
        return f"{said}, and nothing comes"

    async def _anew(self, lines: Lines, at: _Scene) -> str | Exception:
        """It connects, subscribes and publishes as it did when it was allowed to."""
        came, looked, marks, mark = _Came(), _Came(), set[bytes](), _mark()
        await lines[at.looks].subscribe(at.write)
        try:
            async with self._peer(at.who) as line:
                if line.code:
                    return f"CONNACK {line.code}"
                await line.subscribe(at.read)
                for _ in range(_MISSED):
                    marks.add(await self._carried(lines, at.writer, at.reader, at.read))
                    await self._now(line, came)
                self._count()
                await line.offer(at.write, mark)
        except Closed:
            pass
        await self._until(lines[at.looks], await self._publish(lines[at.over], at.write), looked)
        found = [f"reads {at.read}"] if came.marks & marks else []
        found += [f"writes {at.write}"] if mark in looked.marks else []
        return Failed(f"{at.who.name} still {' and '.join(found)}") if found else "it gets nowhere"

    async def _leave(self, line: Peer, lines: Lines, at: _Scene) -> bytes | Exception:
        """A retained message of the account's, which another one gets."""
        if b"" in (await self._retained_now(lines, at)).retained:
            return Untried(f"{at.write} holds a retained message, which is not the doctor's")
        self._retained.append(at.write)
        mark = await self._publish(line, at.write, retain=True)
        came = await self._retained_now(lines, at)
        return mark if mark in came.retained else Unclear(f"it retains nothing on {at.write}")

    async def _old(self, mark: bytes, lines: Lines, at: _Scene) -> str | Exception:
        if mark in (await self._retained_now(lines, at)).retained:
            return Failed(f"what {at.who.name} left on {at.write} is still given to who subscribes")
        again = await self._publish(lines[at.over], at.write, retain=True)
        if again not in (await self._retained_now(lines, at)).retained:
            return Unclear(f"it retains nothing on {at.write}, of {at.over.name} neither")
        return "it is not given out any more"

    async def _retained_now(self, lines: Lines, at: _Scene) -> _Came:
        """What comes to one who subscribes, again or anew: retained messages [MQTT-3.8.4-3]."""
        came = _Came()
        line = lines[at.looks]
        for _ in range(_MISSED):
            await line.subscribe(at.write)
            await self._until(line, await self._publish(lines[at.over], at.write), came)
        return came

    # --- what it leaves ---

    async def tidy(self) -> None:
        """Give back what was revoked, end sessions, clear what it has retained; says whether."""
        came: str | Exception
        left = [f"the retained message on {topic}" for topic in self._retained]
        try:
            async with asyncio.timeout(_TIDY_S):
                await self._revoking.restore()
                for who, name in self._sessions:
                    await self._ended(who, name)
                for topic in self._retained:
                    await self._clear(topic)
                    left.pop(0)
                came = "its retained messages are cleared" if self._retained else "it left nothing"
        except (TimeoutError, Untried, *_TRY_ERRORS) as error:
            what = " and ".join(left) or "a session"
            came = Unclear(f"{what} may be there still: {str(error) or 'no answer in time'}")
        self.found.append(Finding.of("left", "", came))

    async def _ended(self, who: Account, name: str) -> None:
        """A session ends with the next clean one. Whose account is gone has none that matters."""
        with contextlib.suppress(*_TRY_ERRORS):
            async with self._peer(who, name):
                pass

    async def _clear(self, topic: str) -> None:
        writer = self._accounts.writer(topic, self._accounts.revoke)
        reader = self._accounts.reader(topic, self._accounts.revoke)
        if writer is None or reader is None:
            raise Unclear("nobody may clear it")
        came = _Came()
        async with self._lines(writer, reader) as lines:
            await lines[writer].publish(topic, b"", retain=True)
            await lines[reader].subscribe(topic)
            last = _mark()
            await lines[writer].publish(topic, last)
            await self._until(lines[reader], last, came)
        if came.retained:
            raise Unclear(f"{topic} could not be cleared")


def _holds(found: str | Exception | None) -> bool:
    return isinstance(found, str)
