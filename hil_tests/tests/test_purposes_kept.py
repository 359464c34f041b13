"""Kept sessions in a closed site: what a reader has subscribed to, and what for, outlives its
connection and a mediator that is killed, so that what has waited for it is judged as ever.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from mqtt_peers import Sealed
from purposes_place import CARE, OTHER, Place, seen, sent
from running_site import Site, until


class Kept(NamedTuple):
    """A subscription of a kept session; at: the filter at the broker, "" while it is not there."""

    filter: str
    qos: int
    at: str


class KeptPlace(Place):
    """With what the mediator's store says of it."""

    def publish(self, *payloads: str) -> None:
        """The broker has these of the writer's."""
        writer = self.client("writer")
        sent(writer, *(("t/x", payload) for payload in payloads))
        writer.disconnect()

    def store(self, statement: str) -> list[tuple[str, int, str]]:
        """This test's rows of the mediator's store."""
        with closing(sqlite3.connect(self.site.path / "state/mediator/mediator.db")) as store:
            rows = store.execute(f"{statement} WHERE filter LIKE ?", (f"%{self.play}%",)).fetchall()
            store.commit()
            return rows

    def kept(self) -> list[Kept]:
        """Its subscriptions there."""
        return [Kept(*row) for row in self.store("SELECT filter, qos, at FROM kept_subs")]

    def kill_mediator(self) -> None:
        self.site.back("mediator", self.site.kill("mediator"))
        self.connect_steward()


def payloads(peer: Sealed) -> list[str]:
    """What it has got since it was asked last."""
    return [line.split()[1] for line in seen(peer)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptPlace]:
    site = Site(tmp_path_factory.mktemp("kept"))
    try:
        yield KeptPlace(site, "mosquitto")
    finally:
        site.down()


@pytest.fixture
def place(running: KeptPlace, request: pytest.FixtureRequest) -> KeptPlace:
    """A topic and a session of this test's own."""
    running.play = str(request.node.name)[5:45]
    return running


def test_a_subscription_outlives_a_killed_mediator(place: KeptPlace) -> None:
    place.reserve("x", CARE)
    reader = place.client("reader", clean=False)
    reader.subscribe([(place.access("x"), 1)])
    # The SUBACK is there: that is enough.
    place.kill_mediator()
    place.publish("1", "2", "3")
    reader = place.client("reader", clean=False)
    assert reader.told[0] == "connack 0 present=1"
    assert payloads(reader) == ["1", "2", "3"]
    reader.unsubscribe([place.access("x")])
    assert place.kept() == []
    reader.disconnect()


def test_what_was_withdrawn_meanwhile_is_not_given_until_it_is_allowed_again(
    place: KeptPlace,
) -> None:
    place.reserve("x", CARE)
    reader = place.client("reader", clean=False)
    reader.subscribe([(place.access("x"), 1)])
    reader.disconnect()
    place.publish("queued for a purpose")
    place.reserve("x", OTHER)
    reader = place.client("reader", clean=False)
    assert payloads(reader) == []
    until("the pause at the broker", lambda: [row.at for row in place.kept()] == [""])
    place.reserve("x", CARE)
    until("the broker's own", lambda: [row.at for row in place.kept()] == [place.at("x")])
    place.publish("live again")
    assert payloads(reader) == ["live"]
    # And again, with the mediator killed while it is paused: what the broker lacks is in the store.
    place.reserve("x", OTHER)
    until("the pause at the broker", lambda: [row.at for row in place.kept()] == [""])
    place.kill_mediator()
    place.reserve("x", CARE)
    reader = place.client("reader", clean=False)
    assert reader.told[0] == "connack 0 present=1"
    until("the broker's own", lambda: [row.at for row in place.kept()] == [place.at("x")])
    place.publish("back")
    assert payloads(reader) == ["back"]
    reader.disconnect()


def test_a_session_from_before_gets_nothing_until_it_subscribes_again(place: KeptPlace) -> None:
    place.reserve("x", CARE)
    reader = place.client("reader", clean=False)
    reader.subscribe([(place.access("x"), 1)])
    reader.disconnect()
    place.store("DELETE FROM kept_subs")
    place.publish("for nobody knows what")
    reader = place.client("reader", clean=False)
    assert payloads(reader) == []
    reader.subscribe([(place.access("x"), 1)])
    place.publish("known")
    assert payloads(reader) == ["known"]
    assert [(row.filter, row.qos) for row in place.kept()] == [(place.access("x"), 1)]
    reader.disconnect()
    # A clean session ends it, and what it was subscribed to.
    reader = place.client("reader")
    until("the store to forget it", lambda: place.kept() == [])
    reader.disconnect()
