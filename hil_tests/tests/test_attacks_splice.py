"""Claim 4: nothing is moved: to another topic, under another label, with another header.

The attacker is the broker, the network, and an insider who has a topic key as mediators have it.
"""

from __future__ import annotations

import pytest

from attack_scene import LIVE, QOS1, TOPIC, again, last_words, notices
from evil_scene import EvilScene
from evil_seals import Sender, m1, m3, m3_head, now_of, opened, outer
from wire import RawClient, publish

BESIDE = b"machine/1/temperature2"
FOREIGN = b"machine/1/arm/angle"


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


@pytest.mark.parametrize("topic", [BESIDE, FOREIGN, b"machine/1", TOPIC + b"/"])
def test_a_broker_moves_a_message_to_another_topic(
    evil: EvilScene, raw: RawClient, topic: bytes
) -> None:
    evil.to_reader(topic, evil.caught(TOPIC, b"21.5", raw))
    assert evil.refuses("Unauthentic")


def test_a_broker_changes_every_byte_of_the_outer_envelope(evil: EvilScene, raw: RawClient) -> None:
    sealed = evil.caught(TOPIC, b"21.5", raw)
    for at in range(len(sealed)):
        bent = bytearray(sealed)
        bent[at] ^= 0x21
        evil.to_reader(TOPIC, bytes(bent))
    heard = [payload for _, payload, _ in evil.heard()]
    assert all(payload.startswith(b"refused ") for payload in heard)
    assert heard.count(b"refused Unauthentic") >= len(sealed) - 20


def test_an_insider_with_topic_keys_moves_the_inner_envelope(
    evil: EvilScene, raw: RawClient
) -> None:
    """To another topic of the label, and to another label; where it was, it is a replay."""
    site = raw.ident.site
    sealed = evil.caught(TOPIC, b"21.5", raw)
    own = evil.roots(raw.ident.own.label)
    above = evil.roots(evil.client("m1-control-panel").ident.own.label)
    inner = opened(site, own, TOPIC, sealed)[1:]
    for roots, topic in ((own, BESIDE), (above, FOREIGN), (above, TOPIC), (own, TOPIC)):
        head = m3_head(roots, now_of(evil.listener.raw) * 1000)
        inst = int.from_bytes(head[8:11], "big")
        evil.to_reader(topic, m3(site, head, outer(site, roots, inst), topic, inner))
    heard = [payload for _, payload, _ in evil.heard()]
    # m1 names an epoch of its own label, which the other one may not have reached.
    other = b"refused Unauthentic" if above.epoch == own.epoch else b"refused NoKey"
    assert heard == [b"refused Unauthentic", other, other, b"again"]


def test_an_insider_with_topic_keys_changes_the_inner_header(
    evil: EvilScene, raw: RawClient
) -> None:
    """Sender, boot, salt, counter, time, life, class: none of it is his."""
    site = raw.ident.site
    roots = evil.roots(raw.ident.own.label)
    inner = m1(site, roots, Sender.of(raw), TOPIC, b"21.5", 9000, now_of(raw))
    for at in range(1, 27):
        bent = bytearray(inner)
        bent[at] ^= 1
        head = m3_head(roots, now_of(evil.listener.raw) * 1000)
        cipher = outer(site, roots, int.from_bytes(head[8:11], "big"))
        evil.to_reader(TOPIC, m3(site, head, cipher, TOPIC, bytes(bent)))
    heard = [payload for _, payload, _ in evil.heard()]
    assert len(heard) == 26
    assert all(payload.startswith(b"refused ") for payload in heard)


@pytest.mark.parametrize(
    ("topic", "first"), [(BESIDE, QOS1), (TOPIC, 0x34), (TOPIC, 0x33), (TOPIC, 0x30)]
)
def test_the_network_moves_a_publish(
    evil: EvilScene, raw: RawClient, topic: bytes, first: int
) -> None:
    before = len(evil.evil.published)
    raw.wire.send(publish(topic, raw.seal(TOPIC, b"21.5"), first, 1))
    if first & 6:
        # Not acknowledged: it may be the client's own, which it sends again when it is back.
        told = last_words(raw)
        again(raw, 0)
    else:
        assert raw.barrier() == []
        told = notices(raw)
    assert [n[3] for n in told] == ["mediator.publish.unauthentic"]
    assert evil.heard() == []
    # The teller's last word is all that went to the broker.
    assert len(evil.evil.published) == before + 1
    assert raw.publish(TOPIC, b"honest") == [(0x40, b"\0\x01")]
    assert evil.heard() == [(TOPIC, b"honest", LIVE)]
