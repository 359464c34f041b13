"""Random histories of a site, drawn from a seed: what happens, not what comes of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from families.purposes import purposes_model as model
from families.purposes.purposes_site import READERS, File, Op, Sets
from sealmq_spec import purposes as say

MODES = ("hybrid", "fop", "fos")
PURPOSES = ("p", "p/q", "p/q/r", "s", "t")
TREES: tuple[dict[str, list[str]], ...] = (
    {},
    {},
    {"s": ["p"], "p/q": ["p/q/r"], "t": []},
    {"s": ["p/q"]},
    {"p": ["s"]},
)


class Draw:
    """What a history may be made of: a few filters, topics and purposes of its own, and a bent."""

    def __init__(self, seed: int) -> None:
        r = self.r = random.Random(seed)
        every = [f for f in model.all_filters() if f[0] != "$"]
        exact = [f for f in every if "+" not in f and "#" not in f and "$" not in f]
        self.exact = r.sample(exact, 3)
        self.filters = [*r.sample(every, r.randint(2, 5)), *self.exact]
        if r.random() < 0.6:
            # A family that overlaps in every way.
            self.filters += ["a/#", "a/+", "a/b", "+/b", "#"]
        near = {t for f in self.filters for t in r.sample(sorted(model.topics(f)), 1)}
        self.topics = [*sorted(near), *self.exact, "$x/a"]
        self.purposes = r.sample(PURPOSES, r.randint(2, 4))
        # What these hang on is there in half of the histories only: it hides much else.
        self.some_grants, self.some_creation = r.random() < 0.5, r.random() < 0.5
        self.weights = [weight * r.choice((0.3, 1, 1, 2)) for _, weight in STEPS]
        self.now = self.begin()

    def sets(self) -> Sets:
        r = self.r
        aip = r.sample(self.purposes, r.choice((0, 1, 1, 2)))
        pip = r.sample(self.purposes, r.choice((0, 0, 0, 1)))
        return frozenset(aip), frozenset(pip)

    def who3(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        r = self.r
        clients = tuple(r.sample(["sensor", "control"], r.randint(0, 2)))
        return r.choice(self.filters), clients, tuple(r.sample(["low", "high"], r.randint(0, 1)))

    def begin(self) -> File:
        r = self.r
        file = File(mode=r.choice(MODES), strict=r.random() < 0.6)
        for _ in range(6):
            file = self.edited(file)
        return file

    def edited(self, file: File) -> File:
        """The file with one thing changed, as an operator does it; much else would hide it."""
        r = self.r
        known = [p for p in self.purposes if model.Graph(file.tree).known(p)]
        what = r.choice(EDITS)
        if what == "reserve":
            aip, pip = self.sets()
            return one_less_or_more(
                r, file, what, r.choice(self.filters), (aip & set(known), pip & set(known))
            )
        if what == "presubscribe" and known:
            key = r.choice(READERS), r.choice(self.filters)
            return one_less_or_more(r, file, what, key, r.choice(known))
        if what == "topics":
            return one_less_or_more(r, file, what, r.choice(self.exact), r.choice(["low", "high"]))
        if what == "tree":
            tree = r.choice(TREES)
            named = {
                *file.presubscribe.values(),
                *(p for two in file.reserve.values() for p in (*two[0], *two[1])),
            }
            return replace(file, tree=tree) if all(map(model.Graph(tree).known, named)) else file
        if what == "grants" and self.some_grants:
            return replace(file, grants=[self.who3() for _ in range(r.randint(0, 2))])
        if what == "creation" and self.some_creation:
            return replace(file, creation=[self.who3() for _ in range(r.randint(0, 1))])
        if what == "stewards":
            return replace(file, stewards=r.choice((("dpo",), ("dpo", "reader"))))
        if what == "mode":
            return replace(file, mode=r.choice(MODES))
        if what == "strict":
            return replace(file, strict=not file.strict)
        return file

    def op(self) -> Op:
        r = self.r
        (what,) = r.choices([name for name, _ in STEPS], self.weights)
        reader = r.choice(READERS)
        if what == "reserve":
            by = r.choice(("dpo", "dpo", "dpo", "sensor", "reader"))
            return ("reserve", by, r.choice(self.filters), self.sets())
        if what == "own":
            return ("reserve", r.choice(("sensor", "control")), r.choice(self.exact), self.sets())
        if what == "release":
            return ("release", r.choice(("dpo", "dpo", "sensor", "control")), r.randrange(100))
        if what == "subscribe":
            filter, said = r.choice(self.filters), r.choice([None, *self.purposes])
            text = f"$share/g/{filter}" if r.random() < 0.1 else filter
            return ("subscribe", reader, say.access(text, said) if said else text, filter, said)
        if what == "unsubscribe":
            return ("unsubscribe", reader, r.randrange(100))
        if what == "deliver":
            return ("deliver", reader, r.choice(self.topics), r.randrange(4))
        if what == "presub":
            ap = r.choice(["", *self.purposes])
            return ("presub", r.choice(("dpo", reader)), reader, r.choice(self.filters), ap)
        if what == "set":
            name = r.choice(("mode", "strict"))
            value = r.choice(("", *(MODES if name == "mode" else ("true", "false"))))
            return ("set", r.choice(("dpo", "dpo", "sensor")), name, value)
        if what == "publish":
            return ("publish", r.choice(("sensor", "control")), r.choice(self.exact))
        if what == "reload":
            self.now = self.edited(self.now)
            return ("reload", self.now)
        return (what, reader) if what in ("close", "comeback") else (what,)


EDITS = (
    *("reserve", "presubscribe", "topics", "tree") * 2,
    *("topics", "grants", "creation", "creation", "stewards", "mode", "strict"),
)

STEPS = (
    ("reserve", 24),
    ("own", 10),
    ("release", 8),
    ("subscribe", 20),
    ("unsubscribe", 3),
    ("deliver", 16),
    ("presub", 6),
    ("set", 3),
    ("publish", 6),
    ("reload", 10),
    ("close", 1),
    ("comeback", 1),
    ("tick", 2),
    ("restart", 1),
    ("other_store", 1),
)


def one_less_or_more(r: random.Random, file: File, what: str, key: Any, value: Any) -> File:
    """An entry of one of the file's tables comes, changes or goes."""
    table = dict(getattr(file, what))
    if key in table and r.random() < 0.5:
        del table[key]
    else:
        table[key] = value
    changed: File = replace(file, **{what: table})  # type: ignore[arg-type]
    return changed


def draw(seed: int, steps: int) -> tuple[File, list[Op]]:
    d = Draw(seed)
    first = d.now
    return first, [d.op() for _ in range(steps)]
