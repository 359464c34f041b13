"""Claims 1, 2, 6 and 13: what keys open that someone holds, or held until he was put out.

The attacker has every key that he ever had, everything that was ever public, and the broker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sealmq_spec.const import OP_EPOCH, OP_RECORD
from sealmq_spec.errors import Denied, SealError
from sealmq_spec.reader import Reader

from attack_scene import KEPT, LIVE, QOS1, TOPIC, Listener, answer, notices, pid_of
from devices import device
from evil_path import Between, EvilPath, Packets, is_down
from evil_scene import EvilScene, evil_scene
from evil_seals import Sender, m1, m3, m3_head, now_of, outer
from evil_solver import Public
from running_site import sealmq, until
from test_attacks_time import keys_of
from wire import Cipher, RawClient, Wire, connect, mono, publish

EPOCH = 6
ANGLE = b"machine/1/arm/angle"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvilScene]:
    """A site of its own: its keys change."""
    with evil_scene(tmp_path_factory.mktemp("keys")) as made:
        yield made


def public(scene: EvilScene) -> Public:
    """All that ever passed the broker."""
    site = scene.listener.raw.ident.site
    return Public(site, ((p.topic, p.payload) for p in scene.evil.published))


def anew(scene: EvilScene, name: str) -> RawClient:
    """A client with the newest keys, connected."""
    made = scene.renewed(name)
    made.connect(keepalive=0)
    return made


def held_by(raw: RawClient, seen: Public) -> set[bytes]:
    """Everything secret that a client ever has, and what its records give it."""
    i = raw.ident
    reader = Reader(i, Cipher)
    for record in seen.records:
        try:
            reader.add(record)
        except SealError:
            continue
    roots = {r for own in reader._roots.values() for r in (own.r, own.r_bar)}
    return roots | {i.ps, i.km}


def ordered(scene: EvilScene, *arguments: object) -> None:
    """A command of the operator's."""
    done = sealmq(*arguments)
    assert done.returncode == 0, done.stderr


def say(scene: EvilScene, topic: bytes, name: str, payload: bytes) -> tuple[bytes, bytes]:
    """An honest message with the newest keys, as the broker has it."""
    sender = anew(scene, name)
    scene.gather()
    scene.heard()
    return topic, scene.caught(topic, payload, sender)


def test_lower_keys_open_nothing_above(scene: EvilScene) -> None:
    """The sensor's keys and everything public, against messages of labels above and beside."""
    mine = say(scene, TOPIC, "m1-temp-sensor", b"mine")
    above = say(scene, ANGLE, "m1-control-panel", b"above")
    beside = say(scene, b"east/x", "east-sensor", b"beside")
    seen = public(scene)
    sensor = scene.client("m1-temp-sensor")
    known = seen.follow(held_by(sensor, seen))
    assert mine in seen.opened(known), "the solver is able"
    assert seen.opened(known) & {above, beside} == set()
    # From above the same sums lead down.
    panel = seen.follow({scene.client("m1-control-panel").ident.own.r})
    assert mine in seen.opened(panel)
    # Nor does the mediator hand it what leads there, or let it hear it.
    sensor = anew(scene, "m1-temp-sensor")
    sensor.subscribe("#")
    label = scene.client("m1-control-panel").ident.own.label
    sensor.wire.send(publish(b"!c1", sensor.session.fetch(label, mono())))
    assert sensor.barrier() == []
    assert [n[2] for n in notices(sensor)] == [5]
    say(scene, ANGLE, "m1-control-panel", b"not for you")
    topics = [got[1][2 : 2 + got[1][1]] for got in sensor.barrier() if got[0] & 0xF0 == 0x30]
    assert ANGLE not in topics


def test_who_was_put_out_opens_nothing_new(scene: EvilScene) -> None:
    old = say(scene, TOPIC, "m1-temp-sensor", b"before")
    panel = anew(scene, "m1-control-panel")
    panel.subscribe("#")
    had = held_by(panel, public(scene))
    ordered(scene, "client", "disable", scene.site.path, "m1-control-panel")
    assert panel.wire.closed(), "live connections end"
    new = {
        say(scene, TOPIC, "m1-temp-sensor", b"after"),
        say(scene, b"machine/1/new", "m1-temp-sensor", b"a new topic"),
    }
    seen = public(scene)
    known = seen.follow(had)
    assert old in seen.opened(known), "what it could read it can still read"
    assert seen.opened(known) & new == set()
    _stays_out(panel)


def _stays_out(raw: RawClient) -> None:
    """Neither its proof nor its secret lets it in."""
    assert raw.connect() == b"\0\x05"
    with pytest.raises((Denied, AssertionError)):
        raw.provision()


