"""Merging: the order is fixed, the first deny wins, whatever goes wrong is a deny."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from families.factory import FACTORY, Site
from sealmq.families import api
from sealmq.families.api import (
    FOREVER,
    NEVER,
    Ask,
    AtQos,
    Duties,
    Duty,
    Family,
    Follow,
    LabelTopic,
    PutTlv,
    Question,
    Rewrite,
    SealToGrant,
    SealToLink,
    UnfitFamily,
    Verdict,
    allow,
    deny,
)
from sealmq.families.attributes import Attribute
from sealmq.families.duties import EXECUTED, exclude, items_put
from sealmq.families.engine import Decision, Engine
from sealmq.families.faults import BrokenFamily
from sealmq.families.registry import load

TOPIC = "machine/1/temperature"
SENSOR = "m1-temp-sensor"
Answer = Callable[[Ask], Any]


class Fake(Family):
    """Answers every question as the test says, and remembers that it was asked."""

    rules: ClassVar[dict[str, str]] = {"fake.yes": "Yes.", "fake.no": "No."}
    name = "fake"
    duties: ClassVar[Duties] = EXECUTED
    tlvs = frozenset({40})

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def _answer(self, ask: Ask) -> Verdict:
        self.asked.append((ask.question, ask.topic))
        got: Verdict = self.answer(ask)
        return got

    connect = publish = subscribe = deliver = _answer


class Other(Fake):
    name = "other"


def yes(*duties: Duty, until: int = FOREVER, deps: tuple[api.Dep, ...] = ()) -> Answer:
    return lambda ask: allow("fake.yes", "yes", until=until, deps=deps, duties=duties)


def no(until: int = FOREVER) -> Answer:
    return lambda ask: deny("fake.no", "no", until=until)


def refused(answer: Answer, question: str = "publish") -> str:
    """The rule by which the labels family's allow became a deny."""
    got = asked(Site(FACTORY, Fake(answer)), question)
    assert not got.allow
    assert got.duties == ()
    assert got.label is None
    return got.rule


def asked(site: Site, question: str) -> Decision:
    """What the site says to the sensor."""
    ask: dict[str, Callable[[], Decision]] = {
        "connect": lambda: site.connect(SENSOR),
        "publish": lambda: site.publish(SENSOR, TOPIC),
        "subscribe": lambda: site.subscribe(SENSOR, TOPIC),
        "deliver": lambda: site.deliver(SENSOR, TOPIC, "m1-temp"),
    }
    return ask[question]()


def test_the_first_deny_wins_and_ends_the_question() -> None:
    fake, other = Fake(no()), Other(yes())
    site = Site(FACTORY, fake, other)
    got = site.publish(SENSOR, TOPIC)
    assert (got.allow, got.rule, got.family) == (False, "fake.no", "fake")
    assert [vote.rule for vote in got.votes] == ["labels.publish.same-label", "fake.no"]
    assert other.asked == []
    assert site.publish("monitor", TOPIC).family == "labels"
    assert len(fake.asked) == 1, "the labels family has denied before"


def test_allows_are_merged() -> None:
    one = yes(PutTlv(40, b"a"), PutTlv(41, b""), until=9000, deps=(("one",), ("both",)))
    two = yes(PutTlv(42, b""), PutTlv(40, b"a"), until=8000, deps=(("both",),))
    got = Site(FACTORY, Fake(one), Other(two)).publish(SENSOR, TOPIC)
    assert (got.allow, got.rule, got.family) == (True, "labels.publish.same-label", "labels")
    assert got.duties == (PutTlv(40, b"a"), PutTlv(41, b""), PutTlv(42, b""))
    assert got.deps == (("topic", TOPIC), ("one",), ("both",))
    assert got.until == 8000


class Saying(Fake):
    name = "saying"
    audited: ClassVar[frozenset[str]] = frozenset({"mood"})


class SayingToo(Fake):
    name = "saying-too"
    audited: ClassVar[frozenset[str]] = frozenset({"why", "how"})


def says(*audit: tuple[Any, Any]) -> Answer:
    return lambda ask: allow("fake.yes", "yes", audit=audit)


