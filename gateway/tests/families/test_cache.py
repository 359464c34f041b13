"""The cache: hits ask nobody, a change drops exactly what it reaches, nothing grows without end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from families.factory import FACTORY, Site
from sealmq.families import cache
from sealmq.families.api import HOWS, NEVER, Ask, Family, TopicLabel, Verdict, allow
from sealmq.families.attributes import Attribute
from sealmq.families.cache import Entry, Slot
from sealmq.families.engine import Decision

TOPIC = "machine/1/temperature"
SENSOR = "m1-temp-sensor"


class Counter(Family):
    """Allows, counts how often it is asked, and reads what the test says."""

    name = "counter"
    rules: ClassVar[dict[str, str]] = {"counter.yes": "Yes."}

    def __init__(self, read: Callable[[Ask], Any] = lambda ask: None) -> None:
        self.asked = 0
        self.read = read

    def _answer(self, ask: Ask) -> Verdict:
        self.asked += 1
        self.read(ask)
        return allow("counter.yes", "yes")

    connect = publish = subscribe = deliver = _answer


def asked(site: Site, counter: Counter, what: Callable[[], Decision]) -> int:
    before = counter.asked
    assert what().allow
    return counter.asked - before


def test_a_hit_asks_nobody_and_gives_the_same_decision() -> None:
    counter = Counter()
    site = Site(FACTORY, counter)
    questions: list[Callable[[], Decision]] = [
        lambda: site.connect(SENSOR),
        lambda: site.publish(SENSOR, TOPIC),
        lambda: site.subscribe(SENSOR, TOPIC),
        lambda: site.deliver(SENSOR, TOPIC, "m1-temp"),
    ]
    for what in questions:
        assert asked(site, counter, what) == 1
        first = what()
        assert asked(site, counter, what) == 0
        assert what() is first


def test_qos_retain_label_and_how_are_part_of_the_key() -> None:
    counter = Counter()
    site = Site(FACTORY, counter)
    conn = site.conn(SENSOR)
    for qos in (0, 1, 2):
        for retain in (False, True):
            publish = lambda q=qos, r=retain: conn.publish(TOPIC, q, r, 1, 1)  # noqa: E731
            assert asked(site, counter, publish) == 1
            assert asked(site, counter, publish) == 0
    for how in range(4):
        deliver = lambda h=how: conn.deliver(TOPIC, "m1-temp", h, 1)  # noqa: E731
        assert asked(site, counter, deliver) == 1
        assert asked(site, counter, deliver) == 0
    assert not conn.deliver(TOPIC, "m1-ctrl", 0, 1).allow
    assert asked(site, counter, lambda: conn.deliver(TOPIC, "m1-temp", 0, 1)) == 1
    assert asked(site, counter, lambda: conn.subscribe(TOPIC, 1, 1)) == 1
    assert asked(site, counter, lambda: conn.subscribe(TOPIC, 2, 1)) == 1


def test_a_message_with_items_never_meets_the_cache_and_one_without_may() -> None:
    """Neither gets the answer that the other has got."""
    counter = Counter(lambda ask: (ask.tlv, ask.grant))
    site = Site(FACTORY, counter)
    conn = site.conn(SENSOR)
    items = {40: b"57"}

    def publish(tlv: Mapping[int, bytes]) -> int:
        return asked(site, counter, lambda: conn.publish(TOPIC, 0, False, 1, 1, tlv))

    def deliver(tlv: Mapping[int, bytes], grant: tuple[str, str] | None = None) -> int:
        return asked(
            site, counter, lambda: conn.deliver(TOPIC, "m1-temp", 0, 1, 1, tlv, grant=grant)
        )

    assert [publish(items), publish(items)] == [1, 1]
    assert [publish({}), publish({})] == [1, 0]
    assert [publish(items), publish({})] == [1, 0]
    assert [deliver(items), deliver(items)] == [1, 1]
    assert [deliver({}), deliver({})] == [1, 0]
    assert [deliver({}, ("counter", "own")), deliver(items), deliver({})] == [1, 1, 0]


def test_an_answer_about_items_of_which_there_are_few_is_kept_for_the_same_alone() -> None:
    class Few(Counter):
        few = frozenset({40})

    counter = Few(lambda ask: (ask.tlv, ask.grant))
    site = Site(FACTORY, counter)
    conn = site.conn(SENSOR)
    own, other = ("counter", "own"), ("counter", "other")

    def deliver(tlv: Mapping[int, bytes], grant: tuple[str, str] | None = own) -> int:
        return asked(
            site, counter, lambda: conn.deliver(TOPIC, "m1-temp", 0, 1, 1, tlv, grant=grant)
        )

    assert [deliver({40: b"57"}), deliver({40: b"57"})] == [1, 0]
    assert [deliver({40: b"58"}), deliver({40: b"58"}), deliver({40: b"57"})] == [1, 0, 0]
    assert [deliver({40: b"57"}, other), deliver({40: b"57"})] == [1, 0]
    assert [deliver({}, None), deliver({40: b"57"})] == [1, 0]
    # Under the label whoever has its key makes as many as he likes; others are of many.
    for tlv, grant in (({40: b"57"}, None), ({40: b"57", 41: b""}, own), ({41: b"5"}, own)):
        assert [deliver(tlv, grant), deliver(tlv, grant)] == [1, 1]
    assert [deliver({}), deliver({})] == [1, 1]


def test_so_is_one_about_what_a_publisher_says() -> None:
    class Few(Counter):
        few = frozenset({40})

    counter = Few(lambda ask: ask.tlv)
    site = Site(FACTORY, counter)
    conn, other = site.conn(SENSOR), site.engine.connection(site.engine.who(SENSOR, 99))

    def publish(tlv: Mapping[int, bytes], topic: str = TOPIC, by: Any = conn) -> int:
        return asked(site, counter, lambda: by.publish(topic, 0, False, 1, 1, tlv))

    assert publish({40: b"57"}) >= 1  # the topic gets its label
    assert [publish({40: b"57"}), publish({40: b"57"})] == [0, 0]
    assert [publish({40: b"58"}), publish({40: b"58"}), publish({40: b"57"})] == [1, 0, 0]
    assert [publish({}), publish({}), publish({40: b"57"})] == [1, 0, 0]
    assert publish({40: b"57"}, f"{TOPIC}/other") >= 1
    assert [publish({40: b"57"}, by=other), publish({40: b"57"}, by=other)] == [1, 0]
    for tlv in ({40: b"57", 41: b""}, {41: b"5"}):
        assert [publish(tlv), publish(tlv)] == [1, 1]


@pytest.mark.parametrize("field", ["size", "message_id", "age_ms"])
def test_what_the_key_does_not_hold_is_never_cached(field: str) -> None:
    counter = Counter(lambda ask: getattr(ask, field))
    site = Site(FACTORY, counter)
    for _ in range(2):
        assert asked(site, counter, lambda: site.publish(SENSOR, TOPIC)) == 1
        assert asked(site, counter, lambda: site.deliver(SENSOR, TOPIC, "m1-temp")) == 1
    assert len(site.engine.cache) == 0


@pytest.mark.parametrize("field", ["topic", "raw", "qos", "retain", "how", "label", "who", "notes"])
def test_what_the_key_holds_may_be_cached(field: str) -> None:
    counter = Counter(lambda ask: getattr(ask, field))
    site = Site(FACTORY, counter)
    assert asked(site, counter, lambda: site.publish(SENSOR, TOPIC)) == 1
    assert asked(site, counter, lambda: site.publish(SENSOR, TOPIC)) == 0


def test_until_ends_a_verdict() -> None:
    class Short(Counter):
        def _answer(self, ask: Ask) -> Verdict:
            self.asked += 1
            return allow("counter.yes", "yes", until=5000)

        publish = _answer

    short = Short()
    site = Site(FACTORY, short)
    for now, times in ((1000, 1), (4999, 0), (5000, 1), (5001, 1)):
        site.now = now
        assert asked(site, short, lambda: site.publish(SENSOR, TOPIC)) == times
    assert len(site.engine.cache) <= 1


def warm(site: Site) -> dict[tuple[str, str], Decision]:
    """Each client's verdict on each topic, all cached."""
    pairs = [(client, topic) for client in site.config.clients for topic in site.config.topics]
    return {(c, t): site.conn(c).publish(t, 0, False, 1, site.now) for c, t in pairs}


