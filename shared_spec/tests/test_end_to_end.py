"""A reading from a Session through a mediator to a Reader, and what must not pass there."""

from __future__ import annotations

import os

import pytest

from sealmq_spec import const
from sealmq_spec.errors import Misuse, NoKey, Replay, Stale, Unauthentic, WrongEpoch
from sealmq_spec.identity import Identity
from sealmq_spec.reader import Reader
from sealmq_spec.records import Roots, make_record
from sealmq_spec.session import Session
from spec_cipher import make
from spec_people import MEDIATOR, NOW, SITE, Mediator, new_identity, new_roots, publish

TOPIC = "machine/1/größe".encode()
SUITES = [(1, 1), (2, 2), (1, 2), (2, 1)]


def order(seq: int) -> bytes:
    """The KG's numbers."""
    return b"\x00\x00\x02" + (NOW * 1000).to_bytes(6, "big") + seq.to_bytes(3, "big")


def record(top: Roots, n: Roots, kseq: int = 1, end: int = 0) -> bytes:
    """A record with fresh kids."""
    return make_record(make, SITE, top, n, os.urandom(8), os.urandom(8), kseq, end, order(kseq))


class World:
    """A sensor at `low`, readers at `low` and above it."""

    def __init__(self, link_suite: int = 1, label_suite: int = 1) -> None:
        self.low = new_roots(17, 1, label_suite)
        self.high = new_roots(16, 1, label_suite)
        self.mediator = Mediator()
        ident = new_identity(7, self.low, link_suite)
        self.sensor = Session(ident, make, 1, os.urandom(8))
        self.mediator.welcome(self.sensor)
        self.beside = Reader(new_identity(8, self.low), make)
        self.above = Reader(new_identity(9, self.high), make)

    def m3(self, plain: bytes, **how: int) -> bytes:
        """One message on its way to the readers."""
        flags = how.get("flags", 0)
        packet = publish(self.sensor, TOPIC, plain, flags=flags, kind=how.get("kind", 0))
        body = self.mediator.open_m2(self.sensor, packet, TOPIC, flags)
        return self.mediator.seal_m3(self.low, TOPIC, body, how.get("how", 0))


@pytest.mark.parametrize(("link", "label"), SUITES)
@pytest.mark.parametrize("size", [0, 1, 16, 1000])
def test_a_reading_arrives(link: int, label: int, size: int) -> None:
    world = World(link, label)
    plain = os.urandom(size)
    packet = world.m3(plain)
    assert len(packet) - size == 80
    world.above.add(record(world.high, world.low))
    for reader in (world.beside, world.above):
        message = reader.open(TOPIC, bytearray(packet), NOW * 1000 + 500)
        assert message.payload == plain
        assert (message.label, message.sender, message.age, message.how) == (17, 7, 0, 0)
        with pytest.raises(Replay):
            reader.open(TOPIC, bytearray(packet), NOW * 1000 + 600)


def test_who_lacks_the_label_opens_nothing() -> None:
    world = World()
    packet = world.m3(b"secret")
    stranger = Reader(new_identity(10, new_roots(18)), make)
    with pytest.raises(NoKey):
        stranger.open(TOPIC, bytearray(packet), NOW * 1000)
    guess = Reader(new_identity(10, new_roots(17)), make)
    with pytest.raises(Unauthentic):
        guess.open(TOPIC, bytearray(packet), NOW * 1000)


def test_refused_packets_leave_no_trace() -> None:
    world = World()
    good = world.m3(b"good")
    for at in range(len(good)):
        wrong = bytearray(good)
        wrong[at] ^= 0x10
        with pytest.raises((Unauthentic, NoKey, Stale, Exception)) as caught:
            world.beside.open(TOPIC, wrong, NOW * 1000)
        assert type(caught.value).__module__ == "sealmq_spec.errors"
    reader = world.beside
    assert not reader._windows
    assert not reader._kept.of
    assert not reader._outer
    assert not reader._inner
    assert not reader._tails
    assert reader.open(TOPIC, bytearray(good), NOW * 1000).payload == b"good"


def test_everything_remembered_is_bounded() -> None:
    world = World()
    reader = Reader(new_identity(8, world.low), make, limit=4)
    for n in range(20):
        ident = new_identity(100 + n, world.low)
        session = Session(ident, make, 1, os.urandom(8))
        world.mediator.ms += 1000
        world.mediator.welcome(session)
        topic = b"t/%d" % n
        packet = publish(session, topic, b"x", flags=1, kind=const.RETAINED, life=255)
        body = world.mediator.open_m2(session, packet, topic, 1)
        sent = world.mediator.seal_m3(world.low, topic, body)
        assert reader.open(topic, bytearray(sent), world.mediator.ms).sender == 100 + n
    kept = reader._windows, reader._kept.of, reader._inner, reader._outer, reader._roots
    sizes = [len(some) for some in (*kept, reader._tails)]
    assert max(sizes) <= 4
    assert reader.floor >= NOW + 15


def test_what_was_seen_of_other_labels_survives_a_new_generation() -> None:
    world = World()
    reader = world.above
    old, new = world.low, new_roots(17, 2)
    reader.add(record(world.high, old, 1))
    reader.add(record(world.high, new, 2))
    reader.reset()
    with pytest.raises(Exception, match="seen: 2"):
        reader.add(record(world.high, old, 3))
    reader.add(record(world.high, new, 2))
    reader.ident.own = new_roots(16, 2)
    reader.reset()
    with pytest.raises(WrongEpoch):
        reader.add(record(world.high, new, 2))


def test_counters_end() -> None:
    world = World()
    world.sensor.ctr = const.U24 - 1
    world.m3(b"last")
    with pytest.raises(Misuse, match="is left"):
        publish(world.sensor, TOPIC, b"x")
    with pytest.raises(Misuse, match="is left"):
        world.sensor.token("a/b")
    with pytest.raises(Misuse, match="is left"):
        world.sensor.fetch(17, 0)
    world.sensor.conn = const.U24
    with pytest.raises(Misuse, match="is left"):
        world.sensor.begin_connect(False)


def test_a_client_without_roots_sends_nothing() -> None:
    ident = new_identity(7, new_roots(17))
    ident.gen, ident.own, ident.km = 0, None, b""
    session = Session(ident, make, 1, os.urandom(8))
    assert len(session.begin_connect(True)) == 32
    with pytest.raises(Misuse):
        session.token("a/b")
    with pytest.raises(Misuse):
        publish(session, TOPIC, b"x")


def flipped(blob: bytes, at: int) -> bytes:
    """The blob with one bit changed."""
    return blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]


def test_state_that_is_torn_or_another_enrolments_is_not_loaded() -> None:
    ident = new_identity(7, new_roots(17))
    blob = ident.dump()

    def held(site: bytes = SITE, client: int = 7, ps: bytes = ident.ps) -> Identity:
        other = Identity(site, client, MEDIATOR, ps)
        other.gen, other.kseq, other.km, other.own = 1, 1, os.urandom(32), new_roots(18)
        return other

    for other, blobs in (
        (held(), [blob[:-1], b"", *(flipped(blob, at) for at in range(len(blob)))]),
        (held(site=b"else"), [blob]),
        (held(client=8), [blob]),
        (held(ps=os.urandom(32)), [blob]),
    ):
        before = other.dump()
        assert not any(other.load(wrong) for wrong in blobs)
        assert other.dump() == before
    other = held()
    assert other.load(blob)
    assert other.dump() == blob
