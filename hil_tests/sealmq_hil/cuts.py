"""Where the power is to go, drawn from dice: the same dice, the same cuts. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """after: how many changes of the flash are done whole; inside: the next one is begun."""

    after: int
    inside: bool
    seed: int


def draw(dice: random.Random, count: int, first: int, changes: int) -> list[Cut]:
    """`count` cuts among the changes from number `first` up to `changes`, counted from 0.

    Half of them, rounded up, fall inside of a change. Places come equally often, in an order of
    their own each time.
    """
    inside = [True] * (count - count // 2) + [False] * (count // 2)
    dice.shuffle(inside)
    bag: list[int] = []
    drawn = []
    for each in inside:
        if not bag:
            bag = list(range(first, max(changes, first + 1)))
            dice.shuffle(bag)
        drawn.append(Cut(bag.pop(), each, dice.getrandbits(32)))
    return drawn


def shares(count: int, parties: int) -> list[int]:
    """`count` divided among so many, as evenly as can be."""
    return [count // parties + (n < count % parties) for n in range(parties)]
