"""The labels family against the paper's section 3: the factory, the rules, the special labels."""

from __future__ import annotations

import pytest

from families.factory import FACTORY, HEAD, Site, config
from sealmq.families.api import Record, ResetDone, TopicLabel, TopicReset
from sealmq.families.labels.rules import RULES
from sealmq.site.errors import ConfigError

CLIENTS = {
    "m1-temp-sensor": {"machine/1/temperature"},
    "m1-control-panel": {"machine/1/arm/angle", "machine/1/arm/height"},
    "m1-arm-operator": set(),
    "m2-temp-sensor": {"machine/2/temperature"},
    "m2-control-panel": {"machine/2/arm/angle", "machine/2/arm/height"},
    "m2-arm-operator": set(),
    "control-room-temp-sensor": {"control-room/temperature"},
    "monitor": set(),
}
ONE = {"machine/1/temperature"}
ARM = {"machine/1/arm/angle", "machine/1/arm/height"}
READS = {
    "m1-temp-sensor": ONE,
    "m1-control-panel": ONE | ARM,
    "m1-arm-operator": ONE | ARM,
    "m2-temp-sensor": {"machine/2/temperature"},
    "control-room-temp-sensor": {"control-room/temperature"},
}


@pytest.fixture
def site() -> Site:
    return Site()


def test_who_publishes_where_in_the_factory(site: Site) -> None:
    for client, may in CLIENTS.items():
        for topic in site.config.topics:
            got = site.publish(client, topic)
            assert got.allow == (topic in may), (client, topic)
            rule = "same-label" if got.allow else "other-label"
            assert got.rule == f"labels.publish.{rule}"
            assert (got.duties, got.label, got.topic) == ((), None, topic)
    assert site.stored == [], "fixed labels are not learned"


def test_who_reads_what_in_the_factory(site: Site) -> None:
    every = set(site.config.topics)
    reads = {**READS, "monitor": every, "root": every, "public": set()}
    for client, may in reads.items():
        for topic, label in site.config.topics.items():
            got = site.deliver(client, topic, label)
            assert got.allow == (topic in may), (client, topic)
            assert got.rule == f"labels.deliver.{'dominated' if got.allow else 'above'}"
            sub = site.subscribe(client, topic)
            assert sub.allow == got.allow
            assert sub.rule == f"labels.subscribe.{'dominated' if got.allow else 'above'}"


def test_a_first_publish_makes_the_topic_the_clients_own(site: Site) -> None:
    first = site.conn("m1-temp-sensor").publish("machine/1/humidity", 1, False, 5, 7)
    assert (first.allow, first.rule, first.label) == (True, "labels.publish.first", "m1-temp")
    assert site.publish("m1-temp-sensor", "machine/1/humidity").rule == "labels.publish.same-label"
    assert site.stored == [TopicLabel("machine/1/humidity", "m1-temp", "m1-temp-sensor", 1000)]
    got = site.publish("m1-control-panel", "machine/1/humidity")
    assert (got.allow, got.rule) == (False, "labels.publish.other-label")
    assert got.reason == "the topic has m1-temp, the client m1-ctrl"


def test_whoever_loses_the_race_is_refused(site: Site) -> None:
    topic = "race"
    asked = [site.conn(c).publish(topic, 0, False, 1, 1) for c in ("m1-temp-sensor", "monitor")]
    assert [got.label for got in asked] == ["m1-temp", "monitor"]
    site.commit([TopicLabel(topic, "monitor", "monitor", 1)])
    assert site.publish("monitor", topic).allow
    assert site.publish("m1-temp-sensor", topic).rule == "labels.publish.other-label"


def test_parents_and_children_are_topics_of_their_own(site: Site) -> None:
    site.publish("m1-temp-sensor", "a/b")
    assert site.publish("m2-temp-sensor", "a").allow
    assert site.publish("monitor", "a/b/c").allow


def test_bottom_top_and_none(site: Site) -> None:
    assert site.publish("public", "news").allow
    assert all(site.deliver(client, "news", "bottom").allow for client in (*CLIENTS, "public"))
    assert site.publish("root", "secrets").allow
    assert not site.deliver("monitor", "secrets", "top").allow
    assert site.deliver("root", "secrets", "top").allow
    for got in (
        site.connect("off"),
        site.publish("off", "new"),
        site.publish("off", "news"),
        site.subscribe("off", "#"),
        site.deliver("off", "news", "bottom"),
    ):
        assert (got.allow, got.rule) == (False, "labels.client.disabled")
    assert not site.deliver("root", "t", "none").allow


