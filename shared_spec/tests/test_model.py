"""The symbolic model: nothing is found with all defences, and an attack without any of them."""

from __future__ import annotations

import re

import pytest

from model.__main__ import main
from model.catalogue import ASSUMED, DEFENCES, WORLDS, check
from model.search import search


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: w.name)
def test_nothing_is_found_with_all_defences(world: type) -> None:
    outcome = search(world())
    assert not outcome.broken, "\n".join([outcome.broken, *outcome.trace])
    # A search that goes nowhere finds nothing either.
    assert outcome.states > 50


@pytest.mark.parametrize("name", [*DEFENCES, *ASSUMED])
def test_each_defence_taken_out_is_missed(name: str) -> None:
    *_, last = check(frozenset({name}))
    assert last.broken
    assert last.trace


def test_each_defence_says_where_the_specification_asks_for_it() -> None:
    for world in WORLDS:
        for name, text in world.DEFENCES.items():
            assert re.search(r"§\d|\bG\d", text), name


def test_names_are_used_once() -> None:
    names = [name for world in WORLDS for name in (*world.DEFENCES, *world.ASSUMED)]
    assert len(names) == len(set(names))


def test_the_papers_pad_fails_on_the_factory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pad", "paper"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "the factory poset; a client at m1-ctrl is in" in text
    assert "m1-ctrl's client is revoked" in text
    # By the value of m1-arm, which was not rekeyed: z_old ⊕ z_new ⊕ k_old.
    assert "it computes k[m1-ctrl,e2," in text
    assert text.count("H(m1-ctrl, k[m1-arm,e1,#3])") == 2


def test_the_epoch_alone_fails_when_the_key_generator_is_set_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--pad", "epoch-only"]) == 1
    assert "the key generator is set back" in capsys.readouterr().out


def test_our_pad_holds_and_the_summary_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--without", "m1-sender"]) == 1
    assert "attack found" in capsys.readouterr().out.splitlines()[-1]
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in DEFENCES)


def test_an_unknown_defence_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--without", "moat"])
    assert stopped.value.code == 2
    assert "no defence is called moat" in capsys.readouterr().err


@pytest.mark.full
def test_nothing_is_found_in_longer_sessions() -> None:
    for outcome in check(full=True):
        assert not outcome.broken, "\n".join([outcome.broken, *outcome.trace])
