"""Claims 20, 22 and 23: readers without an allowed purpose, commands that are not theirs to give,
texts that mean to be taken for others.

The attacker has the broker, the network and clients of the site; what got through is what an honest
reader above everything hears, and what reaches the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sealmq_spec import purposes as say
from sealmq_spec.const import OP_COMMAND, OP_REPLY, SUBSCRIBE, UNSUBSCRIBE

from attack_scene import CLEAN, KEPT, again, answer, notices
from evil_scene import LINKS, EvilScene, evil_scene
from running_site import Site, until
from wire import CONTROL, RawClient, mono, packet, publish, text

TOPIC = "machine/1/temperature"
SUBACK, REFUSED = (0x90, b"\0\x07\0"), (0x90, b"\0\x07\x80")
UNSUBACK = (0xB0, b"\0\x08")
UNAUTHENTIC, REPLAY, DENIED, UNSUPPORTED = 2, 4, 5, 10
SITE = """
[families.purposes]
stewards = ["m1-arm-operator"]

[families.purposes.reserve]
"machine/2/#" = { aip = ["care"] }

[families.purposes.presubscribe]
monitor = { "#" = "care" }
"""


def _purposes(site: Site) -> None:
    """Strict; the honest reader knows nothing of purposes, which were declared for it."""
    site.purposes(SITE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvilScene]:
    with evil_scene(tmp_path_factory.mktemp("purposes"), _purposes) as made:
        yield made


@pytest.fixture
def evil(running: EvilScene) -> Iterator[EvilScene]:
    """Nobody has reserved machine/1/temperature, and nothing is left to hear."""
    running.heard()
    yield running
    for raw in running.made[2:]:
        if hasattr(raw, "wire"):
            raw.close()
    owner = connected(running, "m1-temp-sensor")
    assert command(owner, say.release(TOPIC)) == b""


def connected(evil: EvilScene, name: str) -> RawClient:
    raw = evil.client(name)
    raw.connect(keepalive=0)
    return raw


def sealed(raw: RawClient, said: str) -> bytes:
    """A command as it goes over the network."""
    body = bytes((OP_COMMAND, 8)) + b"purposes" + said.encode()
    return publish(CONTROL, raw.session.up(body, mono()))


def told(raw: RawClient, made: bytes) -> Any:
    """What is answered to a packet: a reply's bytes, or (class, rule) of a notice."""
    raw.wire.send(made)
    while True:
        op, what = raw.control(raw.next("an answer to a command"))
        if op == OP_REPLY:
            assert isinstance(what, tuple)
            return what[1]
        if op == 3:
            assert isinstance(what, tuple)
            return what[2], what[3]


def command(raw: RawClient, said: str) -> Any:
    return told(raw, sealed(raw, said))


def subscribe(raw: RawClient, filt: str, qos: int = 0) -> tuple[int, bytes]:
    """With its token."""
    return sent(raw, raw.session.token(filt, qos, SUBSCRIBE)[0], qos)


def sent(raw: RawClient, filt: str, qos: int = 0) -> tuple[int, bytes]:
    raw.wire.send(packet(0x82, b"\0\x07" + text(filt.encode()) + bytes((qos,))))
    return answer(raw)


def reads(evil: EvilScene, sensor: RawClient) -> bool:
    """Whether the honest reader gets what the sensor says now."""
    sensor.publish(TOPIC.encode(), b"21.5")
    return any(topic == TOPIC.encode() for topic, _, _ in evil.heard())


def rules(raw: RawClient) -> set[str]:
    return {notice[3] for notice in notices(raw)}


def test_a_reader_without_a_purpose_or_with_another(evil: EvilScene) -> None:
    """It has the keys. Nothing of it reaches the broker."""
    owner, raw = connected(evil, "m1-temp-sensor"), connected(evil, "m1-control-panel")
    assert command(owner, say.reserve(TOPIC, ["care"], ["care/research"])) == b""
    before = evil.evil.asked()
    assert subscribe(raw, TOPIC) == REFUSED
    assert rules(raw) == {"purposes.subscribe.no-purpose"}
    for purpose in ("marketing", "care/research", "care/research/x", "car", "cared", "CARE", "#"):
        assert subscribe(raw, say.access(TOPIC, purpose)) == REFUSED, purpose
    assert evil.evil.asked() == before
    assert subscribe(raw, say.access(TOPIC, "care/nurses")) == SUBACK
    until("its SUBSCRIBEs", lambda: len(evil.evil.asked()) > len(before))
    assert set(evil.evil.asked()[len(before) :]) == {TOPIC}


