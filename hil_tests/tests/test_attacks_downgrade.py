"""Claim 12: no weaker suite, no shorter tag, no second key.

The attackers have what makes the envelope genuine under the other suite or the other key, so that
only the rule refuses it.
"""

from __future__ import annotations

import pytest
from sealmq_spec.const import CCM, CHACHA, M3_HEAD, TAG
from sealmq_spec.control import proof_head
from sealmq_spec.envelope import nonce_m3, tail_m3

from attack_scene import KEPT, LIVE, QOS1, TOPIC, answer, notices, pid_of
from evil_salamander import common_tag
from evil_scene import LINKS, EvilScene
from evil_seals import Sender, m1, m2, m3, m3_head, now_of, outer, outer_bytes
from wire import RawClient, connect, mono, packet, publish, text

EAST = b"east/humidity"
REFUSED = b"\0\x05"
_LONG = b"a message that is no shorter than the shortest, whatever is cut off its tag"


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


def _fresh_m1(evil: EvilScene, raw: RawClient, payload: bytes, suite: int = 0) -> bytes:
    roots = evil.roots(raw.ident.own.label)
    ctr, now = raw.session.next_ctr(), now_of(raw)
    return m1(raw.ident.site, roots, Sender.of(raw), TOPIC, payload, ctr, now, suite=suite)


# --- suites ---


@pytest.mark.parametrize(("link", "label"), [(CHACHA, CCM), (CCM, CHACHA), (CHACHA, CHACHA)])
def test_a_publish_in_another_suite(evil: EvilScene, raw: RawClient, link: int, label: int) -> None:
    """Sealed as that suite would have it: its keys follow from the same roots."""
    roots = evil.roots(raw.ident.own.label)
    ctr, now = raw.session.next_ctr(), now_of(raw)
    inner = m1(raw.ident.site, roots, Sender.of(raw), TOPIC, b"21.5", ctr, now, suite=label)
    raw.wire.send(publish(TOPIC, m2(raw, TOPIC, b"\0" + inner, ctr, now, 0, link)))
    assert raw.barrier() == []
    assert [n[3] for n in notices(raw)] == ["mediator.publish.unsupported"]
    assert evil.heard() == []


def test_an_outer_and_an_inner_envelope_in_another_suite(evil: EvilScene, raw: RawClient) -> None:
    site, roots = raw.ident.site, evil.roots(raw.ident.own.label)
    ms = now_of(evil.listener.raw) * 1000
    for outside, inside in ((CHACHA, CCM), (CCM, CHACHA), (CCM, CCM)):
        head = m3_head(roots, ms, suite=outside)
        cipher = outer(site, roots, int.from_bytes(head[8:11], "big"), outside)
        inner = _fresh_m1(evil, raw, b"21.5", inside)
        evil.to_reader(TOPIC, m3(site, head, cipher, TOPIC, inner))
    # The mediator drops the first, the reader refuses the second. The last one is what the label's
    # suite wants: the forger is able.
    heard = [payload for _, payload, _ in evil.heard()]
    assert heard == [b"refused Unsupported", b"21.5"]


@pytest.mark.parametrize("suite", [0, CHACHA, 3, 15])
def test_a_proof_in_another_suite(evil: EvilScene, suite: int) -> None:
    raw = evil.client("m1-temp-sensor")
    raw.ident.suite = suite
    i, s = raw.ident, raw.session
    calls = len(evil.evil.calls)
    head = proof_head(suite, 2, i.gen, i.client, s.boot, s.salt, 1, 1)
    made = connect(b"x", head + b"A" * 22, flags=KEPT)
    if suite == CHACHA:
        s.renew(i)
        made = raw.connect_packet(flags=KEPT)
    assert raw.enter(made) == REFUSED
    assert len(evil.evil.calls) == calls


# --- tags ---


@pytest.mark.parametrize("cut", [1, 4, 8, 12, 15, 16])
def test_tags_that_are_cut(evil: EvilScene, raw: RawClient, cut: int) -> None:
    """Of m2, of a control packet, of a token; of m3 at the reader."""
    evil.to_reader(TOPIC, evil.caught(TOPIC, _LONG, raw)[:-cut])
    assert evil.refuses("Unauthentic")
    raw.wire.send(publish(TOPIC, raw.seal(TOPIC, _LONG, flags=0)[:-cut]))
    raw.wire.send(publish(b"!c1", raw.session.fetch(16, mono())[:-cut]))
    assert raw.barrier() == []
    codes = [n[2] for n in notices(raw)]
    assert len(codes) == 2
    assert set(codes) <= {1, 2}
    filt, _ = raw.session.token("machine/1/temperature")
    short = filt[:30][: 30 - cut] + filt[30:]
    raw.wire.send(packet(0x82, b"\0\x07" + text(short.encode()) + b"\0"))
    assert answer(raw) == (0x90, b"\0\x07\x80")
    assert evil.heard() == []