def test_an_unknown_client_gets_nothing(site: Site) -> None:
    for got in (site.connect("nobody"), site.publish("nobody", "x"), site.subscribe("nobody", "x")):
        assert (got.allow, got.rule) == (False, "labels.client.unknown")


@pytest.mark.parametrize("topic", ["$SYS/x", "!c1", "@sm1/z/1/2", "$share/g/t"])
def test_reserved_topics_are_not_published_on(site: Site, topic: str) -> None:
    assert site.publish("root", topic).rule == "labels.publish.reserved"


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "a\0", "ü" * 513, "\ud800"])
def test_malformed_topics_are_not_published_on(site: Site, topic: str) -> None:
    assert site.publish("root", topic).rule == "labels.publish.malformed"


@pytest.mark.parametrize(
    ("filter", "rule"),
    [
        ("#", "narrowed"),
        ("machine/+/temperature", "narrowed"),
        ("$share/g/machine/#", "narrowed"),
        ("machine/1/temperature", "dominated"),
        ("$share/g/machine/1/temperature", "dominated"),
        ("machine/2/temperature", "above"),
        ("$share/g/machine/2/temperature", "above"),
        ("nobody/was/here", "unlabelled"),
        ("@sm1/z/#", "records"),
        ("@sm1/m/16", "records"),
        ("$SYS/#", "reserved"),
        ("!c1", "reserved"),
        ("@other/#", "reserved"),
        ("$share/g/$SYS/#", "reserved"),
        ("", "malformed"),
        ("a#", "malformed"),
        ("$share/g", "malformed"),
        ("$share//t", "malformed"),
        ("$share/g/", "malformed"),
        ("$share/+/t", "malformed"),
    ],
)
def test_subscriptions(site: Site, filter: str, rule: str) -> None:
    got = site.subscribe("m1-control-panel", filter)
    assert got.rule == f"labels.subscribe.{rule}"
    assert got.allow == (rule in ("narrowed", "dominated", "unlabelled", "records"))


def test_deliveries_without_a_label(site: Site) -> None:
    assert site.deliver("public", "@sm1/z/16/17", "").rule == "labels.deliver.record"
    assert site.deliver("root", "@sm1/z/16/17", "m1-temp").rule == "labels.deliver.dominated"
    assert site.deliver("root", "machine/1/temperature", "").rule == "labels.deliver.unlabelled"
    assert not site.deliver("root", "machine/1/temperature", "no-such-label").allow


def test_an_old_message_of_a_topic_that_was_raised_is_withheld(site: Site) -> None:
    assert site.deliver("m1-temp-sensor", "machine/1/temperature", "m1-temp").allow
    site.reload(FACTORY.replace('temperature" = "m1-temp"', 'temperature" = "m1-arm"'))
    got = site.deliver("m1-temp-sensor", "machine/1/temperature", "m1-temp")
    assert (got.allow, got.rule) == (False, "labels.deliver.topic-above")
    assert site.deliver("m1-arm-operator", "machine/1/temperature", "m1-temp").allow


CREATION = """
[[creation]]
filter = "machine/1/arm/#"
labels = ["m1-ctrl"]
[[creation]]
filter = "machine/1/log"
labels = ["m1-temp"]
clients = ["m1-arm-operator"]
[[creation]]
filter = "machine/#"
[[creation]]
filter = "machine/free"
labels = ["m1-temp"]
"""


@pytest.mark.parametrize(
    ("client", "topic", "rule"),
    [
        ("m1-control-panel", "machine/1/arm/grip", "publish.same-label"),
        ("m1-temp-sensor", "machine/1/arm/grip", "create.not-allowed"),
        ("m1-control-panel", "machine/1/arm/angle", "publish.same-label"),
        ("m1-temp-sensor", "machine/1/log", "publish.same-label"),
        ("m1-arm-operator", "machine/1/log", "publish.same-label"),
        ("m1-control-panel", "machine/1/log", "create.not-allowed"),
        ("root", "machine/3/x", "create.reserved"),
        ("m1-temp-sensor", "machine/free", "create.reserved"),  # the rule above it matches first
        ("m1-temp-sensor", "machine/1/temperature", "publish.same-label"),  # fixed: it exists
        ("root", "elsewhere", "publish.same-label"),
    ],
)
def test_who_may_create_topics(client: str, topic: str, rule: str) -> None:
    assert Site(FACTORY + CREATION).publish(client, topic).rule == f"labels.{rule}"


