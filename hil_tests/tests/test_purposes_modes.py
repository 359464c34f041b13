"""The three modes on running sites, switched live, and what a withdrawal reaches: real processes,
real brokers, whole messages. Nobody waits for anything but an answer.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from sealmq_spec import purposes as say

from mqtt_peers import Sealed
from purposes_place import BILL, CARE, OTHER, Place, seen, sent
from running_site import Site

MANY = 120


@pytest.fixture(
    scope="module", params=["mosquitto", pytest.param("embedded", marks=pytest.mark.full)]
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    site = Site(tmp_path_factory.mktemp("modes"))
    try:
        yield Place(site, request.param)
    finally:
        site.down()


@pytest.fixture
def place(running: Place, request: pytest.FixtureRequest) -> Iterator[Place]:
    """Topics of this test's own; the mode is sealmq.toml's."""
    running.play = request.node.name.partition("[")[0][5:45]
    yield running
    running.mode("")


# Where a session has to be kept, or the broker to stand still.
MOSQUITTO = pytest.mark.parametrize("running", ["mosquitto"], indirect=True)


@pytest.mark.parametrize("mode", ["fos", "hybrid"])
def test_a_subscription_is_paused_and_resumed_with_its_qos(place: Place, mode: str) -> None:
    place.mode(mode)
    place.reserve("#", CARE)
    writer, reader = place.client("writer"), place.client("reader")
    sent(writer, ("t/a", "kept"), qos=2, retain=True)
    reader.subscribe([(place.access("#"), 1)])
    assert seen(reader) == ["t/a kept q1 r1"]
    sent(writer, ("t/a", "one"), qos=2)
    assert seen(reader) == ["t/a one q1 r0"]
    told = list(reader.told)
    place.reserve("#", OTHER)
    sent(writer, ("t/a", "two"), qos=2)
    assert seen(reader) == []
    place.reserve("#", CARE)
    # The broker was subscribed to anew: only so does it send again what it retains.
    assert seen(reader) == ["t/a kept q1 r1"]
    sent(writer, ("t/a", "three"), qos=2)
    assert seen(reader) == ["t/a three q1 r0"]
    assert [line for line in reader.told if not line.startswith("suback 6")] == told
    assert reader.notices == []
    sent(writer, ("t/a", ""), retain=True)


def test_three_modes_switched_live(place: Place) -> None:
    """hybrid and fop give the part that is allowed, fos all or nothing."""
    writer, reader = place.client("writer"), place.client("reader")
    place.reserve("a", CARE)
    place.reserve("b", OTHER)
    place.reserve("c/d", BILL, CARE, pip=("none",))
    reader.subscribe([(place.access("#"), 1)])
    part = ["t/a x q1 r0", "t/c/d x q1 r0"]

    def gets() -> list[str]:
        sent(writer, *((f"t/{name}", "x") for name in ("a", "b", "c/d", "nobody-s")))
        return sorted(seen(reader))

    assert gets() == part
    for mode, expected in (("fos", []), ("fop", part), ("hybrid", part), ("fos", []), ("", part)):
        place.mode(mode)
        assert gets() == expected, mode
    place.reload('mode = "hybrid"', 'mode = "fos"')
    assert gets() == []
    place.mode("fop")
    assert gets() == part, "what was set live counts"
    place.mode("")
    assert gets() == []
    # Now all of the filter is allowed.
    place.release("b")
    place.reserve("#", CARE)
    assert gets() == sorted(f"t/{name} x q1 r0" for name in ("a", "b", "c/d", "nobody-s"))
    place.reload('mode = "fos"', 'mode = "hybrid"')
    assert len(gets()) == 4
    assert reader.notices == []


@pytest.mark.parametrize("mode", ["fop", "hybrid", "fos"])
def test_retained_messages_are_always_judged(place: Place, mode: str) -> None:
    place.mode(mode)
    writer, reader = place.client("writer"), place.client("reader")
    sent(writer, ("t/a", "kept"), retain=True)
    place.reserve("#", CARE)
    place.reserve("a", pip=(CARE,))
    reader.subscribe([(place.access("#"), 1)])
    assert seen(reader) == []
    place.release("a")
    reader.subscribe([(place.access("#"), 1)])
    assert set(seen(reader)) == {"t/a kept q1 r1"}
    sent(writer, ("t/a", ""), retain=True)


def test_several_subscriptions_reach_one_message(place: Place) -> None:
    """One that allows it is enough; it goes when that one goes."""
    writer, reader = place.client("writer"), place.client("reader")
    place.reserve("a", BILL, pip=(CARE,))
    place.reserve("b", CARE)
    reader.subscribe([(place.access("+", CARE), 1), (place.access("+", BILL), 1)])
    both = ["t/a x q1 r0", "t/b x q1 r0"]
    sent(writer, ("t/a", "x"), ("t/b", "x"))
    assert seen(reader) == both
    reader.unsubscribe([place.access("+", BILL)])
    sent(writer, ("t/a", "x"), ("t/b", "x"))
    assert seen(reader) == both[1:]
    reader.subscribe([(place.access("a", BILL), 1)])
    sent(writer, ("t/a", "x"), ("t/b", "x"))
    assert sorted(set(seen(reader))) == both
    place.reserve("a", BILL, pip=(CARE, BILL))
    sent(writer, ("t/a", "x"), ("t/b", "x"))
    assert sorted(set(seen(reader))) == both[1:]


def test_a_reader_that_knows_nothing_of_purposes(place: Place) -> None:
    """It subscribes to plain filters; somebody else has said, or says, what for."""
    writer, reader = place.client("writer"), place.client("reader")
    place.play = reader.place = writer.place = "plain"
    place.reserve("+", CARE)
    reader.subscribe([("t/+", 1)])
    sent(writer, ("t/a", "x"))
    assert seen(reader) == ["t/a x q1 r0"]
    other = place.at("more/#")
    reader.subscribe([("t/more/#", 1)])
    assert reader.notices == ["purposes.subscribe.no-purpose"]
    place.say(say.presubscribe("reader", other, BILL))
    place.reserve("more/#", BILL)
    reader.subscribe([("t/more/#", 1)])
    sent(writer, ("t/more/a", "x"))
    assert seen(reader) == ["t/more/a x q1 r0"]
    place.say(say.presubscribe("reader", other, CARE))
    sent(writer, ("t/more/a", "x"))
    assert seen(reader) == []
    place.say(say.presubscribe("reader", other, ""))
    place.say(say.presubscribe("reader", other, BILL))
    sent(writer, ("t/more/a", "x"))
    assert seen(reader) == ["t/more/a x q1 r0"]
    place.release("+", "more/#")
    place.say(say.presubscribe("reader", other, ""))


def test_key_and_purpose_are_both_needed(place: Place) -> None:
    writer = place.client("writer")
    place.reserve("+", CARE)
    for name, purpose, expected in (
        ("reader", CARE, ["t/a x q1 r0"]),
        ("higher", CARE, ["t/a x q1 r0"]),
        # The key, and no such purpose.
        ("higher", OTHER, []),
    ):
        peer = place.client(name)
        peer.subscribe([(place.access("a", purpose), 1)])
        assert (peer.told[-1], bool(expected)) in (("suback 1 01", True), ("suback 1 80", False))
        sent(writer, ("t/a", "x"))
        assert seen(peer) == expected, (name, purpose)
        peer.disconnect()
    # The purpose, and no such key: it hears itself, and of the other topic nothing.
    beside = place.client("beside")
    beside.subscribe([(place.access("+"), 1)])
    sent(writer, ("t/a", "x"))
    beside.publish("t/beside", b"own", 1, False)
    beside.await_("got")
    assert (beside.got, beside.dropped) == (["t/beside own q1 r0 d0"], [])


# --- withdrawal ---


def payloads(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines]


@MOSQUITTO
def test_what_is_queued_at_the_broker_when_consent_is_withdrawn(place: Place) -> None:
    """The reader sleeps; the broker has acknowledged each of these and keeps them for it."""
    numbers = [str(n) for n in range(MANY)]
    place.reserve("a", CARE)
    writer, reader = place.client("writer"), place.client("reader", clean=False)
    reader.subscribe([(place.access("#"), 1)])
    for withdrawn in (False, True):
        seen(reader)
        reader.disconnect()
        sent(writer, *(("t/a", n) for n in numbers))
        if withdrawn:
            place.reserve("a", OTHER)
        reader = place.client("reader", clean=False)
        assert payloads(seen(reader)) == ([] if withdrawn else numbers)
    reader.disconnect()
    place.client("reader").disconnect()


def crowd(place: Place, writer: Sealed) -> list[str]:
    """The reader reads nothing, its socket is full, and MANY messages wait in the mediator: the
    broker stands still from here on, so nobody else can have them.
    """
    for n in range(60):
        writer.publish("t/big", b"x" * 100_000, 0, False)
        if n % 10 == 0:
            writer.settle()
    numbers = [str(n) for n in range(MANY)]
    sent(writer, *(("t/a", n) for n in numbers))
    # Behind them, so that the mediator has read those.
    for _ in range(2):
        writer.settle()
    place.say(say.query("mode"))
    os.kill(place.site.pid("broker"), signal.SIGSTOP)
    return numbers


def read(reader: Sealed) -> list[str]:
    """All that the mediator has for it: what waits goes out as the reader takes and acknowledges
    it, PINGRESP at once. So it is asked for until nothing more came with it.
    """
    got: list[str] = []
    quiet = 0
    while quiet < 3:
        reader.send(b"\xc0\0")
        reader.await_("pingresp")
        came, reader.got = reader.got, []
        quiet = 0 if came else quiet + 1
        got += came
    return payloads([line for line in got if line.startswith("t/a ")])


@MOSQUITTO
def test_what_is_in_flight_when_consent_is_withdrawn(place: Place) -> None:
    place.reserve("+", CARE)
    writer = place.client("writer")
    for withdrawn in (False, True):
        reader = place.client("reader")
        reader.subscribe([(place.access("+"), 1)])
        numbers = crowd(place, writer)
        try:
            if withdrawn:
                place.reserve("+", OTHER)
            assert read(reader) == ([] if withdrawn else numbers)
            place.reserve("+", CARE)
        finally:
            os.kill(place.site.pid("broker"), signal.SIGCONT)
        # Had the broker still held one, it would come now.
        assert seen(reader) == []
        sent(writer, ("t/a", "end"))
        assert payloads(seen(reader)) == ["end"]
        reader.disconnect()


FOREIGN = 'published = true\nwords = { ap = "!FOR", reserve = "!BIND", open = "<", close = ">" }\n'


def test_clients_with_other_words_and_ours_at_one_site(place: Place) -> None:
    """One subscription, whoever's words it is written in; without the setting there is none."""
    place.reserve("x", CARE)
    foreign = f"!FOR/{place.at('PLUS')}<{CARE}>"
    writer, reader = place.client("writer"), place.client("reader")
    reader.subscribe([(foreign, 1)])
    assert "denied" in " ".join(reader.notices), reader.notices
    head = 'stewards = ["steward"]\n'
    place.reload(head, head + FOREIGN)
    try:
        reader.subscribe([(foreign, 1)])
        sent(writer, ("t/x", "one"))
        assert seen(reader) == ["t/x one q1 r0"]
        place.say(f"!BIND/{place.at('x')}<{OTHER}|>")
        sent(writer, ("t/x", "two"))
        assert seen(reader) == []
        place.reserve("x", CARE)
        sent(writer, ("t/x", "three"))
        assert seen(reader) == ["t/x three q1 r0"]
        reader.unsubscribe([place.access("+")])
        sent(writer, ("t/x", "four"))
        assert seen(reader) == []
    finally:
        place.reload(head + FOREIGN, head)
