"""What matching costs a mediator, encoding the key generator, and what filters give away.

CPU time of this process, the best of several runs: what else runs on the machine adds to some of
them. `rules_uncached` is the bar: 64 rules of a policy, none of which holds, against one
conjunction, in one direction.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench_print import Row, row

from sealmq.families.conn import Conn
from sealmq.families.decision import Decision
from sealmq.families.engine import Engine
from sealmq.families.registry import load
from sealmq.site.check import parse

from .. import MANIFEST, coded, kg_part, leakage, scoped, words
from ..bloom import MOST_ONES, Rules, Sets, foreign
from ..family import match

RULES = (1, 16, 64)
SUBSCRIPTIONS = 500_000
_RUNS = 15
ID = "00000000000000aa"
TOPIC = "bench/a"


def matching(quick: bool) -> list[Row]:
    """Filters alone; an answer that is known and one that is not."""
    draw, runs = random.Random(20), 3 if quick else _RUNS  # noqa: S311 - the same in each run
    return [*_matching(draw, runs), *_judging(draw, runs)]


def many(quick: bool) -> list[Row]:
    """One message, and many readers' own policies."""
    draw, runs = random.Random(22), 3 if quick else _RUNS  # noqa: S311
    return _many(draw, 5_000 if quick else SUBSCRIPTIONS, runs)


def encoding(quick: bool) -> list[Row]:
    """What the key generator does for each filter, and a customer's bytes."""
    return _encoding(random.Random(23), 3 if quick else _RUNS)  # noqa: S311


def leaks(quick: bool) -> list[Row]:
    """What filters give away."""
    return _leakage(random.Random(24), 20 if quick else 300)  # noqa: S311


def _best(work: Callable[[], object], times: int, runs: int) -> float:
    """Seconds of CPU of one call: the best run of some."""
    found = []
    for _ in range(runs):
        began = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - began) / times)
    return min(found)


def _made(measure: str, value: float, unit: str, n: int, **params: Any) -> Row:
    made = row(measure, MANIFEST.name, value, unit, n, size=256)
    made["params"].update(params)
    return made


def _matching(draw: random.Random, runs: int) -> list[Row]:
    rows, filters, have = [], [0], 0
    for count in RULES:
        dnf = words.policy([f"a = 1 & b = {n}" for n in range(count)])
        key = draw.randbytes(32)
        filters = scoped.rules(key, dnf)
        (have,) = scoped.sets(key, [{"a": "1", "b": "no"}], dnf)
        rules, sets = Rules(filters), Sets([have])
        if rules.within(sets):
            raise ValueError("a rule matched that does not hold")
        spent = _best(partial(rules.within, sets), 2000, runs)
        rows.append(_made("rules_uncached", 1e6 * spent, "us", runs, rules=count))

    def compared() -> list[bool]:
        return [rule & have == rule for rule in filters]

    spent = _best(compared, 2000, runs) / len(filters)
    rows.append(_made("comparison", 1e9 * spent, "ns", runs))
    rows.append(_made("wrong_at_most", foreign(MOST_ONES), "part", 1))
    return rows


_SITE = f"""
[site]
name = "bench"
id = "00000001"
[labels]
all = []
[clients]
writer = {{ label = "all" }}
reader = {{ label = "all" }}
[policy]
order = [%s]
[topics]
"{TOPIC}" = "all"
"""


