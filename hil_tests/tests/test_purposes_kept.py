"""Kept sessions in a closed site: what a reader has subscribed to, and what for, outlives its
connection and a mediator that is killed, so that what has waited for it is judged as ever.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest
from sealmq_spec.purposes import Grammar

from mqtt_peers import SYNC, Sealed, provisioned
from mqtt_stage import LABEL
from running_site import Site, sealmq, until

SERVICE = "service"


class Kept(NamedTuple):
    """A subscription of a kept session; at: the filter at the broker, "" while it is not there."""

    filter: str
    qos: int
    at: str


class Place:
    """A running site with a Mosquitto of its own, a reader and a writer at one label."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._boots = 0
        self.play = ""

    def client(self, name: str) -> Sealed:
        """A client right behind its start."""
        raw = provisioned(self.site.port, self.site.clients / name / "sealmq.json")
        self._boots += 1
        raw.boot = 1000 + self._boots
        return Sealed(name, self.play, raw)

    def reader(self) -> Sealed:
        """The reader, in a session that is kept."""
        peer = self.client("reader")
        back(peer)
        return peer

    def publish(self, *payloads: str) -> None:
        """The broker has these of the writer's."""
        writer = self.client("writer")
        back(writer, clean=True)
        for payload in payloads:
            writer.publish("t/x", payload.encode(), 1, False)
        writer.await_("puback", len(payloads))
        writer.disconnect()

    def reserve(self, *words: str) -> None:
        """What the writer says about its topic."""
        topic = ("-t", f"{self.play}/x")
        done = sealmq("reserve", self.site.path, "--client", "writer", *topic, *words)
        assert done.returncode == 0, done.stderr

    def access(self, purpose: str = SERVICE) -> str:
        return Grammar().access(f"{self.play}/x", purpose)

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


def back(peer: Sealed, clean: bool = False) -> None:
    """Connects, once the mediator has its broker back; forgets what it got before."""
    peer.got.clear()

    def admitted() -> bool:
        peer.connect(clean=clean)
        return peer.welcome

    until(f"{peer.name} to be let in", admitted)


def seen(peer: Sealed) -> list[str]:
    """The payloads that the peer has got by now."""
    peer.sync()
    return [line.split()[1] for line in peer.got]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    site = Site(tmp_path_factory.mktemp("kept"), policy="purposes")
    for name in ("reader", "writer"):
        site.enrol(name, LABEL)
    # What Peer.sync subscribes to, without a purpose.
    for table, line in (
        ("reserve", f'{SYNC} = {{ aip = ["{SERVICE}"] }}'),
        ("presubscribe", f'reader = {{ {SYNC} = "{SERVICE}" }}'),
    ):
        head = f"\n[families.purposes.{table}]\n"
        site.edit(head, f"{head}{line}\n")
    site.up("--broker", "mosquitto")
    try:
        made = Place(site)
        keeper = made.client("writer")
        back(keeper, clean=True)
        keeper.publish(SYNC, b"here", 1, True)
        keeper.await_("puback")
        keeper.disconnect()
        yield made
    finally:
        site.down()


@pytest.fixture
def place(running: Place, request: pytest.FixtureRequest) -> Place:
    """A topic and a session of this test's own."""
    running.play = str(request.node.name)[5:45]
    return running


def test_a_subscription_outlives_a_killed_mediator(place: Place) -> None:
    place.reserve("--aip", SERVICE)
    reader = place.reader()
    reader.subscribe([(place.access(), 1)])
    # The SUBACK is there: that is enough.
    place.kill_mediator()
    place.publish("1", "2", "3")
    reader = place.reader()
    assert reader.told[0] == "connack 0 present=1"
    assert seen(reader) == ["1", "2", "3"]
    reader.unsubscribe([place.access()])
    assert place.kept() == []
    reader.disconnect()


def test_what_was_withdrawn_meanwhile_is_not_given_until_it_is_allowed_again(place: Place) -> None:
    place.reserve("--aip", SERVICE)
    reader = place.reader()
    reader.subscribe([(place.access(), 1)])
    reader.disconnect()
    place.publish("queued for a purpose")
    place.reserve("--aip", "analytics")
    reader = place.reader()
    assert seen(reader) == []
    until("the pause at the broker", lambda: [row.at for row in place.kept()] == [""])
    place.reserve("--aip", SERVICE)
    until("the broker's own", lambda: [row.at for row in place.kept()] == [f"{place.play}/x"])
    place.publish("live again")
    assert seen(reader) == ["live"]
    # And again, with the mediator killed while it is paused: what the broker lacks is in the store.
    place.reserve("--aip", "analytics")
    until("the pause at the broker", lambda: [row.at for row in place.kept()] == [""])
    place.kill_mediator()
    place.reserve("--aip", SERVICE)
    reader = place.reader()
    assert reader.told[0] == "connack 0 present=1"
    until("the broker's own", lambda: [row.at for row in place.kept()] == [f"{place.play}/x"])
    place.publish("back")
    assert seen(reader) == ["back"]
    reader.disconnect()


def test_a_session_from_before_gets_nothing_until_it_subscribes_again(place: Place) -> None:
    place.reserve("--aip", SERVICE)
    reader = place.reader()
    reader.subscribe([(place.access(), 1)])
    reader.disconnect()
    place.store("DELETE FROM kept_subs")
    place.publish("for nobody knows what")
    reader = place.reader()
    assert seen(reader) == []
    reader.subscribe([(place.access(), 1)])
    place.publish("known")
    assert seen(reader) == ["known"]
    assert [(row.filter, row.qos) for row in place.kept()] == [(place.access(), 1)]
    reader.disconnect()
    # A clean session ends it, and what it was subscribed to.
    reader = place.client("reader")
    back(reader, clean=True)
    until("the store to forget it", lambda: place.kept() == [])
    reader.disconnect()
