"""One user's enrolment: its keys, the one connection that publishes, and connections that read.

All that a user's local clients publish goes through one connection, in its order; what they read
comes over one connection each, whose session, will and client identifier are theirs. A PUBLISH is
answered once the site has decided; while the site is away it waits on disk, unanswered. No message
has a task of its own: answers are calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sealmq.client import Client, ClientError, Closed, NotAuthorised, Notice, Options
from sealmq.client.backoff import Backoff
from sealmq.client.client import address, read_enrolment
from sealmq.client.door import Renew, asked
from sealmq.client.lent import borrowed
from sealmq.client.opening import Quarantine, take_answer
from sealmq.client.randomness import new_nonce, new_salt
from sealmq.client.state import State, StateFile
from sealmq.client.values import Will
from sealmq.families import registry
from sealmq_spec.const import LIFE_FOREVER
from sealmq_spec.errors import Denied, RateLimited, SealError, Unavailable, WrongEpoch
from sealmq_spec.identity import Identity

from .config import User
from .spool import Full, Kept, Spool
from .wire import LastWill, Pub, Refusal

log = logging.getLogger("sealmq.agent")

# The site takes 16 connections of a client (SPEC.md 9): one publishes.
SEATS = 14
_EVER_S = 1e8
_TRY_S = 10.0
_BATCH = 16
# The shortest life that a message can be given besides its 60 s (SPEC.md 3.1).
SHORTEST_S = 2
_EXPIRE_S = 10.0
# A topic about which the site gave no word is tried again after 1 s, and up to 30.
_ASIDE_S, _ASIDE_MOST_S = 1.0, 30.0
_DISK_S = 5.0
# What waits for room in the connection, of all clients: they may leave, and come with more.
_QUEUED, _QUEUED_BYTES = 4096, 32 << 20
_ROOM_S = 0.05
_SESSIONS = 256
# Messages of QoS 2 that a client may have published without a PUBREL.
UNRELEASED = 2048
# Of all sessions that are kept, packet ids of QoS 2 together.
_ALL_UNRELEASED = 65_536
_INBOX = 64
_INBOX_BYTES = 2 << 20

_EXPIRED = Refusal("away", "agent.expired", "it waited for the site for too long")
_NOT_KEPT = Refusal("away", "agent.away", "the site is away; QoS 0 is not kept")


class Wallet:
    """What all connections of an enrolment share: its newest roots, and boot. A `State`."""

    def __init__(
        self, identity: Identity, host: str, port: int, file: State, again: Renew | None
    ) -> None:
        self.identity = identity
        self.host, self.port = host, port
        self._file, self._again = file, again
        self._lock = threading.Lock()
        self._asking = asyncio.Lock()
        self._boot, self._kg_nonce = file.open(identity)

    @classmethod
    async def of(cls, user: User) -> Wallet:
        """StateError, Malformed, OSError; GatewayDown, LendRefused for a client that is lent."""
        if user.enrolment is None:
            lent = await borrowed(user.site, user.client)
            return cls(lent.identity, lent.host, lent.port, lent.boot, lent.again)
        data = read_enrolment(user.enrolment)
        host, port = address(data)
        state = user.state or user.enrolment.with_name(user.enrolment.name + ".state")
        return cls(Identity.from_enrolment(data), host, port, StateFile(state), None)

    def open(self, identity: Identity) -> tuple[int, bytes]:
        """The newest roots, and the last boot."""
        with self._lock:
            if self.identity.gen:
                identity.load(self.identity.dump())
            return self._boot, self._kg_nonce

    def save(self, identity: Identity, boot: int, kg_nonce: bytes) -> None:
        """What one connection has come to counts for all. StateError."""
        with self._lock:
            newer = identity.gen > self.identity.gen
            boot = boot if newer else max(boot, self._boot)
            held = identity if identity.gen >= self.identity.gen else self.identity
            self._file.save(held, boot, kg_nonce or self._kg_nonce)
            if held is identity:
                self.identity = copy.copy(identity)
            self._boot, self._kg_nonce = boot, kg_nonce or self._kg_nonce

    def close(self) -> None:
        """A connection ends; the others go on."""

    def shut(self) -> None:
        """All of them have ended."""
        self._file.close()

    async def renewed(self, held: int) -> Identity:
        """Roots of a newer generation than `held`: another connection's, or new ones."""
        async with self._asking:
            if self.identity.gen > held:
                return copy.copy(self.identity)
            if self._again is not None:
                return await self._again()
            nonce = new_nonce()
            boot = self._boot + 1
            salt = new_salt(boot, self._kg_nonce)
            client_id = f"sealmq-agent-{self.identity.client}"
            quarantine = Quarantine(self.identity, boot, salt, nonce, client_id)
            answer = await asked(quarantine, self.host, self.port, _TRY_S)
            fresh = take_answer(self.identity, nonce, answer)
            await asyncio.to_thread(self.save, fresh, self._boot, answer[2:14])
            return copy.copy(fresh)

    def client(
        self,
        options: Options,
        on_notice: Callable[[Notice], None],
        on_state: Callable[[str], None] | None = None,
        on_release: Callable[[int], None] | None = None,
    ) -> Client:
        """Not connected yet."""
        made: Client

        async def renew() -> Identity:
            return await self.renewed(made.identity.gen)

        made = Client(
            self.identity,
            self.host,
            self.port,
            state=self,
            provision=False,
            renew=renew,
            options=options,
            on_notice=on_notice,
            on_state=on_state,
            on_release=on_release,
        )
        return made


