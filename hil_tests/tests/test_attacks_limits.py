"""Claim 27: what one client can make the gateway keep is bounded, and the others go on.

The attackers are clients of a real site with small limits and a Mosquitto of its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sealmq_spec import purposes as say
from sealmq_spec.const import OP_COMMAND, OP_REPLY

from mqtt_peers import SYNC, Keeper, Sealed, Will, provisioned, twin
from running_site import Site, ran, sealmq, until
from wire import CONTROL, RawClient, mono, publish

LIMITS = """
[limits]
topics = 4
label_topics = 6
sessions = 2
queue_kib = 256
retained_mib = 1
"""
# Those that the tests need themselves stand in the file, where nothing limits them.
FIXED = f'''[topics]
"{SYNC}" = "m1-temp"
"loud-errands" = "m2-temp"
"other-errands" = "m2-temp"
"elsewhere-errands" = "m2-ctrl"
"willing-errands" = "m1-arm"
"m1-temp-errands" = "m1-temp"
"board-errands" = "ctrl-room-temp"
'''
CLIENT_FULL, LABEL_FULL = "labels.create.client-full", "labels.create.label-full"
RETAINED_FULL = "mediator.publish.retained-full"
SESSIONS_FULL = "mediator.connect.sessions-full"


class Place:
    """A site with limits; clients by name, label and identifier."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        self.site.edit("[topics]\n", FIXED)
        self.site.toml.write_text(self.site.toml.read_text() + LIMITS)
        self.site.up("--broker", "mosquitto")
        self._boots = itertools.count(1000)
        self._keeper: Keeper | None = None
        self._keeper = Keeper(lambda: self.client("marks", "m1-temp"))

    def client(self, name: str, label: str, identifier: str = "") -> Sealed:
        """A client of a boot session of its own."""
        file = self.site.clients / name / "sealmq.json"
        if not file.exists():
            self.site.enrol(name, label)
        raw = provisioned(self.site.port, file)
        raw.boot = next(self._boots)
        peer = Sealed(name, name, raw)
        peer.client_id = identifier or name
        peer.keeper = self._keeper
        return peer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("limits"))
    yield made
    made.site.down()


def into(peer: Sealed, clean: bool = True) -> bool:
    """Whether it is let in."""
    peer.told.clear()
    peer.connect(clean=clean)
    return peer.welcome


def created(peer: Sealed, *topics: str) -> int:
    """How many of these it may publish on."""
    before = len(peer.notices)
    for topic in topics:
        peer.publish(topic, b"x", 1, False)
    peer.settle()
    return len(topics) - (len(peer.notices) - before)


def test_a_client_creates_so_many_topics_and_no_more_and_a_label_too(place: Place) -> None:
    loud, other = place.client("loud", "m2-temp"), place.client("other", "m2-temp")
    elsewhere = place.client("elsewhere", "m2-ctrl")
    for peer in (loud, other, elsewhere):
        assert into(peer)
    assert created(loud, *(f"t/{n}" for n in range(30))) == 4
    assert set(loud.notices) == {CLIENT_FULL}
    assert created(loud, *(f"t/{n}" for n in range(4))) == 4, "those that are there go on"
    assert created(other, "t/a", "t/b", "t/c") == 2
    assert set(other.notices) == {LABEL_FULL}
    assert created(elsewhere, "t/a", "t/" + "b" * 400) == 1, "a long topic counts several times"
    assert created(elsewhere, "t/b", "t/c", "t/d") == 3, "another label has its own"
    labelled = place.site.audit("topic-labelled")
    assert len([row for row in labelled if row["client"] in ("loud", "other")]) == 6
    until("the record", lambda: place.site.audit("publish-refused", client="loud"))
    done = sealmq("topic", "list", place.site.path)
    assert done.returncode == 0
    assert done.stdout.count("loud/") == 4


def test_a_will_creates_no_topic_beyond_the_limit(place: Place) -> None:
    peer = place.client("willing", "m1-arm")
    assert into(peer)
    assert created(peer, "t/1", "t/2", "t/3", "t/4") == 4
    peer.disconnect()
    peer.told.clear()
    peer.connect(will=Will("t/5:gone:1"))
    assert not peer.welcome
    assert place.site.audit("topic-labelled", topic="willing/5") == []


def test_a_client_keeps_so_many_sessions_and_no_more(place: Place) -> None:
    for name in ("one", "two"):
        peer = place.client("keeper", "m1-temp", name)
        assert into(peer, clean=False)
        peer.disconnect()
    third = place.client("keeper", "m1-temp", "three")
    assert not into(third, clean=False)
    assert third.told == ["connack 5 present=0"]
    until("the record", lambda: place.site.audit("connect-refused", rule=SESSIONS_FULL))
    [row] = place.site.audit("connect-refused", rule=SESSIONS_FULL)
    assert "clean session" in row["reason"]
    assert into(place.client("keeper", "m1-temp", "three")), "a clean one is not kept"
    again = place.client("keeper", "m1-temp", "two")
    assert into(again, clean=False), "one that is kept comes back"
    assert into(place.client("another", "m1-temp"), clean=False), "another client has its own"
    ending = place.client("keeper", "m1-temp", "one")
    assert into(ending)
    ending.disconnect()
    until("room", lambda: into(place.client("keeper", "m1-temp", "three"), clean=False))