@LINKS
def test_a_message_that_the_broker_gives_to_the_wrong_reader(evil: EvilScene) -> None:
    """The broker sends along what nobody subscribed to, old and new, retained too."""
    owner = connected(evil, "m1-temp-sensor")
    assert command(owner, say.reserve(TOPIC, ["care"])) == b""
    # Each is another: what came once is dropped as a copy, whoever may have it.
    caught, *kept = [kept_back(evil, owner) for _ in range(7)]
    evil.to_reader(TOPIC.encode(), caught)
    assert [payload for _, payload, _ in evil.heard()] == [b"secret"]
    assert command(owner, say.reserve(TOPIC, ["research"])) == b""
    for first, message in zip((0x30, 0x31, 0x32, 0x33), kept[:4], strict=True):
        evil.to_reader(TOPIC.encode(), message, first, 7)
    assert evil.heard() == []
    for flags, message in zip((CLEAN, KEPT), kept[4:], strict=True):
        other = evil.client("m1-control-panel")
        other.connect(keepalive=0, flags=flags)
        evil.evil.tell(other.client_id.decode(), TOPIC.encode(), message, 0x30, 0)
        assert evil.heard() == []
        assert [got for got in other.barrier() if got[0] & 0xF0 == 0x30] == []
        again(other, 0)


def kept_back(evil: EvilScene, owner: RawClient) -> bytes:
    """An honest message that the broker has passed on to nobody yet."""
    topic, before = TOPIC.encode(), len(evil.evil.seen(TOPIC.encode()))
    evil.evil.holds = lambda came: came.topic == topic
    owner.wire.send(publish(topic, owner.seal(topic, b"secret", 0), 0x30))
    seen = until("the message at the broker", lambda: evil.evil.seen(topic)[before:])
    evil.evil.honest()
    return seen[-1]


RAW = (
    "!AP/machine/+/temperature{care}",
    "!AP/HASH{care}",
    "!AP/PLUS/1/temperature{care}",
    "!AP/machine/1/temperature{}",
    "!AP/machine/1/temperature",
    "!AP/machine/1/temperature{care,marketing}",
    "!AP/machine/1/temperature{%63are}",
    "!AP/machine/1/temperature{care}/x",
    "!AP/!AP/machine/1/temperature{care}{care}",
    "!AP/%21c1{care}",
    "!AP/!c1{care}",
    "!AP/$SYS/%23{care}",
    "!AP/@sm1x/%23{care}",
    "!AP/@sm1/%23{care}",
    "!AP/$share/g/@sm1/%23{care}",
    "!AP/$share/g/!c1{care}",
    "!AP/$share/g/$SYS/%23{care}",
    "!AP/$share/%23{care}",
    "!AP/$share//machine/1/temperature{care}",
    "!AP/!s1/AAAAAAAAAAAAAAAAAAAAAAAAAA/machine/1/temperature{care}",
    "!AP{care}",
    "!ap/machine/1/temperature{care}",
    "!AQ/machine/1/temperature{care}",
    "$share/g/!AP/machine/1/temperature{care}",
    "!AP/$share/!AP{care}",
    "!RESERVE/machine/1/temperature{care|}",
    "!PBAC/SET/mode{fop}",
    "!PBAC/GET/MODE{}",
    "!PBAC/PRESUB/m1-control-panel/machine/1/temperature{care}",
)


def test_keywords_and_texts_that_are_guessed(evil: EvilScene) -> None:
    """As a filter none does anything: no grant, nothing at the broker, no connection lost."""
    owner, raw = connected(evil, "m1-temp-sensor"), connected(evil, "m1-control-panel")
    assert command(owner, say.reserve(TOPIC, ["care"])) == b""
    before = evil.evil.asked()
    for filt in RAW:
        assert subscribe(raw, filt) == REFUSED, filt
    assert evil.evil.asked() == before
    said = notices(raw)
    assert len(said) == len(RAW)
    # This broker has no shared subscriptions.
    assert {notice[2] for notice in said} == {DENIED, UNSUPPORTED}
    assert subscribe(raw, TOPIC) == REFUSED, "nobody has declared a purpose for it"
    # A wildcard out of place is no MQTT.
    raw.wire.send(
        packet(0x82, b"\0\x07" + text(raw.session.token("!AP/#{care}")[0].encode()) + b"\0")
    )
    assert raw.wire.closed()
    assert evil.evil.asked() == before


