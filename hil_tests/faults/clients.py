"""The load: real host clients in a process of their own, told what to do by lines on stdin.

`python -m faults.clients CONFIG`. All that is acknowledged and all that is delivered goes into the
ledger; nothing is judged here. Commands are JSON: {"do": "round" | "quiet" | "late" | "end", ...}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from sealmq.client import Client, ClientError, ConnectionLost, Options, Refused, TimedOut
from sealmq_spec.errors import SealError

from .gate import Gate
from .ledger import Ledger
from .lies import AckFirst
from .parts import Publisher, Reader, Willing

# How long one attempt may take before its outcome counts as unknown.
_WITHIN_S = 90.0


class Load:
    """All clients of a run."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self.ledger = Ledger(Path(config["ledger"]))
        self._gates: list[Gate] = []
        self._publishers: list[Publisher] = []
        self._readers: list[Reader] = []
        self._willing: Willing | None = None
        self._round: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Everybody provisions, connects and subscribes."""
        c = self._config
        lie = AckFirst if c.get("ack_first") else None
        for name, qos in (("first", 1), ("second", 2), ("third", 0)):
            gate = await self._gate(lie)
            client = self._client(name, gate, Options(client_id=name, reconnect=True))
            await client.connect()
            publisher = Publisher(name, client, qos, self.ledger, c["marker"], _WITHIN_S)
            self._publishers.append(publisher)
        for name in ("live", *(("sleeper",) if c["keeps"] else ())):
            gate = await self._gate(None)
            options = Options(client_id=name, reconnect=True, clean=name == "live")
            reader = Reader(name, gate, self.ledger)
            reader.client = self._client(name, gate, options, reader.told)
            await reader.start()
            self._readers.append(reader)
        self._willing = Willing(await self._gate(None), self._will_client, self.ledger)
        self.ledger.write("begun")

    async def _gate(self, lie: type[AckFirst] | None) -> Gate:
        gate = Gate(self._config["host"], self._config["port"], lie)
        await gate.start()
        self._gates.append(gate)
        return gate

    def _client(self, name: str, gate: Gate, options: Options, told: Any = None) -> Client:
        enrolment = Path(self._config["enrolments"]) / name / "sealmq.json"
        return Client.from_enrolment(
            enrolment,
            enrolment.with_suffix(".state"),
            host="127.0.0.1",
            port=gate.port,
            options=options,
            on_state=told,
        )

    def _will_client(self, gate: Gate, options: Options) -> Client:
        return self._client("willing", gate, options)

    # --- commands --------------------------------------------------------------------------------

    async def obey(self, line: bytes) -> bool:
        """One command; whether to go on."""
        command = json.loads(line)
        match command["do"]:
            case "round":
                self._begin(command)
            case "quiet":
                await self._quiet()
                self.ledger.write("quiet", k=command["k"])
            case "late":
                await self._late(command["topics"], command["within"])
                self.ledger.write("late-done")
            case "end":
                return False
        return True

    def _begin(self, command: dict[str, Any]) -> None:
        for publisher in self._publishers:
            publisher.begin(command["k"], command["seed"], command["rate"])
        if self._willing is None:
            raise RuntimeError("not started")
        self._willing.over.clear()
        work = [self._willing.play(command["k"], command["will"], command["will_at"])]
        if command["sleep"] is not None:
            work += [r.sleep(*command["sleep"]) for r in self._readers if r.name == "sleeper"]
        self._round = [asyncio.create_task(each, name="round") for each in work]

    async def _quiet(self) -> None:
        """Nothing new is published; what is under way comes to its end."""
        if self._willing is not None:
            self._willing.over.set()
        await asyncio.gather(*(publisher.end() for publisher in self._publishers))
        for done in await asyncio.gather(*self._round, return_exceptions=True):
            if isinstance(done, BaseException):
                self.ledger.write("error", what=f"{type(done).__name__}: {done}")

    async def _late(self, topics: dict[str, int], within: float) -> None:
        """Somebody who was never there asks for what is retained."""
        gate = await self._gate(None)
        client = self._client("late", gate, Options(client_id="late"))
        waiting = dict(topics)
        try:
            async with asyncio.timeout(within), client:
                await client.subscribe("kept/#", qos=1)
                while waiting:
                    message = await client.receive()
                    n = json.loads(message.payload)["n"]
                    self.ledger.write("late", topic=message.topic, n=n)
                    if n >= waiting.get(message.topic, n + 1):
                        del waiting[message.topic]
        except (TimeoutError, ClientError, SealError) as error:
            self.ledger.write("late-end", why=f"{type(error).__name__}: {error}")

    async def stop(self) -> None:
        for publisher in self._publishers:
            await publisher.client.disconnect()
        for reader in self._readers:
            await reader.stop()
        for gate in self._gates:
            await gate.stop()
        self.ledger.close()


async def main(config: dict[str, Any]) -> None:
    """Until the command `end`, or the end of stdin."""
    load = Load(config)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    def overlooked(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        load.ledger.write("error", what=str(context.get("exception") or context["message"])[:500])

    loop.set_exception_handler(overlooked)
    try:
        await load.start()
        while line := await lines.readline():
            if not await load.obey(line):
                break
    except (ClientError, SealError, ConnectionLost, Refused, TimedOut) as error:
        load.ledger.write("error", what=f"{type(error).__name__}: {error}")
        raise
    await load.stop()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
