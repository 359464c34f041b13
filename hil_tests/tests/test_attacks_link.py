"""Attacks on what all clients share: the mediator's own connections to the broker (claim 24).

Mosquitto hangs up on topics with control characters, with noncharacters and of more than 201
levels. One client that sends such a thing must end nobody's connection but, at most, its own.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from attack_scene import DISCONNECT, LIVE, TOPIC, WILL, Scene, mosquitto, scene, with_will
from evil_path import Between, EvilPath, Packets
from running_site import Site, sealmq, until
from wire import RawClient, packet, publish, text

# What MQTT 1.5.3 advises against, the ends of each range; Mosquitto 2.0 hangs up on all of them.
ODD = ("\x01", "\n", "\x1f", "\x7f", "\x85", "\x9f", "\ufdd0", "\ufdef", "\ufffe", "\uffff",
       "\U0001fffe", "\U0010ffff")  # fmt: skip
# The most that Mosquitto takes, in levels.
LEVELS = 201
CHARACTERS, DEPTH = "mqtt.characters", "broker.takes.levels"
SUBSCRIBE = 2
QOS0, QOS1, QOS2, RETAIN = 0x30, 0x32, 0x34, 1
REFUSED = b"\0\x05"
POISON, OTHER = b"machine/1/arm/poison", b"machine/1/arm/other"


def deep(levels: int) -> str:
    """A topic of the first machine with so many levels."""
    return "/".join(["machine", "1", *["x"] * (levels - 2)])


BAD = [*((f"machine/1/a{odd}b", CHARACTERS) for odd in ODD), (deep(LEVELS + 1), DEPTH)]


@pytest.fixture(scope="module")
def on_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The factory on a private Mosquitto."""
    site = Site(tmp_path_factory.mktemp("link"))
    site.up("--broker", "mosquitto")
    with scene(site) as made:
        yield made
    site.down()


def unharmed(scene: Scene) -> None:
    """Nobody's connection has ended, the broker was never lost, and messages pass."""
    told = scene.heard()
    assert all(row[2] == LIVE for row in told)
    assert scene.site.audit("broker-away") == []
    assert all(p["ready"] for p in scene.site.status()["processes"])


def refusals(raw: RawClient) -> list[tuple[int, str]]:
    """(what, rule) of the notices so far, which are then forgotten."""
    raw.barrier()
    seen = [(notice[0], notice[3]) for notice in raw.notices]
    raw.notices.clear()
    return seen


def test_a_publish_on_a_topic_that_the_broker_does_not_take_is_refused(on_mosquitto: Scene) -> None:
    raw = on_mosquitto.client("m1-temp-sensor")
    raw.connect(keepalive=0)
    for topic, rule in BAD:
        for first in (QOS0, QOS0 | RETAIN, QOS1, QOS2):
            raw_topic = topic.encode()
            sealed = raw.seal(raw_topic, b"x", flags=first & 7, kind=first & 1)
            raw.wire.send(publish(raw_topic, sealed, first, 7 if first & 6 else 0))
            assert refusals(raw) == [(1, rule)], (topic, first)
    assert on_mosquitto.site.audit("topic-labelled", topic=BAD[1][0]) == []
    raw.publish(deep(LEVELS).encode(), b"as deep as can be")
    unharmed(on_mosquitto)


def test_a_will_on_a_topic_that_the_broker_does_not_take_is_refused(on_mosquitto: Scene) -> None:
    for topic, rule in BAD:
        raw = on_mosquitto.client("m1-temp-sensor")
        will = raw.seal(topic.encode(), b"x", kind=WILL, life=255)
        said = raw.connect(will=text(topic.encode()) + text(will), flags=0xCE)
        assert said == REFUSED, topic
        who = raw.client_id.decode()
        on_mosquitto.awaits("the refusal", "connect-refused", client_id=who, rule=rule)
    unharmed(on_mosquitto)