def kept(site: Site, before: dict[tuple[str, str], Decision]) -> set[tuple[str, str]]:
    """The pairs whose verdict is still the cached one."""
    return {pair for pair, decision in warm(site).items() if decision is before[pair]}


def test_a_topics_label_reaches_the_verdicts_on_that_topic_only() -> None:
    site = Site()
    before = warm(site)
    site.engine.apply([TopicLabel(TOPIC, "m1-temp", "x", 1)])
    gone = set(before) - kept(site, before)
    assert gone == {(c, TOPIC) for c in site.config.clients if c != "off"}


def test_a_fixed_label_in_the_file_reaches_that_topic_only() -> None:
    site = Site()
    before = warm(site)
    assert site.reload(FACTORY.replace('2/arm/angle" = "m2-ctrl"', '2/arm/angle" = "m2-arm"')) == []
    gone = set(before) - kept(site, before)
    assert gone == {(c, "machine/2/arm/angle") for c in site.config.clients if c != "off"}
    assert site.publish("m2-arm-operator", "machine/2/arm/angle").allow


def test_a_clients_label_reaches_that_client_only() -> None:
    site = Site()
    before = warm(site)
    new = FACTORY.replace('sensor = { label = "m2-temp" }', 'sensor = { label = "none" }')
    assert site.reload(new) == ["m2-temp-sensor"]
    gone = set(before) - kept(site, before)
    assert {client for client, _ in gone} == {"m2-temp-sensor"}
    assert len(gone) == len(site.config.topics)
    assert site.connect("m2-temp-sensor").rule == "labels.client.disabled"


