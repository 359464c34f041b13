"""The clients of the load, each with its lines in the ledger.

Rows: sent, ack, doubt (the outcome is unknown), refused; up and down (a reader's connection, with
its subscription in force); got; will (set, cut, bye, lost); error (what must never happen).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable

from sealmq.client import (
    Client,
    ClientError,
    ConnectionLost,
    Options,
    Refused,
    TimedOut,
    Will,
)
from sealmq_spec.errors import SealError

from .gate import Gate
from .ledger import Ledger

# 2^17 s: a clock that jumps by hours must not end what waits for a reader.
_LIFE = 17
_ALL = "load/#", "kept/#", "wills/#"
_SIZES = 20, 200, 200, 2000, 20_000
_WORKERS = 2
_numbers = itertools.count(1)
# What a client says of itself without having lost its connection.
_HARMLESS = "no new roots", "messages are still", "the client's label"


class Publisher:
    """Publishes numbered messages; `qos` 0 stands for a mixture with retained ones of QoS 1."""

    def __init__(
        self, name: str, client: Client, qos: int, ledger: Ledger, marker: str, within: float
    ) -> None:
        self.name, self.client = name, client
        self._qos, self._ledger, self._marker, self._within = qos, ledger, marker, within
        self._going = False
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, k: int, seed: int, rate: float) -> None:
        """A round: `rate` messages a second until `end`."""
        self._going = True
        dice = random.Random(f"{seed} {self.name}")  # noqa: S311 - replayable, nothing secret
        self._tasks = [
            asyncio.create_task(self._work(k, dice, rate / _WORKERS), name=f"publish {self.name}")
            for _ in range(_WORKERS)
        ]

    async def end(self) -> None:
        """What is under way ends; nothing new begins."""
        self._going = False
        await asyncio.gather(*self._tasks)

    async def _work(self, k: int, dice: random.Random, rate: float) -> None:
        while self._going:
            await asyncio.sleep(dice.uniform(0.5, 1.5) / rate)
            if self._going:
                await self._one(k, dice)

    async def _one(self, k: int, dice: random.Random) -> None:
        n = next(_numbers)
        retain = not self._qos and dice.random() < 0.3
        qos = 1 if retain else self._qos
        # Topics of one message only: whoever loses their label cannot learn it anew.
        topic = dice.choice(("steady", "steady", f"round-{k}", f"once-{n}"))
        topic = f"load/{self.name}/{topic}"
        if retain:
            # One that is replaced again and again, and one of each round that nobody refreshes.
            topic = f"kept/{self.name}/{dice.choice(('steady', f'round-{k}'))}"
        padding = self._marker * (dice.choice(_SIZES) // len(self._marker) + 1)
        payload = json.dumps({"n": n, "p": padding})
        write = self._ledger.write
        write("sent", n=n, c=self.name, q=qos, t=topic, r=retain)
        try:
            await self.client.publish(
                topic, payload, qos=qos, retain=retain, life=_LIFE, within=self._within
            )
        except Refused as error:
            write("refused", n=n, why=str(error))
        except (ConnectionLost, TimedOut) as error:
            write("doubt", n=n, why=str(error))
        except (ClientError, SealError) as error:
            write("error", what=f"publish by {self.name}: {type(error).__name__}: {error}")
            await asyncio.sleep(0.2)
        else:
            write("ack", n=n)


class Reader:
    """Reads everything. The one named `sleeper` has a persistent session and sleeps."""

    client: Client

    def __init__(self, name: str, gate: Gate, ledger: Ledger) -> None:
        self.name = name
        self._gate, self._ledger = gate, ledger
        self._receiving: asyncio.Task[None] | None = None
        self._again: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self.client.connect()
        self._receiving = asyncio.create_task(self._receive(), name=f"read {self.name}")
        await self._subscribe()

    async def stop(self) -> None:
        await self.client.disconnect()
        if self._receiving is not None:
            await asyncio.gather(self._receiving, return_exceptions=True)

    def told(self, what: str) -> None:
        """The client's own words about its connection."""
        if what == "connected":
            # Whatever was before has ended, told or not.
            self._ledger.write("down", r=self.name, why="a new connection")
            if self._receiving is not None:
                task = asyncio.create_task(self._subscribe(), name=f"subscribe {self.name}")
                self._again.add(task)
                task.add_done_callback(self._again.discard)
        elif not what.startswith(_HARMLESS):
            self._ledger.write("down", r=self.name, why=what)

    async def _subscribe(self) -> None:
        """In force only when SUBACK has come: from then on messages are owed."""
        try:
            await self.client.subscribe(*_ALL, qos=2, within=30)
        except ConnectionLost:
            return
        except (ClientError, SealError) as error:
            self._ledger.write("sub-failed", r=self.name, why=f"{type(error).__name__}: {error}")
            return
        self._ledger.write("up", r=self.name)

    async def _receive(self) -> None:
        async for m in self.client.messages():
            body = json.loads(m.payload)
            how = m.how.name.lower()
            if "w" in body:
                self._ledger.write("got-will", r=self.name, w=body["w"], how=how)
            else:
                self._ledger.write("got", r=self.name, n=body["n"], how=how, t=m.topic)

    async def sleep(self, begin: float, seconds: float) -> None:
        """The network is away for a while; the session is kept at the broker."""
        await asyncio.sleep(begin)
        self._gate.shut()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._gate.open()


class Willing:
    """A client with a will in each round, which is cut off, says goodbye, or is left alone."""

    def __init__(self, gate: Gate, make: Callable[[Gate, Options], Client], ledger: Ledger) -> None:
        self._gate, self._make, self._ledger = gate, make, ledger
        self.over = asyncio.Event()

    async def play(self, k: int, what: str, at: float) -> None:
        """One round's will. `set` is written when its CONNECT has been accepted."""
        will = Will("wills/willing", json.dumps({"w": k}).encode(), qos=1 + k % 2, life=_LIFE)
        # An identifier of its own: who comes back with the same one takes the will away (4.1).
        options = Options(client_id=f"willing-{k}", will=will, connect_timeout=30, reconnect=False)
        client = self._make(self._gate, options)
        try:
            await client.connect()
        except (ClientError, SealError) as error:
            # Nobody has promised anything: the fault was faster than the CONNECT.
            self._ledger.write("will", w=k, what="none", why=f"{type(error).__name__}: {error}")
            return
        self._ledger.write("will", w=k, what="set")
        receiving = asyncio.create_task(client.receive(), name="willing")
        try:
            over = asyncio.create_task(self.over.wait(), name="round over")
            await asyncio.wait(
                (receiving, over) if what == "left" else (receiving,),
                timeout=None if what == "left" else at,
                return_when=asyncio.FIRST_COMPLETED,
            )
            over.cancel()
            if receiving.done():
                receiving.exception()
                self._ledger.write("will", w=k, what="lost")
            elif what == "cut":
                self._ledger.write("will", w=k, what="cut")
                self._gate.cut()
            else:
                self._ledger.write("will", w=k, what="bye")
        finally:
            receiving.cancel()
            await client.disconnect()