def test_what_all_families_say_for_the_audit_is_the_decision_s() -> None:
    one, two = Saying(says(("mood", "calm"))), SayingToo(says(("how", "so"), ("why", "")))
    site = Site(FACTORY, one, two)
    got = site.deliver(SENSOR, TOPIC, "m1-temp")
    assert got.audit == (("mood", "calm"), ("how", "so"), ("why", ""))
    denies = SayingToo(lambda ask: deny("fake.no", "no", audit=(("why", "so"),)))
    denied = asked(Site(FACTORY, one, denies, Other(yes())), "deliver")
    assert (denied.allow, denied.audit) == (False, (("mood", "calm"), ("why", "so")))
    off = Site(FACTORY, one, denies)
    off.engine.reload(off.config, enforce=False)
    passed = off.deliver(SENSOR, TOPIC, "m1-temp")
    assert (passed.overridden, passed.audit) == (True, ()), "nobody has allowed it for anything"
    site.engine.close_site("its store is new")
    closed = site.deliver(SENSOR, TOPIC, "m1-temp")
    assert (closed.allow, closed.audit) == (False, ())


@pytest.mark.parametrize("bad", [("why", "x"), ("topic", "x"), ("mood", 5), ("mood", None)])
def test_a_family_that_says_what_it_has_no_field_for_denies(bad: tuple[Any, Any]) -> None:
    site = Site(FACTORY, Saying(says(bad)), SayingToo(says(("why", "x"))))
    got = site.deliver(SENSOR, TOPIC, "m1-temp")
    assert (got.allow, got.rule, got.audit) == (False, "engine.bad-verdict", ())


def test_without_a_family_nothing_is_allowed() -> None:
    engine = Engine([])
    conn = engine.connection(engine.who("x"))
    assert conn.connect(1).rule == "engine.no-family"
    assert not conn.publish("t", 0, False, 1, 1).allow


def test_a_family_stands_once_in_the_order() -> None:
    with pytest.raises(ValueError, match="once"):
        Engine([Fake(yes()), Fake(yes())])


@pytest.mark.parametrize("reserved", ["engine", "engine.counts", "attributes", "feedback"])
def test_no_family_has_a_name_under_which_the_engine_itself_is_asked_or_keeps_rows(
    reserved: str,
) -> None:
    class Taking(Fake):
        name = reserved

    with pytest.raises(ValueError, match=reserved):
        Engine([Taking(yes())])


def boom(ask: Ask) -> Verdict:
    raise RuntimeError("defect")


@pytest.mark.parametrize("question", ["connect", "publish", "subscribe", "deliver"])
def test_a_family_that_fails_denies_and_is_reported(question: str) -> None:
    assert refused(boom, question) == "engine.exception"
    site = Site(FACTORY, Fake(boom))
    site.publish(SENSOR, TOPIC)
    [(family, asked, error)] = site.faults
    assert (family, asked, str(error)) == ("fake", "publish", "defect")
    assert len(site.engine.cache) == 0, "tried again next time"


@pytest.mark.parametrize(
    "answer",
    [
        lambda ask: None,
        lambda ask: True,
        lambda ask: Verdict("yes", "fake.yes", ""),  # type: ignore[arg-type]
        lambda ask: allow("fake.unheard-of", "yes"),
        lambda ask: allow("labels.publish.first", "another's rule"),
    ],
)
def test_what_is_no_verdict_denies(answer: Answer) -> None:
    assert refused(answer) == "engine.bad-verdict"


@pytest.mark.parametrize(
    "answer",
    [
        lambda ask: allow("fake.yes", "yes", deps=(["a", "list"],)),  # type: ignore[arg-type]
        lambda ask: allow("fake.yes", "yes", deps=7),  # type: ignore[arg-type]
        lambda ask: allow("fake.yes", "yes", until="soon"),  # type: ignore[arg-type]
        lambda ask: allow("fake.yes", "yes", duties=7),  # type: ignore[arg-type]
        lambda ask: allow(["fake.yes"], "yes"),  # type: ignore[arg-type]
    ],
)
def test_a_verdict_with_parts_that_are_none_denies_and_is_a_fault(answer: Answer) -> None:
    site = Site(FACTORY, Fake(answer))
    got = site.publish(SENSOR, TOPIC)
    assert (got.allow, got.rule) == (False, "engine.exception")
    assert [fault[:2] for fault in site.faults] == [("fake", "publish")]


