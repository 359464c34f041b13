"""The family with many reservations: what readers and their subscriptions cost stays the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from families.purposes.purposes_factory import at_last
from families.purposes.purposes_work import work
from sealmq.families.api import Later, Proposal, Verdict
from sealmq.families.engine import Engine
from sealmq.families.purposes import commands, records
from sealmq.families.purposes.family import PurposesFamily
from sealmq.families.purposes.store import Reservation
from sealmq.families.registry import load
from sealmq.site.config import loads

COUNTS = (10, 300, 3_000)
SITE = """
[site]
name = "many"
id = "00c0ffee"
[policy]
order = ["labels", "purposes"]
[labels]
car = []
[clients]
sensor = { label = "car" }
reader = { label = "top" }
dpo = { label = "top" }
[families.purposes]
stewards = ["dpo"]
mode = "MODE"
"""


class Fleet:
    """A site with so many reservations, and a reader of all."""

    def __init__(self, count: int, mode: str = "hybrid") -> None:
        self.engine = Engine(load(["labels", "purposes"]))
        rows = [
            records.reservation(Reservation(f"fleet/v{i}/speed", ["billing"], [], "dpo"), 1)
            for i in range(count)
        ]
        self.engine.load(loads(SITE.replace("MODE", mode)), rows)
        self.reader = self.engine.connection(self.engine.who("reader", 1))
        self.dpo = self.engine.connection(self.engine.who("dpo", 2))
        every = Reservation("fleet/#", ["billing"], [], "dpo")
        self.engine.apply([records.reservation(every, 1)])
        self.raw = "!AP/fleet/%23{billing}"
        self.reader.subscribed(self.reader.subscribe(self.raw, 0, 1), 0, 1)
        assert self.deliver()

    def deliver(self, topic: str = "fleet/v7/speed") -> bool:
        return self.reader.deliver(topic, "car", 0, 1).allow

    def command(self, text: str) -> Proposal:
        got = at_last(self.dpo.command("purposes", text.encode(), 1))
        assert isinstance(got, Proposal), got
        self.engine.apply(got.records)
        return got

    def reserve(self, inside: str, topic: str = "fleet/v7/speed") -> list[bool]:
        """Reserve a topic, and ask about what is due, as the mediator does."""
        self.command(f"!RESERVE/{topic}{{{inside}}}")
        due = self.engine.due()
        return [bool((again := conn.again(raw, 1)) and again.allow) for conn, raw in due]


def costs(question: Callable[[Fleet], object], mode: str = "hybrid") -> list[int]:
    found = []
    for count in COUNTS:
        fleet = Fleet(count, mode)
        question(fleet)
        found.append(work(lambda fleet=fleet: question(fleet)))  # type: ignore[misc]
    return found


def same(found: list[int]) -> bool:
    """Up to a few calls more or less: tables of the interpreter grow now and then."""
    return max(found) - min(found) <= 20


def test_a_delivery_costs_the_same_however_many_reservations_there_are() -> None:
    topics = iter(f"fleet/v{i}/speed" for i in (1, 2, 3, 4, 5, 6))
    asked = costs(lambda fleet: fleet.deliver(next(topics)))
    assert same(asked)
    cached = costs(Fleet.deliver)
    assert max(cached) <= 8


def test_a_reservation_costs_the_same_with_a_reader_of_everything_who_is_asked_again() -> None:
    """fos: the reader's filter crosses all of them; what crosses it is counted along."""
    turn = iter(("billing|", "billing,ads|") * 3)
    asked = costs(lambda fleet: fleet.reserve(next(turn)), "fos")
    assert same(asked)


def test_one_prohibition_among_many_pauses_the_reader_of_everything_and_lets_it_go_on() -> None:
    fleet = Fleet(1_000, "fos")
    assert fleet.reserve("billing|billing") == [False]
    assert not fleet.deliver()
    assert not fleet.deliver("fleet/v8/speed")
    assert fleet.reserve("billing|") == [True]
    assert fleet.deliver()
    assert fleet.deliver("fleet/v8/speed")


