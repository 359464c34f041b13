"""Who loses its place, and whose turn is next, when strangers are more than there is room for."""

from __future__ import annotations

import asyncio
import random
import resource
from collections import Counter

import pytest

from sealmq.mediator.capacity import Capacity
from sealmq.mediator.core.limits import CONNECTIONS, STRANGERS
from sealmq.mediator.kg_requests import Turns
from sealmq.strangers import Source, Strangers, source_of


class One:
    """A connection that notes why it ended."""

    def __init__(self, strangers: Strangers, source: Source) -> None:
        self._strangers, self.source, self.ended = strangers, source, ""
        strangers.enter(self, source)

    def close(self, reason: str) -> None:
        self.ended = reason
        self._strangers.leave(self)


def test_the_oldest_of_the_source_with_most_is_ended() -> None:
    strangers = Strangers(4)
    quiet = One(strangers, "a")
    many = [One(strangers, "b") for _ in range(9)]
    assert [bool(one.ended) for one in many] == [True] * 6 + [False] * 3
    assert not quiet.ended
    assert (len(strangers), strangers.ended) == (4, 6)


def test_a_crowd_of_single_ones_loses_its_oldest() -> None:
    strangers = Strangers(3)
    ones = [One(strangers, f"{n}") for n in range(5)]
    assert [bool(one.ended) for one in ones] == [True, True, False, False, False]


def test_one_for_whom_something_has_verified_is_no_part_of_the_crowd_any_more() -> None:
    strangers = Strangers(4)
    board = One(strangers, "b")
    strangers.enter(board, 7)
    many = [One(strangers, "b") for _ in range(50)]
    assert not board.ended
    assert sum(not one.ended for one in many) == 3
    strangers.leave(board)
    strangers.leave(board)
    assert len(strangers) == 3


def test_against_a_model_that_counts_anew_each_time() -> None:
    rng = random.Random(14)
    strangers, there = Strangers(12), list[One]()
    for _ in range(4000):
        if there and rng.random() < 0.3:
            one = there.pop(rng.randrange(len(there)))
            strangers.leave(one)
        else:
            before = Counter(one.source for one in there)
            one = One(strangers, rng.choice("aaaabbcdefgh"))
            before[one.source] += 1
            there.append(one)
            ended = [one for one in there if one.ended]
            there = [one for one in there if not one.ended]
            assert len(ended) == (before.total() > 12)
            if ended:
                assert before[ended[0].source] == max(before.values())
                assert all(one.source != ended[0].source or there.index(one) >= 0 for one in there)
        assert len(strangers) == len(there)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
    ],
)
def test_an_ipv6_host_counts_by_its_network(address: str, source: str) -> None:
    assert source_of(address) == source


def test_places_fit_into_the_files_that_the_process_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def places_of(files: int) -> Capacity:
        monkeypatch.setattr(resource, "getrlimit", lambda what: (files, files))
        return Capacity.of_this_process()

    for files in (256, 1024, 4096, 65536):
        places = places_of(files)
        assert 0 < places.strangers <= STRANGERS
        assert 0 < places.clients <= CONNECTIONS
        if 1024 <= files < 65536:
            assert 2 * places.clients + places.strangers < files - 200
    assert places_of(65536) == places_of(resource.RLIM_INFINITY) == (CONNECTIONS, STRANGERS)


def test_turns_go_by_source_and_not_by_how_many_wait() -> None:
    async def story() -> list[str]:
        turns, order = Turns(2), list[str]()

        async def work(source: str) -> None:
            await turns.take(source)
            order.append(source)
            await asyncio.sleep(0)
            turns.give()

        many = [asyncio.ensure_future(work("flood")) for _ in range(50)]
        await asyncio.sleep(0)
        few = [asyncio.ensure_future(work(source)) for source in ("a", "b", "c")]
        await asyncio.sleep(0)
        gone = [asyncio.ensure_future(work("gone")) for _ in range(5)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        await asyncio.gather(*many, *few)
        # Nobody has lost a turn by those who went.
        await turns.take("d")
        await turns.take("e")
        return order

    order = asyncio.run(story())
    assert len(order) >= 53
    assert all(order.index(source) < 14 for source in "abc")
