"""Feedback of readers on messages of other sites, from their mediator to the bridge's exchange: one
word a client and message, of what it received, and not too many (claim 46)."""

from __future__ import annotations

import json

import pytest

from families.factory import HEAD
from families.trust.trust_world import NOW, World
from sealmq import feedback
from sealmq.cli.errors import UsageError
from sealmq.families.api import FamilyConfigError, Proposal, Verdict
from sealmq.families.engine import Conn, Engine
from sealmq.families.labels.family import Labels
from sealmq.families.trust.cli import assess
from sealmq.families.trust.cli.report import Report
from sealmq.families.trust.events import SETTLE_MS
from sealmq.families.trust.family import FEEDBACK, FEEDBACK_MS, Trust
from sealmq.families.trust.settings import read
from sealmq.feedback import Said
from sealmq.site.check import parse
from sealmq_spec.errors import Malformed
from sealmq_spec.origin import message_id

HEAT, WATER = "@b5/heat/1", "@b5/water/1"
M1 = bytes(range(27)) + b"sealed" + bytes(16)
ID = message_id(M1)
SITE = (
    HEAD
    + """
[labels]
low = []
warm = ["heat@b5"]
high = ["heat@b5", "water@b5"]
[clients]
ann = { label = "warm" }
bob = { label = "high" }
cal = { label = "warm" }
low = { label = "low" }
checker = { label = "warm" }
[peers.b5]
fingerprint = "%s"
address = "b5.example:8884"
import = ["heat", "water"]
[families.trust]
assessors = ["checker"]
[families.trust.tokens]
ann = { subscribe = ["@b5/heat/#"] }
bob = { subscribe = ["@b5/#"] }
cal = { subscribe = ["@b5/#"] }
low = { subscribe = ["@b5/#"] }
checker = { subscribe = ["@b5/heat/#"] }
"""
    % ("ab" * 32)
)


class Readers:
    """A site whose bridge has an exchange, and the readers who subscribe to what they may."""

    def __init__(self) -> None:
        self.engine = Engine([Labels(), Trust()])
        self.engine.load(parse(SITE), [])
        self.exchange = World()["b6"]
        self.now = NOW
        self.counted: list[bool] = []

    def conn(self, client: str, *filters: str) -> Conn:
        conn = self.engine.connection(self.engine.who(client))
        for filt in filters:
            decision = conn.subscribe(filt, 0, self.now)
            assert decision.allow, decision
            conn.subscribed(decision, 0, self.now)
        return conn

    def says(self, conn: Conn, message: bytes, topic: str = HEAT, good: bool = False) -> str:
        """The rule that refuses it, or how often it counts, by all the clients that are told."""
        got = conn.command(feedback.NAME, Said(good, message, topic).pack(), self.now)
        if isinstance(got, Verdict):
            assert not got.allow
            return got.rule
        assert isinstance(got, Proposal)
        assert got.audit == {"topic": topic, "detail": "good" if good else "bad"}
        assert not got.records
        counts = 0
        for client, news in got.tells:
            # As the bridge hears it: its client says which label it is of.
            label = client.removesuffix(".from.b5") + "@b5"
            row = json.loads(news)
            counts += self.exchange.vote(
                row["client"], bytes.fromhex(row["message"]), row["good"], self.now,
                row["assessor"], row["topic"], label,
            )  # fmt: skip
        return f"counts {counts}"

    def handed_over(self, message: bytes, topic: str = HEAT, label: str = "heat@b5") -> None:
        self.exchange.forwarded("b5", message, topic, self.now, label)

    def bad(self) -> float:
        """s of b5, once what is open is settled."""
        self.now += SETTLE_MS
        self.exchange.tick(self.now)
        return self.exchange._ratings.evidence("b5", self.now)[1]


@pytest.fixture
def site() -> Readers:
    return Readers()


def test_two_readers_that_agree_or_an_assessor_alone_make_a_message_bad(site: Readers) -> None:
    ann, bob, checker = (site.conn(name, "@b5/heat/#") for name in ("ann", "bob", "checker"))
    site.handed_over(ID)
    before = site.exchange._ratings.evidence("b5", site.now)[1]
    assert site.says(ann, ID) == site.says(bob, ID) == "counts 1"
    assert site.bad() == pytest.approx(before + 5, rel=1e-6)
    site.handed_over(b"2" * 16)
    assert site.says(checker, b"2" * 16) == "counts 1"
    assert site.bad() == pytest.approx(before + 10, rel=1e-6)
    site.handed_over(b"3" * 16)
    assert site.says(ann, b"3" * 16, good=True) == "counts 1"
    assert site.bad() == pytest.approx(before + 10, rel=1e-6)