def test_the_broker_queues_so_many_for_a_session_and_no_more(place: Place) -> None:
    reader = place.client("sleeper", "m1-temp")
    assert into(reader, clean=False)
    reader.subscribe([("m1-temp/+", 1)])
    reader.sync()
    reader.disconnect()
    writer = place.client("m1-temp", "m1-temp")
    assert into(writer)
    for n in range(30):
        writer.publish("t/x", b"x" * (16_000 + n), 1, False)
    writer.settle()
    assert into(reader, clean=False)
    reader.sync()
    came = [int(line.split()[1]) - 16_000 for line in reader.got]
    # It looks at what waits before it adds to it: one message more than 256 KiB hold.
    assert came == list(range(256 * 1024 // 16_000 + 1))


def test_a_client_retains_so_many_bytes_and_no_more(place: Place) -> None:
    peer = place.client("board", "ctrl-room-temp")
    assert into(peer)

    def retained(topic: str, size: int) -> bool:
        before = len(peer.notices)
        peer.publish(topic, b"x" * size, 1, True)
        peer.settle()
        return len(peer.notices) == before

    assert retained("t/1", 600_000)
    assert not retained("t/2", 600_000)
    assert set(peer.notices) == {RETAINED_FULL}
    assert retained("t/1", 700_000), "it replaces what is there"
    assert retained("t/2", 100_000)
    assert retained("t/1", 0), "a clear"
    assert retained("t/3", 600_000)
    peer.publish("t/4", b"x" * 340_000, 0, True)
    peer.settle()
    peer.disconnect()
    peer.connect(will=Will(f"t/1:{'w' * 15_000}:1:r"))
    assert not peer.welcome, "nor does a will"
    until("the record", lambda: place.site.audit("connect-refused", rule=RETAINED_FULL))


def reserved(raws: list[RawClient], said: list[str]) -> int:
    """How many of these commands pass, sent at once over each of the connections."""
    for raw in raws:
        raw.notices.clear()
        body = bytes((OP_COMMAND, 8)) + b"purposes"
        packets = (raw.session.up(body + text.encode(), mono()) for text in said)
        raw.wire.send(b"".join(publish(CONTROL, packet) for packet in packets))
    answers = [raw.control(raw.next("an answer"))[0] for raw in raws for _ in said]
    return answers.count(OP_REPLY)


def test_a_client_stores_so_many_rows_of_a_family_and_no_more(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.purposes("\n[families.purposes]\n\n[limits]\nrows = 3\n")
    site.edit("# workers = 1\n", "workers = 2\n")
    site.up()
    try:
        loud = [provisioned(site.port, site.enrol("loud", "m1-temp"))]
        loud.append(twin(loud[0], site.clients / "loud" / "sealmq.json", 2))
        for n, raw in enumerate(loud):
            raw.client_id = b"loud-%d" % n
            raw.begin()
            raw.connect()
        first, second = loud
        news = [say.reserve(f"loud/{n}", ["care"]) for n in range(20)]
        assert reserved(loud, news[:10]) == 6, "the same three over both of them"
        told = {(notice[3], notice[4].split(" (")[0]) for raw in loud for notice in raw.notices}
        assert told == {("mediator.command.full", "a client keeps 3 rows at most")}
        assert reserved([second], news[10:]) == 0
        assert reserved([first], [say.presubscribe("loud", "x", "care")]) == 0, "of whatever kind"
        assert reserved([first], [say.reserve("loud/0", ["care"], ["ads"])]) == 1, "what is there"

        quiet = provisioned(site.port, site.enrol("quiet", "m1-temp"))
        quiet.connect()
        long = [f"{n:0>60}" for n in range(64)]
        assert reserved([quiet], [say.reserve("quiet/long", long)]) == 0, "one of 4 KiB counts 4"
        assert reserved([quiet], [say.reserve("quiet/0", ["care"])]) == 1, "another has its own"

        site.down()
        site.up()
        for raw in (first, quiet):
            raw.boot = 10
            raw.begin()
            raw.connect()
        assert reserved([first], news[10:]) == 0, "as before"
        assert reserved([first], [say.release("loud/1"), *news[10:]]) == 2, "room for one"
        assert reserved([quiet], [say.reserve("quiet/1", ["care"])]) == 1
        shown = json.loads(ran("purposes", "show", site.path, "--json"))
        assert json.dumps(shown).count("loud/") == 3
    finally:
        site.down()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("topics = -1", "0 to 1000000"),
        ("sessions = true", "0 to 1000"),
        ("queue_kib = 0", "256 to 1048576"),
        ("queue_messages = 9999", "10000 to 1000000"),
        ('journal_mib = "1"', "8 to 65536"),
        ("rows = 1000001", "0 to 1000000"),
        ("family_mib = 0", "1 to 65536"),
        ("topic = 5", "unknown key"),
    ],
)
def test_a_site_with_a_limit_that_is_none_does_not_start_and_is_told_the_line(
    tmp_path: Path, line: str, told: str
) -> None:
    site = Site(tmp_path)
    site.toml.write_text(site.toml.read_text() + f"\n[limits]\n{line}\n")
    done = sealmq("up", site.path)
    assert done.returncode != 0
    assert told in done.stderr
    assert line.split()[0] in done.stderr
    assert "line " in done.stderr
    assert "Traceback" not in done.stderr
