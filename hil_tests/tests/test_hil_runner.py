"""The rig's runner: what raises is a fail with its cause, what is missing is skipped, all boards go
on, and a seed draws the same again.
"""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from hil_bench import FakeSteps, benches, steps
from sealmq_hil.behaviour import NAMES, Behaviour, find, plan
from sealmq_hil.bench import Bench
from sealmq_hil.board import CUT, POWER
from sealmq_hil.cuts import draw, shares
from sealmq_hil.errors import Failed, RigError, Skipped
from sealmq_hil.families import FAMILIES
from sealmq_hil.results import FAIL, PASS, SKIP, VERDICT, Results
from sealmq_hil.runner import go
from sealmq_hil.site import EMBEDDED, Site
from sealmq_hil.strategy import State, Strategy
from sealmq_hil.together import Together


def nothing(bench: Bench) -> None:
    """A behaviour that is as it should be."""


def test_a_behaviour_that_raises_stops_neither_its_board_nor_others(tmp_path: Path) -> None:
    def odd(bench: Bench) -> None:
        if bench.name == "fake-2":
            with bench.stage("half-way"):
                raise ZeroDivisionError("a defect of the rig")

    results = Results(None, 1)
    made = benches(results, tmp_path, 3)
    counts = go(
        [Behaviour("odd", "", odd), Behaviour("even", "", nothing)], made, results, lambda *_: None
    )
    assert counts == {PASS: 5, FAIL: 1, SKIP: 0}
    failed = [r for r in results.rows if r["outcome"] == FAIL]
    assert [(r["board"], r["stage"]) for r in failed] == [
        ("fake-2", "half-way"),
        ("fake-2", VERDICT),
    ]
    assert all(r["cause"] == "ZeroDivisionError: a defect of the rig" for r in failed)
    # Nobody knows how the failed one left its board.
    assert steps(made[0]).took == ["provisioned", "publishing"]
    assert steps(made[1]).took == ["provisioned", "publishing"] * 2


def test_what_a_board_has_no_means_for_is_skipped_and_counted(tmp_path: Path) -> None:
    def gives_up(bench: Bench) -> None:
        raise Skipped("no access point")

    results = Results(None, 1)
    made = benches(results, tmp_path)
    told: list[tuple[str, str]] = []
    go(
        [
            Behaviour("power", "", nothing, needs=frozenset({POWER})),
            Behaviour("cut", "", nothing, needs=frozenset({POWER, CUT})),
            Behaviour("wifi", "", gives_up),
        ],
        made,
        results,
        lambda board, behaviour, stage, outcome: told.append((behaviour, outcome)),
    )
    assert results.counts() == {PASS: 1, FAIL: 0, SKIP: 2}
    causes = [r["cause"] for r in results.verdicts() if r["outcome"] == SKIP]
    assert causes == [
        "fake-1 has not a flash whose writes can be counted",
        "no access point",
    ]
    assert ("cut", SKIP) in told


def test_a_state_that_is_not_reached_is_a_fail_of_its_own_stage(tmp_path: Path) -> None:
    results = Results(None, 1)
    (bench,) = benches(results, tmp_path)
    steps(bench).broken = "publishing"
    go([Behaviour("b", "", nothing)], [bench], results, lambda *_: None)
    assert [(r["stage"], r["outcome"]) for r in results.rows] == [
        ("to-publishing", FAIL),
        (VERDICT, FAIL),
    ]


def test_a_nonce_that_came_twice_fails_the_behaviour_in_which_it_did(tmp_path: Path) -> None:
    def reseals(bench: Bench) -> None:
        for content in (b"one", b"two"):
            bench.site.book.sealed("m2", bench.client, 1, 1, b"s" * 8, 5, content, under="l1")

    results = Results(None, 1)
    made = benches(results, tmp_path)
    go(
        [Behaviour("a", "", nothing), Behaviour("b", "", reseals), Behaviour("c", "", nothing)],
        made,
        results,
        lambda *_: None,
    )
    assert [r["outcome"] for r in results.verdicts()] == [PASS, FAIL, PASS]
    assert "sealed twice with other content: m2 1 1 1" in results.verdicts()[1]["cause"]


def test_silence_is_longer_than_the_pause_between_two_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench,) = benches(Results(None, 1), tmp_path)
    bench.tools.every = 0.02

    def one_each_time(since: float) -> list[float]:
        return [since] if time.monotonic() - since > 2 * bench.tools.every else []

    monkeypatch.setattr(bench, "sealed", one_each_time)
    with pytest.raises(Failed, match="for fake-1 to be silent"):
        bench.silent()
    monkeypatch.setattr(bench, "sealed", lambda since: [])
    bench.silent()


