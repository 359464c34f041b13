"""Claims 11 and 17: what a refusal says, and about whom (SPEC.md 4.5).

The attacker is the network in front of the mediator: without a key it copies, moves and bends what
a client sent. A message that was delivered must not look refused, and one that never comes through
must not be sent for ever.
"""

from __future__ import annotations

import pytest
from sealmq_spec.const import RETAINED

from attack_scene import DUP, LIVE, QOS1, QOS2, TOPIC, again, answer, last_words, notices, pid_of
from devices import device
from evil_path import Between, EvilPath, Packets, is_control
from evil_scene import EvilScene
from running_site import sealmq, until
from wire import CONTROL, RawClient, Wire, connect, mono, packet, publish, text

MALFORMED, UNAUTHENTIC, STALE, REPLAY, DENIED, UNSUPPORTED = 1, 2, 3, 4, 5, 10
PUBACK, PUBREC = 0x40, 0x50
PING = b"\xc0\0"  # what comes behind the end of a connection has no answer
ELSEWHERE = b"machine/1/door"


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


def _delivered(evil: EvilScene, raw: RawClient, first: int = QOS1) -> bytes:
    """An m2 that the broker has, of this first byte. No receipt has shown it to the client, which
    would believe no notice then.
    """
    before = len(evil.evil.seen(TOPIC))
    sealed = raw.seal(TOPIC, b"mine", first & 7, RETAINED if first & 1 else LIVE)
    raw.wire.send(publish(TOPIC, sealed, first, 1))
    until("the message at the broker", lambda: len(evil.evil.seen(TOPIC)) > before)
    if first & 6:
        assert answer(raw) == (PUBACK, pid_of(1))
    assert notices(raw) == []
    return sealed


# --- copies of a message that was delivered ---


@pytest.mark.parametrize("first", [0x30, 0x31], ids=["qos 0", "qos 0, retained"])
def test_a_copy_at_qos_0_names_nobody(evil: EvilScene, raw: RawClient, first: int) -> None:
    sealed = _delivered(evil, raw)
    raw.wire.send(publish(TOPIC, sealed, first))
    assert raw.barrier() == []
    assert [n[:3] for n in notices(raw)] == [(1, 0, UNAUTHENTIC)]
    assert evil.heard() == [(TOPIC, b"mine", LIVE)]


@pytest.mark.parametrize("first", [0x33, QOS2], ids=["retained", "qos 2"])
def test_a_copy_at_another_qos_or_retained_is_not_acknowledged(
    evil: EvilScene, raw: RawClient, first: int
) -> None:
    sealed = _delivered(evil, raw)
    raw.wire.send(publish(TOPIC, sealed, first, 2))
    assert [n[:3] for n in last_words(raw)] == [(1, 0, UNAUTHENTIC)]
    assert evil.heard() == [(TOPIC, b"mine", LIVE)]


def test_a_copy_on_another_topic_is_not_acknowledged(evil: EvilScene, raw: RawClient) -> None:
    sealed = _delivered(evil, raw)
    raw.wire.send(publish(ELSEWHERE, sealed, QOS1 | DUP, 2))
    assert [n[:3] for n in last_words(raw)] == [(1, 0, UNAUTHENTIC)]
    assert evil.heard() == [(TOPIC, b"mine", LIVE)]


@pytest.mark.parametrize("seconds", [0, 61])
def test_the_same_bytes_again_at_qos_0_name_nobody(
    evil: EvilScene, raw: RawClient, seconds: int
) -> None:
    """Nor when they are too old by then: the client would begin a new boot session."""
    sealed = _delivered(evil, raw, 0x30)
    heard = evil.heard()
    if seconds:
        # Its own clock goes on meanwhile, too.
        raw.close()
        evil.later(seconds)
        assert raw.session._offset is not None
        raw.session._offset += 1000 * seconds
        again(raw, 0)
    raw.wire.send(publish(TOPIC, sealed, 0x30))
    assert raw.barrier() == []
    assert [n[:3] for n in notices(raw)] == [(1, 0, REPLAY)]
    assert heard == [(TOPIC, b"mine", LIVE)]
    assert evil.heard() == []