def test_a_deny_asks_for_nothing_that_an_earlier_family_wanted() -> None:
    wants = yes(LabelTopic("m1-temp"), PutTlv(40, b"a"))
    got = Site(FACTORY, Fake(wants), Other(no())).publish(SENSOR, TOPIC)
    assert (got.allow, got.rule, got.family) == (False, "fake.no", "other")
    assert (got.duties, got.label) == ((), None)


def test_an_encoding_that_belongs_to_no_question_is_not_loaded() -> None:
    class Forgetful(Fake):
        def parse(self, question: Question, topic: str) -> api.Parsed | None:
            return api.Parsed(topic[1:], {}) if topic[:1] == "~" else None

    with pytest.raises(UnfitFamily, match=r"fake.*no question") as caught:
        Engine([Forgetful(yes())])
    assert "parses" in caught.value.hint
    Forgetful.parses = frozenset({"publish"})
    got = Site(FACTORY, Forgetful(yes())).publish(SENSOR, f"~{TOPIC}")
    assert (got.allow, got.raw, got.topic) == (True, f"~{TOPIC}", TOPIC)


def test_a_family_that_does_not_answer_denies() -> None:
    class Silent(Family):
        name = "silent"
        rules: ClassVar[dict[str, str]] = {}

    site = Site(FACTORY, Silent())
    assert site.publish(SENSOR, TOPIC).rule == "engine.exception"


class Novel:
    """A duty that nobody has heard of."""


@pytest.mark.parametrize(
    ("duty", "question"),
    [
        (Novel(), "publish"),
        (PutTlv(31, b""), "publish"),  # the protocol's own
        (PutTlv(0x81, b""), "publish"),
        (PutTlv(256, b""), "publish"),
        (PutTlv(0x80 | 41, b""), "publish"),  # critical, and it does not understand it itself
        (PutTlv(40, bytes(256)), "publish"),
        (LabelTopic("m1-ctrl"), "publish"),  # not a label of the client
        (LabelTopic("m1-temp"), "deliver"),
        (SealToLink(), "publish"),
        (SealToGrant("other", "crew"), "deliver"),  # another family's
        (SealToGrant("fake", 5), "deliver"),  # type: ignore[arg-type]
        (SealToGrant("fake", "crew"), "subscribe"),
        (SealToGrant("other", "crew"), "publish"),
        (AtQos(3), "deliver"),
        (AtQos(-1), "deliver"),
        (AtQos(0), "publish"),
        (PutTlv(31, b"a"), "deliver"),
        (Rewrite("x"), "deliver"),
        (PutTlv(40, b"a"), "connect"),
        (Rewrite(""), "publish"),
        (Rewrite("x" * 1025), "publish"),
        (Rewrite("x"), "connect"),
    ],
)
def test_a_duty_that_cannot_be_done_denies(duty: Any, question: str) -> None:
    assert refused(yes(duty), question) == "engine.bad-duty"


@pytest.mark.parametrize("question", EXECUTED)
def test_a_duty_that_the_family_has_not_declared_denies_and_is_a_fault(question: Question) -> None:
    class Silent(Fake):
        duties: ClassVar[Duties] = {}

    for kind in (Follow(), PutTlv(40, b"a"), Rewrite("x")):
        site = Site(FACTORY, Silent(yes(kind)))
        got = asked(site, question)
        assert (got.allow, got.rule, got.duties) == (False, "engine.bad-duty", ())
        assert [(name, at) for name, at, _ in site.faults] == [("fake", question)]


@pytest.mark.parametrize("question", EXECUTED)
@pytest.mark.parametrize("duty", [LabelTopic, Rewrite, PutTlv, SealToLink, SealToGrant, Follow])
def test_a_family_that_asks_for_what_nobody_does_is_not_loaded(
    duty: type[Duty], question: Question
) -> None:
    class Asking(Fake):
        duties: ClassVar[Duties] = {question: frozenset({duty})}

    if duty in EXECUTED[question]:
        Engine([Asking(yes())])
        return
    with pytest.raises(UnfitFamily, match=f"fake.*{duty.__name__} on {question}") as caught:
        Engine([Asking(yes())])
    assert caught.value.hint


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (PutTlv(40, b"a"), PutTlv(40, b"b")),
        (PutTlv(40, b"a"), PutTlv(0x80 | 40, b"a")),  # a type occurs once in a block
        (Rewrite("a"), Rewrite("b")),
    ],
)
def test_duties_that_exclude_each_other_deny(one: Duty, two: Duty) -> None:
    site = Site(FACTORY, Fake(yes(one)), Other(yes(two)))
    assert site.publish(SENSOR, TOPIC).rule == "engine.duty-conflict"