def test_a_client_votes_once_and_on_nothing_that_it_did_not_receive(site: Readers) -> None:
    ann = site.conn("ann", "@b5/heat/#")
    site.handed_over(ID)
    site.handed_over(b"w" * 16, WATER, "water@b5")
    assert site.says(ann, ID) == "counts 1"
    for good in (False, True):
        assert site.says(ann, ID, good=good) == "counts 0", "once, whatever it says then"
    assert site.says(site.conn("ann", HEAT), ID) == "counts 0", "in another connection, too"
    assert site.says(ann, b"?" * 16) == "counts 0", "a name that it has made up"
    site.handed_over(b"o" * 16, "@b5/cellar/1")
    assert site.says(ann, b"o" * 16, HEAT) == "counts 0", "its token does not have the cellar"
    # What a friend has told it: of another topic, another label, or of nothing that it reads.
    assert site.says(ann, b"w" * 16, HEAT) == "counts 0"
    assert site.says(ann, b"w" * 16, WATER) == "engine.feedback-unread"
    assert site.says(site.conn("ann"), ID) == "engine.feedback-unread"
    cal = site.conn("cal", "@b5/#")
    assert site.says(cal, b"w" * 16, WATER) == "counts 0", "its label does not read water"
    assert site.says(site.conn("bob", "@b5/#"), b"w" * 16, WATER) == "counts 1"
    assert site.says(site.conn("low", "@b5/#"), ID) == "trust.feedback.label"


def test_what_is_no_feedback_is_refused(site: Readers) -> None:
    ann = site.conn("ann", "@b5/heat/#")
    assert site.says(ann, ID, "heat/1") == "engine.feedback-unread"
    for body in (b"", b"\2" + ID + b"a", b"\0" + ID, b"\0" + ID + b"\xff", b"\0" + ID + b"a/#"):
        got = ann.command(feedback.NAME, body, NOW)
        assert isinstance(got, Verdict)
        assert (got.allow, got.rule) == (False, "engine.feedback-malformed")
        with pytest.raises(Malformed):
            feedback.read(body)
    long = "@b5/heat/" + "x" * 1000
    site.handed_over(ID, long)
    assert site.says(ann, ID, long) == "trust.feedback.long"
    # The token is another one since it subscribed, or another family alone judges.
    trust = next(f for f in site.engine.order if isinstance(f, Trust))
    trust.configure(parse(SITE.replace('ann = { subscribe = ["@b5/heat/#"] }', "ann = {}")))
    assert site.says(ann, ID) == "trust.feedback.outside"
    alone = Engine([Labels()])
    alone.load(parse(SITE.partition("[families.trust]")[0]), [])
    conn = alone.connection(alone.who("ann"))
    conn.subscribed(conn.subscribe("@b5/heat/#", 0, NOW), 0, NOW)
    got = conn.command(feedback.NAME, Said(False, ID, HEAT).pack(), NOW)
    assert isinstance(got, Verdict)
    assert got.rule == "engine.no-feedback"


def test_nobody_says_more_than_so_much_at_once(site: Readers) -> None:
    ann = site.conn("ann", "@b5/heat/#")
    found = [site.says(ann, b"%016d" % n) for n in range(FEEDBACK + 5)]
    assert found.count("counts 0") == FEEDBACK
    assert found[FEEDBACK:] == ["trust.feedback.rate"] * 5
    assert site.says(site.conn("bob", "@b5/#"), ID) == "counts 0", "others still may"
    site.now += FEEDBACK_MS
    assert site.says(ann, ID) == "counts 0"
    assert site.says(ann, ID) == "trust.feedback.rate"
    assert Trust.rate_rules == {"trust.feedback.rate"}, "told as a rate, not as a denial"


