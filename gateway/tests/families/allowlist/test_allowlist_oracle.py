"""Random rules, clients, topics and filters: the trie answers as the definition does."""

from __future__ import annotations

import random

import pytest

from families.allowlist import naive_allowlist as naive
from families.factory import HEAD
from sealmq.families.allowlist.family import Allowlist
from sealmq.families.api import Duty, OnlyFrom, SealToGrant, SealToLink
from sealmq.families.ask import Who
from sealmq.families.attributes import Attribute
from sealmq.families.engine import Decision, Engine
from sealmq.site.check import parse

CLIENTS = (("c1", "L1", "device"), ("a", "b", "app"), ("b", "L1", "app"), ("+", "#", "device"))
SITE = (
    HEAD + "[labels]\nL1 = []\nb = []\n[clients]\n"
    'c1 = { label = "L1" }\na = { label = "b", kind = "app" }\nb = { label = "L1", kind = "app" }\n'
    '[policy]\norder = ["labels", "allowlist"]\n'
    '[attributes.p]\nsource = "file"\npath = "/p.toml"\n'
    '[attributes.q]\nsource = "file"\npath = "/q.toml"\n'
)
LEVELS = ("a", "b", "c1", "L1", "", "+", "%c", "%l")
TOPICS, FILTERS = 120, 60
SENDERS = ("c1", "a", "b", "z")


def pattern(draw: random.Random, words: tuple[str, ...]) -> str:
    while True:
        some = [draw.choice(words) for _ in range(draw.randint(1, 3))]
        if draw.random() < 0.3:
            some[-1] = "#"
        text = "/".join(some)
        if text:
            return text


def rule(draw: random.Random) -> naive.Rule:
    def few(names: tuple[str, ...], often: float = 0.35) -> tuple[str, ...]:
        return tuple(draw.sample(names, draw.randint(1, 2))) if draw.random() < often else ()

    def patterns() -> tuple[str, ...]:
        return tuple(dict.fromkeys(pattern(draw, LEVELS) for _ in range(2)))

    clients, labels, kinds = few(("c1", "a", "b")), few(("L1", "b")), few(("device", "app"))
    when = draw.choice(("", "", "p", "q"))
    senders = few(("c1", "a", "b"), 0.6)
    wide = draw.choice(("#", "+/#", "+/+", "a/#", "%l/#"))
    both = dict.fromkeys((wide, pattern(draw, LEVELS)))
    sealed = () if when or draw.random() < 0.2 else tuple(both)
    # Those of a group have a name of their own, and nobody's own topics.
    plain = sealed and not any("%c" in pattern for pattern in sealed)
    group = f"g{draw.randrange(10**6)}" if plain and draw.random() < 0.8 else ""
    found = patterns(), patterns(), when, senders, sealed, group
    return naive.Rule(clients, labels, kinds, *found)


def written(rules: list[naive.Rule]) -> str:
    def lists(one: naive.Rule) -> str:
        rows = [(name, value) for name, value in one._asdict().items() if value and name != "when"]
        rows = [("from" if name == "senders" else name, value) for name, value in rows]
        values = ((n, list(value) if isinstance(value, tuple) else value) for n, value in rows)
        text = "".join(f"{name} = {value!r}\n" for name, value in values)
        if one.when:
            text += f'when = {{ attribute = "{one.when}", is = true, of = "site" }}\n'
        return text

    return SITE + "".join(f"[[families.allowlist.rule]]\n{lists(one)}" for one in rules)


def _check_seal(got: Decision, how: str | None) -> None:
    to: Duty = SealToGrant("allowlist", how) if how else SealToLink()
    sealing = {duty for duty in got.duties if not isinstance(duty, OnlyFrom)}
    assert sealing == (set() if how is None else {to}), got


