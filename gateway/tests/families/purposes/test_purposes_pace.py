"""How many commands a client may send, and that this is no other client's matter."""

from __future__ import annotations

import pytest

from families.purposes.purposes_factory import DPO, OTHER, SENSOR, TEMP, House, rule
from sealmq.families import pace
from sealmq.families.api import Verdict
from sealmq.families.pace import A_SECOND, BURST, Pace
from sealmq_spec import purposes as say
from sealmq_spec.errors import RateLimited

EACH_MS = 1000 // A_SECOND


def test_a_client_has_a_burst_and_then_so_many_a_second() -> None:
    house = House()
    kinds = (
        say.reserve(TEMP, ("a",)),
        say.release(TEMP),
        say.presubscribe(SENSOR, "x", "a"),
        say.query("mode"),
        # What is refused has been judged as well.
        say.reserve("machine/2/temperature", ("a",)),
        say.setting("mode", "fos"),
        "nothing",
    )
    for n in range(BURST):
        assert rule_or_answer(house, SENSOR, kinds[n % len(kinds)]) != "!command.too-many"
    before = house.rows()
    for text in kinds:
        got = house.tell(SENSOR, text)
        assert rule(got) == "!command.too-many"
        assert isinstance(got, Verdict)
        assert isinstance(house.engine.refusal(got.rule, got.reason), RateLimited)
        assert got.reason == f"at most {BURST} at once, then 20 a second; again in {EACH_MS} ms"
    assert house.rows() == before
    # The others have theirs; stewards are not counted.
    assert house.reserve(OTHER, "machine/2/temperature", ("a",)) == "entitled.label"
    for _ in range(BURST + 1):
        assert house.reserve(DPO, TEMP, ("a",)) == "entitled.steward"
    # Not sooner than it was told, and what was refused has not put it off.
    house.now += EACH_MS - 1
    got = house.tell(SENSOR, say.query("mode"))
    assert isinstance(got, Verdict)
    assert got.reason.endswith("again in 1 ms")
    house.now += 1
    assert rule_or_answer(house, SENSOR, say.query("mode")) == "answer"
    assert rule_or_answer(house, SENSOR, say.query("mode")) == "!command.too-many"
    house.now += 1000
    found = [rule_or_answer(house, SENSOR, say.query("mode")) for _ in range(A_SECOND + 1)]
    assert found == ["answer"] * A_SECOND + ["!command.too-many"]


def rule_or_answer(house: House, client: str, text: str) -> str:
    got = house.tell(client, text)
    return "answer" if not isinstance(got, Verdict) and got.reply else rule(got)


def test_a_reload_fills_nobodys_bucket() -> None:
    house = House()
    for _ in range(BURST):
        house.tell(SENSOR, say.query("mode"))
    house.family.configure(house.config)
    assert rule(house.tell(SENSOR, say.query("mode"))) == "!command.too-many"


def test_a_clock_that_was_set_back_makes_nobody_wait_for_the_old_time() -> None:
    one = Pace()
    for _ in range(BURST):
        assert one.take("a", 10**12) == 0
    assert one.take("a", 1000) == EACH_MS
    assert one.take("a", 1000 + EACH_MS) == 0
    assert one.take("a", 1000 + EACH_MS) == EACH_MS


def test_so_many_clients_are_remembered_those_of_now_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "CLIENTS", 3)
    one = Pace()
    for _ in range(BURST):
        one.take("busy", 0)
    for n in range(100):
        one.take(str(n), 0)
        assert one.take("busy", 0) > 0
        assert len(one) <= 3
