"""What a mediator accepts as m2 and makes of it (SPEC.md 6.1, GATEWAY.md G2): one defect each."""

from __future__ import annotations

import pytest

from mediator_world import HIGH, LOW, NOW_MS, PANEL, SENSOR, SIBLING, World, sealed
from sealmq.aead import make
from sealmq.mediator.core.boots import BootSession
from sealmq.mediator.core.wrap import (
    Opened,
    is_fresh,
    look_m3,
    open_m2,
    open_m3,
    rewrap,
    seal_m3,
    verify_m2,
)
from sealmq.order import Order
from sealmq_spec import errors
from sealmq_spec.const import CLEAR, LIVE, QUEUED, RETAINED, USE_PUBLISH, WILL
from sealmq_spec.envelope import nonce_link, nonce_m1, put_m1, put_m2, seal_at, tail_m1, tail_m2
from sealmq_spec.keys import inner_key
from sealmq_spec.reader import Reader
from sealmq_spec.session import Session
from sealmq_spec.window import WIDTH

TOPIC = "machine/1/temperature"
NOW = NOW_MS // 1000


def opened(
    world: World,
    session: Session,
    payload: bytes,
    topic: str = TOPIC,
    flags: int = 2,
    now: int = NOW,
    link: BootSession | None = None,
) -> Opened:
    link = link or world.link(session)
    client = world.ring.clients[session.ident.client]
    verified = verify_m2(link, topic.encode(), payload, flags & 7)
    return open_m2(link, world.ring, client, verified, flags, now)


@pytest.mark.parametrize("suites", [(1, 1, 1), (2, 2, 2), (1, 2, 2), (2, 1, 1)])
@pytest.mark.parametrize("payload", [b"", b"21.5", b"x" * 70_000])
def test_a_message_reaches_a_reader_above(suites: tuple[int, int, int], payload: bytes) -> None:
    world = World(*suites)
    session = world.session(SENSOR)
    m2 = opened(world, session, sealed(session, TOPIC, payload))
    label = world.ring.labels[LOW]
    m3 = seal_m3(world.ring, label, Order(9), LIVE, TOPIC.encode(), m2.body, NOW_MS)
    assert len(m3) - len(payload) == 80
    assert payload == b"" or payload not in m3
    reader = Reader(world.identities[PANEL], make)
    with pytest.raises(errors.NoKey):
        reader.open(TOPIC.encode(), bytearray(m3), NOW_MS)
    reader.add_record(world.record)
    message = reader.open(TOPIC.encode(), bytearray(m3), NOW_MS)
    assert (message.payload, message.label, message.sender) == (payload, LOW, SENSOR)
    with pytest.raises(errors.Replay):
        reader.open(TOPIC.encode(), bytearray(m3), NOW_MS)


def test_a_reader_below_opens_nothing() -> None:
    world = World()
    session = world.session(PANEL)
    m2 = opened(world, session, sealed(session, TOPIC, b"secret"))
    label = world.ring.labels[HIGH]
    m3 = seal_m3(world.ring, label, Order(9), LIVE, TOPIC.encode(), m2.body, NOW_MS)
    reader = Reader(world.identities[SENSOR], make)
    with pytest.raises(errors.NoKey):
        reader.add_record(world.record)
    with pytest.raises(errors.NoKey):
        reader.open(TOPIC.encode(), bytearray(m3), NOW_MS)


def test_other_topic_flags_or_byte_do_not_verify() -> None:
    world = World()
    session = world.session(SENSOR)
    payload = sealed(session, TOPIC, b"21.5")
    for topic, flags in (("machine/2/temperature", 2), (TOPIC, 4), (TOPIC, 3)):
        with pytest.raises(errors.Unauthentic):
            opened(world, session, payload, topic, flags)
    for at in range(2, len(payload)):
        bent = bytearray(payload)
        bent[at] ^= 1
        with pytest.raises((errors.Unauthentic, errors.Stale, errors.Malformed)):
            opened(world, session, bytes(bent))


def test_every_truncation_is_refused() -> None:
    world = World()
    session = world.session(SENSOR)
    payload = sealed(session, TOPIC, b"21.5")
    for n in range(len(payload)):
        with pytest.raises((errors.Malformed, errors.Unauthentic)):
            opened(world, session, payload[:n])


