"""Claim 15: of clients that publish first on one topic at the same time one labels it, for good;
none of the others is heard, before a kill -9 of the mediator or behind it.
"""

from __future__ import annotations

from attack_scene import TOPIC, answer, notices, pid_of
from evil_scene import EvilScene
from wire import RawClient, publish

NAMES = ("m1-temp-sensor", "m2-control-panel", "east-sensor")
TOPICS = [b"race/%d" % n for n in range(12)]


def _all_first(evil: EvilScene) -> list[RawClient]:
    """Each publishes on all topics, without waiting for anything."""
    raws = [evil.client(name) for name in NAMES]
    for raw in raws:
        raw.connect(keepalive=0)
    for topic in TOPICS:
        for raw in raws:
            payload = b"%d" % raw.ident.client
            raw.wire.send(publish(topic, raw.seal(topic, payload), 0x32, 1 + TOPICS.index(topic)))
    return raws


def _owners(evil: EvilScene, raws: list[RawClient]) -> dict[bytes, set[bytes]]:
    """Who was heard on each topic; all but that one were told."""
    for raw in raws:
        # A refusal need not wait for the broker, as what stands before it may.
        answers = sorted(answer(raw) for _ in TOPICS)
        assert answers == [(0x40, pid_of(n)) for n in range(1, 13)]
    heard = [(topic, payload) for topic, payload, _ in evil.heard()]
    owners = {t: {payload for topic, payload in heard if topic == t} for t in TOPICS}
    told = sum(len(notices(raw)) for raw in raws)
    assert told == len(TOPICS) * (len(raws) - 1)
    return owners


def test_one_of_several_first_publishers_wins(evil: EvilScene) -> None:
    owners = _owners(evil, _all_first(evil))
    assert all(len(who) == 1 for who in owners.values()), owners
    pid = evil.site.kill("mediator")
    evil.site.back("mediator", pid)
    evil.gather()
    evil.heard()
    assert _owners(evil, _all_first(evil)) == owners
    rows = evil.site.audit("topic-labelled")
    topics = [row["topic"] for row in rows if row["topic"].startswith("race/")]
    assert sorted(topics) == sorted(t.decode() for t in TOPICS)
    assert TOPIC.decode() not in topics