def _judging(draw: random.Random, runs: int) -> list[Row]:
    """An answer that is known and one that is not; the mediator's whole way beside labels alone."""
    config = parse(_SITE % '"labels", "blinded"')
    let = json.dumps([f"a = 1 & b = {n}" for n in range(64)])
    text = f'[customers.reader]\nhas = ["a = 1 & b = 63"]\n[policies.bench]\nlet = {let}\n'
    text += f'[[events]]\nid = "{ID}"\nclient = "writer"\ntopic = "{TOPIC}"\n'
    kept = kg_part.take(config, b"", text.encode(), draw.randbytes)
    told = dict(kg_part.rows(config, kept))
    kind = coded.read_event(told[coded.EVENT + ID]).kind
    if match(told, kind, "reader") != (True, True):
        raise ValueError("the reader should match")
    rows = [
        _made("decision_uncached", 1e6 * _best(lambda: match(told, kind, "reader"), 100, runs),
              "us", runs, rules=64),
    ]  # fmt: skip
    for order in (["labels"], ["labels", "blinded"]):
        engine = Engine(load(order))
        engine.apply(engine.load(parse(_SITE % ", ".join(f'"{name}"' for name in order)), []))
        engine.take_told({"blinded": told})
        reader = engine.connection(engine.who("reader", 2))
        reader.subscribed(reader.subscribe("bench/#", 0, 0), 0, 0)
        ask = _ask(reader, order[-1])
        if not ask().allow:
            raise ValueError(f"{order[-1]} should let the reader have it")
        rows.append(
            _made("policy_cached", 1e6 * _best(ask, 5000, runs), "us", runs, order=order[-1])
        )
    return rows


def _ask(reader: Conn, order: str) -> Callable[[], Decision]:
    """As the mediator asks about a delivery: without the family there are no items."""
    if order == "labels":
        return lambda: reader.deliver(TOPIC, "all", 0, 0)
    tlv, grant = {coded.TLV: bytes.fromhex(ID)}, (order, coded.GRANT)
    return lambda: reader.deliver(TOPIC, "all", 0, 0, 0, tlv, grant=grant)


def _many(draw: random.Random, count: int, runs: int) -> list[Row]:
    """One message, and so many readers' own policies of one conjunction each."""
    sets = Sets([draw.getrandbits(2048)])
    # One bit in eight: as many as a rule has.
    policies = [
        Rules([draw.getrandbits(2048) & draw.getrandbits(2048) & draw.getrandbits(2048)])
        for _ in range(count)
    ]
    spent = _best(lambda: [one for one in policies if one.within(sets)], 1, min(runs, 5))
    return [_made("subscriptions", 1e3 * spent, "ms", min(runs, 5), subscriptions=count)]


def _encoding(draw: random.Random, runs: int) -> list[Row]:
    dnf = words.policy(["a = 1 & b = 2 & c = 3"])
    had = [{"a": "1", "b": "2", "c": "3"}]
    names = [f"n{n} = 1" for n in range(29)]
    has = [" & ".join([*names, f"k = {at}"]) for at in range(50)]
    let = [" & ".join([*names[:5], f"k = {at}"]) for at in range(64)]
    text = f"[customers.reader]\nhas = {json.dumps(has)}\n[policies.p]\nlet = {json.dumps(let)}\n"
    text += f'[[events]]\nid = "{ID}"\nclient = "writer"\ntopic = "p"\n'
    config = parse(_SITE % '"labels", "blinded"')
    kept = kg_part.take(config, b"", text.encode(), draw.randbytes)
    told = dict(kg_part.rows(config, kept))
    size = sum(len(value) for key, value in told.items() if key.endswith("/reader"))
    rule = _best(lambda: scoped.rules(draw.randbytes(32), dnf), 20, runs)
    one = _best(lambda: scoped.sets(draw.randbytes(32), had, dnf), 20, runs)
    return [
        _made("encode_rule", 1e6 * rule, "us", runs),
        _made("encode_set", 1e6 * one, "us", runs),
        _made("customer", size / 1000, "kB", 1, conjunctions=50, attributes=30, rules=64),
    ]


def _leakage(draw: random.Random, trials: int) -> list[Row]:
    rows = []
    for encoding in ("paper", "scoped"):
        found = leakage.measure(encoding, trials, draw.randbytes)
        for name in ("mask", "positions", "link", "whole", "dictionary"):
            made = _made(f"leak_{name}", getattr(found, name), "part", trials, encoding=encoding)
            made["params"]["band"] = found.band
            rows.append(made)
    return rows
