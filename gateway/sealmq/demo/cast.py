"""Who plays: the clients of the factory example (Chen and Wilson, Fig. 1, Table 1), as devices.

Labels, order and topics are not repeated here: they come from the site's sealmq.toml. Acts of
policy families bring further clients (acts.py).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERY_MS = 1000

# What the monitor says with its subscription.
OPERATION = "operation"


@dataclass(frozen=True, slots=True)
class Part:
    """A client: its script in on_device/, the script's arguments, what it listens to, its width.

    `said`: what it says with its subscriptions; "": nothing, and the operator has said what counts.
    `label`: of those that the factory example does not have.
    """

    name: str
    script: str
    arguments: tuple[str, ...]
    filters: tuple[str, ...] = ()
    bits: int = 64
    said: str = ""
    label: str = ""


def listener(name: str, filt: str, said: str = "", label: str = "", bits: int = 64) -> Part:
    return Part(name, "listener.py", (said, filt), (filt,), bits, said, label)


def _sensor(name: str, topic: str, qos: int, reading: str, bits: int = 64) -> Part:
    return Part(name, "sensor.py", (topic, str(qos), reading, str(EVERY_MS)), (), bits)


PARTS = (
    listener("monitor", "#", OPERATION),
    listener("m1-arm-operator", "machine/1/arm/#"),
    listener("m2-arm-operator", "machine/2/arm/#", bits=32),
    Part("m1-control-panel", "panel.py", ("1",), ("machine/1/temperature",)),
    Part("m2-control-panel", "panel.py", ("2",), ("machine/2/temperature",)),
    _sensor("m1-temp-sensor", "machine/1/temperature", 0, "load"),
    _sensor("m2-temp-sensor", "machine/2/temperature", 1, "memory", 32),
    _sensor("control-room-temp-sensor", "control-room/temperature", 0, "heat"),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """sealmq.toml as far as the demo needs it: σ of the clients, the order of the labels. `doc` is
    all of it.
    """

    label: Mapping[str, str]
    below: Mapping[str, frozenset[str]]
    doc: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Policy:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        direct: dict[str, list[str]] = told["labels"]

        def closure(label: str) -> frozenset[str]:
            return frozenset({label}.union(*(closure(low) for low in direct[label])))

        label = {name: str(row["label"]) for name, row in told["clients"].items()}
        return cls(label, {name: closure(name) for name in direct}, told)

    def reads(self, client: str, label: str) -> bool:
        """r_s: whether the client's label is at or above this one."""
        return label in self.below[self.label[client]]


def listens(part: Part, topic: str) -> bool:
    """Whether one of its filters has the topic (MQTT 3.1.1, section 4.7)."""
    return any(has(filt, topic) for filt in part.filters)


def has(filt: str, topic: str) -> bool:
    """Whether a filter has the topic."""
    return _has(filt.split("/"), topic.split("/"))


def _has(filt: list[str], topic: list[str]) -> bool:
    for i, level in enumerate(filt):
        if level == "#":
            return True
        if i >= len(topic) or level not in ("+", topic[i]):
            return False
    return len(filt) == len(topic)