def test_only_whom_the_site_names_assesses() -> None:
    assert read(parse(SITE)).assessors == {"checker"}
    for wrong in ('["nobody"]', '"checker"', "[1]"):
        with pytest.raises(FamilyConfigError) as caught:
            read(parse(SITE.replace('["checker"]', wrong)))
        assert caught.value.key == "assessors"


def test_a_message_s_name_needs_its_tag() -> None:
    assert len(ID) == feedback.ID
    assert message_id(bytearray(M1)) == message_id(memoryview(M1)) == ID
    assert message_id(M1[:-1] + b"\1") != ID, "the tag, which nobody guesses"
    assert message_id(b"\1" + M1[1:]) != ID
    assert message_id(M1[:27] + b"opened" + M1[-16:]) == ID, "in place, opened or not"


@pytest.mark.parametrize(
    ("payload", "field", "good", "why"),
    [
        (b"21.5", None, True, "21.5"),
        (b"-3", None, True, "-3"),
        (b"61", None, False, "61 is not in -20..60"),
        (b"warm", None, False, "no number"),
        (b"NaN", None, False, "no number"),
        (b"1e999", None, False, "no number"),
        (b"1" * 5000, None, False, "no number"),
        (b"true", None, False, "no number"),
        (b"\xff", None, False, "no number"),
        (b'{"air": {"co2": 12}}', "air.co2", True, "12"),
        (b'{"air": 12}', "air.co2", False, "no field air.co2"),
        (b"[" * 100_000, "a", False, ""),
    ],
)
def test_what_an_assessor_thinks_of_a_value(
    payload: bytes, field: str | None, good: bool, why: str
) -> None:
    found, said = assess.read("-20..60", field).judged(payload)
    assert found == good
    assert said.startswith(why)
    for wrong in ("5", "a..b", "9..1", "nan..1"):
        with pytest.raises(UsageError):
            assess.read(wrong, None)


def test_the_report_counts_the_audit_logs_records() -> None:
    found = Report(10, 100)
    vote = {"event": "command", "family": "feedback", "client": "ann", "topic": HEAT}
    blocked = {"event": "peer-blocked", "peer": "b5", "rating": 2400}
    found.feed(
        [
            {"at_ms": 9, **vote, "detail": "bad"},
            *({"at_ms": n, **vote, "detail": "bad"} for n in (10, 20)),
            {"at_ms": 21, **vote, "client": "bob", "detail": "good"},
            {"at_ms": 22, "event": "command", "family": "owners", "client": "ann"},
            {"at_ms": 30, **blocked},
            {"at_ms": 29, "event": "rating-crossed", "peer": "b5", "rating": 4900,
             "reason": "from at π or above to below θ"},
            {"at_ms": 31, "event": "token-refused", "peer": "b4", "rule": "trust.token.forged",
             "reason": "not signed by b1"},
            {"at_ms": 32, "event": "bridge-dropped", "peer": "b4", "topic": "a", "label": "l",
             "reason": "late: 64 and more"},
            {"at_ms": 32, "event": "bridge-dropped", "peer": "b4", "topic": "a", "label": "l",
             "reason": "b4: not exported: nothing of that label belongs here"},
            *({"at_ms": 33, "event": "folded", "of": of, "peer": "b4", "count": 7, "rule": "full"}
              for of in ("bridge-dropped", "token-refused", "connect")),
            {"at_ms": 100, **blocked},
        ]
    )  # fmt: skip
    said = found.as_json()
    assert [row["event"] for row in said["crossed"]] == ["rating-crossed", "peer-blocked"]
    assert said["votes"] == [
        {"site": "b5", "client": "bob", "said": "good", "count": 1},
        {"site": "b5", "client": "ann", "said": "bad", "count": 2},
    ]
    assert said["bad_messages"] == [{"site": "b5", "topic": HEAT, "count": 2}]
    assert said["refused"][0]["rule"] == "trust.token.forged"
    assert [(row["reason"], row["count"]) for row in said["dropped"]] == [
        ("late", 1), ("refused there: not exported", 1), ("beyond what is named in a minute", 7),
    ]  # fmt: skip
    assert said["refused"][1]["rule"] == "full"
    text = "\n".join(found.lines())
    assert "b5: blocked, rated 0.24" in text
    assert "2  ann on b5: bad" in text
    assert Report(0, 1).lines()[0].startswith("nothing")