def test_an_answer_to_a_steward_looks_closely_at_few_of_them() -> None:
    small, _, large = costs(lambda fleet: fleet.command("!PBAC/GET/RESERVATIONS/%23{}"))
    assert large < small + 8 * COUNTS[-1]
    told = json.loads(Fleet(COUNTS[-1]).command("!PBAC/GET/RESERVATIONS/%23{}").reply)
    names = [row["filter"] for row in told["reservations"]]
    assert names[:4] == ["fleet/#", "fleet/v0/speed", "fleet/v1/speed", "fleet/v10/speed"]
    assert len(names) + told["left_out"] == COUNTS[-1] + 1


def test_it_is_looked_for_in_slices_that_cost_the_same_however_many_there_are() -> None:
    """Others are served between them; the answer is that of one go."""
    asked = []
    for count in (3 * commands.SLICE, 9 * commands.SLICE):
        fleet = Fleet(count)
        got = fleet.dpo.command("purposes", b"!PBAC/GET/RESERVATIONS/%23{}", 1)
        assert isinstance(got, Later)
        slices, found = [], None

        def go_on(got: Later = got) -> None:
            nonlocal found
            found = got.go_on()

        while found is None:
            slices.append(work(go_on))
        assert len(slices) == count // commands.SLICE
        assert isinstance(found, Proposal)
        told = json.loads(found.reply)
        names = [row["filter"] for row in told["reservations"]]
        every = sorted(["fleet/#", *(f"fleet/v{i}/speed" for i in range(count))])
        assert names == every[: len(names)]
        assert len(names) + told["left_out"] == count + 1
        asked.append(max(slices))
    assert asked[1] <= asked[0] * 2


def test_who_may_no_more_ask_gets_no_answer_though_it_was_begun() -> None:
    fleet = Fleet(2 * commands.SLICE)
    got = fleet.dpo.command("purposes", b"!PBAC/GET/RESERVATIONS/%23{}", 1)
    assert isinstance(got, Later)
    fleet.engine.reload(loads(SITE.replace('["dpo"]', "[]").replace("MODE", "hybrid")))
    answer = at_last(got)
    assert isinstance(answer, Verdict)
    assert answer.rule == "purposes.entitled.no-grant"


def test_what_changes_while_it_is_looked_for_harms_nothing() -> None:
    fleet = Fleet(3 * commands.SLICE)
    got = fleet.dpo.command("purposes", b"!PBAC/GET/RESERVATIONS/%23{}", 1)
    assert isinstance(got, Later)
    for i in range(0, 3 * commands.SLICE, 7):
        fleet.engine.apply([records.released(f"fleet/v{i}/speed")])
        fleet.reserve("billing|", f"fleet/new{i}/speed") if i < 700 else None
    answer = at_last(got)
    assert isinstance(answer, Proposal)
    told = json.loads(answer.reply)
    names = [row["filter"] for row in told["reservations"]]
    assert names == sorted(set(names))
    assert len(names) + told["left_out"] <= 3 * commands.SLICE + 101


class NobodyElse(dict[Any, Any]):
    """A table that may be asked for one row, and not gone over."""

    def items(self) -> Any:
        raise AssertionError("all others are looked at")

    __iter__ = keys = values = items


def test_who_asks_for_its_presubscriptions_looks_at_no_others() -> None:
    """Any client may, often; and others may have very many."""
    fleet = Fleet(1)
    rows = [
        records.presubscription(client, "fleet/#", "billing", "dpo", 1)
        for client in ("other", "reader")
    ]
    fleet.engine.apply(rows)
    family = fleet.engine.order[1]
    assert isinstance(family, PurposesFamily)
    family.state.presubs = NobodyElse(family.state.presubs)
    told = json.loads(fleet.command("!PBAC/GET/PRESUBS/reader{}").reply)
    assert [row["filter"] for row in told["presubs"]] == ["fleet/#"]
