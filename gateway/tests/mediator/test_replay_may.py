"""A message that was let through and then waited goes out only if its client may still publish: it
may have been disabled, rotated, relabelled or removed since. That is asked of messages from the
journal, of those that the broker may have lost, and of those that the publish link held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from journal_scene import TOPIC, entry, message
from mediator_world import HIGH, NOW_MS, PANEL, SENSOR, World
from sealmq.mediator.core.effects import Forward
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.core.wrap import (
    Passes,
    look_m3,
    may_go_out,
    open_m3,
)
from sealmq.mediator.forwarding import Forwarding, Latency
from sealmq.mediator.journal_file import Entry, Segment, pack, read
from sealmq.mediator.links.publish import OVER, Item, Over
from sealmq.mediator.replay import Replay
from sealmq.order import Order


def disabled(world: World) -> None:
    change(world, disabled=True)


def rotated(world: World) -> None:
    change(world, ended=1)


def relabelled(world: World) -> None:
    change(world, label=HIGH, ended=1)


def removed(world: World) -> None:
    world.ring.clients = {n: c for n, c in world.ring.clients.items() if n != SENSOR}


def change(world: World, **what: Any) -> None:
    client = replace(world.ring.clients[SENSOR], **what)
    world.ring.clients = {**world.ring.clients, SENSOR: client}


OUT = [disabled, rotated, relabelled, removed]
Out = Callable[[World], None]


@pytest.mark.parametrize("out", OUT)
def test_what_a_client_sent_before_it_was_put_out_may_not_go_out(out: Out) -> None:
    world = World()
    payload = message(world)
    assert may_go_out(world.ring, SENSOR, 1, payload)
    assert may_go_out(world.ring, SENSOR, 1, b"")
    assert not may_go_out(world.ring, SENSOR, 1, b"no m3 of ours")
    out(world)
    assert not may_go_out(world.ring, SENSOR, 1, payload)


class Replayed:
    """A replay of these entries: what it published, and what it audited."""

    def __init__(
        self,
        world: World,
        entries: list[Entry],
        passes: Passes = lambda family: frozenset(),
        late: Callable[[], None] | None = None,
    ) -> None:
        self.late = late
        self.published: list[tuple[bytes, bytes, int, bool]] = []
        self.audited: list[tuple[str, dict[str, Any]]] = []
        site: Any = SimpleNamespace(
            ring=world.ring,
            order=Order(9),
            retained=Retained(),
            now_ms=NOW_MS + 1000,
            engine=SimpleNamespace(tlvs=(40,), passes=passes),
        )
        journal: Any = SimpleNamespace(
            lost=lambda: ["old"],
            all=lambda: ["old"],
            entries=lambda segments: entries,
            broker_back=lambda done, ahead: None,
            retained_elsewhere=dict,
        )
        control: Any = SimpleNamespace(losses=0)
        aside: Any = SimpleNamespace(holds=lambda topic, payload: False)
        audit: Any = SimpleNamespace(write=lambda event, **told: self.audited.append((event, told)))
        self.replay = Replay(site, journal, control, aside, self._publish, audit)
        asyncio.run(self.replay.run())

    async def _publish(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, may: Callable[[], bool]
    ) -> None:
        if self.late is not None:
            self.late()
        if not may():
            raise Over(OVER)
        self.published.append((topic, payload, qos, retain))


@pytest.mark.parametrize("out", [None, *OUT])
def test_the_journal_publishes_nothing_again_of_a_client_that_was_put_out(out: Out | None) -> None:
    """Neither its messages, nor what it retained or cleared; and the audit log names it."""
    world = World()
    entries = [entry(message(world)), entry(message(world), 2, True), entry(b"", 0, True)]
    if out is not None:
        out(world)
    done = Replayed(world, entries)
    if out is None:
        assert [(qos, retain) for _, _, qos, retain in done.published] == [
            (1, False),
            (2, False),
            (1, True),
        ]
        assert not done.audited
        return
    assert not done.published
    assert len(done.audited) == 3
    for event, told in done.audited:
        assert event == "publish-refused"
        assert told["rule"] == "mediator.journal.disabled"
        assert told["client"] == (str(SENSOR) if out is removed else "sensor")


@pytest.mark.parametrize("out", OUT)
def test_nor_of_one_that_is_put_out_while_a_connection_is_waited_for(out: Out) -> None:
    world = World()
    entries = [entry(message(world)), entry(b"", 0, True)]
    done = Replayed(world, entries, late=lambda: out(world))
    assert done.published == []
    assert {event for event, _ in done.audited} == {"publish-refused"}
    assert len(done.audited) == done.replay._left_out == 2


@pytest.mark.parametrize("out", OUT)
def test_an_entry_that_does_not_say_whose_it_is_is_judged_by_its_sender(out: Out) -> None:
    """A journal of an older version. It does not show that a client was rotated since."""
    world = World()
    before = entry(message(world))._replace(client=0, gen=None)
    assert len(Replayed(world, [before]).published) == 1
    out(world)
    assert len(Replayed(world, [before]).published) == (out is rotated)


def test_a_file_of_the_journal_says_whose_its_entries_are(tmp_path: Any) -> None:
    rows = [
        Entry(1, b"t", b"payload", 1, False, 7, 3),
        Entry(2, b"t", b"payload", 2, True),
        Entry(3, b"", b"", 0, True, 2**32 - 1, 2**32 - 1),
    ]
    segment = Segment(tmp_path / "1", 1)
    segment.write(b"".join(pack(*row) for row in rows))
    segment.end(unlink=False)
    assert list(read(tmp_path / "1")) == rows


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("out", [None, *OUT])
def test_what_the_broker_may_have_lost_is_published_again_for_who_may_still(
    out: Out | None, lost: bool
) -> None:
    """It is acknowledged only if the broker was not lost before the journal had it on disk."""
    world = World()
    sent = SimpleNamespace(seq=1)
    payload = message(world)
    effect = Forward(sent, TOPIC.encode(), payload, 1, False, SENSOR)  # type: ignore[arg-type]
    session = SimpleNamespace(link=SimpleNamespace(gen=1), accepted="accepted")
    ran: list[tuple[Any, ...]] = []
    published: list[tuple[Any, ...]] = []
    refused: list[tuple[Any, str]] = []
    forwarding: Any = SimpleNamespace(
        _control=SimpleNamespace(losses=int(lost)),
        _events=SimpleNamespace(run=lambda *what: ran.append(what)),
        _site=SimpleNamespace(ring=world.ring),
        link=SimpleNamespace(publish=lambda *what: published.append(what)),
        latency=Latency(),
        _not_taken=lambda token, why: refused.append((token, why)),
    )
    forwarding._may = lambda item: Forwarding._may(forwarding, item)
    if out is not None:
        out(world)
    Forwarding._durable(forwarding, session, effect, 0)  # type: ignore[arg-type]
    if not lost:
        assert ran == [("accepted", sent)]
    elif out is None:
        assert published == [((session, effect), TOPIC.encode(), payload, 1, False, SENSOR, 1)]
    else:
        assert refused == [((session, effect), OVER)]
    assert len(ran) + len(published) + len(refused) == 1


@pytest.mark.parametrize("out", OUT)
def test_what_the_publish_link_has_held_goes_out_for_who_may_still(out: Out) -> None:
    world = World()
    forwarding: Any = SimpleNamespace(_site=SimpleNamespace(ring=world.ring))
    item = Item(None, TOPIC.encode(), message(world), 1, False, SENSOR, 1)
    assert Forwarding._may(forwarding, item)
    out(world)
    assert not Forwarding._may(forwarding, item)


# --- under a grant of the mediators' own ---

OWN = "sealing", "mediators"


def with_grant() -> World:
    world = World()
    world.grant("mediators")
    world.ring = Keyring(world.site, 9, world.snapshot())
    return world


@pytest.mark.parametrize("out", OUT)
def test_under_a_grant_the_clients_generation_says_that_it_was_put_out(out: Out) -> None:
    """Which label it is sealed for says nothing in clear."""
    world = with_grant()
    payload = message(world, OWN)
    assert may_go_out(world.ring, SENSOR, 1, payload)
    assert not may_go_out(world.ring, SENSOR, None, payload), "nobody knows"
    out(world)
    assert not may_go_out(world.ring, SENSOR, 1, payload)


def inside(world: World, payload: bytes) -> tuple[int, dict[int, bytes]]:
    """The number of the grant under which it lies, and the items there."""
    seen = look_m3(world.ring, payload)
    assert seen.grant is not None
    opened = open_m3(world.ring, seen, TOPIC.encode(), payload, (40,))
    return seen.grant.number, dict(opened.tlv)


def test_the_journal_publishes_under_the_grant_again_with_its_items() -> None:
    world = with_grant()
    payload = message(world, OWN)
    ((_, again, *_),) = Replayed(world, [entry(payload)]).published
    assert again != payload
    assert inside(world, again) == (5, {40: b"57"})


def test_the_journal_publishes_under_the_grant_that_has_taken_its_place() -> None:
    """After a restore it has another number; and while no policy wants it, the old one serves."""
    world = with_grant()
    payload = message(world, OWN)
    older, world.grants = world.grants, []
    snapshot = world.snapshot() | {"older_grants": older}
    world.ring = Keyring(world.site, 9, snapshot)
    ((_, again, *_),) = Replayed(world, [entry(payload)]).published
    assert inside(world, again) == (5, {40: b"57"})
    world.grants = [{**older[0], "number": 6, "g": "55" * 32}]
    world.ring = Keyring(world.site, 9, world.snapshot() | {"older_grants": older})
    ((_, again, *_),) = Replayed(world, [entry(payload)]).published
    assert inside(world, again) == (6, {40: b"57"})


def test_the_journal_publishes_nothing_whose_grant_is_unknown_held_or_of_no_family() -> None:
    """Least of all under the label instead."""
    world = with_grant()
    payload = message(world, OWN)
    assert Replayed(world, [entry(payload)], lambda family: None).published == []
    world.holders = [[5, PANEL]]
    world.ring = Keyring(world.site, 9, world.snapshot())
    assert Replayed(world, [entry(payload)]).published == []
    world.grants, world.holders = [], []
    world.ring = Keyring(world.site, 9, world.snapshot())
    assert Replayed(world, [entry(payload)]).published == []
