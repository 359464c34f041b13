"""Honest publishers and readers on a running site, while its keys change under them.

They are the host client library in this process. What a publisher was told is accepted has to
reach every reader exactly once; what it was not told so, at most once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sealmq.client import Client, ClientError, Options  # noqa: TID251 - it is what is tried
from sealmq.kglink import KgClient, KgError  # noqa: TID251 - as `sealmq rekey` does
from sealmq_spec.errors import SealError

from running_site import PATIENCE_S as READY_S
from running_site import Site, sealmq

# A process that was killed several times in a row is started again after 30 s at most
# (gateway/sealmq/run/roles.py), and then has to be ready.
PATIENCE_S = 30.0 + READY_S
TOPICS = {"m1-temp": "machine/1/temperature", "m1-ctrl": "machine/1/arm/height"}
# What may be refused by a reader that was cut off: what the broker has delivered again.
TWICE = {"Replay"}


async def until(
    what: Callable[[], str], look: Callable[[], bool], patience_s: float = PATIENCE_S
) -> None:
    """Waits for something that other tasks do; fails with what `what` then says."""
    try:
        async with asyncio.timeout(patience_s):
            while not look():  # noqa: ASYNC110 (tasks of several clients)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {patience_s:.0f} s in vain for {what()}") from None


class Publisher:
    """Publishes one message after the other until `stop`, QoS 0, 1, 2 in turn."""

    def __init__(self, client: Client, name: str, topic: str) -> None:
        self.client, self.name, self.topic = client, name, topic
        self.accepted: list[str] = []
        self.doubtful: list[str] = []
        self._count = 0
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._stopping:
            await self.publish(self._count % 3)
            await asyncio.sleep(random.uniform(0, 0.03))

    async def publish(self, qos: int) -> None:
        self._count += 1
        word = f"{self.name} {self._count} qos {qos}"
        try:
            await self.client.publish(self.topic, word, qos=qos, life=12, within=PATIENCE_S)
        except (ClientError, SealError) as error:
            self.doubtful.append(f"{word}: {error}")
        else:
            if qos:
                self.accepted.append(word)

    async def more(self, count: int) -> None:
        """Waits until so many more have been accepted."""
        wanted = len(self.accepted) + count
        await until(
            lambda: f"{self.name} to publish; in doubt: {self.doubtful[-3:]}",
            lambda: len(self.accepted) >= wanted,
        )

    async def stop(self) -> None:
        self._stopping = True
        await self._task


class Reader:
    """Hears a filter at QoS 2. A sleeper's session outlives its connections."""

    def __init__(self, cast: Cast, name: str, filters: list[str], *, sleeper: bool) -> None:
        self._cast, self.name, self._filters, self._sleeper = cast, name, filters, sleeper
        self.heard: list[str] = []
        self.refused: Counter[str] = Counter()
        self.client: Client
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        session = self.client._boots.session
        held = session and (session.ident.own.epoch, session.epoch_seen, self.client.identity.gen)
        return (
            f"{self.name} connected: {self.client.connected} ({self.client.error}), heard "
            f"{len(self.heard)}, refused "
            f"{dict(self.client.refused)}, epoch held, seen, generation: {held}"
        )

    async def wake(self) -> None:
        """Connects, with what its state file holds, and listens."""
        self.client = self._cast.client(self.name, keep=self._sleeper)
        await self.client.connect()
        await self.client.subscribe(*self._filters, qos=2)
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        with suppress(ClientError, SealError):
            async for message in self.client.messages():
                self.heard.append(message.payload.decode())

    async def hears(self, due: set[str]) -> None:
        """Waits until it has heard all of these."""
        await until(
            lambda: (
                f"{self.name} to hear everything; missing: "
                f"{sorted(due - set(self.heard))[:5]}; {self}"
            ),
            lambda: due <= set(self.heard),
        )

    async def sleep(self) -> None:
        """Disconnects; what comes from now on waits at the broker, if it is a sleeper."""
        await self.client.disconnect()
        if self._task is not None:
            await self._task
        self.refused.update(self.client.refused)

    def cut(self) -> None:
        """The connection breaks."""
        opened = self.client._life._opened
        if opened is not None:
            opened.wire._transport.abort()