# The same each time: in `make test` a few.
SEEDS = [pytest.param(n, marks=[pytest.mark.full] if n else []) for n in range(8)]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_delivery_is_sealed_as_the_definition_says(seed: int) -> None:
    """Where all is allowed; a reload changes no answer but those that it reaches."""
    draw = random.Random(seed)
    engine = Engine([Allowlist()], 1 << 20)
    rules = [naive.Rule((), (), (), (), ("#",))]
    engine.load(parse(written(rules)), [])
    conns = [(who, engine.connection(engine.who(who[0]))) for who in CLIENTS[:-1]]
    topics = draw.sample(naive.WORLD, TOPICS)
    ways = {"link": 0, "group": 0, "label": 0}
    for now in range(1, 30):
        for who, conn in conns:
            for topic in topics:
                how = naive.sealed(rules, topic, *who)
                _check_seal(conn.deliver(topic, "L1", 0, now), how)
                ways["label" if how is None else "group" if how else "link"] += 1
        if len(rules) > 1:
            rules.pop(draw.randrange(1, len(rules)))
        while len(rules) < 4:
            one = rule(draw)
            if one.sealed:
                rules.insert(draw.randint(1, len(rules)), one)
        engine.reload(parse(written(rules)))
    assert min(ways.values()) > 100, ways


@pytest.mark.parametrize("seed", SEEDS)
def test_each_answer_is_the_definitions(seed: int) -> None:
    """Whoever sends. With each reload, each value that an attribute gets and each that is over the
    cached answers of before stay where they still hold.
    """
    draw = random.Random(seed)
    engine = Engine([Allowlist()], 1 << 20)
    rules = [rule(draw) for _ in range(draw.randint(0, 7))]
    engine.load(parse(written(rules)), [])
    *known, odd = CLIENTS
    # Of the last the configuration knows nothing: no such name gets into it.
    strange = Who(odd[0], 1, odd[2], "", odd[1])
    conns = [(who, engine.connection(engine.who(who[0]))) for who in known]
    conns.append((odd, engine.connection(strange)))
    topics = draw.sample(naive.WORLD, TOPICS)
    filters = [pattern(draw, (*LEVELS[:6], "z")) for _ in range(FILTERS)]
    allowed = differ = 0
    held: dict[str, Attribute] = {}
    for now in range(1, 13):
        for name in draw.sample(("p", "q"), draw.randint(0, 2)):
            told = Attribute(name, "", draw.random() < 0.7, draw.choice((0, now + 1, now + 3)))
            held[name] = told
            engine.take_attributes([told])
        met = {name for name, row in held.items() if row.value and now < row.until}
        for who, conn in conns:
            counted = [one for one in rules if not one.when or one.when in met]
            verbs = ("publish", "read", *(f"read {sender}" for sender in SENDERS))
            may = {verb: naive.sets(counted, verb, *who) for verb in verbs}
            union = {verb: frozenset().union(*found) for verb, found in may.items()}
            for topic in topics:
                delivered = conn.deliver(topic, "L1", 0, now)
                asked = {
                    "publish": conn.publish(topic, 0, False, 1, now),
                    "read": conn.for_sender(delivered, ""),
                    **{f"read {name}": conn.for_sender(delivered, name) for name in SENDERS},
                }
                for verb, got in asked.items():
                    assert got.allow == (topic in union[verb]), (verb, who, topic, rules)
                    allowed += got.allow
                    differ += got is not delivered and verb != "publish"
                if delivered.allow:
                    _check_seal(delivered, naive.sealed(rules, topic, *who))
            some = frozenset().union(*(union[verb] for verb in verbs[1:]))
            for filt in filters:
                wanted = naive.meant(naive.levels(filt))
                got = conn.subscribe(filt, 0, now)
                assert got.allow == bool(wanted & some), (who, filt, rules)
                whole = any(wanted <= each for each in may["read"])
                shared = conn.subscribe(f"$share/g/{filt}", 0, now)
                assert shared.allow == (bool(wanted) and whole), (who, filt, rules)
                allowed += got.allow
        changed = draw.randrange(len(rules) + 1)
        rules = [one for i, one in enumerate(rules) if i != changed]
        if draw.random() < 0.7:
            rules.insert(draw.randint(0, len(rules)), rule(draw))
        engine.reload(parse(written(rules)))
        conns[-1][1].ask.who = strange
    assert allowed > 100, "something is allowed"
    assert differ > 10, "some senders' messages are not"