@pytest.mark.parametrize("cut", [1, 11, 21, 22])
def test_a_proof_whose_tag_is_cut(evil: EvilScene, cut: int) -> None:
    raw = evil.client("m1-temp-sensor")
    made = bytes(raw.connect_packet())
    password = made[-54:-cut]
    assert raw.enter(connect(raw.client_id, password)) == REFUSED


# --- one header, one key ---


def test_a_message_under_another_label_s_key(evil: EvilScene) -> None:
    """Both keys are the reader's: one that tried all it has would open it."""
    east, west = evil.client("east-sensor"), evil.client("west-sensor")
    site, ms = east.ident.site, now_of(evil.listener.raw) * 1000
    mine, other = (evil.roots(c.ident.own.label) for c in (east, west))
    east.connect(keepalive=0)
    for key in (other, mine):
        inner = m1(site, mine, Sender.of(east), EAST, b"45", east.session.next_ctr(), now_of(east))
        head = m3_head(mine, ms)
        cipher = outer(site, key, int.from_bytes(head[8:11], "big"))
        evil.to_reader(EAST, m3(site, head, cipher, EAST, inner))
    heard = [payload for _, payload, _ in evil.heard()]
    assert heard == [b"refused Unauthentic", b"45"]


@LINKS
def test_a_ciphertext_that_two_keys_open(evil: EvilScene) -> None:
    """Poly1305 commits to no key: the same bytes verify under east's and under west's.

    Only the header says which one it is, and it says one thing to everybody: under west's header
    the bytes are another packet.
    """
    east, west = evil.client("east-sensor"), evil.client("west-sensor")
    site, ms = east.ident.site, now_of(evil.listener.raw) * 1000
    mine, other = (evil.roots(c.ident.own.label) for c in (east, west))
    east.connect(keepalive=0)
    inner = m1(site, mine, Sender.of(east), EAST, b"45", east.session.next_ctr(), now_of(east))
    filler = bytes((31, 0x40, 29)) + bytes(29)
    while True:
        head = m3_head(mine, ms)
        as_west = head[:2] + other.label.to_bytes(3, "big") + head[5:]
        aads = [h + tail_m3(site, EAST) for h in (head, as_west)]
        keys = [outer_bytes(site, roots) for roots in (mine, other)]
        both = common_tag(keys, nonce_m3(head), aads, filler + inner, block=1)
        if both is not None:
            break
    for h, aad, key in zip((head, as_west), aads, (mine, other), strict=True):
        buf = bytearray(h + both)
        n = len(both) - TAG
        cipher = outer(site, key, int.from_bytes(h[8:11], "big"))
        assert cipher.open_into(nonce_m3(h), aad, buf, M3_HEAD, n), "the forgery is none"
    evil.to_reader(EAST, as_west + both)
    evil.to_reader(EAST, head + both)
    evil.to_reader(EAST, as_west + both)
    heard = [payload for _, payload, _ in evil.heard()]
    # To west it is noise with a valid tag.
    refused = [payload.startswith(b"refused ") for payload in heard]
    # A copy on the live link ends at the mediator already.
    assert refused == ([True, False, True] if evil.own else [True, False])
    assert heard[1] == b"45"


def test_a_reference_to_another_kind_of_key(evil: EvilScene, raw: RawClient) -> None:
    site, roots = raw.ident.site, evil.roots(raw.ident.own.label)
    ms = now_of(evil.listener.raw) * 1000
    for ref in (1, 2, 7):
        head = m3_head(roots, ms, ref=ref)
        cipher = outer(site, roots, int.from_bytes(head[8:11], "big"))
        evil.to_reader(TOPIC, m3(site, head, cipher, TOPIC, _fresh_m1(evil, raw, b"21.5")))
    assert evil.heard() == []
    raw.wire.send(publish(TOPIC, raw.seal(TOPIC, b"honest"), QOS1, 1))
    assert answer(raw) == (0x40, pid_of(1))
    assert evil.heard() == [(TOPIC, b"honest", LIVE)]