def test_the_same_bytes_again_at_qos_1_are_acknowledged_without_a_notice(
    evil: EvilScene, raw: RawClient
) -> None:
    sealed = _delivered(evil, raw)
    raw.wire.send(publish(TOPIC, sealed, QOS1 | DUP, 7))
    assert answer(raw) == (PUBACK, pid_of(7))
    assert notices(raw) == []
    assert evil.heard() == [(TOPIC, b"mine", LIVE)]


def test_a_command_that_comes_again_does_not_look_refused(evil: EvilScene, raw: RawClient) -> None:
    made = publish(CONTROL, raw.session.ask_time(bytes(range(16)), mono()))
    raw.wire.send(made + made)
    # PINGRESP waits for neither.
    while not raw.notices:
        raw.control(raw.next("a notice"))
    assert [n[:3] for n in notices(raw)] == [(4, 0, REPLAY)]


def test_what_was_refused_stays_refused(evil: EvilScene, raw: RawClient) -> None:
    """The client knows of the refusal. What is put on the wire once more, when the site would take
    it, is not delivered all the same.
    """
    assert raw.session._offset is not None
    raw.session._offset += 100_000
    sealed = raw.seal(TOPIC, b"of a clock ahead", 2)
    ctr = raw.session.ctr
    raw.wire.send(publish(TOPIC, sealed, QOS1, 1))
    assert raw.barrier() == [(PUBACK, pid_of(1))]
    raw.close()
    evil.later(100)
    again(raw, ctr)
    raw.wire.send(publish(TOPIC, sealed, QOS1 | DUP, 2))
    assert answer(raw) == (PUBACK, pid_of(2))
    assert [n[:3] for n in notices(raw)] == [(1, ctr, STALE)] * 2
    assert evil.heard() == []


# --- an honest client in the middle of it ---


def _copied(first: int) -> object:
    """Sends a PUBLISH on, and a copy of the same bytes with another first byte behind it."""

    def hook(line: Between, got: int, body: bytes) -> Packets:
        if got & 0xF0 != 0x30 or is_control(got, body):
            return [(got, body)]
        at = 2 + int.from_bytes(body[:2], "big")
        copy = body[:at] + body[at + 2 :] if got & 6 and not first & 6 else body
        return [(got, body), (first, copy)]

    return hook


@pytest.mark.parametrize(("qos", "copy"), [(1, 0x30), (1, 0x31), (0, 0x30), (1, 0x3A)])
def test_sealmq_pub_succeeds_when_its_message_was_delivered(
    evil: EvilScene, qos: int, copy: int
) -> None:
    path = EvilPath(evil.site.port)
    folder = evil.site.path / "told" / f"{qos}-{copy}"
    enrolment = path.enrolment(evil.enrolment("m1-temp-sibling"), folder)
    path.up = _copied(copy)  # type: ignore[assignment]
    done = sealmq("pub", "--enrolment", enrolment, "-t", TOPIC.decode(), "-m", f"{qos}", "-q", qos)
    path.close()
    assert done.returncode == 0, done.stderr
    assert evil.heard() == [(TOPIC, b"%d" % qos, LIVE)]


def test_a_device_goes_on_when_a_copy_of_its_message_is_refused(evil: EvilScene) -> None:
    path = EvilPath(evil.site.port)
    folder = evil.site.path / "told" / "device"
    path.up = _copied(0x30)  # type: ignore[assignment]
    with device(path.enrolment(evil.enrolment("m1-device"), folder)) as sensor:
        ctr = sensor.do("send", topic=TOPIC.decode(), payload="mine")["ctr"]
        assert sensor.do("ask", ctr=ctr, seconds=30)["receipted"]
    path.close()
    assert evil.heard() == [(TOPIC, b"mine", LIVE)]


# --- what does not come through, and is not sent for ever ---