def test_a_change_of_the_order_reaches_the_pairs_that_it_changes() -> None:
    site = Site()
    readers = [c for c in site.config.clients if c != "off"]
    pairs = [(c, t, lab) for c in readers for t, lab in site.config.topics.items()]
    before = {pair: site.deliver(*pair) for pair in pairs}
    site.reload(FACTORY.replace('monitor = ["m1-arm", ', "monitor = ["))
    gone = {pair for pair in pairs if site.deliver(*pair) is not before[pair]}
    one = [t for t in site.config.topics if t.startswith("machine/1")]
    assert gone == {("monitor", t, site.config.topics[t]) for t in one}
    assert not site.deliver("monitor", TOPIC, "m1-temp").allow


def test_the_same_file_again_reaches_nothing() -> None:
    site = Site()
    before = warm(site)
    assert site.reload(FACTORY) == []
    assert kept(site, before) == set(before)


def test_the_cache_is_bounded_and_its_index_with_it() -> None:
    site = Site(size=50)
    for i in range(500):
        site.publish("public", f"t/{i}")
        assert len(site.engine.cache) <= 50
    assert site.engine.cache.deps <= 100
    assert sum(len(slot) for slot in site.conn("public").slots()) == len(site.engine.cache)
    assert site.publish("public", "t/0").allow


def test_a_closed_connection_leaves_nothing() -> None:
    site = Site()
    warm(site)
    assert len(site.engine.cache) > 50
    for conn in site.conns.values():
        conn.close(1)
        conn.close(1)
    assert len(site.engine.cache) == 0
    assert site.engine.cache.deps == 0


def test_subscriptions_reach_the_verdicts_that_looked_at_them() -> None:
    seen: list[list[str]] = []
    counter = Counter(lambda ask: seen.append([sub.filter for sub in ask.subs]))
    site = Site(FACTORY, counter)
    conn = site.conn("monitor")

    def deliver(topic: str) -> int:
        return asked(site, counter, lambda: conn.deliver(topic, "m1-temp", 0, 1))

    def subscribe(filter: str) -> None:
        conn.subscribed(conn.subscribe(filter, 0, 1), 0, 1)

    subscribe("machine/#")
    assert (deliver(TOPIC), deliver("other")) == (1, 1)
    assert seen[-2:] == [["machine/#"], []]
    assert (deliver(TOPIC), deliver("other")) == (0, 0)
    subscribe("$share/g/machine/+/temperature")
    assert (deliver(TOPIC), deliver("other")) == (1, 0)
    assert seen[-1] == ["machine/#", "$share/g/machine/+/temperature"]
    assert conn.unsubscribed("machine/#")
    assert (deliver(TOPIC), deliver("other")) == (1, 0)
    assert seen[-1] == ["$share/g/machine/+/temperature"]
    assert conn.unsubscribed("never/held")


OTHER = f'{SENSOR} = {{ label = "m1-ctrl"'


def stands(site: Site, client: str = SENSOR, topic: str = TOPIC) -> Entry:
    got = site.deliver(client, topic, "m1-temp")
    entry = delivered(site, client)[0][topic]
    assert entry.decision is got
    return entry


def delivered(site: Site, client: str) -> list[Slot]:
    """What is kept of a client's deliveries, by `how`."""
    return list(site.conn(client).slots())[-len(HOWS) :]


def told(site: Site, value: int, until: int) -> None:
    site.engine.take_attributes([Attribute("hour", "", value, until)])


def test_an_answer_that_is_kept_stands_until_what_it_rests_on_changes() -> None:
    ends: list[Callable[[Site], object]] = [
        lambda site: site.commit([TopicLabel(TOPIC, "m1-ctrl", "x", 1)]),
        lambda site: site.reload(FACTORY.replace(f'{SENSOR} = {{ label = "m1-temp"', OTHER)),
        lambda site: site.engine.close_site("lost"),
        lambda site: site.conn(SENSOR).close(1),
        lambda site: site.conn(SENSOR).granted("machine/#", 1),
        lambda site: told(site, 3, 9_000),
        lambda site: [site.publish("public", f"t/{i}") for i in range(60)],
    ]
    for end in ends:
        looks = Counter(lambda ask: (ask.subs, ask.attribute("hour")))
        site = Site(FACTORY, looks, size=50)
        told(site, 1, 5_000)
        conn = site.conn(SENSOR)
        conn.subscribed(conn.subscribe("machine/#", 0, 1), 0, 1)
        entry = stands(site)
        assert entry.until == 5_000
        assert stands(site) is entry
        end(site)
        assert entry.until == NEVER