def test_one_delivery_is_sealed_in_one_form() -> None:
    assert exclude(SealToLink(), SealToGrant("fake", "crew"))
    assert exclude(SealToGrant("fake", "staff"), SealToGrant("fake", "crew"))
    assert not exclude(SealToLink(), PutTlv(40, b""))


def test_an_item_that_is_put_takes_the_place_of_one_of_its_type() -> None:
    duties = (SealToLink(), PutTlv(0x80 | 40, b"new"), PutTlv(42, b""))
    among = {2: b"fire", 40: b"old", 41: b"stays"}
    assert items_put(duties, among) == {2: b"fire", 41: b"stays", 0x80 | 40: b"new", 42: b""}


def test_a_delivery_may_be_sealed_to_the_link_with_items() -> None:
    duties = (SealToLink(), PutTlv(40, b"a"))
    got = Site(FACTORY, Fake(yes(*duties)), Other(yes(SealToLink()))).deliver(
        SENSOR, TOPIC, "m1-temp"
    )
    assert (got.allow, got.duties) == (True, duties)


def test_two_tlvs_go_together() -> None:
    duties = (PutTlv(40, b"a"), PutTlv(41, b"b"))
    assert Site(FACTORY, Fake(yes(*duties))).publish(SENSOR, TOPIC).duties == duties


def test_a_rewritten_topic_is_judged_again_by_all() -> None:
    def moved(ask: Ask) -> Verdict:
        return allow("fake.yes", "yes", duties=(Rewrite("machine/1/arm/angle"),))

    fake = Fake(moved)
    site = Site(FACTORY, fake)
    got = site.publish(SENSOR, TOPIC)
    assert (got.allow, got.rule) == (False, "labels.publish.other-label"), "no way around r_p"
    got = site.publish("m1-control-panel", "machine/1/arm/height")
    assert got.allow
    assert (got.raw, got.topic) == ("machine/1/arm/height", "machine/1/arm/angle")
    assert ("topic", "machine/1/arm/height") in got.deps
    assert ("topic", "machine/1/arm/angle") in got.deps


def test_a_rewrite_that_does_not_end_denies() -> None:
    assert (
        refused(lambda ask: allow("fake.yes", "", duties=(Rewrite(ask.topic + "x"),)), "subscribe")
        == "engine.rewrite-loop"
    )


def test_an_unknown_attribute_denies_until_it_is_told_and_after_it_is_over() -> None:
    site = Site(FACTORY, Fake(lambda ask: yes()(ask) if ask.attribute("open") else no()(ask)))

    def rule() -> str:
        return site.publish(SENSOR, TOPIC).rule

    def told(value: bool, until: int, subject: str = "") -> None:
        site.engine.take_attributes([Attribute("open", subject, value, until)])

    assert rule() == "engine.unknown-attribute"
    told(True, 2000)
    assert rule() == "labels.publish.same-label"
    site.now = 1999
    assert rule() == "labels.publish.same-label"
    site.now = 2000
    assert rule() == "engine.unknown-attribute"
    told(False, 9000)
    assert rule() == "fake.no"
    told(True, 9000, "another")
    assert rule() == "fake.no"
    assert site.faults == []


def test_a_family_that_cannot_take_a_record_allows_nothing_more() -> None:
    class Lost(Fake):
        def apply(self, records: Any) -> Any:
            raise KeyError("index")

    site = Site(FACTORY, Lost(yes()))
    assert site.publish(SENSOR, TOPIC).allow
    site.commit([api.FamilyRecord("x", "k", b"")])
    assert site.engine.lost == ""
    site.commit([api.FamilyRecord("fake", "k", b"")])
    assert site.publish(SENSOR, TOPIC).rule == "engine.exception"
    assert site.publish("monitor", TOPIC).family == "labels"
    assert "'fake' has failed at apply, KeyError" in site.engine.lost