def test_topics_that_are_there_now_count_towards_a_limit_and_forgotten_ones_do_not() -> None:
    limits = "[limits]\ntopics = 2\nlabel_topics = 3\n"
    head, table, topics = FACTORY.partition("[topics]\n")
    more = head.replace("[clients]\n", '[clients]\nsecond = { label = "m1-temp" }\n')
    site = Site(limits + more + table + topics)
    assert [site.publish("m1-temp-sensor", t).allow for t in "abc"] == [True, True, False]
    assert site.publish("m1-temp-sensor", "c").rule == "labels.create.client-full"
    assert site.publish("m1-temp-sensor", "machine/1/temperature").allow, "fixed in the file"
    assert [site.publish("second", t).rule for t in "cd"] == [
        "labels.publish.same-label",
        "labels.create.label-full",
    ]
    assert site.publish("m1-control-panel", "e").allow, "another label"
    # Told again of what is there: nothing counts twice.
    site.engine.apply([TopicLabel("a", "m1-temp", "m1-temp-sensor", 1)])
    forgets = '[topics]\n"b" = "none"\n'
    site.reload(limits + more + forgets + topics)
    assert site.publish("m1-temp-sensor", "f").allow
    assert not site.publish("m1-temp-sensor", "g").allow
    site.reload("[limits]\ntopics = 3\nlabel_topics = 9\n" + more + forgets + topics)
    assert site.publish("m1-temp-sensor", "g").allow
    assert not site.publish("m1-temp-sensor", "h").allow


def test_what_could_not_be_labelled_counts_anew_when_it_comes_again() -> None:
    """While the broker is away, or the disk full, no topic gets a label: what was said of each of
    many topics then must not pass the limit later.
    """
    site = Site("[limits]\ntopics = 2\nlabel_topics = 9\n" + FACTORY)
    conn = site.conn("m1-temp-sensor")
    for topic in "abcd":
        assert conn.publish(topic, 1, False, 10, site.now).label == "m1-temp"
    assert [site.publish("m1-temp-sensor", t, qos=1).rule for t in "abcd"] == [
        "labels.publish.same-label",
        "labels.publish.same-label",
        "labels.create.client-full",
        "labels.create.client-full",
    ]


def test_a_new_client_of_a_removed_one_s_name_may_create_as_many_topics_as_any_other() -> None:
    site = Site("[limits]\ntopics = 2\nlabel_topics = 3\n" + FACTORY)
    name = "m1-temp-sensor"
    site.engine.apply([TopicLabel(topic, "m1-temp", name, 1000) for topic in "ab"])
    assert site.publish(name, "c").rule == "labels.create.client-full"
    site.engine.noted({name: 2000})
    site.engine.apply([TopicLabel("c", "m1-temp", name, 2000)])
    assert site.publish(name, "d").rule == "labels.create.label-full", "the old are there"
    site.reload("[limits]\ntopics = 2\nlabel_topics = 9\n" + FACTORY)
    assert site.publish(name, "d").allow
    site.engine.noted({name: 2000, "monitor": 3000})
    site.engine.apply([TopicLabel("e", "m1-temp", name, 2001)])
    assert site.publish(name, "f").rule == "labels.create.client-full"


@pytest.mark.parametrize(("size", "counts"), [(1, 1), (128, 1), (129, 2), (1024, 8)])
def test_a_long_topic_counts_several_times(size: int, counts: int) -> None:
    text = "[limits]\ntopics = 10\n" + FACTORY
    site = Site(text)
    assert site.publish("m1-temp-sensor", "x" * size).allow
    free = [site.publish("m1-temp-sensor", f"t{n}").allow for n in range(12)]
    assert sum(free) == 10 - counts


def test_new_creation_rules_do_not_touch_topics_that_exist() -> None:
    site = Site()
    site.publish("m1-temp-sensor", "machine/3/x")
    refused = site.conn("m1-temp-sensor").publish("machine/3/y", 0, False, 1, 1)
    assert refused.label == "m1-temp"
    site.reload(FACTORY + CREATION)
    assert site.publish("m1-temp-sensor", "machine/3/x").allow
    assert site.publish("m1-temp-sensor", "machine/3/y").rule == "labels.create.reserved"
    site.reload(FACTORY)
    assert site.publish("m1-temp-sensor", "machine/3/y").allow