class Cast:
    """The clients of one test. Their enrolments are made once a site."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.chance = random.Random(seed)
        self.clients: list[Client] = []
        self.publishers: list[Publisher] = []
        self.readers: list[Reader] = []
        self._tag = f"{seed:x}"

    def _enrolment(self, name: str, label: str) -> Path:
        file = self.site.clients / name / "sealmq.json"
        return file if file.exists() else self.site.enrol(name, label)

    def client(self, name: str, *, keep: bool = False) -> Client:
        file = self.site.clients / name / "sealmq.json"
        options = Options(
            client_id=f"{name}-{self._tag}", clean=not keep, reconnect=True, keepalive=20
        )
        self.clients.append(
            Client.from_enrolment(file, file.with_suffix(".state"), options=options)
        )
        return self.clients[-1]

    async def publisher(self, name: str, label: str, *, keep: bool = False) -> Publisher:
        await asyncio.to_thread(self._enrolment, name, label)
        client = self.client(name, keep=keep)
        await client.connect()
        self.publishers.append(Publisher(client, f"{name}-{self._tag}", TOPICS[label]))
        return self.publishers[-1]

    async def reader(self, name: str, label: str, *, sleeper: bool = False) -> Reader:
        """Of the topics of its own label and of those below it."""
        await asyncio.to_thread(self._enrolment, name, label)
        filters = [topic for of, topic in TOPICS.items() if label != "m1-temp" or of == label]
        made = Reader(self, name, filters, sleeper=sleeper)
        await made.wake()
        self.readers.append(made)
        return made

    async def flow(self, count: int) -> None:
        """Waits until every publisher has published so many more."""
        await asyncio.gather(*(publisher.more(count) for publisher in self.publishers))

    async def rekey(self, *labels: str, handover_s: int) -> None:
        """New epochs, as the operator asks the key generator for them."""
        async with await KgClient.connect(self.site.path / "run" / "kg" / "kg.sock") as kg:
            await kg.rekey(list(labels), handover_s)

    async def rekey_sometime(self, *labels: str, handover_s: int) -> None:
        """The same at a random moment soon; a key generator that is away is waited for."""
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self.rekey(*labels, handover_s=handover_s)
                except KgError:
                    await asyncio.sleep(0.1)

    async def command(self, *words: str) -> None:
        """`sealmq …`, which has to succeed."""
        done = await asyncio.to_thread(sealmq, *words)
        assert done.returncode == 0, done.stderr

    async def check(self, *, refused: set[str] | frozenset[str] = frozenset()) -> None:
        """Everybody has heard what was accepted, once; nobody refused but for these reasons."""
        await asyncio.gather(*(publisher.stop() for publisher in self.publishers))
        for publisher in self.publishers:
            await publisher.publish(1)
        for reader in self.readers:
            due = {
                word
                for publisher in self.publishers
                if publisher.topic in reader._filters
                for word in publisher.accepted
            }
            await reader.hears(due)
            heard = Counter(reader.heard)
            twice = [word for word in heard if heard[word] > 1]
            assert not twice, f"{reader.name} heard twice: {twice[:5]}"
            await reader.sleep()
            assert set(reader.refused) <= refused, f"{reader.name} refused {reader.refused}"
        assert not self.site.audit("handover-missed")


@asynccontextmanager
async def cast_of(site: Site, seed: int) -> AsyncIterator[Cast]:
    """A cast; all its clients are disconnected at the end."""
    made = Cast(site, seed)
    try:
        yield made
    finally:
        for publisher in made.publishers:
            publisher._stopping = True
        await asyncio.gather(
            *(client.disconnect() for client in made.clients),
            return_exceptions=True,
        )


def play(site: Site, seed: int, story: Callable[[Cast], Awaitable[None]]) -> None:
    """Runs a story with a cast. The seed is printed when it fails."""

    async def whole() -> None:
        async with cast_of(site, seed) as cast:
            await story(cast)

    print(f"seed {seed}")
    asyncio.run(whole())
