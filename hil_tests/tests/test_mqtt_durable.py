"""What outlives a process: wills, kept sessions, acknowledged messages, retained ones.

One site with a Mosquitto of its own; its processes are killed with SIGKILL, which loses what the
broker has not saved yet.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from mqtt_peers import Keeper, Sealed, Will, provisioned
from mqtt_stage import LABEL
from running_site import Site, sealmq, until


class Place:
    """A running site, and clients by their names."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._plays = 0
        self._keeper: Keeper | None = None
        self._keeper = Keeper(lambda: self.client("keeper"))

    def client(self, name: str, identifier: str = "") -> Sealed:
        """A client right behind its start."""
        file = self.site.clients / name / "sealmq.json"
        if not file.exists():
            self.site.enrol(name, LABEL)
        raw = provisioned(self.site.port, file)
        self._plays += 1
        # Above all that this client ever had.
        raw.boot = 1000 + self._plays
        peer = Sealed(name, self.play, raw)
        peer.client_id = f"{self.play}-{identifier or name}"
        peer.keeper = self._keeper
        return peer

    play = "durable"

    def kill(self, role: str) -> None:
        self.site.back(role, self.site.kill(role))

    def journal(self) -> int:
        """Bytes in the journal."""
        return sum(f.stat().st_size for f in self.site.path.glob("state/mediator/journal/*.seg"))