def test_none_forgets_a_learned_label_once() -> None:
    site = Site()
    site.publish("m1-temp-sensor", "t")
    none = FACTORY + '"t" = "none"\n'
    site.reload(none)
    assert site.stored[-1:] == [TopicReset("t")]
    assert site.publish("m2-temp-sensor", "t").allow
    assert not site.publish("m1-temp-sensor", "t").allow
    site.reload(none)
    assert site.stored.count(TopicReset("t")) == 1
    assert site.publish("m2-temp-sensor", "t").allow
    site.reload(FACTORY)
    assert site.stored[-1:] == [ResetDone("t")]
    assert site.publish("m2-temp-sensor", "t").allow
    site.reload(none)
    assert site.publish("m1-temp-sensor", "t").allow


def test_none_is_not_repeated_after_a_restart() -> None:
    none = FACTORY + '"t" = "none"\n'
    site = Site(none)
    assert site.stored == [TopicReset("t")]
    site.publish("m2-temp-sensor", "t")
    rows: list[Record] = [TopicLabel("t", "m2-temp", "m2-temp-sensor", 1)]
    rows.append(TopicReset("t", done=True))
    for order in (rows, rows[::-1]):
        again = Site()
        assert again.engine.load(site.config, order) == []
        assert not again.publish("m1-temp-sensor", "t").allow
        assert again.publish("m2-temp-sensor", "t").allow


def test_a_reset_that_is_not_on_disk_has_not_happened() -> None:
    site = Site()
    site.publish("m1-temp-sensor", "t")
    site.config = type(site)(FACTORY + '"t" = "none"\n').config
    done = site.engine.reload(site.config)
    assert done.records == [TopicReset("t")]
    assert not site.publish("m2-temp-sensor", "t").allow
    assert site.engine.reload(site.config).records == [TopicReset("t")]


def test_what_the_file_fixes_counts_and_what_was_learned_comes_back() -> None:
    site = Site()
    site.publish("m1-temp-sensor", "t")
    site.reload(FACTORY + '"t" = "monitor"\n')
    assert not site.publish("m1-temp-sensor", "t").allow
    assert site.publish("monitor", "t").allow
    site.reload(FACTORY)
    assert site.publish("m1-temp-sensor", "t").allow


def test_a_topic_of_a_label_that_is_gone_is_closed() -> None:
    site = Site()
    site.publish("public", "t")
    site.commit([TopicLabel("old", "gone-label", "x", 1)])
    assert not site.publish("m1-temp-sensor", "old").allow
    assert not site.subscribe("root", "old").allow
    assert not site.deliver("root", "old", "gone-label").allow


def test_explain_says_where_a_label_comes_from() -> None:
    site = Site(FACTORY + CREATION)
    site.publish("m1-temp-sensor", "learned")

    def lines(client: str, topic: str) -> list[str]:
        conn = site.conn(client)
        return site.engine.explain(conn, conn.publish(topic, 0, False, 1, 1))

    meaning = RULES["labels.publish.other-label"]
    assert lines("m1-temp-sensor", "machine/1/arm/angle") == [
        f"labels.publish.other-label: {meaning} (the topic has m1-ctrl, the client m1-temp)",
        "machine/1/arm/angle has the label m1-ctrl, fixed in sealmq.toml",
    ]
    assert lines("monitor", "learned")[1] == (
        "learned has the label m1-temp, from m1-temp-sensor's publish"
    )
    assert lines("monitor", "machine/9")[1:] == [
        "[[creation]] filter machine/# lets topics be created by nobody"
    ]
    assert lines("monitor", "elsewhere")[1:] == []


def test_every_rule_is_explained_in_one_line() -> None:
    for rule, line in RULES.items():
        assert rule.startswith("labels.")
        assert line.endswith(".")
        assert len(line) <= 100


def test_the_order_of_labels_may_change_live() -> None:
    base = HEAD + '[clients]\na = { label = "a" }\n[labels]\n'
    site = Site(base + "a = []\nb = []\n")
    assert not site.deliver("a", "t", "b").allow
    site.reload(base + 'a = ["b"]\nb = []\n')
    assert site.deliver("a", "t", "b").allow
    site.reload(base + "a = []\nb = []\n")
    assert not site.deliver("a", "t", "b").allow


def test_a_setting_that_nothing_would_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="no settings") as refused:
        config("[families.labels]\nstrict = true\n")
    assert refused.value.key == "families.labels.strict"
    assert config("[families.labels]\n").families == {"labels": {}}
