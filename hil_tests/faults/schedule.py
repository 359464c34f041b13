"""Which fault strikes when, drawn from a seed: the same seed gives the same rounds, always.

Pure: no clock, no process. What a round really meets still depends on the machine's timing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = (
    "kill-kg",
    "kill-mediator",
    "kill-broker",
    "kill-supervisor",
    "broker-gone",
    "disk-full",
    "slow-store",
    "locked-store",
    "clock-jump",
    "power-cut",
)
# After these the whole site has to come up again.
HEAVY = ("kill-supervisor", "power-cut")
_BROKER_ENDS = ("kill-broker", *HEAVY)
# How far off the clock may be: unnoticed, less than W (SPEC.md 6), and hours.
CLOCK_S = 2.0, 25.0, 4 * 3600.0
# A will's connection is cut, says goodbye, or is left to the fault.
WILLS = ("cut", "bye", "left")


@dataclass(frozen=True, slots=True)
class Round:
    """One round. Times in seconds, from its beginning.

    at: when the fault strikes. hold: how long it lasts (a kill lasts no time). amount: where the
    clock stands from then on, seconds off; sync delay in ms; otherwise unused. will, will_at: what
    becomes of the round's will.
    sleep: (begin, duration) of the persistent reader's sleep, or None. seed: of the load's own
    choices.
    """

    number: int
    kind: str
    at: float
    hold: float
    amount: float
    will: str
    will_at: float
    sleep: tuple[float, float] | None
    seed: int


def draw(
    seed: int, rounds: int, kinds: Sequence[str] = KINDS, *, full: bool = False
) -> list[Round]:
    """The rounds of a seed. full: faults up to a minute, clocks up to hours."""
    dice = random.Random(f"faults {seed}")  # noqa: S311 - replayable, nothing secret
    bag: list[str] = []
    drawn: list[Round] = []
    for number in range(rounds):
        if not bag:
            # Every kind comes equally often, in an order of its own each time; those after which
            # everything starts again come every second time in short runs.
            spared = len(drawn) // max(1, len(kinds)) % 2 and not full and len(kinds) > len(HEAVY)
            bag = [kind for kind in kinds if not (spared and kind in HEAVY)]
            dice.shuffle(bag)
        drawn.append(_round(dice, number, bag.pop(), full))
    return drawn


def _round(dice: random.Random, number: int, kind: str, full: bool) -> Round:
    at = dice.uniform(0.15, 0.6)
    sleeps = dice.random() < 0.7
    begin = dice.uniform(0.0, at)
    # Asleep over the fault and what comes behind it: then the broker alone has its messages.
    longest = 5.0 if full else 4.0 if kind in _BROKER_ENDS else 1.0
    return Round(
        number,
        kind,
        at,
        _hold(dice, kind, full),
        _amount(dice, kind),
        dice.choice(WILLS),
        dice.uniform(0.1, at + 0.3),
        (begin, dice.uniform(0.3, longest)) if sleeps else None,
        dice.getrandbits(32),
    )


def _hold(dice: random.Random, kind: str, full: bool) -> float:
    if kind.startswith("kill") or kind in ("clock-jump", "power-cut"):
        return 0.0
    if not full:
        return dice.uniform(0.2, 0.8)
    if kind == "broker-gone" and dice.random() < 0.1:
        return dice.uniform(20.0, 60.0)
    return dice.uniform(0.2, 5.0)


def _amount(dice: random.Random, kind: str) -> float:
    if kind == "slow-store":
        return dice.choice((20, 100, 400))
    if kind != "clock-jump":
        return 0.0
    most = dice.choice(CLOCK_S)
    return dice.uniform(-most, most)