killed_with_it = pytest.mark.parametrize(
    "killed", [pytest.param(("broker",), marks=pytest.mark.full), ("mediator", "broker")]
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    site = Site(tmp_path_factory.mktemp("durable"))
    site.up("--broker", "mosquitto")
    try:
        yield Place(site)
    finally:
        site.down()


@pytest.fixture
def place(running: Place, request: pytest.FixtureRequest) -> Place:
    """Topics and identifiers of this test's own."""
    running.play = str(request.node.name)[5:45]
    return running


def into(peer: Sealed, clean: bool = True, will: Will | None = None) -> None:
    """Connects, as soon as there is a mediator that has its broker."""

    def admitted() -> bool:
        peer.told.clear()
        try:
            peer.connect(clean=clean, will=will)
        except OSError:
            return False  # nobody listens
        except AssertionError:
            if peer.told != ["closed"]:
                raise
            return False  # it was killed before it answered
        return peer.welcome

    until(f"{peer.name} to be let in", admitted)


def leave(peer: Sealed) -> None:
    """Goes away for a while: its session stays."""
    peer.sync()
    peer.disconnect()


def returned(peer: Sealed) -> None:
    """Comes back; what it got before is forgotten."""
    peer.got.clear()
    into(peer, clean=False)


def saved(place: Place) -> None:
    """The broker has saved what it holds."""
    file = place.site.path / "state/broker/mosquitto.db"
    before = file.stat().st_mtime_ns if file.exists() else 0
    until("the broker's save", lambda: file.exists() and file.stat().st_mtime_ns != before)


@contextmanager
def saved_last(place: Place) -> Iterator[None]:
    """The broker has saved what it holds, and saves no more: what comes now a kill makes it forget.

    It saves every few seconds, which is not long on a busy machine.
    """
    saved(place)
    file = place.site.path / "state/broker/mosquitto.db.new"  # what it writes first

    def barred() -> bool:
        with suppress(FileExistsError):
            file.mkdir()
        return file.is_dir()

    until("no save under way", barred)
    try:
        yield
    finally:
        file.rmdir()


def test_wills_fire_once_behind_a_killed_mediator_for_those_who_stay_away(place: Place) -> None:
    reader = place.client("reader")
    into(reader, clean=False)
    reader.subscribe([("t/#", 2)])
    gone = place.client("writer", "gone")
    into(gone, will=Will("t/gone:gone:2"))
    other = place.client("other", "stays")
    into(other, will=Will("t/other:other:1"))
    same = place.client("writer", "same")
    into(same, will=Will("t/same:same:1"))
    left = place.client("third", "left")
    into(left, will=Will("t/left:left:1"))
    left.disconnect()
    # Who returns does so at once: wills wait for seconds only.
    place.site.kill("mediator")
    # One identifier of the writer returns, the other does not; who said DISCONNECT has no will.
    for peer in (other, same):
        into(peer)
    into(reader, clean=False)
    reader.await_("got")
    # What fired does not fire again behind the next one, where another one's will does.
    into(place.client("third", "later"), will=Will("t/later:later:1"))
    place.site.kill("mediator")
    for peer in (other, same):
        into(peer)
    into(reader, clean=False)
    reader.await_("got")
    reader.sync()
    seen = [line.rpartition(" r")[0] for line in reader.got]
    assert seen == ["t/gone gone q2", "t/later later q1"]
    for peer in (other, same, reader):
        peer.disconnect()


def test_what_was_acknowledged_survives_a_killed_broker(place: Place) -> None:
    reader = place.client("reader")
    into(reader, clean=False)
    reader.subscribe([("t/x", 2)])
    leave(reader)
    writer = place.client("writer")
    into(writer)
    with saved_last(place):
        for n in range(30):
            writer.publish("t/x", b"%d" % n, 1 + n % 2, False)
        writer.await_("puback", 15)
        writer.await_("pubcomp", 15)
        assert place.journal() > 0
        place.kill("broker")
    returned(reader)
    while len(reader.got) < 30:
        reader.await_("got")
    for qos, first in (("q1", 0), ("q2", 1)):
        of = [int(line.split()[1]) for line in reader.got if qos in line]
        assert of == list(range(first, 30, 2))
    reader.disconnect()


@killed_with_it
def test_what_was_acknowledged_reaches_a_session_that_a_killed_broker_had_not_saved(
    place: Place, killed: tuple[str, ...]
) -> None:
    reader, writer = place.client("reader"), place.client("writer")
    into(writer)
    with saved_last(place):
        into(reader, clean=False)
        reader.subscribe([("t/x", 2), ("t/y", 1)])
        leave(reader)
        for n in range(20):
            writer.publish("t/x", b"%d" % n, 1 + n % 2, False)
        writer.settle()
        pids = {role: place.site.kill(role) for role in killed}
    for role, pid in pids.items():
        place.site.back(role, pid)
    into(writer)
    writer.publish("t/y", b"afterwards", 1, False)
    writer.settle()
    returned(reader)
    assert reader.told[-1] == "connack 0 present=1"
    while len(reader.got) < 21:
        reader.await_("got")
    for qos, first in (("q1", 0), ("q2", 1)):
        of = [line.split()[1] for line in reader.got if qos in line]
        assert [int(word) for word in of if word != "afterwards"] == list(range(first, 20, 2))
    assert any("afterwards" in line for line in reader.got)
    reader.disconnect()


def test_a_subscription_that_a_killed_broker_had_not_saved_comes_back_to_its_session(
    place: Place,
) -> None:
    reader, writer = place.client("reader"), place.client("writer")
    into(writer)
    into(reader, clean=False)
    reader.subscribe([("t/old", 1)])
    with saved_last(place):
        reader.subscribe([("t/young", 1)])
        leave(reader)
        place.kill("broker")
    into(writer)
    for topic in ("t/old", "t/young"):
        writer.publish(topic, b"x", 1, False)
    writer.settle()
    returned(reader)
    while len(reader.got) < 2:
        reader.await_("got")
    assert [line.split()[0] for line in reader.got] == ["t/old", "t/young"]
    reader.disconnect()


@pytest.mark.full
def test_a_burst_after_six_quiet_minutes_survives_a_killed_broker(place: Place) -> None:
    """A sensor that reports every ten minutes: nothing else is in the journal."""
    reader = place.client("reader")
    into(reader, clean=False)
    reader.subscribe([("t/x", 1)])
    leave(reader)
    time.sleep(360)
    writer = place.client("writer")
    into(writer)
    saved(place)
    for n in range(20):
        writer.publish("t/x", b"%d" % n, 1, False)
    writer.await_("puback", 20)
    time.sleep(2)  # the journal looks at itself once a second, the broker saves every 5
    place.kill("broker")
    returned(reader)
    while len(reader.got) < 20:
        reader.await_("got")
    assert [int(line.split()[1]) for line in reader.got] == list(range(20))
    assert place.site.audit("journal-dropped") == []
    reader.disconnect()


@killed_with_it
def test_retained_messages_survive_it_and_none_is_set_back(
    place: Place, killed: tuple[str, ...]
) -> None:
    writer = place.client("writer")
    into(writer)
    for topic, qos in (("t/once", 1), ("t/often", 1), ("t/clear", 1), ("t/plain", 0)):
        writer.publish(topic, b"old", qos, True)
    writer.settle()
    with saved_last(place):
        writer.publish("t/often", b"newer", 1, True)
        writer.publish("t/often", b"newest", 0, True)
        writer.publish("t/clear", b"", 1, True)
        writer.publish("t/plain", b"new", 0, True)
        writer.settle()
        pids = {role: place.site.kill(role) for role in killed}
    for role, pid in pids.items():
        place.site.back(role, pid)
    reader = place.client("reader")
    into(reader)
    reader.subscribe([("t/+", 1)])
    reader.sync()
    assert sorted(line.rpartition(" q")[0] for line in reader.got) == [
        "t/often newest",
        "t/once old",
        "t/plain new",
    ]
    reader.disconnect()


def test_the_journal_is_emptied_when_the_broker_has_saved(place: Place) -> None:
    writer = place.client("writer")
    into(writer)
    writer.publish("t/x", b"x" * 5000, 1, False)
    writer.await_("puback")
    assert place.journal() > 5000
    until("an empty journal", lambda: place.journal() < 5000, 120)
    writer.disconnect()


def test_a_rotated_client_gets_no_session_of_its_old_secret_whose_will_is_void(
    place: Place,
) -> None:
    risky = place.client("rotated", "risky")
    into(risky, will=Will("t/will:gone:1"))
    old = place.client("rotated", "session")
    into(old, clean=False)
    old.subscribe([("t/x", 1)])
    leave(old)
    writer = place.client("writer")
    into(writer)
    writer.publish("t/x", b"for the old one", 1, False)
    writer.await_("puback")
    file = place.site.clients / "rotated" / "sealmq.json"
    file.unlink()
    done = sealmq("client", "rotate", place.site.path, "rotated", "-o", file)
    assert done.returncode == 0, done.stderr
    risky.await_("closed")
    until(
        "the will's end",
        lambda: place.site.audit("publish-refused", rule="mediator.will.disabled"),
    )
    new = place.client("rotated", "session")
    into(new, clean=False)
    assert new.told == ["connack 0 present=0"]
    new.sync()
    assert new.got == []
    new.disconnect()
    into(new, clean=False)
    assert new.told[-1] == "connack 0 present=1"
    new.disconnect()


@pytest.mark.parametrize("out", ["disable", "rotate"])
def test_nothing_comes_again_of_who_was_put_out(place: Place, out: str) -> None:
    """The broker lost it with its memory; that of others comes back."""
    reader = place.client("reader")
    into(reader, clean=False)
    name = f"out-{out}"
    reader.subscribe([("t/writer", 1), (f"t/{name}", 1)])
    leave(reader)
    writers = [place.client(name), place.client("writer")]
    for writer in writers:
        into(writer)
    file = place.site.clients / name / "new.json"
    more = ["-o", file] if out == "rotate" else []
    with saved_last(place):
        for writer in writers:
            writer.publish(f"t/{writer.name}", b"accepted", 1, False)
            writer.await_("puback")
        done = sealmq("client", out, place.site.path, name, *more)
        assert done.returncode == 0, done.stderr
        place.kill("broker")
    reader = place.client("reader")  # with the epoch that began then
    returned(reader)
    reader.await_("got")
    reader.sync()
    assert [line.split()[0] for line in reader.got] == ["t/writer"]
    [refused] = [
        row
        for row in place.site.audit("publish-refused", rule="mediator.journal.disabled")
        if row["client"] == name
    ]
    assert refused["topic"] == reader.at(f"t/{name}")
    reader.disconnect()


def test_a_full_disk_refuses_qos_1_loses_nothing_and_goes_on(place: Place) -> None:
    reader = place.client("reader")
    into(reader, clean=False)
    reader.subscribe([("t/x", 1)])
    writer = place.client("writer")
    into(writer)
    writer.publish("t/x", b"before", 1, False)
    writer.await_("puback")
    pid = place.site.pid("mediator")
    whole = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    # Every write of the mediator to a file fails now; its sockets go on.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, whole[1]))
    try:
        writer.publish("t/x", b"kept back", 1, False)
        tried = 0

        def refused_now() -> bool:
            nonlocal tried
            tried += 1
            return _refused(writer)

        until("a notice", refused_now)
        assert "puback 2" not in writer.told
        writer.publish("t/x", b"at most once", 0, False)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, whole)
    until("what was kept back", lambda: "puback 2" in _told(writer))
    until("the record", lambda: place.site.audit("store-back"))
    assert place.site.audit("store-unavailable")
    refused = len(writer.notices)
    writer.publish("t/x", b"after", 1, False)
    last = f"puback {max(writer.sent)}"
    until("it to go on", lambda: last in _told(writer))
    assert len(writer.notices) == refused
    reader.sync()
    lines = [line.rpartition(" q")[0] for line in reader.got]
    # Those that came before it had noticed were taken, and kept back as well.
    taken = ["t/x refused"] * (tried - refused)
    assert lines == ["t/x before", "t/x kept back", *taken, "t/x at most once", "t/x after"]
    reader.disconnect()
    writer.disconnect()


def _told(writer: Sealed) -> list[str]:
    """All that it was told by now."""
    writer.send(b"\xc0\0")
    writer.await_("pingresp")
    return writer.told


def _refused(writer: Sealed) -> bool:
    """One more QoS 1 message is refused as unavailable."""
    writer.publish("t/x", b"refused", 1, False)
    _told(writer)
    return "mediator.publish.journal" in writer.notices
