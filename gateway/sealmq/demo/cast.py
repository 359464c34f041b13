"""Who plays: the clients of the factory example (Chen and Wilson, Fig. 1, Table 1), as devices, and
a worker who wears one (purposes as in HivePBAC).

Labels, order and topics are not repeated here: they come from the site's sealmq.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EVERY_MS = 1000

# What the monitor reads for, and what the worker's pulse is for at first.
OPERATION, SAFETY, PERFORMANCE = "operation", "safety", "staff-performance"
PULSE = "worker/7/pulse"


@dataclass(frozen=True, slots=True)
class Part:
    """A client: its script in on_device/, the script's arguments, what it listens to, its width.

    `purpose`: what it listens for; "": it knows nothing of purposes, and the operator has said what
    for. `label`: of those that the factory example does not have.
    """

    name: str
    script: str
    arguments: tuple[str, ...]
    filters: tuple[str, ...] = ()
    bits: int = 64
    purpose: str = ""
    label: str = ""


def _listener(name: str, filt: str, purpose: str = "", label: str = "", bits: int = 64) -> Part:
    return Part(name, "listener.py", (purpose, filt), (filt,), bits, purpose, label)


def _sensor(name: str, topic: str, qos: int, reading: str, bits: int = 64) -> Part:
    return Part(name, "sensor.py", (topic, str(qos), reading, str(EVERY_MS)), (), bits)


PARTS = (
    _listener("monitor", "#", OPERATION),
    _listener("m1-arm-operator", "machine/1/arm/#"),
    _listener("m2-arm-operator", "machine/2/arm/#", bits=32),
    Part("m1-control-panel", "panel.py", ("1",), ("machine/1/temperature",)),
    Part("m2-control-panel", "panel.py", ("2",), ("machine/2/temperature",)),
    _sensor("m1-temp-sensor", "machine/1/temperature", 0, "load"),
    _sensor("m2-temp-sensor", "machine/2/temperature", 1, "memory", 32),
    _sensor("control-room-temp-sensor", "control-room/temperature", 0, "heat"),
    Part("wristband", "wristband.py", (PULSE, "500", SAFETY, PERFORMANCE), label="m1-temp"),
    _listener("safety-officer", PULSE, SAFETY, "monitor"),
    _listener("shift-planner", PULSE, PERFORMANCE, "monitor", 32),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """sealmq.toml as far as the demo needs it.

    σ of the clients, the order of the labels; what topics are for by the operator's word (filter ->
    purposes, prohibited ones), what clients subscribe for that do not say so (client -> filter ->
    purpose), and what lies above a purpose.
    """

    label: Mapping[str, str]
    below: Mapping[str, frozenset[str]]
    reserved: Mapping[str, tuple[frozenset[str], frozenset[str]]]
    presubscribed: Mapping[str, Mapping[str, str]]
    above: Mapping[str, frozenset[str]]

    @classmethod
    def read(cls, path: Path) -> Policy:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        direct: dict[str, list[str]] = told["labels"]
        purposes = told["families"]["purposes"]
        tree: dict[str, list[str]] = purposes["tree"]

        def closure(label: str) -> frozenset[str]:
            return frozenset({label}.union(*(closure(low) for low in direct[label])))

        def above(purpose: str) -> frozenset[str]:
            over = [above(name) for name, children in tree.items() if purpose in children]
            return frozenset({purpose}.union(*over))

        label = {name: str(row["label"]) for name, row in told["clients"].items()}
        reserved = {
            filt: (frozenset(row.get("aip", ())), frozenset(row.get("pip", ())))
            for filt, row in purposes["reserve"].items()
        }
        names = {*tree, *(child for children in tree.values() for child in children)}
        return cls(
            label,
            {name: closure(name) for name in direct},
            reserved,
            purposes["presubscribe"],
            {name: above(name) for name in names},
        )

    def reads(self, client: str, label: str) -> bool:
        """r_s: whether the client's label is at or above this one."""
        return label in self.below[self.label[client]]

    def serves(self, part: Part, topic: str, consent: frozenset[str]) -> bool:
        """Whether a purpose that it listens for is one that the topic may be used for, by the
        operator's word and by the `consent` of who publishes there.
        """
        rows = [row for filt, row in self.reserved.items() if has(filt, topic)]
        may = consent.union(*(aip for aip, _ in rows))
        never: frozenset[str] = frozenset().union(*(pip for _, pip in rows))
        mine = [self.above[self._purpose(part, f)] for f in part.filters if has(f, topic)]
        return any(up & may and not up & never for up in mine)

    def _purpose(self, part: Part, filt: str) -> str:
        return part.purpose or self.presubscribed[part.name][filt]


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