def test_nor_behind_a_restored_key_generator(scene: EvilScene) -> None:
    """Backup, revocation, restore: neither key, number nor kid comes back, and it stays out."""
    backup = scene.site.path.parent / "site.backup"
    ordered(scene, "backup", scene.site.path, backup)
    operator = anew(scene, "m1-arm-operator")
    ordered(scene, "client", "disable", scene.site.path, "m1-arm-operator")
    assert operator.wire.closed()
    for _ in range(3):
        ordered(scene, "rekey", scene.site.path, "--label", "m1-temp", "--handover", 0)
    between = anew(scene, "m1-temp-sensor")
    had = held_by(operator, public(scene)) | held_by(between, public(scene))
    before = public(scene)
    scene.stop()
    ordered(scene, "restore", scene.site.path, backup)
    scene.start()
    new = {say(scene, TOPIC, "m1-temp-sensor", b"restored")}
    seen = public(scene)
    assert seen.opened(seen.follow(had - {between.ident.ps})) & new == set()
    _stays_out(operator)
    fresh = seen.records - before.records
    assert len(fresh) >= 10
    assert not _kids(fresh) & _kids(before.records), "a kid comes back"
    assert not _epochs(fresh) & _epochs(before.records), "an epoch comes back"
    insts = [{m[8:11] for _, m in p.messages} for p in (before, seen)]
    assert insts[1] - insts[0]
    sensor = scene.client("m1-temp-sensor")
    assert sensor.ident.gen > between.ident.gen
    assert sensor.ident.kseq > between.ident.kseq


def _kids(records: set[bytes]) -> set[bytes]:
    return {r[i : i + 8] for r in records for i in (14, 22)}


def _epochs(records: set[bytes]) -> set[bytes]:
    """Target label and epoch of derivations; back-links lead to old ones."""
    return {r[2:8] for r in records if r[2:5] != r[8:11]}


def test_an_old_epoch_ends(scene: EvilScene) -> None:
    """For a publisher, and for a broker that kept a message or got the old keys."""
    scene.gather()
    scene.heard()
    sensor = anew(scene, "east-sensor")
    kept = scene.caught(b"east/x", b"kept", sensor)
    roots = sensor.ident.own
    ordered(scene, "rekey", scene.site.path, "--label", "east", "--handover", 0)
    _told_of_an_epoch(sensor)
    before = len(scene.evil.published)
    sensor.wire.send(publish(b"east/x", sensor.seal(b"east/x", b"old epoch"), QOS1, 1))
    assert answer(sensor) == (0x40, pid_of(1))
    assert [n[2] for n in notices(sensor)] == [EPOCH]
    fresh = say(scene, b"east/y", "east-sensor", b"new epoch")[1]
    assert fresh[5:8] > kept[5:8]
    assert [p.payload for p in scene.evil.published[before:] if p.topic == b"east/x"] == []
    # The reader has the new records; what it held of the old epoch is over for live messages.
    site, ms = sensor.ident.site, now_of(scene.listener.raw) * 1000
    head = m3_head(roots, ms)
    inner = m1(site, roots, Sender.of(sensor), b"east/x", b"forged", 900, now_of(sensor))
    cipher = outer(site, roots, int.from_bytes(head[8:11], "big"))
    scene.to_reader(b"east/x", m3(site, head, cipher, b"east/x", inner))
    assert LIVE not in [how for _, payload, how in scene.heard() if payload == b"forged"]


def test_an_epoch_that_is_long_over_seals_nothing_new(scene: EvilScene) -> None:
    """Not even as something that comes late: its mediators had stopped by then."""
    sensor = anew(scene, "east-sensor")
    epochs = [sensor.ident.own]
    for _ in range(2):
        ordered(scene, "rekey", scene.site.path, "--label", "east", "--handover", 0)
        sensor = anew(scene, "east-sensor")
        epochs.append(sensor.ident.own)
    scene.later(130)
    scene.heard()
    site, now = sensor.ident.site, now_of(scene.listener.raw)
    for ctr, roots in enumerate(epochs[:2], 1):
        head = m3_head(roots, now * 1000)
        name = Sender.of(sensor)._replace(boot=6000)
        inner = m1(site, roots, name, b"east/x", b"forged", ctr, now)
        cipher = outer(site, roots, int.from_bytes(head[8:11], "big"))
        scene.to_reader(b"east/x", m3(site, head, cipher, b"east/x", inner))
    assert scene.heard() == []


def _told_of_an_epoch(raw: RawClient) -> None:
    """Op 4 has come."""
    while True:
        if raw.control(raw.next("the news of an epoch"))[0] == 4:
            return


