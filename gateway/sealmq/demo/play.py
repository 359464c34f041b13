"""The run from an empty folder to a verdict: set up, play, attack, end all, judge.

Whatever happens, no process of the demo outlives it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from . import report
from .acts import ACTS, ATTEMPTS, PARTS, SCRIPTS
from .attacks import Stage
from .audit_log import Tail
from .board import Board
from .broker import Broker
from .cast import Policy
from .children import Children
from .errors import DemoError
from .evidence import Evidence
from .fleet import Fleet
from .frames import PUBLISH, decode
from .places import Places
from .plant import Plant
from .tap import Line, Tap
from .verdict import give

_BEFORE_S = 2.5
_DRAIN_S = 1.2


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long the factory works at least; all attempts are made in any case."""

    seconds: float = 16.0
    enforce: bool = True
    broker: str = "mosquitto"
    keep: bool = False


async def play(places: Places, options: Options, board: Board) -> dict[str, Any]:
    """One run; what summary.json says, which is written too. DemoError: it could not be played."""
    with places.fresh():
        return await _play(places, options, board)


async def _play(places: Places, options: Options, board: Board) -> dict[str, Any]:
    children = Children(places.logs)
    try:
        async with _running(places, options, board, children) as (stage, plant):
            await _act(stage, options, board)
            board.say("the factory closes")
            await stage.fleet.order("stop")
            await asyncio.sleep(_DRAIN_S)
            await stage.fleet.end()
            await plant.down()
        board.say("judging by the audit log and the captures")
        told = await asyncio.to_thread(_judge, places, board.seconds)
        report.write(places.summary, told)
        return told
    finally:
        await children.stop()
        if not options.keep:
            places.clean()


def _judge(places: Places, seconds: float) -> dict[str, Any]:
    try:
        evidence = Evidence.load(places)
        return report.summary(evidence, give(evidence), seconds)
    except (OSError, ValueError, KeyError) as error:
        raise DemoError(f"the evidence is incomplete: {type(error).__name__}: {error}") from error


@asynccontextmanager
async def _running(
    places: Places, options: Options, board: Board, children: Children
) -> AsyncIterator[tuple[Stage, Plant]]:
    """The factory at work: broker, site, taps, devices."""
    network, at_broker = Tap(places.capture / "network"), Tap(places.capture / "broker")
    broker = Broker(options.broker, children, places.work / "broker.pw")
    plant = Plant(places, children)
    tail = Tail(places.audit, board.audited)
    following: asyncio.Task[None] | None = None
    at_broker.seen = _shown_on(board)
    try:
        told_port, broker_port = await network.listen(), await at_broker.listen()
        if not options.enforce:
            board.say("POLICY OFF: the verdict of this run has to be `fail`")
        board.say(f"setting up the site, and {options.broker} as its broker")
        await asyncio.gather(
            plant.init(told_port, options.enforce), _start_broker(broker, at_broker)
        )
        network.server = "127.0.0.1", plant.port
        await plant.up(broker, broker_port)
        following = asyncio.create_task(tail.follow(), name="audit log")
        board.say("enrolling the clients")
        labels = Policy.read(places.site / "sealmq.toml").label
        numbers, status = await asyncio.gather(
            plant.enrol({part.name: part.label or labels[part.name] for part in PARTS}),
            plant.status(),
        )
        board.site = _site_line(status)
        _note(places, options, numbers, status)
        fleet = Fleet(places, children, board.told, SCRIPTS)
        board.say(f"starting {len(PARTS)} MicroPython clients")
        for part in PARTS:
            await fleet.start(part)
        await fleet.ready()
        yield Stage(places, fleet, network, at_broker, tail, numbers, plant.port), plant
        tail.look()
    finally:
        if following is not None:
            following.cancel()
        await children.stop()
        for tap in (network, at_broker):
            await tap.close()
        broker.clean()


async def _start_broker(broker: Broker, tap: Tap) -> None:
    await broker.start()
    tap.server = "127.0.0.1", broker.port


async def _act(stage: Stage, options: Options, board: Board) -> None:
    began = time.monotonic()
    board.say("the factory works: readings go from sensors to readers")
    await stage.fleet.order("go")
    await asyncio.sleep(_BEFORE_S)
    # Attempts are spread over the time that is left; the last one needs none behind it.
    pace = max(0.0, (options.seconds - _BEFORE_S) / len(ATTEMPTS))
    for attempt in ATTEMPTS:
        start = time.monotonic()
        board.trying(attempt)
        state, why = await ACTS[attempt.name](stage, attempt)
        board.result(attempt, state, why)
        await asyncio.sleep(max(0.0, pace - (time.monotonic() - start)))
    board.say("the factory works on")
    await asyncio.sleep(max(0.0, options.seconds - (time.monotonic() - began)))


def _shown_on(board: Board) -> Callable[[Line, bool, bytes], None]:
    def seen(line: Line, to_server: bool, frame: bytes) -> None:
        if to_server and frame[0] & 0xF0 == PUBLISH:
            for packet in decode([frame], True):
                topic, payload = getattr(packet, "topic", ""), getattr(packet, "payload", b"")
                board.at_broker(topic, payload)

    return seen


def _site_line(status: dict[str, Any]) -> str:
    roles = [f"{p['role']} {'ready' if p['ready'] else 'NOT READY'}" for p in status["processes"]]
    return ", ".join(roles)


# What the command line said, for the evidence.
def _note(
    places: Places, options: Options, numbers: dict[str, int], status: dict[str, Any]
) -> None:
    site = {
        "example": "factory",
        "clients": len(numbers),
        "devices": {part.name: f"MicroPython, {part.bits}-bit" for part in PARTS},
        "enforce": options.enforce,
        "shared_user": status.get("shared_user"),
        "processes": status["processes"],
    }
    facts = {"numbers": numbers, "broker": options.broker, "site": site}
    places.facts.write_text(json.dumps(facts), encoding="utf-8")