def test_no_signal_goes_to_a_process_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"processes": [{"role": "mediator", "pid": null}]}'
    killed: list[object] = []
    monkeypatch.setattr(
        "sealmq_hil.site.run", lambda *_, **__: subprocess.CompletedProcess([], 0, said, "")
    )
    monkeypatch.setattr("os.kill", lambda *words: killed.append(words))
    with pytest.raises(Failed, match="no mediator that runs"):
        Site(tmp_path, [], EMBEDDED).kill_mediator()
    assert not killed


def test_every_way_of_the_strategy() -> None:
    ways = {
        (None, State.PUBLISHING): ["provisioned", "publishing"],
        (State.FLASHED, State.PUBLISHING): ["provisioned fresh", "publishing"],
        (State.PROVISIONED, State.PUBLISHING): ["publishing"],
        (State.PUBLISHING, State.PUBLISHING): ["publishing running"],
        (State.PUBLISHING, State.FLASHED): ["flashed"],
        (State.FLASHED, State.FLASHED): [],
        (State.LOADER, State.PROVISIONED): ["provisioned"],
        (State.PUBLISHING, State.PROVISIONED): [],
        (None, State.LOADER): ["loader"],
        (State.PUBLISHING, State.OFF): ["off"],
    }
    for (begin, end), took in ways.items():
        made = FakeSteps()
        strategy = Strategy(made)
        strategy.state = begin
        strategy.transition(end)
        assert (made.took, strategy.state) == (took, end), (begin, end)


def test_a_broken_way_leaves_no_known_state() -> None:
    made = FakeSteps()
    made.broken = "publishing"
    strategy = Strategy(made)
    strategy.state = State.PROVISIONED
    with pytest.raises(OSError, match="does not work"):
        strategy.transition(State.PUBLISHING)
    assert strategy.state is None


def test_boards_meet_once_and_do_not_wait_for_who_has_left() -> None:
    together = Together(["a", "b", "c"])
    done: list[str] = []
    threads = [
        threading.Thread(target=together.meet, args=(name, lambda: done.append("once")))
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    assert not done
    together.leave("c")
    for thread in threads:
        thread.join(30)
    assert done == ["once"]
    together.leave("b")

    def breaks() -> None:
        raise OSError("no broker")

    with pytest.raises(Failed, match="no broker"):
        together.meet("a", breaks)
    with pytest.raises(Failed, match="has left"):
        together.meet("b")


def test_a_seed_draws_the_same_again(tmp_path: Path) -> None:
    def drawn(seed: int, names: list[str]) -> dict[str, list[object]]:
        took: dict[str, list[object]] = {}

        def draws(bench: Bench) -> None:
            took[f"{bench.name} {bench.behaviour}"] = list(draw(bench.dice, 5, 0, 9))

        results = Results(None, seed)
        made = benches(results, tmp_path, 2, seed)
        go([Behaviour(name, "", draws) for name in names], made, results, lambda *_: None)
        return took

    whole = drawn(4711, ["one", "two"])
    assert drawn(4711, ["one", "two"]) == whole
    # Alone it draws what it drew in the whole run.
    assert drawn(4711, ["two"]).items() <= whole.items()
    assert drawn(4712, ["one", "two"]) != whole
    assert len({str(cuts) for cuts in whole.values()}) == 4


@pytest.mark.parametrize("count", [1, 2, 7, 20])
def test_at_least_half_of_the_cuts_fall_inside(count: int) -> None:
    import random

    cuts = draw(random.Random(count), count, 2, 6)
    assert len(cuts) == count
    assert 2 * sum(cut.inside for cut in cuts) >= count
    assert all(2 <= cut.after < 6 for cut in cuts)
    if count >= 4:
        assert {cut.after for cut in cuts} == {2, 3, 4, 5}


def test_cuts_are_shared_out() -> None:
    assert shares(20, 3) == [7, 7, 6]
    assert sum(shares(200, 10)) == 200
    assert shares(1, 3) == [1, 0, 0]


def test_every_behaviour_has_a_file_and_its_name() -> None:
    assert [behaviour.name for behaviour in plan([])] == list(NAMES)
    assert [b.name for b in plan(["nonces", "flash"])] == ["flash", "nonces"]
    with pytest.raises(RigError, match="no behaviour 'flush'"):
        find("flush")
    folder = Path(__file__).parents[1] / "sealmq_hil" / "behaviours"
    files = {file.stem.replace("_", "-") for file in folder.glob("[a-z]*.py")}
    assert files == set(NAMES) - set(FAMILIES)


def test_families_have_their_behaviours_after_publishing_by_itself() -> None:
    assert set(FAMILIES) >= {"allowlist", "owners", "purposes"}
    assert NAMES[2 : 2 + len(FAMILIES)] == tuple(sorted(FAMILIES))
    for family in FAMILIES.values():
        assert find(family.name).text == family.text
        names = {"rig-reader", *({family.reader.name} if family.reader else ())}
        assert family.steps
        for step in family.steps:
            assert set(step.read_by) <= names
            said = step.program.format(board="b-1", word="w")
            compile(said, step.name, "exec")