def test_an_identifier_that_the_broker_does_not_take_is_refused(on_mosquitto: Scene) -> None:
    for odd in ODD:
        for flags in (0xC2, 0xC0):
            raw = on_mosquitto.client("m1-temp-sensor")
            raw.client_id = f"a{odd}b".encode()
            assert raw.connect(flags=flags) == REFUSED, odd
    with sqlite3.connect(on_mosquitto.site.path / "state/mediator/mediator.db") as db:
        assert db.execute("select * from kept where client_id like 'a%'").fetchall() == []
    unharmed(on_mosquitto)


def test_a_filter_that_the_broker_does_not_take_is_refused(on_mosquitto: Scene) -> None:
    raw = on_mosquitto.client("m1-control-panel")
    raw.connect(keepalive=0)
    for filt, rule in [*BAD, (deep(LEVELS) + "/#", DEPTH), ("@sm1/\x01", CHARACTERS)]:
        for op, first in ((0, 0x82), (1, 0xA2)):
            with_token, _ = raw.session.token(filt, 0, op)
            qos = b"\0" if op == 0 else b""
            raw.wire.send(packet(first, b"\0\x09" + text(with_token.encode()) + qos))
            answers = raw.barrier()
            want = (0x90, b"\0\x09\x80") if op == 0 else (0xB0, b"\0\x09")
            assert answers == [want], (filt, op)
            if op == 0 or not filt.startswith("@"):
                assert refusals(raw) == [(SUBSCRIBE + op, rule)], (filt, op)
            raw.notices.clear()
    raw.subscribe(deep(LEVELS))
    unharmed(on_mosquitto)


def test_the_embedded_broker_s_clients_are_refused_the_same_characters(shared_site: Site) -> None:
    """So that a site can change its broker. It takes more levels."""
    with scene(shared_site) as made:
        raw = made.client("m1-temp-sensor")
        raw.connect(keepalive=0)
        for odd in ODD:
            topic = f"machine/1/a{odd}b".encode()
            raw.wire.send(publish(topic, raw.seal(topic, b"x"), QOS1, 7))
            assert refusals(raw) == [(1, CHARACTERS)], odd
        raw.publish(deep(500).encode(), b"deep")
        assert raw.notices == []
        unharmed(made)


@pytest.mark.parametrize(
    "limit",
    ["max_packet_size 100000", pytest.param("message_size_limit 100000", marks=pytest.mark.full)],
)
def test_a_message_that_is_too_large_for_the_broker_is_refused(
    site: Site, tmp_path: Path, limit: str
) -> None:
    """Mosquitto hangs up on it with the one setting, and drops it without a word with the other."""
    with mosquitto(tmp_path, limit) as broker:
        site.up("--broker", f"mqtt://127.0.0.1:{broker.port}")
        with scene(site) as made:
            raw = made.client("m1-temp-sensor")
            raw.connect(keepalive=0)
            for size, rules in ((99_000, []), (100_000, [(1, "broker.takes.size")])):
                sealed = raw.seal(TOPIC, bytes(size))
                raw.wire.send(publish(TOPIC, sealed, QOS1, 7))
                until_told = raw.acknowledged() if not rules else None
                assert refusals(raw) == rules, (size, until_told)
            told = made.heard()
            assert [(row[0], len(row[1])) for row in told] == [(TOPIC, 99_000)]
            unharmed(made)
        site.down()


class Stricter:
    """A broker that from some moment on hangs up on what it took before, as after an update:
    Mosquitto, and a path to it that ends each connection on which POISON comes.
    """

    def __init__(self, path: EvilPath) -> None:
        self._path = path
        self.strict = False
        path.up = self._up

    def _up(self, line: Between, first: int, body: bytes) -> Packets:
        if self.strict and first & 0xF0 == 0x30 and POISON in body[: 2 + len(POISON)]:
            line.close()
            return []
        return [(first, body)]

    def lost(self) -> None:
        """Ends all connections."""
        for line in self._path.lines:
            line.close()


