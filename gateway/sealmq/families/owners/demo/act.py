"""The act: a pulse that nobody gets, until the person whose it is lets somebody, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sealmq.demo.attacks import Result, Stage
from sealmq.demo.cast import PARTS as OTHERS
from sealmq.demo.cast import Part, listens
from sealmq.demo.evidence import Evidence
from sealmq.demo.plot import PUBLISH_TAKEN, REPLAY_M3, REPLAY_PUBLISH, Attempt

from . import judging, plot
from .plot import LET, LET_ONESELF, OWNER, PARTS, PRIVATE, PULSE, SCRIPTS, SETTINGS, TAKE_BACK

__all__ = [
    "ACTS", "ATTEMPTS", "JUDGES", "PARTS", "SCRIPTS", "SETTINGS", "UNSURE",
    "may", "show", "summary",
]  # fmt: skip


def may(evidence: Evidence) -> Callable[[Part, str, str], bool]:
    """Whether a client may read (topic, text), its label aside."""
    pulses = judging.pulses(evidence)
    # The last one before she lets him may be on its way: it is judged when it is delivered.
    his = {*pulses.before[-1:], *pulses.during}

    def allows(part: Part, topic: str, text: str) -> bool:
        return topic != PULSE or part.name == OWNER or (part.name == plot.FRIEND and text in his)

    return allows


# What is under way when she says something: the judges know.
UNSURE = frozenset({plot.FRIEND})


def summary(evidence: Evidence) -> dict[str, Any]:
    """What summary.json holds."""
    asked = [part.name for part in (*OTHERS, *PARTS) if listens(part, PULSE)]
    return {
        "received": [
            {"client": name, "topic": PULSE, **judging.by_audit(evidence, name)} for name in asked
        ]
    }


def show(told: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The same for people: a title, and lines."""
    lines = [
        f"{row['client']} {row['delivered']}, denied {row['denied']} (audit log)"
        for row in told["received"]
    ]
    return f"Who received {OWNER}'s pulse", lines


# The answer of a client that was told to say who receives what is alice's.
async def _say(stage: Stage, who: str, do: str) -> dict[str, Any]:
    device = stage.fleet[who]
    start = len(device.events)
    await device.order(do, by="owning", who=plot.FRIEND, owner=OWNER)

    def about(event: dict[str, Any]) -> bool:
        return event["ev"] == do or event.get("what") == do

    at = await device.until(f"answer to {do!r}", about, start)
    return device.events[at - 1]


# What bob reads of the pulses from now on, once their owner has read three back: the first may be
# older, and when the third one is there the second has reached everybody whom it may reach.
async def _read(stage: Stage) -> list[str]:
    hers, his = stage.fleet[OWNER], stage.fleet[plot.FRIEND]
    start, texts = len(hers.events), []

    def back(event: dict[str, Any]) -> bool:
        if event["ev"] == "read":
            texts.append(event["text"])
        return len(texts) == 3

    await hers.until("pulse of her own", back, start)
    return [e["text"] for e in his.events if e["ev"] == "read" and e["text"] in texts[1:]]


async def private(stage: Stage, attempt: Attempt) -> Result:
    read = await _read(stage)
    if read:
        return "accepted", f"{attempt.who} reads {read[0]!r} all the same"
    return "withheld", f"{OWNER} alone reads her pulse"


async def let_oneself(stage: Stage, attempt: Attempt) -> Result:
    answer = await _say(stage, attempt.who, "let")
    if answer["ev"] == "let":
        return "accepted", "what he says counts"
    return "refused", f"{answer['rule']}: {answer['why']}"


async def let(stage: Stage, attempt: Attempt) -> Result:
    answer = await _say(stage, OWNER, "let")
    if answer["ev"] != "let":
        return "unseen", f"{answer['rule']}: {answer['why']}"
    read = await _read(stage)
    if not read:
        return "withheld", f"{attempt.who} reads nothing all the same"
    return "accepted", f"{attempt.who} reads {read[0]!r}"


async def take_back(stage: Stage, attempt: Attempt) -> Result:
    answer = await _say(stage, OWNER, "take-back")
    if answer["ev"] != "take-back":
        return "unseen", f"{answer['rule']}: {answer['why']}"
    return await private(stage, attempt)


# While she lets him messages flow, and others try their luck.
ATTEMPTS = {
    PUBLISH_TAKEN.name: (PRIVATE, LET_ONESELF),
    REPLAY_PUBLISH.name: (LET,),
    REPLAY_M3.name: (TAKE_BACK,),
}
ACTS = {
    PRIVATE.name: private,
    LET_ONESELF.name: let_oneself,
    LET.name: let,
    TAKE_BACK.name: take_back,
}
JUDGES = {
    PRIVATE.name: judging.private,
    LET_ONESELF.name: judging.let_oneself,
    LET.name: judging.let,
    TAKE_BACK.name: judging.take_back,
}
