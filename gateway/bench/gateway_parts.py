"""The parts of the gateway's bench: what each measures, on which variants.

Parts of one group share their sites, which are started once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench_print import Row
from gateway_rows import rows
from gateway_variants import BASE, HYBRID, LABELS, NATS, TWO
from load_rounds import Rounds, Sizes, load_now
from load_sites import Scene


@dataclass(frozen=True)
class GatewaySizes(Sizes):
    """closer: rounds of two variants alone, for a bar of few percent."""

    span_s: float = 0.5
    minutes: float = 15.0
    closer: int = 30


QUICK = GatewaySizes(pairs=2, clients=20, span_s=0.1, most=16, closer=2, minutes=1)

# Measures a part of the scenes; until when (monotonic); progress.
Measure = Callable[[Sequence[Scene], GatewaySizes, float, Callable[[str], None]], list[Row]]


@dataclass(frozen=True)
class Part:
    """share: of the whole bench's time. steps: how often it tells its progress, by variants."""

    name: str
    about: str
    variants: tuple[str, ...]
    share: float
    measure: Measure
    pairs: Callable[[GatewaySizes], int] = lambda sizes: sizes.pairs


@dataclass(frozen=True)
class Group:
    """Parts on the same sites. optional: left out of a full run where it cannot be measured."""

    parts: tuple[Part, ...]
    clients: Callable[[GatewaySizes], int] = lambda sizes: sizes.clients
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


_ALL = ("mosquitto", BASE, NATS, "amqtt", LABELS, HYBRID)
_BARS = ("mosquitto", BASE, LABELS, HYBRID)
_SMALL = Group(
    (
        Part("qos0", "QoS 0", _ALL, 3, _messages("qos0")),
        Part("qos1", "QoS 1, on disk before PUBACK", _BARS, 2, _messages("qos1", 1)),
        Part("kept", "QoS 1, readers with kept sessions", _BARS, 2, _messages("kept", 1, False)),
        Part(
            "purposes",
            "purposes over labels",
            (LABELS, HYBRID),
            3,
            _messages("purposes", closer=True),
            pairs=lambda sizes: sizes.closer,
        ),
    )
)
_WORKERS = Group(
    (Part("workers", "two workers beside one", (LABELS, NATS, TWO), 2, _messages("workers")),),
    optional=True,
)
GROUPS = (_SMALL, _WORKERS)
PARTS = tuple(part for group in GROUPS for part in group.parts)