def test_a_record_of_an_old_epoch_comes_again(scene: EvilScene) -> None:
    """From a dishonest mediator, or from the topics under @sm1: a reader that has seen newer ones
    goes on with these.
    """
    old = public(scene).records
    say(scene, b"west/x", "west-sensor", b"old epoch")
    ordered(scene, "rekey", scene.site.path, "--label", "west", "--handover", 0)
    say(scene, b"west/x", "west-sensor", b"new epoch")
    west = scene.client("west-sensor").ident.own.label
    reader = scene.listener.reader
    newest = scene.roots(west)
    assert newest.epoch > 1
    raw = scene.listener.raw
    raw.subscribe("@sm1/#")
    scene.heard()
    for record in old:
        if int.from_bytes(record[2:5], "big") == west:
            scene.to_reader(
                b"@sm1/z/%d/%d" % (int.from_bytes(record[8:11], "big"), west), record, 0x31
            )
            with pytest.raises(SealError):
                reader.add(record)
    scene.heard()
    assert reader._now[west][0] == newest.epoch
    sender = anew(scene, "west-sensor")
    scene.caught(b"west/x", b"still read", sender)


def test_a_session_kept_by_a_stolen_secret(scene: EvilScene) -> None:
    """Rotated: the broker's session of who stole it goes to nobody, and gets nothing more."""
    thief = scene.client("m2-control-panel")
    name = thief.client_id
    thief.connect(flags=KEPT)
    thief.subscribe("machine/2/#", 1)
    thief.close()
    file = scene.site.path.parent / "rotated.json"
    ordered(scene, "client", "rotate", scene.site.path, "m2-control-panel", "-o", file)
    honest = RawClient(scene.site.port, file)
    honest.client_id = name
    honest.boot = 1
    honest.begin()
    assert honest.connect(flags=KEPT) == b"\0\0", "no session of the thief's is present"
    until("the end of the thief's session", lambda: _no_filters(scene, name))
    assert thief.connect() == b"\0\x05"
    wire = Wire(scene.site.port)
    wire.send(connect(name, os.urandom(20)))
    assert wire.closed()
    honest.close()


def _no_filters(scene: EvilScene, name: bytes) -> bool:
    return not scene.evil.filters(name.decode())


def test_the_news_of_an_epoch_is_withheld(scene: EvilScene, tmp_path: Path) -> None:
    """Op 4 and op 5 dropped on the way: no message goes out under keys that are over, and a device
    that is refused for its epoch gets the new one and says it again.
    """
    path = EvilPath(scene.site.port)
    file = path.enrolment(scene.enrolment("m1-device"), tmp_path / "device")
    with device(file) as board:
        board.publish(TOPIC.decode(), "before")
        ident = keys_of(file)

        def deaf(line: Between, first: int, body: bytes) -> Packets:
            if is_down(first, body):
                _, inner = line.opened(ident, body)
                if inner[0] in (OP_EPOCH, OP_RECORD):
                    return []
            return [(first, body)]

        path.down = deaf
        manifest = b"@sm1/m/%d" % ident.own.label
        # Others have changed the scene's keys before.
        manifests = len(scene.evil.seen(manifest))
        ordered(scene, "rekey", scene.site.path, "--label", "m1-temp", "--handover", 0)
        until("the new manifest", lambda: len(scene.evil.seen(manifest)) > manifests)
        before = len(scene.evil.seen(TOPIC))
        board.publish(TOPIC.decode(), "behind")
        path.honest()
    path.close()
    sealed = scene.evil.seen(TOPIC)[before:]
    assert len(sealed) == 1
    assert int.from_bytes(sealed[0][5:8], "big") > ident.own.epoch
    scene.gather()
    scene.heard()


def test_old_keys_on_the_way_to_a_reader(scene: EvilScene) -> None:
    """Nothing but an m3 comes to a reader, so whoever has a label's keys and the network in front
    of a reader speaks for that label, past mediator and broker. When he is put out, that ends.
    """
    path = EvilPath(scene.site.port)
    scene.gather()
    reader = scene.client("monitor")
    reader.port = path.port
    scene.listener = Listener(reader, "#")
    scene.heard()
    insider = anew(scene, "west-sensor")
    site, old = insider.ident.site, insider.ident.own
    scene.roots(old.label)

    def inject(ctr: int) -> None:
        head = m3_head(old, now_of(reader) * 1000)
        name = Sender.of(insider)._replace(boot=5000)
        inner = m1(site, old, name, b"west/x", b"forged", ctr, now_of(reader))
        cipher = outer(site, old, int.from_bytes(head[8:11], "big"))
        line = next(line for line in path.lines if line.sent_up)
        line.to_client(publish(b"west/x", m3(site, head, cipher, b"west/x", inner)))

    inject(1)
    assert scene.heard() == [(b"west/x", b"forged", LIVE)], "documented, not prevented"
    ordered(scene, "rekey", scene.site.path, "--label", "west", "--handover", 0)
    scene.caught(b"west/x", b"new epoch", anew(scene, "west-sensor"))
    inject(2)
    assert scene.refuses("WrongEpoch")
    path.close()
    scene.gather()