def _forged(world: World, thief: Session, sender: int) -> bytes:
    """What a client can make that holds its label's roots: a genuine m1 in a sibling's name."""
    ident = thief.ident
    plain, ctr = b"0.0", 1
    m1 = bytearray(27 + len(plain) + 16)
    put_m1(m1, 0, 1, LIVE, ident.own.epoch, sender, thief.boot, thief.salt, ctr, NOW, 0)
    m1[27 : 27 + len(plain)] = plain
    key = inner_key(world.site, 1, sender, thief.boot, thief.salt, ident.own.r_bar)
    tail = tail_m1(world.site, ident.own.label, TOPIC.encode())
    seal_at(make(1, key), nonce_m1(m1, 0), m1, 0, 27, len(plain), tail)
    m2 = bytearray(9 + 1 + len(m1) + 16)
    put_m2(m2, 0, 0x12, 1, ctr, NOW)
    m2[10 : 10 + len(m1)] = m1
    tail = tail_m2(world.site, ident.client, 1, 2, TOPIC.encode())
    link = thief._link(USE_PUBLISH)
    seal_at(link, nonce_link(thief.salt, m2), m2, 0, 9, 1 + len(m1), tail)
    return bytes(m2)


def test_a_sibling_cannot_speak_as_another() -> None:
    world = World()
    thief = world.session(SIBLING)
    assert opened(world, thief, _forged(world, thief, SIBLING)).ctr == 1
    with pytest.raises(errors.Unauthentic, match="sender"):
        opened(world, thief, _forged(world, thief, SENSOR))


@pytest.mark.parametrize(
    ("flags", "kind", "life", "later", "error"),
    [
        (0, LIVE, 0, 61, errors.Stale),
        (0, LIVE, 0, -61, errors.Stale),
        (2, LIVE, 0, 61, errors.Stale),
        (2, LIVE, 7, 129, errors.Stale),
        (2, LIVE, 0, -61, errors.Stale),
        (3, LIVE, 0, 0, errors.Malformed),
        (2, RETAINED, 0, 0, errors.Malformed),
        (2, CLEAR, 0, 0, errors.Malformed),
        (3, CLEAR, 0, 0, errors.Malformed),
        (2, WILL, 0, 0, errors.Malformed),
    ],
)
def test_age_and_class(
    flags: int, kind: int, life: int, later: int, error: type[errors.SealError]
) -> None:
    world = World()
    session = world.session(SENSOR)
    payload = sealed(session, TOPIC, b"21.5", flags, kind, life)
    with pytest.raises(error):
        opened(world, session, payload, flags=flags, now=NOW + later)


@pytest.mark.parametrize(("flags", "life", "later"), [(0, 0, 60), (2, 7, 128), (2, 255, 10**8)])
def test_within_its_life(flags: int, life: int, later: int) -> None:
    world = World()
    session = world.session(SENSOR)
    payload = sealed(session, TOPIC, b"21.5", flags, LIVE, life)
    assert opened(world, session, payload, flags=flags, now=NOW + later).life == life


def test_an_old_epoch_is_refused() -> None:
    world = World()
    session = world.session(SENSOR)
    world.low.epoch = 2
    session.renew(session.ident)
    payload = sealed(session, TOPIC, b"21.5")
    with pytest.raises(errors.WrongEpoch):
        opened(world, session, payload)


def test_a_critical_tlv_that_nobody_knows_is_refused() -> None:
    world = World()
    session = world.session(SENSOR)
    with pytest.raises(errors.Unsupported):
        opened(world, session, sealed(session, TOPIC, b"x", tlv=b"\x03\xa0\x01y"))
    later = opened(world, session, sealed(session, TOPIC, b"x", tlv=b"\x03\x20\x01y"))
    assert later.tlv == {0x20: b"y"}


@pytest.mark.parametrize("kind", [0x00, 0x02, 0x1F, 0x80, 0x82, 0x83, 0x9F])
def test_a_publishers_item_of_the_protocols_own_types_is_malformed(kind: int) -> None:
    world = World()
    session = world.session(SENSOR)
    with pytest.raises(errors.Malformed):
        opened(world, session, sealed(session, TOPIC, b"x", tlv=bytes((3, kind, 1, 7))))


