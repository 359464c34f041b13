"""One user's enrolment: its keys, the one connection that publishes, and connections that read.

All that a user's local clients publish goes through one connection, in its order; what they read
comes over one connection each, whose session, will and client identifier are theirs. A PUBLISH is
answered once the site has decided; while the site is away it waits on disk, unanswered.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sealmq.client import Client, ClientError, NotAuthorised, Notice, Options
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
from sealmq_spec.errors import Denied, RateLimited, SealError, Unavailable
from sealmq_spec.identity import Identity

from .config import User
from .spool import KEPT_S, Full, Kept, Spool
from .wire import LastWill, Pub, Refusal

log = logging.getLogger("sealmq.agent")

# The site takes 16 connections of a client (SPEC.md 9): one publishes.
SEATS = 14
_EVER_S = 1e8
_TRY_S = 10.0
_BATCH = 16
_SESSIONS = 256
_INBOX = 64
_INBOX_BYTES = 2 << 20


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


@dataclass(slots=True)
class _Going:
    """A PUBLISH that the site has not decided about."""

    digest: bytes
    task: asyncio.Task[Refusal | None]


class Account:
    """told: of each refusal that no acknowledgement carries, with its topic ("" if not known)."""

    def __init__(
        self, user: User, wallet: Wallet, spool: Spool, told: Callable[[str, Refusal], None]
    ) -> None:
        self.user = user
        self.name = wallet.identity.name
        self._wallet, self._spool, self._told = wallet, spool, told
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Refusal | None]] = {}
        self._going: dict[str, _Going] = {}
        self._more = asyncio.Event()
        self._entering = asyncio.Lock()
        self._tasks: set[asyncio.Task[Refusal | None]] = set()
        self.seats = 0
        self.sayable = frozenset(m.says.option for m in registry.manifests() if m.says)
        self._received: dict[str, set[int]] = {}
        # Why the site does not let this client in, if it does not.
        self.refusal: Refusal | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connected(), name=f"agent {self.user.name}: connection")
            group.create_task(self._drain(), name=f"agent {self.user.name}: spool")

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
                log.warning("%s", f"{self.user.name}: {error}")
            finally:
                self._up.clear()
                await client.disconnect()
            backoff.lasted(int((time.monotonic() - begun) * 1000))
            await asyncio.sleep(backoff.next())

    def _said(self, what: str) -> None:
        if what:
            log.info("%s", f"{self.user.name}: {what}")
        if self._client is not None and self._client.connected:
            self.refusal = None
            self._up.set()
        else:
            self._up.clear()

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

    def publish(self, client_id: str, pub: Pub) -> asyncio.Task[Refusal | None]:
        """What becomes of it: None once the site has accepted it. What comes again while the first
        one is not decided about is the same."""
        origin = f"{pub.packet_id} {client_id}" if pub.qos else ""
        digest = hashlib.sha256(f"{pub.topic}\0{pub.qos}{pub.retain}\0".encode() + pub.payload)
        going = self._going.get(origin)
        if pub.dup and going is not None and going.digest == digest.digest():
            return going.task
        task = asyncio.create_task(self._publish(origin, pub), name="agent: publish")
        self._tasks.add(task)
        if origin:
            self._going[origin] = mine = _Going(digest.digest(), task)

        def over(_: asyncio.Task[Refusal | None]) -> None:
            self._tasks.discard(task)
            if origin and self._going.get(origin) is mine:
                del self._going[origin]

        task.add_done_callback(over)
        return task

    async def _publish(self, origin: str, pub: Pub) -> Refusal | None:
        if pub.fault:
            return Refusal("impossible", "agent.property", pub.fault)
        if refusal := self.user.discovery.judge(self.name, pub.topic, pub.payload):
            return refusal
        until = int(time.time()) + (KEPT_S if pub.expiry is None else pub.expiry)
        one = Kept(
            0, origin, pub.topic, pub.payload, pub.qos, pub.retain, dict(pub.put), until
        )  # fmt: skip
        if self.up and not self._spool.count(self.user.name):
            try:
                await self._send(one, pub.expiry)
                return None
            except SealError as error:
                return Refusal.of(error)
            except ClientError as error:
                log.info("%s", f"{self.user.name}: {error}")
        if not pub.qos:
            return Refusal("away", "agent.away", "the site is away; QoS 0 is not kept")
        return await self._keep(one)

    async def _keep(self, one: Kept) -> Refusal | None:
        try:
            seq = self._spool.put(self.user.name, one)
        except Full as error:
            return Refusal("much", "agent.full", str(error))
        except sqlite3.Error as error:
            return Refusal("much", "agent.full", f"no room on disk: {error}")
        future = self._waiting.get(seq)
        if future is None:
            future = self._waiting[seq] = asyncio.get_running_loop().create_future()
        self._more.set()
        return await asyncio.shield(future)

    async def _send(self, one: Kept, expiry: int | None) -> None:
        client = self._client
        if client is None:
            raise ClientError("the site is away")
        if one.retain and not one.payload:
            await client.clear(one.topic, qos=one.qos, within=_EVER_S)
            return
        await client.publish(
            one.topic,
            one.payload,
            qos=one.qos,
            retain=one.retain,
            life=_life(one.retain, expiry),
            put=one.put or None,
            within=_EVER_S,
        )

    async def _drain(self) -> None:
        """What waits on disk, in its order, while the site is there."""
        user = self.user.name
        while True:
            await self._up.wait()
            rows = self._spool.after(user, 0, _BATCH)
            if not rows:
                self._more.clear()
                await self._more.wait()
                continue
            now = int(time.time())
            answers = await asyncio.gather(
                *(self._try(one, now) for one in rows), return_exceptions=True
            )
            for one, answer in zip(rows, answers, strict=True):
                if isinstance(answer, BaseException):
                    log.warning("%s", f"{user}: {one.topic} waits: {answer}")
                else:
                    self._decided(one, answer)
            if any(isinstance(answer, BaseException) for answer in answers):
                await asyncio.sleep(1.0)

    async def _try(self, one: Kept, now: int) -> Refusal | None:
        if one.until < now:
            return Refusal("away", "agent.expired", "it waited for the site for too long")
        try:
            await self._send(one, one.until - now if one.until - now < KEPT_S else None)
        except (Unavailable, RateLimited):
            raise  # no word about the message: it is tried again
        except SealError as error:
            return Refusal.of(error)
        return None

    def _decided(self, one: Kept, answer: Refusal | None) -> None:
        self._spool.done(one.seq)
        future = self._waiting.pop(one.seq, None)
        if future is not None and not future.done():
            future.set_result(answer)
        elif answer is not None:
            self._told(one.topic, answer)

    def received_of(self, client_id: str, present: bool) -> set[int]:
        """Packet ids of QoS 2 messages that a session has published and not released. Of very many
        sessions the newest."""
        held = self._received.pop(client_id, None)
        self._received[client_id] = found = held if held is not None and present else set()
        while len(self._received) > _SESSIONS:
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
        will: LastWill | None,
        on_state: Callable[[str], None],
        on_release: Callable[[int], None],
    ) -> Client:
        """Not connected yet. A kept session ends with its connection: what was under way is the
        session's, whose packet ids are the site's."""
        last = None
        if will is not None:
            life = LIFE_FOREVER if will.retain else 0
            last = Will(will.topic, will.payload, will.qos, will.retain, life)
        options = Options(
            client_id=seat_id(client_id),
            clean=not kept,
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

    async def end(self) -> None:
        """Nothing more is published."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def seat_id(client_id: str) -> str:
    """The site's client identifier for a local one: 1 to 64 bytes that MQTT has no qualms about."""
    if client_id.isascii() and client_id.isprintable() and len(client_id) <= 60:
        return f"a.{client_id}"
    return f"h.{hashlib.sha256(client_id.encode()).hexdigest()[:48]}"


def _life(retain: bool, expiry: int | None) -> int:
    """SPEC.md 3.1: 60 s, or without an end; with an expiry the longest 2^n s that is not longer."""
    if expiry is None:
        return LIFE_FOREVER if retain else 0
    return min(31, max(1, expiry.bit_length() - 1))


def note(topic: str, refusal: Refusal) -> bytes:
    """A refusal as a message to local clients."""
    said = {"topic": topic, "rule": refusal.rule, "reason": refusal.reason}
    return json.dumps(said).encode()
