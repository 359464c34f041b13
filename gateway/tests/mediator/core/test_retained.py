"""What a mediator remembers of retained messages."""

from __future__ import annotations

import pytest

from sealmq.mediator.core.retained import Retained
from sealmq_spec.errors import Stale


def test_a_copy_that_was_replaced_does_not_come_back() -> None:
    kept = Retained()
    kept.passed("t", 10, 0)
    kept.came("t", 10, 0)
    kept.came("t", 11, 0)
    with pytest.raises(Stale):
        kept.came("t", 10, 5)
    kept.came("other", 1, 0)


def test_the_oldest_topics_are_forgotten_first() -> None:
    kept = Retained(most=3)
    for n, topic in enumerate("abc"):
        kept.passed(topic, 10 + n, 0)
    kept.passed("a", 20, 0)
    kept.passed("d", 30, 0)
    assert len(kept) == 3
    kept.came("b", 1, 0)  # forgotten
    with pytest.raises(Stale):
        kept.came("a", 1, 0)


def test_an_older_one_does_not_overtake_what_its_sender_published_since() -> None:
    kept = Retained()
    kept.published("t", 1, (100, 1, 5))
    kept.check("t", 1, (100, 1, 5))
    kept.check("t", 1, (100, 1, 6))
    kept.check("t", 2, (99, 1, 1))
    kept.check("other", 1, (99, 1, 1))
    with pytest.raises(Stale):
        kept.check("t", 1, (100, 1, 4))
    kept.published("t", 1, (100, 1, 7))
    with pytest.raises(Stale):
        kept.check("t", 1, (100, 1, 6))