def test_what_overtook_others_is_recognised_as_long_as_the_window_reaches() -> None:
    world = World()
    link = world.link(world.session(SENSOR))
    tags = {ctr: ctr.to_bytes(16, "big") for ctr in range(1, 67)}
    for ctr in (64, *range(1, 64), 65, 66):
        link.look(ctr, 0)
        link.mark(ctr, tags[ctr])
    assert len(link.seen) == WIDTH
    for ctr in range(3, 67):
        assert link.again(ctr, tags[ctr]) is not None, ctr


def test_counters_count_once() -> None:
    world = World()
    session = world.session(SENSOR)
    link = world.link(session)
    link.look(5, 1)
    sent = link.mark(5, b"a" * 16)
    assert link.again(5, b"a" * 16) is sent
    assert link.again(5, b"b" * 16) is None
    for ctr, low in ((5, 1), (3, 4)):
        with pytest.raises(errors.Replay):
            link.look(ctr, low)
    link.mark(100, b"d" * 16)
    with pytest.raises(errors.Replay):
        link.look(36, 1)
    link.look(37, 1)


def test_a_receipt_says_what_the_broker_has_accepted_and_nothing_else() -> None:
    world = World()
    link = world.link(world.session(SENSOR))
    first, second = link.mark(1, b"a" * 16), link.mark(2, b"b" * 16)
    assert (link.accepted.top, link.accepted.mask, link.owed) == (0, 0, 0)
    link.confirm(second)
    assert (link.accepted.top, link.accepted.mask, link.owed) == (2, 1, 1)
    link.confirm(first)
    link.confirm(first)
    assert (link.accepted.top, link.accepted.mask, link.owed) == (2, 3, 2)


def test_retained_and_queued_are_stamped_anew() -> None:
    world = World()
    session = world.session(SENSOR)
    raw = TOPIC.encode()
    m2 = opened(world, session, sealed(session, TOPIC, b"21.5", 3, RETAINED, 255), flags=3)
    order = Order(9)
    label = world.ring.labels[LOW]
    m3 = seal_m3(world.ring, label, order, LIVE, raw, m2.body, NOW_MS)
    later = NOW_MS + 10**9
    seen = look_m3(world.ring, m3)
    assert not is_fresh(seen, later)
    assert is_fresh(seen, NOW_MS + 59_000)
    reader = Reader(world.identities[PANEL], make)
    reader.add_record(world.record)
    with pytest.raises(errors.Stale):
        reader.open(raw, bytearray(m3), later)
    inside = open_m3(world.ring, seen, raw, m3)
    again = rewrap(world.ring, order, seen, inside, RETAINED, raw, later)
    message = reader.open(raw, bytearray(again), later)
    assert (message.payload, message.how, message.age) == (b"21.5", RETAINED, 10**6)
    queued = rewrap(world.ring, order, seen, inside, QUEUED, raw, later)
    assert reader.open(raw, bytearray(queued), later).how == QUEUED


def test_retain_on_a_live_message_and_a_life_that_is_over() -> None:
    world = World()
    session = world.session(SENSOR)
    raw = TOPIC.encode()
    m2 = opened(world, session, sealed(session, TOPIC, b"21.5", 2, LIVE, 7))
    order = Order(9)
    m3 = seal_m3(world.ring, world.ring.labels[LOW], order, LIVE, raw, m2.body, NOW_MS)
    seen = look_m3(world.ring, m3)
    inside = open_m3(world.ring, seen, raw, m3)
    with pytest.raises(errors.Malformed):
        rewrap(world.ring, order, seen, inside, RETAINED, raw, NOW_MS)
    rewrap(world.ring, order, seen, inside, QUEUED, raw, NOW_MS + 128_000)
    with pytest.raises(errors.Stale):
        rewrap(world.ring, order, seen, inside, QUEUED, raw, NOW_MS + 129_000)
    bent = bytearray(m3)
    bent[-1] ^= 1
    with pytest.raises(errors.Unauthentic):
        open_m3(world.ring, seen, raw, bytes(bent))