@pytest.fixture
def stricter(site: Site, tmp_path: Path) -> Iterator[tuple[Scene, Stricter]]:
    """The factory, with that broker."""
    with mosquitto(tmp_path) as broker:
        path = EvilPath(broker.port)
        try:
            site.up("--broker", f"mqtt://127.0.0.1:{path.port}")
            with scene(site) as made:
                yield made, Stricter(path)
            site.down()
        finally:
            path.close()


def noted(site: Site) -> str:
    """What the status says of a mediator that is ready; else ""."""
    [mediator] = [p for p in site.status()["processes"] if p["role"] == "mediator"]
    return (mediator["note"] or "") if mediator["ready"] else ""


def set_aside(site: Site, client: str) -> None:
    """The poison is, with its name, in the audit, in the status and in a file."""
    until("it to be set aside", lambda: site.audit("message-set-aside", client=client))
    [row] = site.audit("message-set-aside")
    assert row["topic"] == POISON.decode()
    folder = site.path / "state/mediator/aside"
    [file] = until("its file", lambda: list(folder.glob("*.json")))
    told = json.loads(file.read_text())
    assert (told["client"], told["topic"]) == (client, POISON.decode())

    what = rf"messages set aside.*: 1 in .* {client} on {POISON.decode()}"
    until("the status to name it", lambda: re.search(what, noted(site)))


def test_a_journalled_message_that_ends_the_link_is_set_aside_and_the_rest_goes_on(
    stricter: tuple[Scene, Stricter],
) -> None:
    scene, broker = stricter
    site = scene.site
    raw = scene.client("m1-arm-operator")
    raw.connect(keepalive=0)
    for n in range(40):
        raw.publish(POISON if n == 20 else OTHER, b"%d" % n)
    assert raw.notices == []
    broker.strict = True
    site.kill("mediator")
    broker.lost()
    until("everybody to be served again", lambda: site.status()["processes"][2]["ready"])
    set_aside(site, "m1-arm-operator")
    scene.gather()
    assert raw.connect(keepalive=0) == b"\0\0"
    raw.publish(OTHER, b"afterwards")
    assert raw.notices == []
    assert (OTHER, b"afterwards", LIVE) in scene.heard()
    # Nor is it tried again when the site starts anew.
    losses = len(site.audit("broker-away"))
    site.down()
    site.up("--broker", f"mqtt://127.0.0.1:{broker._path.port}")
    assert len(site.audit("broker-away")) == losses
    assert len(site.audit("message-set-aside")) == 1


def test_a_will_that_ends_the_link_is_set_aside_and_nobody_else_notices(
    stricter: tuple[Scene, Stricter],
) -> None:
    scene, broker = stricter
    site = scene.site
    first = scene.client("m1-arm-operator")
    first.connect(keepalive=0)
    first.publish(POISON, b"labelled")
    first.wire.send(DISCONNECT)
    raw = scene.client("m1-arm-operator")
    with_will(raw, POISON, b"last words")
    broker.strict = True
    scene.cut(raw)
    set_aside(site, "m1-arm-operator")
    other = scene.client("m1-temp-sensor")
    other.connect(keepalive=0)
    other.publish(TOPIC, b"goes on")
    assert (TOPIC, b"goes on", LIVE) in scene.heard()
    assert site.audit("broker-away") == []
    with sqlite3.connect(site.path / "state/mediator/mediator.db") as db:
        assert db.execute("select count(*) from wills").fetchone() == (0,)