def test_a_family_that_cannot_tell_whose_rows_are_void_allows_nothing_and_ends_nothing() -> None:
    class Lost(Fake):
        def noted(self, since: Any) -> bool:
            raise KeyError("since")

        def bearers(self, since: Any, rows: Any) -> Any:
            raise KeyError("rows")

    site = Site(FACTORY, Lost(yes()))
    assert site.publish(SENSOR, TOPIC).allow
    assert site.engine.noted({SENSOR: 5}), "others may have something to do"
    assert site.publish(SENSOR, TOPIC).rule == "engine.exception"
    assert "'fake' has failed at noted, KeyError" in site.engine.lost
    assert [fault[:2] for fault in site.faults] == [("fake", "noted")]
    with pytest.raises(BrokenFamily, match="'fake' fails at bearers: KeyError") as broken:
        site.engine.bearers({SENSOR: 5}, list)
    site.engine.no_bearers(broken.value)
    assert site.faults[-1][:2] == ("fake", "bearers")
    assert "'fake' has failed at bearers, KeyError" in site.engine.lost


def test_a_family_gets_its_own_rows_and_of_others_those_that_it_reads() -> None:
    class Reads(Fake):
        got: ClassVar[list[api.Record]] = []

        def apply(self, records: Any) -> Any:
            self.got.extend(records)
            return ()

    class ReadsMore(Reads):
        got: ClassVar[list[api.Record]] = []
        reads: ClassVar[frozenset[type[api.Record]]] = frozenset({api.TopicLabel})
        name = "more"

    site = Site(FACTORY, Reads(yes()), ReadsMore(yes()))
    rows: list[api.Record] = [
        api.FamilyRecord("fake", "k", b""),
        api.FamilyRecord("other", "k", b""),
        api.TopicLabel(TOPIC, "m1-temp", SENSOR, 1),
        api.TopicReset("a"),
    ]
    site.commit(rows)
    assert Reads.got == rows[:1]
    assert ReadsMore.got == rows[2:3]


def test_a_configuration_that_a_family_refuses_leaves_the_old_one() -> None:
    class Picky(Fake):
        def configure(self, config: api.Policy) -> api.Change:
            if "picky" in config.clients:
                raise ValueError("not with me")
            return api.Change()

    site = Site(FACTORY, Picky(yes()))
    assert site.publish(SENSOR, TOPIC).allow
    new = FACTORY.replace('temperature" = "m1-temp"', 'temperature" = "monitor"')
    with pytest.raises(BrokenFamily, match="'fake' fails at configure: ValueError: not with me"):
        site.reload(new.replace("[clients]", '[clients]\npicky = { label = "m1-temp" }'))
    assert site.publish(SENSOR, TOPIC).allow
    assert not site.publish("monitor", TOPIC).allow
    assert site.engine.who("picky").label == "none"


def test_policy_off_allows_everything_says_so_and_keeps_the_rule() -> None:
    site = Site(FACTORY, enforce=False)
    [warning] = site.engine.warnings
    assert "POLICY IS OFF" in warning
    got = site.publish(SENSOR, "machine/1/arm/angle")
    assert (got.allow, got.overridden) == (True, True)
    assert got.rule == "labels.publish.other-label"
    assert got.duties == ()
    assert site.connect("off").overridden
    good = site.publish(SENSOR, TOPIC)
    assert (good.allow, good.overridden) == (True, False)
    assert site.publish(SENSOR, "new").allow
    assert site.stored, "labelling goes on"
    assert warning in site.engine.explain(site.conn(SENSOR), got)
    site.engine.reload(site.config, enforce=True)
    assert not site.publish(SENSOR, "machine/1/arm/angle").allow
    assert site.engine.warnings == []


def test_rules_of_all_families_are_in_one_table() -> None:
    table = Site(FACTORY, Fake(yes())).engine.rules
    assert table["fake.no"] == "No."
    assert "labels.publish.first" in table
    assert "engine.exception" in table
    assert all(line.endswith(".") for line in table.values())


def test_never_is_never() -> None:
    assert NEVER == 0
    fake = Fake(yes(until=NEVER))
    site = Site(FACTORY, fake)
    site.publish(SENSOR, TOPIC)
    site.publish(SENSOR, TOPIC)
    assert len(fake.asked) == 2


def test_neither_family_decides_by_what_one_worker_s_clients_do() -> None:
    """`see` tells of those alone; of several workers each would decide otherwise."""
    for family in load(["labels", "purposes"]):
        assert type(family).see is Family.see
