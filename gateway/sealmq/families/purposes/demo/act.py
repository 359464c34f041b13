"""The act: consent that is withdrawn and given back, and one that is not the wearer's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sealmq.demo.attacks import Result, Stage
from sealmq.demo.cast import PARTS as OTHERS
from sealmq.demo.cast import Part, Policy, has
from sealmq.demo.evidence import Evidence
from sealmq.demo.plot import REPLAY_CONNECT, SUBSCRIBE_OTHER, Attempt

from . import consent, plot
from .plot import (
    GIVE_BACK,
    PARTS,
    PERFORMANCE,
    PULSE,
    RESERVE_OTHER,
    SAFETY,
    SCRIPTS,
    SETTINGS,
    WITHDRAW,
)

__all__ = [
    "ACTS", "ATTEMPTS", "JUDGES", "PARTS", "SCRIPTS", "SETTINGS", "UNSURE",
    "may", "show", "summary",
]  # fmt: skip


class Uses:
    """What topics are for by the operator's word, what clients subscribe for that do not say so,
    and what lies above a purpose: sealmq.toml as far as the act needs it.
    """

    def __init__(self, policy: Policy) -> None:
        ours = policy.doc["families"]["purposes"]
        tree: dict[str, list[str]] = ours["tree"]

        def above(purpose: str) -> frozenset[str]:
            over = [above(name) for name, children in tree.items() if purpose in children]
            return frozenset({purpose}.union(*over))

        self._reserved = {
            filt: (frozenset(row.get("aip", ())), frozenset(row.get("pip", ())))
            for filt, row in ours["reserve"].items()
        }
        names = {*tree, *(child for children in tree.values() for child in children)}
        self._above = {name: above(name) for name in names}
        self._presubscribed: Mapping[str, Mapping[str, str]] = ours["presubscribe"]

    def serves(self, part: Part, topic: str, given: frozenset[str]) -> bool:
        """Whether a purpose that it listens for is one that the topic may be used for, by the
        operator's word and by the consent that was `given` by who publishes there.
        """
        rows = [row for filt, row in self._reserved.items() if has(filt, topic)]
        may = given.union(*(aip for aip, _ in rows))
        never: frozenset[str] = frozenset().union(*(pip for _, pip in rows))
        mine = [self._above[self._purpose(part, f)] for f in part.filters if has(f, topic)]
        return any(up & may and not up & never for up in mine)

    def _purpose(self, part: Part, filt: str) -> str:
        return part.said or self._presubscribed[part.name][filt]


def may(evidence: Evidence) -> Callable[[Part, str, str], bool]:
    """Whether a client may read (topic, text), its label aside."""
    uses = Uses(evidence.policy)
    given = dict(consent.consent(evidence, plot.WEARER))
    nothing = frozenset[str]()
    return lambda part, topic, text: uses.serves(part, topic, given.get(text, nothing))


# What is under way while consent changes: its judges know.
UNSURE = frozenset({WITHDRAW.who})


def summary(evidence: Evidence) -> dict[str, Any]:
    """What summary.json holds."""
    found = [
        {"client": part.name, "topic": PULSE, "purpose": purpose, "under": under, "count": count}
        for part in (*OTHERS, *PARTS)
        for (purpose, under), count in consent.disclosed(evidence, part.name).items()
    ]
    return {"disclosed": found}


def show(told: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The same for people: a title, and lines."""
    lines = [
        f"{row['count']} by {row['client']} for {row['purpose']} (audit log)"
        for row in told["disclosed"]
    ]
    return "What the worker's pulse was used for", lines


# The answer of a client that was told what a topic may be used for from now on.
async def _reserve(stage: Stage, who: str, *purposes: str) -> dict[str, Any]:
    device = stage.fleet[who]
    start = len(device.events)
    await device.order("reserve", by="consent", topic=PULSE, purposes=purposes)

    def about(event: dict[str, Any]) -> bool:
        return event["ev"] == "reserved" or event.get("what") == "reserve"

    at = await device.until("answer to its reservation", about, start)
    return device.events[at - 1]


# What `name` reads of the pulses that were published behind the newest reservation: the second one
# of them all.
async def _reads_on(stage: Stage, name: str) -> str:
    band = stage.fleet[plot.WEARER].events
    begin = max(at for at, event in enumerate(band) if event["ev"] == "reserved")

    def new(event: dict[str, Any]) -> bool:
        texts = [e["text"] for e in band[begin:] if e["ev"] == "published"]
        return event["ev"] == "read" and event["text"] in texts[1:]

    device = stage.fleet[name]
    at = await device.until("pulse", new)
    return str(device.events[at - 1]["text"])


async def withdraw(stage: Stage, attempt: Attempt) -> Result:
    for name in (plot.STILL_ALLOWED, attempt.who):
        await _reads_on(stage, name)  # until now both do
    answer = await _reserve(stage, plot.WEARER, SAFETY)
    if answer["ev"] != "reserved":
        return "unseen", f"{answer['rule']}: {answer['why']}"
    start = len(stage.fleet[attempt.who].events)
    text = await _reads_on(stage, plot.STILL_ALLOWED)
    seen = [e["text"] for e in stage.fleet[attempt.who].events[start:] if e["ev"] == "read"]
    if text in seen:
        return "accepted", f"{attempt.who} reads {text!r} all the same"
    return "withheld", f"{plot.STILL_ALLOWED} alone reads {text!r}"


async def reserve_other(stage: Stage, attempt: Attempt) -> Result:
    answer = await _reserve(stage, attempt.who, PERFORMANCE)
    if answer["ev"] == "reserved":
        return "accepted", "what it says counts"
    return "refused", f"{answer['rule']}: {answer['why']}"


async def give_back(stage: Stage, attempt: Attempt) -> Result:
    answer = await _reserve(stage, plot.WEARER, SAFETY, PERFORMANCE)
    if answer["ev"] != "reserved":
        return "unseen", f"{answer['rule']}: {answer['why']}"
    text = await _reads_on(stage, attempt.who)
    return "accepted", f"{attempt.who} reads {text!r}"


# Between the consent that is withdrawn and given back, messages flow and others try their luck.
ATTEMPTS = {SUBSCRIBE_OTHER.name: (WITHDRAW, RESERVE_OTHER), REPLAY_CONNECT.name: (GIVE_BACK,)}
ACTS = {
    WITHDRAW.name: withdraw,
    RESERVE_OTHER.name: reserve_other,
    GIVE_BACK.name: give_back,
}
JUDGES = {
    WITHDRAW.name: consent.withdraw,
    RESERVE_OTHER.name: consent.reserve_other,
    GIVE_BACK.name: consent.give_back,
}
