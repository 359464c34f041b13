"""Claim 5: no client speaks as another, and none spoils another's counters.

The attacker is a client at the same label: it holds the same roots, and reads boot and salt of its
sibling in every message. Its link is its own.
"""

from __future__ import annotations

import pytest

from attack_scene import KEPT, LIVE, QOS1, TOPIC, again, answer, notices, pid_of
from evil_scene import EvilScene
from evil_seals import Sender, m1, m2, now_of
from running_site import until
from wire import RawClient, connect, publish

UNAUTHENTIC = "mediator.publish.unauthentic"


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


@pytest.fixture
def sibling(evil: EvilScene) -> RawClient:
    """Another client at its label, connected."""
    made = evil.client("m1-temp-sibling")
    made.connect(keepalive=0)
    return made


def test_a_sibling_forges_the_sender(evil: EvilScene, raw: RawClient, sibling: RawClient) -> None:
    """Number, boot session, or both; then the counters that it named serve their owner."""
    site, roots = sibling.ident.site, sibling.ident.own
    mine, his = Sender.of(sibling), Sender.of(raw)
    before = len(evil.evil.published)
    names = [his, mine._replace(client=his.client), mine._replace(boot=his.boot)]
    names += [mine._replace(salt=his.salt), his._replace(client=mine.client)]
    for name in names:
        now, ctr = now_of(sibling), sibling.session.next_ctr()
        inner = m1(site, roots, name, TOPIC, b"forged", ctr, now)
        sibling.wire.send(publish(TOPIC, m2(sibling, TOPIC, b"\0" + inner, ctr, now), QOS1, 1))
        assert answer(sibling) == (0x40, pid_of(1))
    assert [n[3] for n in notices(sibling)] == [UNAUTHENTIC] * len(names)
    assert evil.heard() == []
    assert len(evil.evil.published) == before + 1
    for n in range(8):
        assert raw.publish(TOPIC, b"honest %d" % n) == [(0x40, pid_of(1))]
    assert evil.heard() == [(TOPIC, b"honest %d" % n, LIVE) for n in range(8)]


@pytest.mark.parametrize(("ctr", "seconds"), [(50, 0), (0, 30)])
def test_inner_and_outer_say_the_same(
    evil: EvilScene, sibling: RawClient, ctr: int, seconds: int
) -> None:
    """A counter or time in m1 that m2 does not have would pass the mediator's window unseen."""
    site, roots = sibling.ident.site, sibling.ident.own
    now, next_ctr = now_of(sibling), sibling.session.next_ctr()
    inner = m1(site, roots, Sender.of(sibling), TOPIC, b"x", next_ctr + ctr, now - seconds)
    sibling.wire.send(publish(TOPIC, m2(sibling, TOPIC, b"\0" + inner, next_ctr, now), QOS1, 1))
    assert answer(sibling) == (0x40, pid_of(1))
    assert [n[3] for n in notices(sibling)] == ["mediator.publish.malformed"]
    assert evil.heard() == []


def test_a_sibling_puts_in_its_sibling_s_packets(
    evil: EvilScene, raw: RawClient, sibling: RawClient
) -> None:
    """Bytes that it saw on the network, in its own connection: message, token, control packet."""
    sealed = raw.seal(TOPIC, b"the sensor's", flags=0)
    sibling.wire.send(publish(TOPIC, sealed))
    sibling.wire.send(publish(b"!c1", raw.session.fetch(16, 0)))
    assert sibling.barrier() == []
    rules = [n[3] for n in notices(sibling)]
    assert rules == [UNAUTHENTIC, "mediator.control.unauthentic"]
    raw.wire.send(publish(TOPIC, sealed))
    assert raw.barrier() == []
    assert evil.heard() == [(TOPIC, b"the sensor's", LIVE)]


def test_a_sibling_takes_its_sibling_s_client_identifier(
    evil: EvilScene, raw: RawClient, sibling: RawClient
) -> None:
    """At the broker, which keeps a session for each, they stay two; the older connection stays."""
    again(raw, 0, KEPT)
    owner = until("its owner at the broker", lambda: evil.evil.line(raw.client_id.decode()))
    thief = evil.client("m1-temp-sibling")
    thief.client_id = raw.client_id
    calls = len(evil.evil.calls)
    assert thief.connect(flags=KEPT) == b"\0\0", "no session of its owner's is present"
    there = until("the thief at the broker", lambda: evil.evil.calls[calls:])
    assert owner.client_id not in [call.client_id for call in there]
    assert owner in evil.evil.lines()
    assert raw.barrier() == []
    again(raw, 0)
    again(thief, 0)
    thief.close()


def test_a_sibling_claims_its_sibling_s_number(
    evil: EvilScene, raw: RawClient, sibling: RawClient
) -> None:
    """In the proof, tagged with its own link root."""
    calls = len(evil.evil.calls)
    thief = evil.client("m1-temp-sibling")
    thief.ident.client = raw.ident.client
    thief.session.renew(thief.ident)
    assert thief.enter(thief.connect_packet(flags=KEPT)) == b"\0\x05"
    # In quarantine, to get its keys: the request is not under its secret.
    thief.ident.gen = 0
    with pytest.raises(AssertionError):
        thief.provision()
    raw.wire.send(connect(b"x", b"y", flags=KEPT))
    assert raw.wire.closed()
    assert len(evil.evil.calls) == calls
