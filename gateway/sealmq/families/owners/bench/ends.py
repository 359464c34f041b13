"""How long after somebody says so the last message still reaches a reader: a retraction, and an
attribute that is taken away. In a started site, while messages stream; clients of one process, so
that one clock says both times.

Milliseconds from the command's being sent to the last delivery; 0 if none came after it. What
comes after the command's reply is counted: there should be none.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from bench_print import Row, row
from load_generator import name
from load_sites import Scene

from sealmq.client import Client
from sealmq.client.lent import lent_client

from .site import ATTRIBUTE, TOLD_TOPIC

_QUIET_S = 0.15
_PATIENCE_S = 20.0


class _Reader:
    """When each message came, by time.monotonic."""

    def __init__(self, client: Client) -> None:
        self.last = 0.0
        self.count = 0
        self.task = asyncio.create_task(self._follow(client))

    async def _follow(self, client: Client) -> None:
        async for _ in client.messages():
            self.last = time.monotonic()
            self.count += 1

    async def more(self, count: int) -> None:
        wanted = self.count + count
        async with asyncio.timeout(_PATIENCE_S):
            while self.count < wanted:  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.002)


def rows(scene: Scene, site: Path, times: int, progress: Callable[[str], None]) -> list[Row]:
    """p50, p99 and how many came after the reply, of both. `scene` has started."""
    found = asyncio.run(_measured(site, times, progress))
    out = []
    for what, (values, late) in found.items():
        ordered = sorted(values)
        for measure, value, unit in (
            (f"{what}_p50", ordered[len(ordered) // 2], "ms"),
            (f"{what}_p99", ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], "ms"),
            (f"{what}_late", late, "messages"),
        ):
            out.append(row(measure, scene.variant.name, round(value, 3), unit, len(ordered)))
    return out


async def _measured(
    site: Path, times: int, progress: Callable[[str], None]
) -> dict[str, tuple[list[float], int]]:
    owner, reader, teller = [await lent_client(site, name(n)) for n in range(3)]
    for client in (owner, reader, teller):
        await client.connect()
    stopping = False

    async def stream() -> None:
        while not stopping:
            await owner.publish(TOLD_TOPIC.format(name(0)), b"x" * 64)
            await asyncio.sleep(0.0005)

    async def said(do: str, **body: object) -> dict[str, str]:
        text = json.dumps({"do": do, **body}).encode()
        return dict(json.loads(await owner.command("owners", text)))

    async def asserted(condition: str) -> str:
        return (await said("assert", app="BENCH", type="TOLD", licensees=[name(1)],
                           actions=["RECEIVE"], condition=condition))["id"]  # fmt: skip

    await reader.subscribe(TOLD_TOPIC.format("+"))
    follows, streaming = _Reader(reader), asyncio.create_task(stream())
    found: dict[str, tuple[list[float], int]] = {}
    try:
        for what in ("retracted", "attribute"):
            values, late = [], 0
            id = "" if what == "retracted" else await asserted(f'{ATTRIBUTE} == "yes"')
            for turn in range(times):
                if what == "retracted":
                    id = await asserted("")
                else:
                    await teller.set_attribute(ATTRIBUTE, name(1), "yes")
                await follows.more(20)
                began = time.monotonic()
                if what == "retracted":
                    await said("retract", id=id)
                else:
                    await teller.set_attribute(ATTRIBUTE, name(1), None)
                # What had been written to the sockets by then may still be read here.
                before = follows.count
                await asyncio.sleep(_QUIET_S)
                late += follows.count - before
                values.append(max(0.0, follows.last - began) * 1000)
                if turn % 10 == 9:
                    progress(f"{what}, {turn + 1} of {times}")
            found[what] = values, late
    finally:
        stopping = True
        await streaming
        follows.task.cancel()
        await asyncio.gather(follows.task, return_exceptions=True)
        for client in (owner, reader, teller):
            await client.disconnect()
    return found
