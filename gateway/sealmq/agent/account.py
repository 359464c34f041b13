"""One user's enrolment at the site: the one connection that publishes, and those that read.

All that a user's local clients publish goes through one connection, in its order; what they read
comes over one connection each, whose session, will and client identifier are theirs. A PUBLISH is
answered once the site has decided. What cannot be sent waits in memory while the site is there, on
disk (backlog.py) while it is not. No message has a task of its own: answers are calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from sealmq.client import (
    Client,
    ClientError,
    Closed,
    Message,
    NotAuthorised,
    Notice,
    Options,
    Refused,
)
from sealmq.client.backoff import Backoff
from sealmq.client.errors import in_words
from sealmq.client.values import Will
from sealmq.families import registry
from sealmq_spec.const import LIFE_FOREVER
from sealmq_spec.errors import Denied, RateLimited, SealError, Stale, Unavailable, WrongEpoch

from .backlog import Backlog
from .config import User
from .going import EXPIRED, SHORTEST_S, Answer, Going
from .sessions import Sessions
from .spool import Spool
from .wallet import TRY_S, Wallet
from .wire import LastWill, Pub, Refusal

log = logging.getLogger("sealmq.agent")

# The site takes 16 connections of a client (SPEC.md 9): one publishes.
SEATS = 14
_EVER_S = 1e8
# What waits for room in the connection, of all clients: they may leave, and come with more.
_QUEUED, _QUEUED_BYTES = 4096, 32 << 20
_ROOM_S = 0.05
_INBOX = 64
_INBOX_BYTES = 2 << 20

# Refusals that say nothing of the message: the same one may be taken a little later.
_PASSES = (Unavailable, RateLimited)
_NOT_KEPT = Refusal("away", "agent.away", "the site is away; QoS 0 is not kept")


class Waits(Protocol):
    """A will that waits for its client (seat.py)."""

    async def returned(self, goes_on: bool) -> None: ...

    async def at_once(self) -> None: ...


class Account:
    """told: of each refusal that no acknowledgement carries, with its topic ("" if not known)."""

    def __init__(
        self, user: User, wallet: Wallet, spool: Spool, told: Callable[[str, Refusal], None]
    ) -> None:
        self.user, self._user = user, user.name
        self.name = wallet.identity.name
        self._wallet, self._told = wallet, told
        self._backlog = Backlog(user.name, spool, told)
        self.sessions = Sessions(user.name, spool)
        self._no_local = self.sessions.no_local
        self._client: Client | None = None
        self._up = asyncio.Event()
        # What the site has to decide about, by client id and packet id, for what comes again.
        self._going: dict[str, Going] = {}
        # What waits for room in the connection.
        self._queue: deque[Going] = deque()
        self._queued = 0
        self._timer: asyncio.TimerHandle | None = None
        self._entering = asyncio.Lock()
        self.seats = 0
        # Wills that are to wait, by client identifier; and those that do, the oldest first.
        self.delays: dict[str, Waits] = {}
        self.waiting: dict[Waits, None] = {}
        self._group: asyncio.TaskGroup | None = None
        self.sayable = frozenset(m.says.option for m in registry.manifests() if m.says)
        # Why the site does not let this client in, if it does not.
        self.refusal: Refusal | None = None
        # The agent ends: who has no answer yet publishes again.
        self._ended = False

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._connected(), name=f"agent {self._user}: connection")
            backlog = self._backlog.run(self._up, self._try)
            group.create_task(backlog, name=f"agent {self._user}: backlog")

    def later(self, work: Coroutine[None, None, None], name: str) -> None:
        """What outlives a local client's connection."""

        async def guarded() -> None:
            try:
                await work
            except Exception:
                log.exception("%s", f"{self._user}: {name}")

        if self._group is None:
            work.close()
        else:
            self._group.create_task(guarded(), name=name)

    async def _connected(self) -> None:
        backoff = Backoff()
        while True:
            client = self._wallet.client(Options(timeout=TRY_S), self._noticed, self._said)
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
                log.warning("%s", f"{self._user}: {in_words(error)}")
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
        now = int(time.time())
        until = None if pub.expiry is None else now + pub.expiry
        going = Going(self._backlog.number(), client_id, pub, now, until, [answer])
        if not pub.qos:
            if self._queue or not self._begin(going):
                self._wait(going)
            return
        going.origin = origin = f"{pub.packet_id} {client_id}"
        if pub.dup:
            for first in (self._going.get(origin), self._backlog.find(origin)):
                if first is not None and first.same(pub):
                    first.also([answer])
                    return
        if self._backlog.waits():
            self._backlog.keep(going)
            return
        self._going[origin] = going
        if self._queue or not self._begin(going):
            self._wait(going)

    @staticmethod
    def _refusal(pub: Pub) -> Refusal | None:
        if pub.fault:
            return Refusal("impossible", "agent.property", pub.fault)
        if pub.expiry is not None and pub.expiry < SHORTEST_S:
            why = f"it expires after {pub.expiry} s; SealMQ's shortest is {SHORTEST_S} s"
            return Refusal("impossible", "agent.property", why)
        return None

    def _begin(self, going: Going) -> bool:
        """Send it, or say what prevents it. False: there is no room, or no connection, now."""
        pub, client = going.pub, self._client
        life = going.life() if going.until is not None or pub.retain else 0
        if life is None:
            self._over(going, EXPIRED)
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
        if not sent or client is None:
            return False
        if self._no_local and going.client in self._no_local:
            self.sessions.sent(going.client, (client.boot, sent))
        if not pub.qos:
            self._over(going, None)
        return True

    def _answered(self, going: Going, error: Exception | None) -> None:
        if error is None:
            self._over(going, None)
        elif isinstance(error, SealError) and not _is_sent_again(going, error):
            self._over(going, Refusal.of(error))
        elif not self._ended:
            # The connection broke, or what refuses it passes: it is sent once more.
            log.info("%s", f"{self._user}: {error}")
            self._keep(going)
        if self._queue:
            self._pump()

    def _wait(self, going: Going) -> None:
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

    def _left(self, going: Going) -> None:
        self._queued -= len(going.pub.payload) + len(going.pub.topic)

    def _over(self, going: Going, refusal: Refusal | None) -> None:
        if self._going.get(going.origin) is going:
            del self._going[going.origin]
        for answer in going.answers:
            answer(refusal)

    def _keep(self, going: Going) -> None:
        """On disk it is the backlog's."""
        if not going.pub.qos:
            self._over(going, _NOT_KEPT)
            return
        if self._going.get(going.origin) is going:
            del self._going[going.origin]
        self._backlog.keep(going)

    async def _try(self, going: Going) -> Refusal | Exception | None:
        """For the backlog. An exception: no word about the message; it is tried again."""
        pub, client, life = going.pub, self._client, going.life()
        if life is None:
            return EXPIRED
        try:
            if client is None:
                raise Closed("the site is away")
            its_own = going.client in self._no_local
            sealed = partial(self.sessions.sent, going.client) if its_own else None
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
                    sealed=sealed,
                )
        except (ClientError, *_PASSES) as error:
            return error
        except SealError as error:
            return Refusal.of(error)
        return None

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
        on_lost: Callable[[Refused], None],
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
        return self._wallet.client(options, self._noticed, on_state, on_release, on_lost)

    def is_own(self, message: Message) -> bool:
        """Whether one of this user's clients has published it, or who else has its enrolment."""
        return message.sender_number == self._wallet.identity.client and not message.id

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


def _is_sent_again(going: Going, error: SealError) -> bool:
    """Whether it is sealed anew and sent, instead of being refused. It is stale when the site was
    away while it was under way. What is retained is refused: a later message of its topic may have
    been taken meanwhile, and this one would come back over it."""
    if isinstance(error, WrongEpoch):
        return True
    return isinstance(error, (*_PASSES, Stale)) and not going.pub.retain
