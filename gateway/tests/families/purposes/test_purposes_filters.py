"""covers, crosses and intersect against brute force: every pair of filters of a small world."""

from __future__ import annotations

from functools import cache

import pytest

from families.purposes import purposes_model as model
from sealmq.families.filters import covers, crosses, intersect, levels
from sealmq_spec.topics import matches

FILTERS = model.all_filters()


@cache
def mask(filter: str) -> int:
    """The topics of the filter, one bit for each."""
    hit = model.topics(filter)
    return sum(1 << i for i, topic in enumerate(model.UNIVERSE) if topic in hit)


def test_the_model_has_mqtts_own_idea_of_a_match() -> None:
    for filter in FILTERS:
        assert model.topics(filter) == {t for t in model.UNIVERSE if matches(filter, t)}, filter


def test_covers_and_crosses_are_exact() -> None:
    masks = [(filter, mask(filter)) for filter in FILTERS]
    for a, of_a in masks:
        for b, of_b in masks:
            assert covers(a, b) == (of_a | of_b == of_a), (a, b)
            assert crosses(a, b) == (of_a & of_b != 0), (a, b)


def test_the_intersection_of_two_filters_is_one_filter() -> None:
    masks = [(filter, mask(filter)) for filter in FILTERS]
    for a, of_a in masks:
        for b, of_b in masks:
            both = intersect(a, b)
            assert (0 if both is None else mask(both)) == of_a & of_b, (a, b, both)


def test_a_topic_is_a_filter_that_covers_itself_alone() -> None:
    for topic in model.UNIVERSE[:200]:
        for filter in FILTERS:
            hit = matches(filter, topic)
            assert covers(filter, topic) == hit
            assert crosses(filter, topic) == hit
            assert crosses(topic, filter) == hit
            assert intersect(filter, topic) == (topic if hit else None)


@pytest.mark.parametrize("name", ["$SYS", "!RESERVE", "@sm1"])
def test_wildcards_do_not_reach_what_is_the_protocols_own(name: str) -> None:
    for wild in ("#", "+/#", "+", "+/a"):
        for own in (name, f"{name}/a", f"{name}/#", f"{name}/+"):
            assert not covers(wild, own)
            assert not crosses(wild, own)
            assert not crosses(own, wild)
            assert intersect(own, wild) is None
    assert covers(f"{name}/#", name)
    assert covers(f"{name}/+", f"{name}/{name}")


def test_no_topic_is_empty_so_two_spellings_are_one() -> None:
    assert levels("#") == levels("+/#")
    assert levels("/#") == levels("/+/#")
    assert not crosses("+", "/#")


def test_a_filter_of_a_thousand_levels_is_no_harder_than_a_thousand_levels() -> None:
    deep = "/".join("+" * 512)
    other = "/".join(["a", *"+" * 511])
    assert covers(deep, other)
    assert not covers(other, deep)
    assert intersect(deep, "a/#") == other
    assert crosses("/" * 1023, "+/" * 511 + "#")
