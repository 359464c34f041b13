"""What others can say, they decide alike: conditions in CEL, policies without chains in Cedar."""

from __future__ import annotations

import random
from typing import Any

import cedarpy
import cel
import pytest

from families.owners import naive_owners as naive
from families.owners.naive_owners import CLIENTS, KINDS, Event, Said, Tree
from families.owners.owners_site import People
from families.owners.test_owners_oracle import site
from sealmq.families.api import FamilyRecord
from sealmq.families.owners.expressions import condition

# All are strict about kinds, each in its way: here every name has one, and is compared with it.
TEXTS = {"user": CLIENTS, "place": naive.PLACES, "subscriber": CLIENTS}
NUMBERS = {"number": (0, 1), "qos": (0, 1, 2)}
FLAGS = ("retained", "flag")
UNKNOWN = "speed"


class Values:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def signed(self, address: str) -> bool:
        return False


def tree(draw: random.Random, unknown: bool, depth: int = 0) -> Tree:
    """`unknown`: also with what is not known, and not to Cedar."""
    kind = draw.random()
    if depth < 3 and kind < 0.5:
        parts = (tree(draw, unknown, depth + 1) for _ in range(draw.randint(2, 3)))
        return (draw.choice(("and", "or")), *parts)
    if depth < 3 and kind < 0.6:
        return ("not", tree(draw, unknown, depth + 1))
    if unknown and kind < 0.65:
        return ("<", ("name", UNKNOWN), ("lit", 3))
    if kind < 0.7:
        return ("name", draw.choice(FLAGS if unknown else FLAGS[:1]))
    texts = draw.random() < 0.6
    names = TEXTS if texts else NUMBERS
    name = draw.choice(sorted(names)) if texts or unknown else "number"
    if kind < 0.8:
        return ("in", name, tuple(draw.choice(names[name]) for _ in range(2)))
    op = draw.choice(("==", "!=") if texts else ("==", "!=", "<", "<=", ">", ">="))
    return (op, ("name", name), ("lit", draw.choice(names[name])))


def bounded(draw: random.Random, unknown: bool) -> Tree:
    while len(naive.text(found := tree(draw, unknown))) > 400:
        pass
    return found


def values(draw: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {n: draw.choice(v) for n, v in {**TEXTS, **NUMBERS}.items()}
    return found | {name: draw.random() < 0.5 for name in FLAGS}


def compare_with_cel(draw: random.Random, times: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for _ in range(times):
        of, known = bounded(draw, True), values(draw)
        text = naive.text(of)
        met = condition(text).met
        ours = True if met is None else met(Values(known))
        try:
            theirs = cel.evaluate(text, known)
        except (RuntimeError, ValueError):
            # As what is unknown is to us, so is an error to CEL's && and ||.
            theirs = None
        assert ours is theirs, (text, known)
        found[f"{ours} {theirs}"] = found.get(f"{ours} {theirs}", 0) + 1
    return found


def test_conditions_are_what_cel_says_of_them() -> None:
    found = compare_with_cel(random.Random(7), 400)
    assert min(found["True True"], found["False False"], found["None None"]) > 10, found


@pytest.mark.full
def test_100_000_conditions_are_what_cel_says_of_them() -> None:
    compare_with_cel(random.Random(8), 100_000)


def cedar(of: Tree) -> str:
    what, *rest = of
    if what in ("and", "or"):
        return (" && " if what == "and" else " || ").join(f"({cedar(part)})" for part in rest)
    if what == "not":
        return f"!({cedar(rest[0])})"
    if what == "name":
        return f"context.{rest[0]}"
    if what == "in":
        among = ", ".join(naive.text(("lit", value)) for value in rest[1])
        return f"[{among}].contains(context.{rest[0]})"
    if what == "lit":
        return naive.text(of)
    return f"{cedar(rest[0])} {what} {cedar(rest[1])}"


def as_cedar(said: Said) -> list[str]:
    """One policy for each licensee."""
    tests = [] if said.owner == "*" else [f'context.owner == "{said.owner}"']
    tests += [f'context.app == "{said.app}"'] if said.app else []
    tests += [f'context.kind == "{said.kind}"'] if said.kind else []
    tests += [cedar(said.when)] if said.when is not None else []
    actions = ", ".join(f'Action::"{name}"' for name in said.actions)
    out = []
    for name in said.to:
        whom = f'principal == Client::"{name}"' if name not in ("*", "owner") else "principal"
        mine = [*tests, "context.subscriber == context.owner"] if name == "owner" else tests
        when = " && ".join(f"({test})" for test in mine) or "true"
        out.append(f"permit({whom}, action in [{actions}], resource) when {{ {when} }};")
    return out


def compare_with_cedar(draw: random.Random, policies: int, questions: int) -> dict[bool, int]:
    found = {True: 0, False: 0}
    kinds = [kind for kind in KINDS if kind.control == "receive" and not kind.sealed]
    for _ in range(policies):
        people = People(site(True))
        texts: list[str] = []
        for id in range(draw.randint(1, 8)):
            said = naive.said(draw)
            when = bounded(draw, False) if draw.random() < 0.6 else None
            # Who is let do something does not pass it on: Cedar knows no chains.
            said = Said("POLICY", said.to, said.owner, said.app, said.kind, said.actions, when)
            texts += as_cedar(said)
            row = {"authorizer": "POLICY", "licensees": list(said.to), "owner": said.owner,
                   "app": said.app, "type": said.kind, "actions": list(said.actions), "at": 1,
                   "condition": "" if when is None else naive.text(when)}  # fmt: skip
            raw = naive.json_bytes(row)
            people.commit([FamilyRecord("owners", f"a/{id}", raw)])
        # All questions about a policy at once: Cedar reads its text anew for each call.
        asked, answers = [], []
        for _ in range(questions):
            event, who = naive.event(draw), draw.choice(CLIENTS)
            kind = draw.choice(kinds)
            how = draw.choice((0, 1))
            event = Event(kind, event.user, event.place, event.number, event.sender)
            context = {
                "user": event.user, "place": event.place, "number": event.number,
                "owner": event.owner, "subscriber": who, "app": kind.app, "kind": kind.name,
                "retained": how == 1,
            }  # fmt: skip
            got = people.deliver(who, kind.topic(event.user, event.place, event.number),
                                 event.sender, how)  # fmt: skip
            answers.append(got.allow)
            asked.append(
                {"principal": f'Client::"{who}"', "action": 'Action::"RECEIVE"',
                 "resource": 'Event::"e"', "context": context}
            )  # fmt: skip
        theirs = cedarpy.is_authorized_batch(asked, "\n".join(texts), [])
        for ours, their, question in zip(answers, theirs, asked, strict=True):
            assert not their.diagnostics.errors, their.diagnostics.errors
            assert ours is their.allowed, (texts, question)
            found[ours] += 1
    return found


def test_policies_without_delegation_are_what_cedar_says_of_them() -> None:
    found = compare_with_cedar(random.Random(9), 12, 25)
    assert min(found.values()) > 30, found


@pytest.mark.full
def test_100_000_questions_to_policies_without_delegation_are_what_cedar_says_of_them() -> None:
    compare_with_cedar(random.Random(10), 2_000, 50)