def test_commands_as_topics_reach_nobody(evil: EvilScene) -> None:
    """HivePBAC's way: a PUBLISH on the command's text. From a client it is denied; what the broker
    says there is dropped."""
    owner, raw = connected(evil, "m1-temp-sensor"), connected(evil, "m1-arm-operator")
    assert command(owner, say.reserve(TOPIC, ["research"])) == b""
    wanted = [say.reserve(TOPIC, ["care"]), say.release(TOPIC), say.setting("strict", "false")]
    for topic in (one.encode() for one in wanted):
        raw.wire.send(publish(topic, raw.seal(topic, b""), 0x32, 1))
        raw.barrier()
        assert [notice[2] for notice in notices(raw)] == [DENIED]
        assert evil.evil.seen(topic) == []
        evil.to_reader(topic, b"")
        evil.to_reader(topic, b"", 0x31)
    assert not reads(evil, owner)
    asked = command(raw, say.query("reservations", TOPIC))
    assert b'"aip": ["research"]' in asked


def test_a_token_moved_to_another_purpose(evil: EvilScene) -> None:
    """On the path: the token covers the whole text."""
    owner, raw = connected(evil, "m1-temp-sensor"), connected(evil, "m1-control-panel")
    assert command(owner, say.reserve(TOPIC, ["care", "research"])) == b""
    allowed = say.access(TOPIC, "care")
    token = raw.session.token(allowed)[0]
    head = token[: -len(allowed)]
    moved = (
        say.access(TOPIC, "research"),
        say.access("machine/+/temperature", "care"),
        TOPIC,
        allowed[:-1],
        say.access("$share/g/" + TOPIC, "care"),
    )
    before = evil.evil.asked()
    for filt in moved:
        assert sent(raw, head + filt) == REFUSED
    assert {notice[2] for notice in notices(raw)} == {UNAUTHENTIC}
    assert evil.evil.asked() == before
    assert sent(raw, token) == SUBACK, "the token itself is genuine"
    leave = raw.session.token(say.access(TOPIC, "research"), 0, UNSUBSCRIBE)[0]
    text_of = head + say.access(TOPIC, "care")
    raw.wire.send(packet(0xA2, b"\0\x08" + text(text_of.encode())))
    assert answer(raw) == UNSUBACK
    assert {notice[2] for notice in notices(raw)} == {UNAUTHENTIC}, "SUBSCRIBE's ends nothing"
    raw.wire.send(packet(0xA2, b"\0\x08" + text(leave.encode())))
    assert answer(raw) == UNSUBACK
    owner.publish(TOPIC.encode(), b"21.5")
    assert answer(raw)[0] & 0xF0 == 0x30, "another purpose's is another"
    evil.heard()


def test_a_subscription_of_an_older_session(evil: EvilScene) -> None:
    """Recorded while it was allowed: neither later in the session nor in the next one."""
    owner, raw = connected(evil, "m1-temp-sensor"), connected(evil, "m1-control-panel")
    assert command(owner, say.reserve(TOPIC, ["care"])) == b""
    old = raw.session.token(say.access(TOPIC, "care"))[0]
    assert sent(raw, old) == SUBACK
    leave = raw.session.token(say.access(TOPIC, "care"), 0, UNSUBSCRIBE)[0]
    raw.wire.send(packet(0xA2, b"\0\x08" + text(leave.encode())))
    assert answer(raw) == UNSUBACK
    assert sent(raw, old) == REFUSED
    again(raw, raw.session.ctr + 1)
    assert sent(raw, old) == REFUSED
    assert {notice[2] for notice in notices(raw)} == {REPLAY}
    raw.close()
    later = connected(evil, "m1-control-panel")
    before = evil.evil.asked()
    assert sent(later, old) == REFUSED
    assert {notice[2] for notice in notices(later)} == {UNAUTHENTIC}
    assert evil.evil.asked() == before


def test_commands_that_come_again(evil: EvilScene) -> None:
    """A consent that was withdrawn is not given back by the packet that gave it."""
    owner = connected(evil, "m1-temp-sensor")
    given = sealed(owner, say.reserve(TOPIC, ["care"]))
    assert told(owner, given) == b""
    assert reads(evil, owner)
    overtaken = sealed(owner, say.release(TOPIC))
    assert command(owner, say.reserve(TOPIC, [], ["care"])) == b""
    assert told(owner, overtaken)[0] == REPLAY, "held back, and not a repeat"
    held = sealed(owner, say.reserve(TOPIC, ["care"]))  # the network keeps this one back
    assert told(owner, given)[0] == REPLAY
    again(owner, owner.session.ctr + 1)
    for old in (given, held):
        assert told(owner, old)[0] == REPLAY
    owner.close()
    other, later = connected(evil, "m1-arm-operator"), connected(evil, "m1-temp-sensor")
    for old in (given, held):
        assert told(other, old)[0] == UNAUTHENTIC
        assert told(later, old)[0] == UNAUTHENTIC
    assert not reads(evil, later)