Answer = Callable[[Refusal | None], None]
"""Told what has become of a PUBLISH: None once the site has accepted it."""


class _Going:
    """A message that the site has not decided about. seq: its place; put_at, until: Unix seconds.
    dup: it may be on disk already."""

    __slots__ = ("answers", "dup", "origin", "pub", "put_at", "seq", "until")

    def __init__(
        self, seq: int, origin: str, pub: Pub, put_at: int, until: int | None, answers: list[Answer]
    ) -> None:
        self.seq, self.origin, self.pub, self.answers = seq, origin, pub, answers
        self.put_at, self.until, self.dup = put_at, until, pub.dup

    @classmethod
    def of(cls, one: Kept, answers: list[Answer]) -> _Going:
        """What was on disk."""
        pub = Pub(one.topic, one.payload, one.qos, one.retain, True, 0, one.put)
        return cls(one.seq, one.origin, pub, one.put_at, one.until, answers)

    def kept(self) -> Kept:
        pub = self.pub
        return Kept(
            self.seq, self.origin, pub.topic, pub.payload, pub.qos, pub.retain, pub.put,
            self.put_at, self.until,
        )  # fmt: skip

    def same(self, pub: Pub) -> bool:
        mine = self.pub
        fields = (mine.topic, mine.payload, mine.qos, mine.retain, mine.put)
        return fields == (pub.topic, pub.payload, pub.qos, pub.retain, pub.put)

    def life(self) -> int | None:
        """What it is published with (SPEC.md 3.1): 60 s, or without an end; with an expiry the
        longest 2^n s that is not longer than what is left. None: it is over."""
        if self.until is None:
            return LIFE_FOREVER if self.pub.retain else 0
        # A clock that was set back adds nothing.
        left = int(min(self.until - time.time(), self.until - self.put_at))
        return min(31, left.bit_length() - 1) if left >= SHORTEST_S else None


class Unreleased:
    """Packet ids of QoS 2 messages that a client has published, and not released. accepted: by the
    site; refused: those that are not told apart from others by a client that overlooks PUBREC's
    reason code, the newest ones."""

    __slots__ = ("accepted", "refused")

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.refused: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.accepted) + len(self.refused)

    def decided(self, packet_id: int, accepted: bool) -> None:
        """The site has decided about it."""
        self.refused.pop(packet_id, None)
        if accepted:
            self.accepted.add(packet_id)
            return
        self.refused[packet_id] = None
        if len(self.refused) > UNRELEASED:
            del self.refused[next(iter(self.refused))]

    def released(self, packet_id: int) -> bool:
        """PUBREL has come: whether the message was refused."""
        self.accepted.discard(packet_id)
        return self.refused.pop(packet_id, False) is None