@pytest.mark.parametrize("first", [0x30, QOS1, QOS2])
@pytest.mark.parametrize(
    ("topic", "code"),
    [(b"$SYS/x", DENIED), (b"!c2", DENIED), (b"@x", DENIED), (b"t" * 1025, MALFORMED)],
    ids=["reserved", "of control", "of records", "1,025 bytes"],
)
def test_a_topic_that_is_refused_is_named_and_acknowledged(
    raw: RawClient, topic: bytes, code: int, first: int
) -> None:
    raw.wire.send(publish(topic, raw.seal(topic, b"x", first & 7), first, 5))
    answers = {0x30: [], QOS1: [(PUBACK, pid_of(5))], QOS2: [(PUBREC, pid_of(5))]}
    assert raw.barrier() == answers[first]
    if first == QOS2:
        raw.wire.send(packet(0x62, pid_of(5)))
        assert raw.barrier() == [(0x70, pid_of(5))]
    assert [n[:3] for n in notices(raw)] == [(1, raw.session.ctr, code)]


def _other_suite(sealed: bytes) -> bytes:
    return bytes((sealed[0], sealed[1] ^ 0x30)) + sealed[2:]


@pytest.mark.parametrize("first", [0x30, QOS1, QOS2])
@pytest.mark.parametrize(
    ("bend", "code"),
    [
        (lambda sealed: b"", MALFORMED),
        (lambda sealed: sealed[:20], MALFORMED),
        (lambda sealed: b"in clear " * 20, MALFORMED),
        (_other_suite, UNSUPPORTED),
        (lambda sealed: sealed[:-1] + bytes((sealed[-1] ^ 1,)), UNAUTHENTIC),
    ],
    ids=["empty", "short", "in clear", "another suite", "a changed tag"],
)
def test_what_does_not_verify_ends_the_connection_at_qos_1(
    evil: EvilScene, raw: RawClient, bend: object, code: int, first: int
) -> None:
    """Neither acknowledged nor left without an answer. A packet with QoS 0 waits for none."""
    bent = bend(raw.seal(TOPIC, b"x", first & 7))  # type: ignore[operator]
    raw.wire.send(publish(TOPIC, bent, first, 5) + (PING if first & 6 else b""))
    if first & 6:
        assert [n[:3] for n in last_words(raw)] == [(1, 0, code)]
    else:
        assert raw.barrier() == []
        assert [n[:3] for n in notices(raw)] == [(1, 0, code)]
    assert evil.heard() == []


def test_a_changed_message_arrives_with_the_next_connection(
    evil: EvilScene, raw: RawClient
) -> None:
    sealed = raw.seal(TOPIC, b"mine")
    raw.wire.send(publish(TOPIC, sealed[:-1] + bytes((sealed[-1] ^ 1,)), QOS1, 1))
    assert [n[:3] for n in last_words(raw)] == [(1, 0, UNAUTHENTIC)]
    again(raw, raw.session.ctr)
    raw.wire.send(publish(TOPIC, sealed, QOS1 | DUP, 1))
    assert answer(raw) == (PUBACK, pid_of(1))
    assert evil.heard() == [(TOPIC, b"mine", LIVE)]


# --- before a session, and filters ---


@pytest.mark.parametrize("suite", [0, 3, 15])
def test_quarantine_in_a_suite_that_is_none_is_refused(evil: EvilScene, suite: int) -> None:
    raw = evil.client("m1-temp-sensor")
    raw.ident.gen, raw.ident.suite = 0, suite
    wire = Wire(raw.port)
    wire.send(connect(raw.client_id, raw.session.begin_connect(False)))
    assert wire.read() == (0x20, b"\0\x05")
    assert wire.closed()


@pytest.mark.parametrize("filt", ["$SYS/#", "$x", "!c1", "@other/#"])
def test_a_reserved_filter_is_refused_by_name(raw: RawClient, filt: str) -> None:
    """Granted, it would be a subscription to which nothing ever comes."""
    token, ctr = raw.session.token(filt)
    raw.wire.send(packet(0x82, b"\0\x07" + text(token.encode()) + b"\0"))
    assert answer(raw) == (0x90, b"\0\x07\x80")
    assert [n[:3] for n in notices(raw)] == [(2, ctr, DENIED)]