def test_a_will_that_an_older_version_has_taken_does_not_stop_the_site(site: Site) -> None:
    """It took topics at which Mosquitto hangs up, and tried to publish the will for ever."""
    bad = "machine/1/a\x01b"
    site.up("--broker", "mosquitto")
    with scene(site) as made:
        raw = made.client("m1-temp-sensor")
        raw.connect(keepalive=0)
        raw.publish(b"machine/1/old", b"labelled")
        raw.wire.send(DISCONNECT)
        raw = made.client("m1-temp-sensor")
        with_will(raw, b"machine/1/old", b"last words")
        site.down()
    with sqlite3.connect(site.path / "state/mediator/mediator.db") as db:
        assert db.execute("update wills set topic = ?", (bad,)).rowcount == 1
        old = "from topics where topic = 'machine/1/old'"
        db.execute(f"insert into topics select ?, label, client, at_ms {old}", (bad,))
    site.up("--broker", "mosquitto")
    until("it to be set aside", lambda: site.audit("message-set-aside", client="m1-temp-sensor"))
    [row] = site.audit("message-set-aside")
    assert row["topic"] == bad
    with scene(site) as made:
        unharmed(made)
    until("the status to name it", lambda: r"-sensor on machine/1/a\x01b" in noted(site))
    assert "\x01" not in sealmq("status", site.path).stdout


def no_mediator(line: Between, first: int, body: bytes) -> Packets:
    """Hangs up on the mediator's own connection."""
    if b"/mediator-" in body:
        line.close()
        return []
    return [(first, body)]


def test_status_says_that_nobody_can_connect(site: Site, tmp_path: Path) -> None:
    """The broker takes connections, and hangs up on the mediator's own."""
    with mosquitto(tmp_path) as broker:
        path = EvilPath(broker.port)
        try:
            site.up("--broker", f"mqtt://127.0.0.1:{path.port}")
            path.up = no_mediator
            for line in path.lines:
                line.close()

            def mediator() -> str:
                [found] = [p for p in site.status()["processes"] if p["role"] == "mediator"]
                return "" if found["ready"] else found["note"] or ""

            until("the status to say so", lambda: "nobody can connect: " in mediator())
            assert sealmq("status", site.path).returncode != 0
            path.honest()
            until("all to be ready", lambda: sealmq("status", site.path).returncode == 0)
        finally:
            site.down()
            path.close()


def test_one_session_that_cannot_be_ended_leaves_the_others_to_be_ended(site: Site) -> None:
    """As in a store of an older version, which took identifiers at which Mosquitto hangs up."""
    site.up("--broker", "mosquitto")
    with scene(site) as made:
        number = made.client("m1-control-panel").ident.client
        for name in (b"one", b"two"):
            raw = made.client("m1-control-panel")
            raw.client_id = name
            assert raw.connect(flags=0xC0, keepalive=0) == b"\0\0"
            raw.wire.send(DISCONNECT)
    site.down()
    store = site.path / "state/mediator/mediator.db"
    with sqlite3.connect(store) as db:
        db.execute("insert into kept (client, client_id, gen) values (?, 'a\x01', 1)", (number,))
        rows = db.execute("select client_id from kept").fetchall()
    assert sorted(rows) == [("a\x01",), ("one",), ("two",)]
    with sqlite3.connect(store) as db:  # the bad one comes first
        gens = dict(db.execute("select client_id, gen from kept").fetchall())
        db.execute("delete from kept")
        for text_id in ("a\x01", "one", "two"):
            row = number, text_id, gens[text_id]
            db.execute("insert into kept (client, client_id, gen) values (?, ?, ?)", row)
    site.up("--broker", "mosquitto")
    done = sealmq("client", "disable", site.path, "m1-control-panel")
    assert done.returncode == 0, done.stderr

    def left() -> list[str]:
        with sqlite3.connect(store) as db:
            return [row[0] for row in db.execute("select client_id from kept")]

    until("the others to be ended", lambda: left() == ["a\x01"])
    until(
        "it to be named",
        lambda: any(
            "its session 'a\\x01' is not ended" in row["reason"]
            for row in site.audit("broker-away", client="m1-control-panel")
        ),
    )

    what = r"old sessions that are not ended at the broker yet: 1, a\x01 of m1-control-panel"
    until("the status to name it", lambda: what in noted(site))
