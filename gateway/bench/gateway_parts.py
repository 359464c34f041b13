"""The parts of the gateway's bench: what each measures, on which variants.

Parts of one group share their sites, which are started once.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench_print import Row
from gateway_rows import rows
from gateway_variants import BASE, FAMILIES, HELD, LABELS, NATS, TWO, USUAL
from load_cpu import LoadError
from load_family import benches
from load_rounds import (
    Rounds,
    Sizes,
    Taken,
    add_cpu,
    add_shares,
    in_turns,
    load_now,
    row_of,
)
from load_sites import Scene
from load_stats import found


@dataclass(frozen=True)
class GatewaySizes(Sizes):
    """closer: rounds of two variants alone, for a bar of few percent. paced_s: how long messages
    are sent at a fixed rate. many: clients that connect and are idle, for idle_s. scale: what the
    scenarios of emqx/mqttbs are divided by. seldom: rounds of what takes long. held:
    records of a family where very many are wanted.
    """

    span_s: float = 0.5
    minutes: float = 15.0
    closer: int = 30
    paced_s: float = 2.0
    many: int = 5000
    idle_s: float = 5.0
    scale: int = 1
    seldom: int = 3
    held: int = 1_000_000


QUICK = GatewaySizes(
    pairs=2, clients=20, span_s=0.1, most=16, closer=2, minutes=1, paced_s=0.2, many=60,
    idle_s=0.5, scale=50, seldom=1, held=1000,
)  # fmt: skip
# How many of a storm are under way; Mosquitto's queue of connections takes no more.
UNDER_WAY = 100
# Of the scenarios of emqx/mqttbs.
PAYLOAD = 16
# As often as a client whose keep alive it is says that it lives.
KEEPALIVE_S = 60.0
# Two clients, of which one subscribes, and how often the other one pings before that.
WAITING = 2
PINGS = 500
HOLDS = {f"{w}_{of}": "ms" for w in ("calm", "wild") for of in ("p50", "p99", "max")}
LATENCY = {f"latency_{name}": "ms" for name in ("p50", "p99", "p999")}
MANY = {
    "connect_rate": "clients/s",
    "connect_p50": "ms",
    "connect_p99": "ms",
    "cpu_connect": "us of CPU",
    "cpu_idle": "us of CPU a second",
    "memory": "MiB",
    "memory_client": "KiB",
}


@dataclass(frozen=True)
class Scenario:
    """One of emqx/mqttbs's basic set: publishers, subscribers, topics, messages a second in all."""

    kind: str
    publishers: int
    subscribers: int
    topics: int
    rate: float

    def over(self, scale: int) -> Scenario:
        """So many times smaller."""
        few = [max(1, of // scale) for of in (self.publishers, self.subscribers, self.topics)]
        if self.kind == "fanin":
            few[1] = self.subscribers
        rate = self.rate if self.publishers == 1 else max(1.0, self.rate / scale)
        return Scenario(self.kind, few[0], few[1], few[2], rate)

    @property
    def name(self) -> str:
        """As emqx/mqttbs has it: who publishes, who subscribes, messages a second in and out."""
        out = self.rate * (self.subscribers if self.kind == "fanout" else 1)
        of = (self.publishers, self.subscribers, self.rate, out)
        return "-".join((self.kind, *map(_short, of)))


def _short(number: float) -> str:
    return f"{number / 1000:g}K" if number >= 1000 else f"{number:g}"


SCENARIOS = (
    Scenario("p2p", 1000, 1000, 1000, 1000),
    Scenario("fanout", 1, 1000, 1, 1),
    Scenario("fanin", 1000, 5, 1000, 1000),
)

# Measures a part of the scenes; until when (monotonic); progress.
Measure = Callable[[Sequence[Scene], GatewaySizes, float, Callable[[str], None]], list[Row]]


@dataclass(frozen=True)
class Part:
    """share: of the whole bench's time. pairs: rounds that count, as progress is told. optional:
    left out of a full run where it cannot be measured here; no bar is about it.
    """

    name: str
    about: str
    variants: tuple[str, ...]
    share: float
    measure: Measure
    pairs: Callable[[GatewaySizes], int] = lambda sizes: sizes.pairs
    optional: bool = False


@dataclass(frozen=True)
class Group:
    """Parts on the same sites. optional: left out of a full run where the sites do not start; its
    bars are missed then.
    """

    parts: tuple[Part, ...]
    clients: Callable[[GatewaySizes], int] = lambda sizes: sizes.clients
    held: Callable[[GatewaySizes], int] = lambda sizes: HELD
    optional: bool = False


def _messages(stage: str, qos: int = 0, clean: bool = True, closer: bool = False) -> Measure:
    """Rounds of messages: all clients publish and read with this QoS."""

    def measure(
        scenes: Sequence[Scene], sizes: GatewaySizes, until: float, progress: Callable[[str], None]
    ) -> list[Row]:
        load = load_now()
        for scene in scenes:
            scene.do("connect", clients=sizes.clients, qos=qos, clean=clean)
        rounds = Rounds(scenes, sizes, progress)
        rounds.run(sizes.closer if closer else sizes.pairs, until)
        made = rows(rounds.taken, stage, load)
        for row in made:
            row["params"]["cores"] = os.cpu_count() or 1
        return made

    return measure


def _latency(
    scenes: Sequence[Scene], sizes: GatewaySizes, until: float, progress: Callable[[str], None]
) -> list[Row]:
    """At half of what the first site carries, the same rate for all."""
    load = load_now()
    for scene in scenes:
        scene.do("connect", clients=sizes.clients)
        scene.do("messages", each=2, burst=1)
    site = next((s for s in scenes if s.variant.sealed), scenes[0])
    span = site.do("messages", each=sizes.most // 8, burst=1)
    rate = span["messages"] / span["wall_s"] / 2
    taken = [Taken(s.variant.name, s.held, sizes.clients, sizes.size) for s in scenes]
    for turn in _turns(sizes.pairs, until):
        for at in in_turns(len(scenes), turn):
            _paced(scenes[at], taken[at], rate, sizes.paced_s if turn else sizes.paced_s / 4, turn)
            progress(f"{scenes[at].variant.name}, round {turn} of {sizes.pairs}")
    made = rows(taken, "latency", load, LATENCY)
    for one in taken:
        key = ("half_load", 0, "")
        made.append(row_of(one, "half_load", "messages/s", found([rate]), key, "latency", load))
    return made


# The first round warms up.
def _turns(pairs: int, until: float) -> Iterator[int]:
    for turn in range(pairs + 1):
        if turn > 1 and time.monotonic() > until:
            return
        yield turn


def _paced(scene: Scene, into: Taken, rate: float, seconds: float, turn: int) -> None:
    span = scene.do("paced", rate=rate, seconds=seconds, size=into.size)
    if turn:
        for name in ("p50", "p99", "p999"):
            into.add(f"latency_{name}", span[f"{name}_ms"])
        add_cpu(into, "cpu_message", span["cpu_us"], span["messages"], 0)
        add_shares(into, span["cpu_us"], span["wall_s"])


def _scenarios(
    scenes: Sequence[Scene], sizes: GatewaySizes, until: float, progress: Callable[[str], None]
) -> list[Row]:
    made: list[Row] = []
    for scenario in (each.over(sizes.scale) for each in SCENARIOS):
        load = load_now()
        clients = scenario.publishers + scenario.subscribers
        taken = [Taken(s.variant.name, s.held, clients, PAYLOAD) for s in scenes]
        words = {"publishers": scenario.publishers, "subscribers": scenario.subscribers}
        for scene in scenes:
            scene.do("scenario", kind=scenario.kind, topics=scenario.topics, **words)
        for turn in _turns(sizes.seldom, until):
            for at in in_turns(len(scenes), turn):
                # To warm up, each topic at least once: it gets its label.
                seconds = sizes.paced_s * 2 if turn else scenario.topics / scenario.rate
                _paced(scenes[at], taken[at], scenario.rate, seconds, turn)
                progress(f"{scenario.name}, {scenes[at].variant.name}")
        made += rows(taken, scenario.name, load, {**LATENCY, "cpu_message": "us of CPU"})
    return made


def _storm(scene: Scene, clients: int) -> dict[str, Any]:
    try:
        return scene.do("storm", clients=clients, under_way=UNDER_WAY)
    except LoadError as error:
        raise LoadError(
            str(error),
            "a mediator bounds how many clients it lets in (its limits, and its open files): raise "
            "that, or take fewer with --idle N",
        ) from None


def enough_files(clients: int) -> None:
    """LoadError where what we start may not have enough open files for so many clients."""
    # A mediator may need two for a client, and some besides.
    wanted = 2 * clients + 2000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise LoadError(
            f"{clients:,} clients need {wanted:,} open files, and this process may have {hard:,}",
            f"raise the hard limit (ulimit -Hn {wanted}), or take fewer: --idle N",
        )


def _many(
    scenes: Sequence[Scene], sizes: GatewaySizes, until: float, progress: Callable[[str], None]
) -> list[Row]:
    """A storm of connects, and what the clients cost that are there and do nothing."""
    load, many = load_now(), sizes.many
    enough_files(many)
    taken = [Taken(s.variant.name, s.held, many, 0) for s in scenes]
    # Before the first clients: what a process has once held for many, it keeps.
    empty = [sum(scene.memory_mib().values()) for scene in scenes]
    for turn in _turns(sizes.seldom, until):
        for at in in_turns(len(scenes), turn):
            scene, into = scenes[at], taken[at] if turn else Taken("", 0, 0, 0)
            # To warm up, a part of them.
            span = _storm(scene, many if turn else many // 4)
            into.add("connect_rate", span["clients"] / span["wall_s"])
            into.add("connect_p50", span["p50_ms"])
            into.add("connect_p99", span["p99_ms"])
            add_cpu(into, "cpu_connect", span["cpu_us"], span["clients"], 0)
            add_shares(into, span["cpu_us"], span["wall_s"])
            idle = scene.do("idle", seconds=sizes.idle_s, keepalive=KEEPALIVE_S)
            add_cpu(into, "cpu_idle", idle["cpu_us"], many * sizes.idle_s, 0)
            after = scene.memory_mib()
            for process, held in after.items():
                into.add("memory", held, 0, process)
            into.add("memory", sum(after.values()), 0, "gateway")
            more = sum(after.values()) - empty[at]
            into.add("memory_client", max(0.0, more) * 1024 / span["clients"], 0, "gateway")
            progress(f"idle, {scene.variant.name}")
    return rows(taken, "idle", load, MANY)


def _wild(
    scenes: Sequence[Scene], sizes: GatewaySizes, until: float, progress: Callable[[str], None]
) -> list[Row]:
    """How long a client waits for its PINGRESP at most while another one's SUBSCRIBE with wildcards
    is judged."""
    load = load_now()
    taken = [Taken(s.variant.name, s.held, WAITING, 0) for s in scenes]
    for scene in scenes:
        scene.do("connect", clients=WAITING)
    for turn in _turns(sizes.pairs, until):
        for at in in_turns(len(scenes), turn):
            needed, filters = _WILD[scenes[at].variant.name](turn)
            span = scenes[at].do("wild", needed=needed, filters=filters, calm=PINGS)
            into = taken[at] if turn else Taken("", 0, 0, 0)
            for measure in HOLDS:
                into.add(measure, span[measure])
            progress(f"wild filters, {scenes[at].variant.name}, round {turn} of {sizes.pairs}")
    return rows(taken, "wild", load, HOLDS)


# What takes long to judge, by the variant whose family has such.
_WILD = {
    FAMILIES[name].name: manifest.load(bench.wild)
    for name, (manifest, bench) in benches().items()
    if bench.wild is not None
}
_ALL = ("mosquitto", BASE, NATS, "amqtt", LABELS, USUAL)
_BARS = ("mosquitto", BASE, LABELS, USUAL)
_SMALL = Group(
    (
        Part("qos0", "QoS 0", _ALL, 3, _messages("qos0")),
        Part("qos1", "QoS 1, on disk before PUBACK", _BARS, 2, _messages("qos1", 1)),
        Part("kept", "QoS 1, readers with kept sessions", _BARS, 2, _messages("kept", 1, False)),
        *(
            Part(
                family,
                f"{family} over labels",
                (LABELS, variant.name),
                3,
                _messages(family, closer=True),
                pairs=lambda sizes: sizes.closer,
            )
            for family, variant in FAMILIES.items()
        ),
        Part("latency", "added latency at half load", _BARS, 3, _latency),
    )
)
_WORKERS = Group(
    (Part("workers", "two workers beside one", (LABELS, TWO), 2, _messages("workers")),),
    optional=True,
)
_MANY = Group(
    (
        Part(
            "scenarios",
            "fan-in, fan-out, point to point of emqx/mqttbs",
            ("mosquitto", BASE, LABELS),
            3,
            _scenarios,
            pairs=lambda sizes: sizes.seldom * len(SCENARIOS) + len(SCENARIOS) - 1,
        ),
        Part(
            "idle",
            "a storm of connects, and clients that do nothing",
            ("mosquitto", BASE, LABELS),
            3,
            _many,
            pairs=lambda sizes: sizes.seldom,
            optional=True,
        ),
    ),
    clients=lambda sizes: max(sizes.many, 2000 // sizes.scale),
)
_HELD = Group(
    (
        Part(
            "wild",
            "how long others wait while a filter with wildcards is judged",
            tuple(_WILD),
            1,
            _wild,
            optional=True,
        ),
    ),
    clients=lambda sizes: WAITING,
    held=lambda sizes: sizes.held,
    optional=True,
)
GROUPS = (_SMALL, _WORKERS, _MANY, _HELD)
PARTS = tuple(part for group in GROUPS for part in group.parts)