def test_an_answer_that_may_not_be_kept_does_not_stand() -> None:
    site = Site(FACTORY, Counter(lambda ask: ask.size))
    assert site.deliver(SENSOR, TOPIC, "m1-temp").allow
    assert delivered(site, SENSOR)[0] == {}
    short = Site(FACTORY, Counter(lambda ask: ask.attribute("hour")))
    told(short, 1, 2_000)
    first = stands(short)
    assert first.until == 2_000
    short.now = 2_000
    assert stands(short).until == 2_000 or not stands(short).decision.allow


def test_of_very_many_that_end_none_stands_and_they_are_taken_out_little_by_little() -> None:
    site = Site(FACTORY, Counter(lambda ask: ask.subs), size=2_000)
    conn = site.conn("monitor")
    held = [stands(site, "monitor", f"t/{i}") for i in range(1_500)]
    stands(site)
    closed = len(site.engine.cache)
    conn.close(1)
    assert all(entry.until == NEVER for entry in held)
    assert len(site.engine.cache) == closed
    # Each new one takes some of them out, and each tick more.
    before = len(site.engine.cache)
    stands(site, "root", "t/0")
    assert before - cache.WITH_ONE <= len(site.engine.cache) < before
    for _ in range(2):
        site.engine.tick(site.now)
    assert len(site.engine.cache) == 2
    assert not any(conn.slots())
    assert site.engine.cache.resting(conn.rests_on_subs()) == 0
    # An ended one is none: the next question is judged anew and kept.
    again = site.conn(SENSOR)
    many = [stands(site, SENSOR, f"t/{i}") for i in range(600)]
    again.granted("t/#", 1)
    again.subscribed(again.subscribe("t/#", 0, 1), 0, 1)
    assert all(entry.until == NEVER for entry in many)
    assert stands(site, SENSOR, "t/5") is stands(site, SENSOR, "t/5")
    for i in range(3_000):
        stands(site, SENSOR, f"u/{i}")
        assert len(site.engine.cache) <= 2_000


@pytest.mark.parametrize("seed", range(12))
def test_a_cached_answer_is_the_one_that_asking_anew_would_give(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random changes and questions; beside it the same engine without a memory."""
    monkeypatch.setattr(cache, "AT_ONCE", 256 if seed % 2 else 3)
    pick = random.Random(seed)
    stood = 0
    cached, fresh = Site(size=40), Site()
    clients = [*cached.config.clients, "nobody"]
    topics = [*list(cached.config.topics)[:3], "new/1", "new/2", "$x"]
    labels = [*cached.config.labels, "top", "bottom", "none"]
    lines = [line for line in FACTORY.splitlines() if "label = " in line]
    for _ in range(400):
        kind = pick.random()
        if kind < 0.04:
            old = pick.choice(lines)
            new = old.split("label")[0] + f'label = "{pick.choice(labels)}" }}'
            extra = f'"new/1" = "{pick.choice(labels)}"\n' if pick.random() < 0.5 else ""
            rule = '[[creation]]\nfilter = "new/#"\n' if pick.random() < 0.3 else ""
            order = pick.choice(['monitor = ["m1-arm"]', 'monitor = ["m2-arm"]'])
            text = FACTORY.replace(old, new) + extra + rule
            text = text.replace('monitor = ["m1-arm", "m2-arm", "ctrl-room-temp"]', order)
            assert cached.reload(text) == fresh.reload(text)
        elif kind < 0.06:
            row = TopicLabel(pick.choice(topics), pick.choice(labels[:-1]), "x", 1)
            cached.commit([row])
            fresh.commit([row])
        else:
            client, topic = pick.choice(clients), pick.choice(topics)
            label, qos = pick.choice(labels), pick.randrange(3)
            question = pick.randrange(4)
            answers = []
            for site in (cached, fresh):
                fresh.engine.cache.clear()
                if question == 0:
                    answers.append(site.connect(client))
                elif question == 1:
                    answers.append(site.publish(client, topic, qos=qos))
                elif question == 2:
                    answers.append(site.subscribe(client, topic))
                else:
                    answers.append(site.deliver(client, topic, label, qos))
            assert answers[0] == answers[1]
        fresh.engine.cache.clear()
        for client in cached.conns:
            for how, slot in enumerate(delivered(cached, client)):
                for topic, entry in slot.items():
                    if cached.now < entry.until:
                        stood += 1
                        assert entry.decision == fresh.deliver(client, topic, entry.label, how)
    assert stood > 100
    assert cached.faults == []
    assert cached.stored == fresh.stored