class _Aside:
    """Topics about which the site gave no word; until when they are left alone, each longer than
    the last time. Others do not wait for them."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[float, float]] = {}

    def put(self, topic: str, now: float) -> None:
        _, pause = self._topics.get(topic, (0.0, _ASIDE_S / 2))
        pause = min(2 * pause, _ASIDE_MOST_S)
        self._topics[topic] = (now + pause, pause)

    def over(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def now(self, now: float) -> list[str]:
        # One that nobody has tried for as long begins anew.
        for topic, (until, _) in list(self._topics.items()):
            if until + _ASIDE_MOST_S <= now:
                del self._topics[topic]
        return [topic for topic, (until, _) in self._topics.items() if until > now]


class Account:
    """told: of each refusal that no acknowledgement carries, with its topic ("" if not known).

    What cannot be sent at once waits in memory while the site is there, on disk while it is not.
    """

    def __init__(
        self, user: User, wallet: Wallet, spool: Spool, told: Callable[[str, Refusal], None]
    ) -> None:
        self.user, self._user = user, user.name
        self.name = wallet.identity.name
        self._wallet, self._spool, self._told = wallet, spool, told
        self._client: Client | None = None
        self._up = asyncio.Event()
        # What the site has to decide about, by client id and packet id, for what comes again.
        self._going: dict[str, _Going] = {}
        # What waits for room in the connection.
        self._queue: deque[_Going] = deque()
        self._queued = 0
        self._timer: asyncio.TimerHandle | None = None
        # By their place: who waits for what is on disk, and what of it is being sent.
        self._waiting: dict[int, list[Answer]] = {}
        self._sending: dict[int, _Going] = {}
        self._more = asyncio.Event()
        self._entering = asyncio.Lock()
        self.seats = 0
        self.sayable = frozenset(m.says.option for m in registry.manifests() if m.says)
        self._received: dict[str, Unreleased] = {}
        # Why the site does not let this client in, if it does not.
        self.refusal: Refusal | None = None
        # The agent ends: who has no answer yet publishes again.
        self._ended = False

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connected(), name=f"agent {self._user}: connection")
            group.create_task(self._drain(), name=f"agent {self._user}: spool")
            group.create_task(self._expire(), name=f"agent {self._user}: expiry")

    async def _connected(self) -> None:
        backoff = Backoff()
        while True:
            client = self._wallet.client(Options(timeout=_TRY_S), self._noticed, self._said)
            begun = time.monotonic()
            try:
                async with self._entering:
                    await client.connect(within=0)
                self._client = client
                self._said("")
                while True:
                    await client.receive()
            except (ClientError, SealError) as error:
                self._client = None
                denied = isinstance(error, Denied | NotAuthorised)
                self.refusal = Refusal("denied", "", str(error)) if denied else None
                log.warning("%s", f"{self._user}: {error}")
            except asyncio.CancelledError:
                self._ended = True
                if self._timer is not None:
                    self._timer.cancel()
                raise
            finally:
                await client.disconnect()
                self._said("")
            backoff.lasted(int((time.monotonic() - begun) * 1000))
            await asyncio.sleep(backoff.next())

    def _said(self, what: str) -> None:
        if what:
            log.info("%s", f"{self._user}: {what}")
        if self.up:
            self.refusal = None
            self._up.set()
        else:
            self._up.clear()
        self._pump()

    def _noticed(self, notice: Notice) -> None:
        kind = "denied" if notice.code == Denied.code else "impossible"
        self._told("", Refusal(kind, notice.rule, f"{notice.what}: {notice.reason}"))

    @property
    def up(self) -> bool:
        """Whether the site is there."""
        return self._client is not None and self._client.connected

    async def until_up(self, seconds: float) -> bool:
        """Whether the site is there, waited for."""
        try:
            async with asyncio.timeout(seconds):
                await self._up.wait()
        except TimeoutError:
            pass
        return self.up

    # --- publish ---

    def publish(self, client_id: str, pub: Pub, answer: Answer) -> None:
        """Have the site decide; `answer` is called once, and raises nothing. What comes again
        (DUP) while the first one is not decided about is the same message."""
        refusal = self._refusal(pub) if pub.fault or pub.expiry is not None else None
        if refusal := refusal or self.user.discovery.judge(self.name, pub.topic, pub.payload):
            answer(refusal)
            return
        origin = f"{pub.packet_id} {client_id}" if pub.qos else ""
        if pub.dup and (first := self._going.get(origin)) is not None and first.same(pub):
            first.answers.append(answer)
            return
        now = int(time.time())
        until = None if pub.expiry is None else now + pub.expiry
        going = _Going(self._spool.number(), origin, pub, now, until, [answer])
        if origin:
            self._going[origin] = going
        if pub.qos and self._spool.waits(self._user):
            self._keep(going)
        elif self._queue or not self._begin(going):
            self._wait(going)

    @staticmethod
    def _refusal(pub: Pub) -> Refusal | None:
        if pub.fault:
            return Refusal("impossible", "agent.property", pub.fault)
        if pub.expiry is not None and pub.expiry < SHORTEST_S:
            why = f"it expires after {pub.expiry} s; SealMQ's shortest is {SHORTEST_S} s"
            return Refusal("impossible", "agent.property", why)
        return None

    def _begin(self, going: _Going) -> bool:
        """Send it, or say what prevents it. False: there is no room, or no connection, now."""
        pub, client = going.pub, self._client
        life = going.life() if going.until is not None or pub.retain else 0
        if life is None:
            self._over(going, _EXPIRED)
            return True
        try:
            sent = client is not None and client.publish_nowait(
                pub.topic,
                pub.payload,
                over=partial(self._answered, going),
                qos=pub.qos,
                retain=pub.retain,
                life=life,
                put=pub.put or None,
            )
        except SealError as error:
            self._over(going, Refusal.of(error))
            return True
        except ClientError:
            return False
        if sent and not pub.qos:
            self._over(going, None)
        return sent

    def _answered(self, going: _Going, error: Exception | None) -> None:
        if error is None:
            self._over(going, None)
        elif isinstance(error, SealError) and not isinstance(error, WrongEpoch):
            self._over(going, Refusal.of(error))
        elif not self._ended:
            # The connection broke, or new roots are on their way: it is sent once more.
            log.info("%s", f"{self._user}: {error}")
            self._keep(going)
        if self._queue:
            self._pump()

    def _wait(self, going: _Going) -> None:
        """For room in the connection; on disk where there is none."""
        size = len(going.pub.payload) + len(going.pub.topic)
        if len(self._queue) >= _QUEUED or self._queued + size > _QUEUED_BYTES:
            why = f"{len(self._queue)} messages wait for the site already, which is slow"
            self._over(going, Refusal("much", "agent.busy", why))
            return
        self._queue.append(going)
        self._queued += size
        if self.up:
            self._again()
        else:
            self._pump()

    def _again(self) -> None:
        """Room comes with answers; a turn of QoS 0 alone gets none."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_ROOM_S, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._pump()
        if self._queue:
            self._again()

    def _pump(self) -> None:
        """Send what waits for room; to disk with it when the connection is over."""
        queue = self._queue
        if self.up:
            while queue and self._begin(queue[0]):
                self._left(queue.popleft())
        elif not self._ended:
            while queue:
                going = queue.popleft()
                self._left(going)
                self._keep(going)

    def _left(self, going: _Going) -> None:
        self._queued -= len(going.pub.payload) + len(going.pub.topic)

    def _over(self, going: _Going, refusal: Refusal | None) -> None:
        if self._going.get(going.origin) is going:
            del self._going[going.origin]
        for answer in going.answers:
            answer(refusal)

    def _gone(self, going: _Going) -> None:
        if self._going.get(going.origin) is going:
            del self._going[going.origin]

    # --- what waits on disk ---

    def _keep(self, going: _Going) -> None:
        if not going.pub.qos:
            self._over(going, _NOT_KEPT)
            return
        try:
            put = self._spool.put(self._user, going.kept(), going.dup)
        except Full as error:
            self._over(going, Refusal("much", "agent.full", str(error)))
            return

        def stored(done: asyncio.Future[int]) -> None:
            if done.cancelled():
                return
            if error := done.exception():
                log.error("%s", f"{self._user}: a message could not be kept: {error}")
                self._over(going, Refusal("much", "agent.disk", f"not kept on disk: {error}"))
                return
            # Its payload has no place in memory any more.
            self._gone(going)
            seq = done.result()
            sending = self._sending.get(seq)
            answers = self._waiting.setdefault(seq, []) if sending is None else sending.answers
            answers += going.answers
            self._more.set()

        put.add_done_callback(stored)

    async def _drain(self) -> None:
        """Send what waits on disk, in its order, while the site is there."""
        aside = _Aside()
        while True:
            await self._up.wait()
            self._more.clear()
            try:
                rest = await self._drained(aside)
            except sqlite3.Error as error:
                log.error("%s", f"{self._user}: what waits on disk cannot be read: {error}")
                rest = _DISK_S
            except Exception:
                log.exception("%s", f"{self._user}: what waits on disk could not be sent")
                rest = _DISK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._more.wait()

    async def _drained(self, aside: _Aside) -> float | None:
        """Seconds to the next try; None: nothing waits. sqlite3.Error"""
        user = self._user
        if not self._spool.waits(user):
            return None
        rows = await self._spool.oldest(user, _BATCH, aside.now(time.monotonic()))
        rest = 0.0 if rows else _ASIDE_S
        with self._sent(rows, known=True) as going:
            answers = await asyncio.gather(*(self._try(each) for each in going))
            decided: list[tuple[_Going, Refusal | None]] = []
            for each, answer in zip(going, answers, strict=True):
                topic = each.pub.topic
                if not isinstance(answer, Exception):
                    aside.over(topic)
                    decided.append((each, answer))
                    continue
                log.warning("%s", f"{user}: {topic} waits: {answer}")
                if isinstance(answer, ClientError):
                    rest = _ASIDE_S
                else:
                    aside.put(topic, time.monotonic())
            await self._forget([each for each, _ in decided])
        for each, answer in decided:
            self._decided(each, answer)
        return rest

    @contextlib.contextmanager
    def _sent(self, rows: Sequence[Kept], known: bool) -> Iterator[list[_Going]]:
        """What is on disk while it is being decided about. known: what comes again is the same;
        rows without payloads are the same as nothing."""
        mine = [one for one in rows if one.seq not in self._sending]
        going = [_Going.of(one, self._waiting.pop(one.seq, [])) for one in mine]
        for each in going:
            self._sending[each.seq] = each
            if known:
                self._going[each.origin] = each
        try:
            yield going
        finally:
            for each in going:
                del self._sending[each.seq]
                self._gone(each)
                self._waiting[each.seq] = each.answers

    async def _try(self, going: _Going) -> Refusal | Exception | None:
        """An exception: no word about the message; it is tried again."""
        pub, client, life = going.pub, self._client, going.life()
        if life is None:
            return _EXPIRED
        try:
            if client is None:
                raise Closed("the site is away")
            if pub.retain and not pub.payload:
                await client.clear(pub.topic, qos=pub.qos, within=_EVER_S)
            else:
                await client.publish(
                    pub.topic,
                    pub.payload,
                    qos=pub.qos,
                    retain=pub.retain,
                    life=life,
                    put=pub.put or None,
                    within=_EVER_S,
                )
        except (ClientError, Unavailable, RateLimited) as error:
            return error
        except SealError as error:
            return Refusal.of(error)
        return None

    async def _forget(self, going: Sequence[_Going]) -> None:
        """Before anybody is answered, so that after a kill nothing comes again that was."""
        try:
            await self._spool.done(self._user, [each.seq for each in going])
        except Exception as error:
            why = "is still on disk; it is sent once more if the agent ends before it can go"
            said = f"{self._user}: what the site has decided about {why}: {error}"
            log.error("%s", said, exc_info=not isinstance(error, sqlite3.Error))

    def _decided(self, going: _Going, refusal: Refusal | None) -> None:
        answers = self._waiting.pop(going.seq, [])
        for answer in answers:
            answer(refusal)
        if refusal is not None and not answers:
            self._told(going.pub.topic, refusal)

    async def _expire(self) -> None:
        """Tell of what waits for too long, also while the site is away."""
        while True:
            await asyncio.sleep(_EXPIRE_S)
            if not self._spool.waits(self._user):
                continue
            try:
                before = int(time.time()) + SHORTEST_S
                found = await self._spool.expired(self._user, before, _BATCH)
            except sqlite3.Error:
                continue  # `_drain` says it
            except Exception:
                log.exception("%s", f"{self._user}: what has expired cannot be read")
                continue
            with self._sent(found, known=False) as going:
                await self._forget(going)
            for each in going:
                self._decided(each, _EXPIRED)

    def received_of(self, client_id: str, present: bool) -> Unreleased:
        """What a session has published and not released. Of very many the newest sessions'."""
        held = self._received.pop(client_id, None)
        self._received[client_id] = found = held if held is not None and present else Unreleased()
        while len(self._received) > _SESSIONS or (
            len(self._received) > 1 and sum(map(len, self._received.values())) > _ALL_UNRELEASED
        ):
            del self._received[next(iter(self._received))]
        return found

    # --- read ---

    async def enter(self, client: Client) -> None:
        """Connect one that reads; one at a time, since they share one boot counter."""
        async with self._entering:
            await client.connect(within=0)

    def reader(
        self,
        client_id: str,
        kept: bool,
        expiry: int | None,
        will: LastWill | None,
        on_state: Callable[[str], None],
        on_release: Callable[[int], None],
    ) -> Client:
        """Not connected yet. A kept session ends with its connection: what was under way is the
        session's, whose packet ids are the site's. expiry: its, in seconds, which the site hears in
        MQTT 5."""
        last = None
        if will is not None:
            life = LIFE_FOREVER if will.retain else 0
            last = Will(will.topic, will.payload, will.qos, will.retain, life)
        options = Options(
            client_id=seat_id(client_id),
            clean=not kept,
            protocol=4 if expiry is None else 5,
            expiry=expiry,
            will=last,
            reconnect=not kept,
            timeout=30.0,
            inbox_messages=_INBOX,
            inbox_bytes=_INBOX_BYTES,
            settle=True,
        )
        return self._wallet.client(options, self._noticed, on_state, on_release)

    def tell(self, topic: str, refusal: Refusal) -> None:
        """Tell all local clients of this user that listen for it."""
        self._told(topic, refusal)


def seat_id(client_id: str) -> str:
    """The site's client identifier for a local one: 1 to 64 bytes that MQTT has no qualms about."""
    if client_id.isascii() and client_id.isprintable() and len(client_id) <= 60:
        return f"a.{client_id}"
    return f"h.{hashlib.sha256(client_id.encode()).hexdigest()[:48]}"


def note(topic: str, refusal: Refusal) -> bytes:
    """A refusal as a message to local clients."""
    said = {"topic": topic, "rule": refusal.rule, "reason": refusal.reason}
    return json.dumps(said).encode()
