"""The subscription table says what looking at every filter would say, whatever changed before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sealmq.mediator.core.table import WAITS, Copies, SubscriptionTable
from sealmq_spec.topics import matches

LEVELS = st.sampled_from(["a", "b", "", "+", "$x", "@sm1", "!y"])
FILTERS = st.builds(
    lambda levels, rest: "/".join(levels + (["#"] if rest else [])) or "#",
    st.lists(LEVELS, min_size=1, max_size=4),
    st.booleans(),
)
TOPICS = st.lists(st.sampled_from(["a", "b", "", "$x", "@sm1", "!y"]), min_size=1, max_size=4).map(
    "/".join
)
READERS = st.sampled_from("ABC")
STEPS = st.one_of(
    st.tuples(st.just("enter"), READERS, FILTERS, st.integers(0, 2), st.booleans()),
    st.tuples(st.just("leave"), READERS, FILTERS),
    st.tuples(st.just("drop"), READERS),
    st.tuples(st.just("match"), TOPICS),
)


def plain(held: dict[tuple[str, str], int], topic: str) -> dict[str, int]:
    """By looking at every filter."""
    found: dict[str, int] = {}
    for (reader, filter), value in held.items():
        if not topic or not matches(filter, topic):
            continue
        before = found.get(reader, value)
        found[reader] = max(before & 3, value & 3) | before & value & WAITS
    return found


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=60), st.integers(1, 4))
def test_it_says_what_looking_at_every_filter_says(steps: list[tuple], room: int) -> None:  # type: ignore[type-arg]
    table: SubscriptionTable[str] = SubscriptionTable(room)
    held: dict[tuple[str, str], int] = {}
    asked = set()
    for what, *rest in steps:
        if what == "enter":
            reader, filter, qos, waits = rest
            table.enter(reader, filter, qos, waits)
            held[reader, filter] = qos | (WAITS if waits else 0)
        elif what == "leave":
            table.leave(*rest)
            held.pop((rest[0], rest[1]), None)
        elif what == "drop":
            table.drop(rest[0])
            held = {key: value for key, value in held.items() if key[0] != rest[0]}
        elif rest[0]:
            asked.add(rest[0])
        for topic in asked:
            assert dict(table.match(topic)) == plain(held, topic), topic
        assert len(table) == len(held)
        for (reader, filter), value in held.items():
            assert table.value(reader, filter) == value
    for reader in "ABC":
        table.drop(reader)
    assert len(table) == 0
    assert not table._root.children, "nothing is left of what has gone"
    assert len(table._answers) <= room


def test_an_answer_goes_only_when_a_filter_that_matches_changes() -> None:
    table: SubscriptionTable[str] = SubscriptionTable()
    table.enter("A", "a/+", 1)
    before = table.match("a/b")
    table.enter("B", "c/#", 1)
    table.enter("B", "a/c", 1)
    table.leave("B", "never/+")
    assert table.match("a/b") is before
    table.enter("B", "a/#", 2)
    assert dict(table.match("a/b")) == {"A": 1, "B": 2}
    assert dict(before) == {"A": 1}, "whoever goes through an answer is not disturbed"


def test_the_same_filter_again_changes_nothing_but_its_qos() -> None:
    table: SubscriptionTable[str] = SubscriptionTable()
    table.enter("A", "#", 1)
    before = table.match("a")
    table.enter("A", "#", 1)
    assert table.match("a") is before
    table.enter("A", "#", 0, waits=True)
    assert dict(table.match("a")) == {"A": WAITS}


def test_a_hundred_thousand_subscriptions_leave_a_topic_its_own() -> None:
    table: SubscriptionTable[int] = SubscriptionTable()
    for reader in range(100):
        for n in range(1000):
            table.enter(reader, f"site/{reader}/{n}/+", 1)
    assert len(table) == 100_000
    assert dict(table.match("site/7/9/x")) == {7: 1}
    table.drop(7)
    assert dict(table.match("site/7/9/x")) == {}
    assert len(table) == 99_000


def test_as_many_copies_are_known_as_were_asked_for_and_at_most_twice_as_many() -> None:
    copies = Copies(2)
    keys = [("t", b"%d" % n) for n in range(7)]
    for n, key in enumerate(keys):
        assert not copies.again(key)
        assert all(copies.again(one) for one in keys[max(0, n - 1) : n + 1])
        assert len(copies) <= 4
    assert keys[0] not in copies
    assert not copies.again(keys[0]), "given up"


def test_large_copies_take_no_more_than_twice_their_bytes() -> None:
    copies = Copies(100, 1000)
    for n in range(50):
        assert not copies.again(("t", b"%03d" % n + bytes(397)))
        assert len(copies) <= 4
    assert ("t", b"049" + bytes(397)) in copies
    for n in range(3):
        assert not copies.again(("t", bytes(2000 + n)))
        assert copies.again(("t", bytes(2000 + n)))
    assert len(copies) == 2