def test_every_byte_of_a_command_counts(evil: EvilScene) -> None:
    owner = connected(evil, "m1-temp-sensor")
    assert command(owner, say.reserve(TOPIC, ["research"])) == b""
    genuine = sealed(owner, say.reserve(TOPIC, ["care"]))
    for at in range(len(genuine) - 16, len(genuine)):
        changed = bytearray(genuine)
        changed[at] ^= 1
        assert told(owner, bytes(changed))[0] == UNAUTHENTIC
    for at in range(7 + 9, len(genuine) - 16, 5):
        changed = bytearray(genuine)
        changed[at] ^= 1
        assert told(owner, bytes(changed))[0] == UNAUTHENTIC
    assert not reads(evil, owner)


def test_another_label_s_client_widens_a_reservation(evil: EvilScene) -> None:
    """By its own filter, by one that covers it, by taking the owner's away, by other means."""
    owner = connected(evil, "m1-temp-sensor")
    assert command(owner, say.reserve(TOPIC, ["research"])) == b""
    tries = (
        say.reserve(TOPIC, ["care"]),
        say.reserve("machine/+/temperature", ["care"]),
        say.reserve("machine/1/#", ["care"]),
        say.reserve("machine/1/temperature/#", ["care"]),
        say.reserve("+/1/temperature", ["care"]),
        say.reserve("#", ["care"]),
        say.reserve("$share/g/" + TOPIC, ["care"]),
        say.release(TOPIC),
        say.presubscribe("monitor", "#", "research"),
        say.presubscribe("monitor", "#"),
        say.setting("strict", "false"),
        say.setting("mode", "fop"),
        say.query("reservations", TOPIC),
        say.query("eip", TOPIC),
        say.query("presubs", "monitor"),
    )
    # Below, above and beside the topic's label.
    for name in ("m1-control-panel", "m2-temp-sensor", "monitor"):
        raw = connected(evil, name)
        for said in tries:
            if name == "monitor" and said.startswith("!PBAC/") and "monitor" in said:
                continue
            code, rule = command(raw, said)
            assert code == DENIED, (name, said)
            assert rule.startswith("purposes."), rule
        raw.close()
    # Its own label's topic, but not with a wildcard.
    code, rule = command(owner, say.reserve(TOPIC + "/#", ["care"]))
    assert (code, rule) == (DENIED, "purposes.entitled.no-grant")
    assert not reads(evil, owner)


def test_who_may_reserve_by_label_undoes_what_others_have_said(evil: EvilScene) -> None:
    """A steward's prohibition; and, on a topic that has no label yet, another label's."""
    held = DENIED, "purposes.entitled.held"
    owner, steward = connected(evil, "m1-temp-sensor"), connected(evil, "m1-arm-operator")
    assert command(steward, say.reserve(TOPIC, ["research"], ["care"])) == b""
    for said in (say.reserve(TOPIC, ["care"]), say.reserve(TOPIC), say.release(TOPIC)):
        assert command(owner, said) == held
    assert not reads(evil, owner)
    assert command(steward, say.release(TOPIC)) == b""
    other, fresh = connected(evil, "m2-temp-sensor"), "machine/1/new"
    assert command(owner, say.reserve(fresh, ["research"], ["care"])) == b""
    for said in (say.reserve(fresh, ["care"]), say.release(fresh)):
        assert command(other, said) == held
    assert command(owner, say.release(fresh)) == b""


def test_a_sibling_speaks_in_another_s_name(evil: EvilScene) -> None:
    """A presubscription names its client; only the client itself and stewards may."""
    panel, steward = connected(evil, "m1-control-panel"), connected(evil, "m1-arm-operator")
    code, rule = command(panel, say.presubscribe("m1-temp-sensor", TOPIC, "care"))
    assert (code, rule) == (DENIED, "purposes.entitled.not-steward")
    assert command(steward, say.presubscribe("m1-control-panel", TOPIC, "care")) == b""
    assert command(steward, say.presubscribe("m1-control-panel", TOPIC)) == b""
    assert subscribe(panel, TOPIC) == REFUSED
