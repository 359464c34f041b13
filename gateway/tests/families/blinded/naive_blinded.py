"""Policies on plain attributes, by their definition: no parser, no filter, no family's code."""

from __future__ import annotations

import random

NAMES = ("class", "period", "size", "level")
TEXTS = ("Q1", "Q2", "statistics", "a b", "x&y", "ß")

Said = tuple[str, str, list[str]]
"""name, operator, values"""


def draw_value(draw: random.Random, name: str) -> str:
    return str(draw.randint(-3, 6)) if name in ("size", "level") else draw.choice(TEXTS)


def draw_have(draw: random.Random) -> dict[str, str]:
    names = [n for n in NAMES if draw.random() < 0.75] or ["class"]
    # Now and then a text where a number is compared.
    return {n: "much" if draw.random() < 0.05 else draw_value(draw, n) for n in names}


def draw_atom(draw: random.Random) -> Said:
    name = draw.choice(NAMES)
    if name in ("class", "period"):
        op = draw.choice(("=", "=", "!=", "among"))
        count = draw.randint(1, 3) if op == "among" else 1
        return name, op, [draw_value(draw, name) for _ in range(count)]
    op = draw.choice(("=", "!=", "<", "<=", ">", ">=", "in"))
    values = [draw_value(draw, name) for _ in range(2 if op == "in" else 1)]
    return name, op, sorted(values, key=int)


def draw_policy(draw: random.Random) -> list[list[Said]]:
    return [[draw_atom(draw) for _ in range(draw.randint(1, 3))] for _ in range(draw.randint(1, 4))]


def holds(said: Said, have: dict[str, str]) -> bool:
    name, op, values = said
    if name not in have:
        return False
    mine = have[name]
    if op in ("=", "among"):
        return mine in values
    if op == "!=":
        return mine not in values
    if not mine.lstrip("-").isdigit():
        return False
    number, bounds = int(mine), [int(v) for v in values]
    return {
        "<": number < bounds[0],
        "<=": number <= bounds[0],
        ">": number > bounds[0],
        ">=": number >= bounds[0],
        "in": bounds[0] <= number <= bounds[-1],
    }[op]


def matches(policy: list[list[Said]], haves: list[dict[str, str]]) -> bool:
    return any(all(holds(said, have) for said in atoms) for have in haves for atoms in policy)


def quoted(value: str) -> str:
    return value if value.lstrip("-").isdigit() else '"' + value + '"'


def text_of(atoms: list[Said]) -> str:
    out = []
    for name, op, values in atoms:
        if op == "among":
            out.append(f"{name} in {{{', '.join(map(quoted, values))}}}")
        elif op == "in":
            out.append(f"{name} in {values[0]}..{values[-1]}")
        else:
            out.append(f"{name} {op} {quoted(values[0])}")
    return " & ".join(out)


def text_of_have(have: dict[str, str]) -> str:
    return " & ".join(f"{name} = {quoted(value)}" for name, value in have.items())
