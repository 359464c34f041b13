"""What is allowed and refused, by both encodings; and attacks, each on its defence."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import tomlkit

from families.blinded.blinded_site import (
    A_X,
    A_Y,
    B_LATE,
    B_Q1,
    B_Q2,
    EVENTS,
    KEPT,
    TEMPLATES,
    WORDS,
    Streaming,
    config,
)  # fmt: skip
from sealmq.cli import init
from sealmq.families.api import FamilyConfigError
from sealmq.families.blinded import bloom, coded, kg_part, plain, settings, words
from sealmq.families.blinded.bloom import BITS
from sealmq.families.blinded.rules import RULES
from sealmq.families.blinded.simulate import BadLine, Simulation
from sealmq.families.duties import PutTlv, SealToGrant


@pytest.fixture(params=settings.ENCODINGS)
def site(request: pytest.FixtureRequest) -> Streaming:
    return Streaming(request.param)


def test_jingfang_s_customers_get_what_the_paper_lets_them(site: Streaming) -> None:
    assert [site.receivers(one) for one in (A_X, A_Y, B_Q1, B_Q2)] == [["X"], ["Y"], ["miner"], []]
    # B's policy admits the miner, whose own policy wants the first quarter alone.
    assert site.receivers(B_LATE) == []
    assert site.deliver("miner", B_LATE).rule == "blinded.deliver.not-wanted"
    assert site.deliver("miner", B_Q2).rule == "blinded.deliver.not-let"
    has = ["type = company & service = datamining"]
    site.change(grant={"customer": "miner", "has": has})
    assert site.receivers(B_LATE) == ["miner"]
    # Update and revocation count from the next message on.
    let = ["type = company & service = billing"]
    site.change(update={"policy": "stream/b", "let": let})
    assert (site.receivers(B_Q1), site.receivers(B_Q2)) == (["biller"], [])
    site.change(revoke={"customer": "X"})
    assert site.receivers(A_X) == []
    assert site.conn("X").subscribe("stream/#", 0, site.now).rule == "blinded.subscribe.stranger"
    assert site.faults == []


def test_the_simulation_says_so_line_by_line() -> None:
    site = Streaming()
    made = Simulation(site.engine, site.config, KEPT, random.Random(1).randbytes, 0)
    found = [answer["receivers"] for line in EVENTS if (answer := made.line(line))]
    assert found == [["X"], ["Y"], ["miner"], [], [], ["biller"], []]
    for line in ("{", "[]", "{}", '{"oops": {}}', '{"revoke": {"customer": "nobody"}}',
                 '{"update": {"policy": "a"}}', '{"publish": "stream/a/1", "id": "z"}',
                 '{"grant": {"customer": "X", "has": ["a >"]}}'):  # fmt: skip
        with pytest.raises(BadLine):
            made.line(line)
    refused = made.line('{"publish": "stream/a/1", "client": "Y"}')
    assert refused is not None
    assert refused["refused"] == "blinded.publish.no-policy-id"


def test_the_example_brings_what_the_key_generator_keeps_and_not_in_a_file() -> None:
    assert sorted(init._beside("streaming", "blinded")) == ["events.jsonl", "kept.toml"]
    assert init._family(None, "streaming") == "blinded"
    names = {"name": "s", "id": "00c0ffee", "listen": "127.0.0.1:1883", "broker": "embedded"}
    text = init._text("streaming", "blinded", names)
    assert not [word for word in WORDS if word in text.lower()]
    assert settings.read(config()).scoped
    assert (TEMPLATES / "plain.toml").is_file()


def test_every_rule_that_a_client_may_meet(site: Streaming) -> None:
    conn = site.conn("X")
    found = [
        conn.connect(0),
        site.publish(None),
        site.publish("00" * 8, "stream/a/1"),
        site.publish(A_X, client="Y"),
        site.publish(A_X, "stream/a/2"),
        site.publish(A_X),
        conn.subscribe("stream/#", 0, 0),
        conn.subscribe("$share/g/stream/#", 0, 0),
        conn.subscribe("@sm1/k/#", 0, 0),
        conn.subscribe("@sm2", 0, 0),
        site.conn("jingfang").subscribe("#", 0, 0),
        site.deliver("X", A_X),
        site.deliver("Y", A_X),
        site.deliver("miner", B_LATE),
        site.deliver("X", A_X, grant=None),
        site.deliver("X", "11" * 8, "stream/a/1"),
    ]
    site.tell({key: row[:-1] if key[0] in "mkc" else row for key, row in site.rows.items()})
    found.append(site.deliver("X", A_X))
    met = {vote.rule for one in found for vote in one.votes if vote.family == "blinded"}
    # What is no filter labels have refused already.
    assert met == set(RULES) - {"blinded.subscribe.malformed", "blinded.doctor"}
    assert site.faults == []


def test_the_doctor_s_tries_pass_on_its_topics_and_nobody_else_does() -> None:
    site = Streaming()
    site.config = config(more='inspector = { label = "heat", kind = "assessor" }\n')
    site.engine.reload(site.config)
    doctor = "inspector"
    assert site.conn(doctor).subscribe("sealmq-doctor/#", 0, 0).allow
    for client, topic, may in (
        (doctor, "sealmq-doctor/low", True),
        (doctor, "sealmq-doctor/unbound/any", False),
        (doctor, "stream/a/1", False),
        ("jingfang", "sealmq-doctor/low", False),
    ):
        assert site.publish(None, topic, client=client).allow is may, (client, topic)
        assert site.deliver(client, "", topic, grant=None).allow is may, (client, topic)


def test_an_event_goes_to_mediators_alone_with_its_id_and_what_matched_is_audited() -> None:
    site = Streaming()
    got = site.publish(B_Q1)
    assert set(got.duties) == {
        PutTlv(coded.TLV, bytes.fromhex(B_Q1)), SealToGrant("blinded", "mediators"),
    }  # fmt: skip
    delivered = site.deliver("miner", B_Q1)
    assert dict(delivered.audit)["policy_id"] == B_Q1


def test_a_grant_s_key_goes_to_those_who_match() -> None:
    site = Streaming(kept=KEPT.replace(f'id = "{B_Q1}"', f'id = "{B_Q1}"\nsealed = true'))
    assert kg_part.grants(site.config, site.kept) == {"mediators": [], B_Q1: ["miner"]}
    assert SealToGrant("blinded", B_Q1) in site.deliver("miner", B_Q1).duties
    assert not site.deliver("miner", B_LATE).allow
    site.change(grant={"customer": "miner", "has": ["type = company"]})
    assert kg_part.grants(site.config, site.kept)[B_Q1] == []
    assert kg_part.grants(site.config, b"") == {"mediators": []}


def test_longer_prefixes_are_not_covered_by_a_grant_of_a_shorter_one() -> None:
    site = Streaming()
    site.change(event={"id": "ab" * 8, "client": "jingfang", "topic": "stream/b",
                       "session": "period = Q1"})  # fmt: skip
    assert site.publish("ab" * 8, "stream/b").allow
    assert site.publish("ab" * 8, "stream/b/9/deep").allow
    for topic in ("stream/b/2", "stream/b/2/deep", "stream", "stream/bc"):
        assert site.publish("ab" * 8, topic).rule == "blinded.publish.elsewhere", topic
    # At the reader's mediator once more: it may have changed since.
    assert site.deliver("miner", "ab" * 8, "stream/b/2").rule == "blinded.deliver.gone"


def test_answers_are_kept_and_a_change_ends_those_that_it_reaches() -> None:
    site = Streaming()
    assert site.publish(A_X).allow
    assert site.publish(A_Y).allow
    sent = site.publish(A_X), site.publish(A_Y)
    assert site.publish(A_X) is sent[0]
    cached = len(site.engine.cache)
    for n in range(20):  # of what was never granted nothing is kept
        assert site.publish(f"{n:016x}", "stream/a/1").rule == "blinded.publish.unknown"
    assert len(site.engine.cache) == cached
    before = {(c, i): site.deliver(c, i) for c in ("X", "Y") for i in (A_X, A_Y)}
    assert all(site.deliver(*key) is kept for key, kept in before.items())
    site.change(grant={"customer": "X", "has": ["type = individual & consumer = Y"]})
    after = {key: site.deliver(*key) for key in before}
    assert [key for key in before if after[key] is before[key]] == [("Y", A_X), ("Y", A_Y)]
    assert after["X", A_Y].allow
    site.change(revoke={"event": A_X})
    assert site.publish(A_X).rule == "blinded.publish.unknown"
    assert site.publish(A_Y) is sent[1]
    assert site.deliver("Y", A_Y) is before["Y", A_Y]
    assert site.deliver("Y", A_X).rule == "blinded.deliver.gone"
    site.change(event={"id": A_X, "client": "jingfang", "topic": "stream/a/1"})
    assert site.deliver("Y", A_X).rule == "blinded.deliver.not-let"


# --- attacks --------------------------------------------------------------------------------------


def test_nobody_publishes_under_a_swapped_or_borrowed_id() -> None:
    site = Streaming()
    assert site.publish(A_Y, "stream/a/1").rule == "blinded.publish.elsewhere"
    assert site.publish(A_X, "stream/a/1", client="X").rule == "blinded.publish.borrowed"
    # With the label's key, and past the mediator: an id that no mediator has put there.
    assert site.deliver("miner", B_Q1, grant=None).rule == "blinded.deliver.unbound"
    assert site.deliver("miner", B_Q1, grant=("other", "mediators")).rule.endswith("unbound")
    # Another event's id on a topic of the first.
    assert site.deliver("Y", A_Y, "stream/a/1").rule == "blinded.deliver.gone"


@pytest.mark.parametrize("ones", [(1 << BITS) - 1, 0])
def test_nobody_gets_more_by_a_filter_of_ones_or_an_empty_conjunction(ones: int) -> None:
    site = Streaming()
    event = coded.read_event(site.rows[coded.EVENT + A_X])
    key = f"{coded.PAIR}{event.kind}/Y"
    pair = coded.read_pair(site.rows[key])
    forged = pair._replace(has=[ones]) if ones else pair._replace(let=[0])
    site.tell({**site.rows, key: coded.write_pair(forged)})
    assert site.deliver("Y", A_X).rule == "blinded.deliver.broken"
    assert site.deliver("X", A_X).allow, "others are served"


def test_what_was_told_before_a_revocation_says_nothing_after_it() -> None:
    """A replayed row of the customer's, into what is told now."""
    site = Streaming()
    before = dict(site.rows)
    event = coded.read_event(before[coded.EVENT + A_X])
    site.change(grant={"customer": "X", "has": ["type = individual & consumer = moved"]})
    old = before[f"{coded.PAIR}{event.kind}/X"]
    now = coded.read_pair(site.rows[f"{coded.PAIR}{event.kind}/X"])
    stale = coded.read_pair(old)
    # The old set of the customer does not meet the policy as it is told now, nor the other way.
    for mixed in (now._replace(has=stale.has), now._replace(let=stale.let)):
        key = f"{coded.PAIR}{event.kind}/X"
        site.tell({**site.rows, key: coded.write_pair(mixed)})
        assert not site.deliver("X", A_X).allow
    # A revoked event grant is nobody's, and what lies at the broker under it is not delivered.
    site.change(revoke={"event": A_Y})
    assert site.publish(A_Y).rule == "blinded.publish.unknown"
    assert site.deliver("Y", A_Y).rule == "blinded.deliver.gone"


def test_a_change_of_policy_gives_new_filters_and_leaves_others_as_they_are() -> None:
    site = Streaming()
    before = dict(site.rows)
    site.put(site.text + "\n# a comment\n")
    assert site.rows == before
    site.change(update={"policy": "stream/a/1", "let": ["consumer = X"]})
    site.change(update={"policy": "stream/a/1", "let": ["type = individual & consumer = X"]})
    kind = coded.read_event(before[coded.EVENT + A_X]).kind
    other = coded.read_event(before[coded.EVENT + A_Y]).kind
    # The same words as before, and yet another id and other filters; the rest was not encoded anew.
    again = coded.read_event(site.rows[coded.EVENT + A_X]).kind
    assert again != kind
    assert site.rows[f"m/{again}/X"] != before[f"m/{kind}/X"]
    assert site.rows[f"m/{other}/X"] == before[f"m/{other}/X"]


def test_no_two_types_or_customers_share_a_filter_and_no_word_is_told() -> None:
    site = Streaming()
    filters = []
    for key, row in site.rows.items():
        if key.startswith(coded.PAIR):
            pair = coded.read_pair(row)
            filters += [*pair.let, *pair.has, *pair.wants, *pair.is_]
    assert len(set(filters)) == len(filters) > 40
    told = json.dumps({key: row.decode("latin-1") for key, row in site.rows.items()})
    assert not [word for word in WORDS if word in told]
    # What one filter has in common with another one is what chance gives: about half of its bits.
    rules = [one for one in filters if one.bit_count() < 300]
    sets = [one for one in filters if one.bit_count() == bloom.MOST_ONES]
    share = [(a & b).bit_count() / a.bit_count() for a in rules for b in sets if a & b != a]
    assert abs(sum(share) / len(share) - bloom.MOST_ONES / BITS) < 0.02


def test_what_a_customer_has_and_what_it_wants_are_not_compared() -> None:
    """The same words in both directions give filters that have nothing to do with each other."""
    text = KEPT + '[customers.jingfang]\nhas = ["class = a"]\nwants = ["class = a"]\n'
    text = text.replace('[types."stream/b"]\nhas = ["class = statistics"]',
                        '[types."stream/b"]\nhas = ["class = a"]')  # fmt: skip
    text = text.replace('[policies."stream/b"]\nlet = ["type = company & service = datamining"]',
                        '[policies."stream/b"]\nlet = ["class = a"]')  # fmt: skip
    site = Streaming(kept=text)
    kind = coded.read_event(site.rows[coded.EVENT + B_Q1]).kind
    pair = coded.read_pair(site.rows[f"{coded.PAIR}{kind}/jingfang"])
    assert bloom.Rules(pair.let).within(bloom.Sets(pair.has))
    assert bloom.Rules(pair.wants).within(bloom.Sets(pair.is_))
    assert not bloom.Rules(pair.let).within(bloom.Sets(pair.is_))
    assert not bloom.Rules(pair.wants).within(bloom.Sets(pair.has))


def test_definition_9_is_lost_by_the_paper_with_intersection_and_by_nobody_here() -> None:
    """The game: two policies that the adversary names, the filter of one of them. He may have
    others encoded; in the paper's game none with an attribute of the two, here any. Clients who
    collude give him what they were told: nothing, since no client has a filter.
    """
    from sealmq.families.blinded import paper, scoped

    draw = random.Random(9)
    won = {"paper": 0, "apart": 0, "scoped": 0}
    turns = 200
    for _ in range(turns):
        delta = draw.randrange(2)
        both = words.policy(["a = 1 & b = 1", "c = 1 & d = 1"])
        encoder = paper.Encoder(draw.randbytes(32))
        challenge = encoder.conjunct(both[delta], draw.randbytes(8))
        # He has one of the two encoded for a customer, and looks which bits are the challenge's.
        asked = encoder.held(both[0], draw.randbytes(8)).t
        won["paper"] += (0 if challenge.within(asked) else 1) == delta
        # Without intersection he has to guess.
        other = encoder.held(words.conjunction("e = 1 & f = 1"), draw.randbytes(8)).t
        apart = (challenge.a & ~challenge.m & other).bit_count() * 2 > (
            (challenge.a & ~challenge.m).bit_count() * other.bit_count() // 1024
        )
        won["apart"] += apart == delta
        root = draw.randbytes(32)
        key = scoped.key_of(root, b"kind", "target", draw.randbytes(16))
        (filt,) = scoped.rules(key, (both[delta],))
        theirs = scoped.key_of(root, b"kind", "colluder", draw.randbytes(16))
        mine, yours = (scoped.rules(theirs, (one,))[0] for one in both)
        guess = 0 if (filt & mine).bit_count() >= (filt & yours).bit_count() else 1
        won["scoped"] += guess == delta
    assert won["paper"] == turns
    for game in ("apart", "scoped"):
        assert abs(won[game] - turns / 2) < 4 * (turns / 4) ** 0.5


# --- what is kept ---------------------------------------------------------------------------------


def test_what_cannot_be_kept_is_refused_and_nothing_changes() -> None:
    site = Streaming()
    big = ", ".join(f'"a = {n}"' for n in range(300))
    for text, key in (
        ("]", ""),
        ("[oops]\n", "oops"),
        (f"{KEPT}[customers.big]\nhas = [{big}]\n", "customers.big"),
        (KEPT + '[policies.""]\nlet = ["a = 1"]\n', "policies"),
    ):
        with pytest.raises(FamilyConfigError) as caught:
            kg_part.take(site.config, site.kept, text.encode(), site.draw.randbytes)
        assert caught.value.key == key, text[-200:]
    with pytest.raises(FamilyConfigError):
        kg_part.take(site.config, site.kept, b"\xff", site.draw.randbytes)
    assert kg_part.shown(site.kept).decode() == KEPT
    assert kg_part.shown(b"") == b""
    assert list(kg_part.rows(site.config, b"")) == []


def test_more_than_mediators_are_told_is_refused_before_it_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*what: object) -> None:
        raise AssertionError("it is encoded")

    text = "".join(f'[customers.c{n}]\nhas = ["a = {n}"]\n' for n in range(10_000))
    for n in range(14):
        text += f'[policies.p{n}]\nlet = ["a = 1"]\n'
        text += f'[[events]]\nid = "{n:016x}"\nclient = "j"\ntopic = "p{n}"\n'
    monkeypatch.setattr(kg_part, "_scopes", never)
    with pytest.raises(FamilyConfigError, match="14 kinds of events and 10000 customers"):
        kg_part.take(config(), b"", text.encode(), random.Random(1).randbytes)
    # Each grant of a topic would be told with all prefixes below: 2 MiB of text made gigabytes.
    text = '[policies.t]\nlet = ["a = 1"]\n'
    text += "".join(f'[types."t/{n}"]\nhas = ["a = 1"]\n' for n in range(600))
    for n in range(500):
        text += f'[[events]]\nid = "{n:016x}"\nclient = "j"\ntopic = "t"\n'
    with pytest.raises(FamilyConfigError, match="500 event grants make 300000 exceptions"):
        kg_part.take(config(), b"", text.encode(), random.Random(1).randbytes)


def test_a_publisher_with_many_event_grants_leaves_with_one_look_at_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key generator does nothing else meanwhile; and nobody who leaves is asked what fits."""
    more = "".join(
        f'[[events]]\nid = "{n:016x}"\nclient = "jingfang"\ntopic = "stream/b/n{n}"\n'
        for n in range(50)
    )
    other = more.replace("jingfang", "Y").replace("/n", "/y").replace('id = "0', 'id = "1')
    site = Streaming(kept=KEPT + more + other)
    parse, parsed = tomlkit.parse, []

    def counting(text: str) -> Any:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(tomlkit, "parse", counting)
    monkeypatch.setattr(kg_part, "MOST_BYTES", 1)
    left = kg_part.left(site.config, site.kept, {"jingfang", "X"}, site.draw.randbytes)
    assert len(parsed) == 1
    read = plain.read(kg_part.shown(left).decode())
    assert {event.client for event in read.events} == {"Y"}
    assert len(read.events) == 50
    assert set(read.customers) == {"Y", "biller", "miner"}
    assert kg_part.left(site.config, left, {"jingfang", "X"}, site.draw.randbytes) == left


def test_who_is_no_client_or_disabled_is_told_of_to_nobody() -> None:
    site = Streaming()
    assert any(key.endswith("/Y") for key in site.rows)
    gone = dict(kg_part.rows(config(without="Y"), site.kept))
    assert not any(key.endswith("/Y") for key in gone)


@pytest.mark.parametrize(
    ("table", "key"),
    [({"encoding": "plain"}, "encoding"), ({"decoy": 1}, "decoy"), ({"decoys": 2}, "decoys"),
     ({"length": 0}, "length"), ({"decoys": True}, "decoys")],
)  # fmt: skip
def test_settings_that_are_wrong_are_named(table: dict[str, object], key: str) -> None:
    class Wrong:
        families = {"blinded": table}  # noqa: RUF012

    with pytest.raises(FamilyConfigError) as caught:
        settings.read(Wrong())  # type: ignore[arg-type]
    assert caught.value.key == key


def test_a_customer_s_filters_fit_300_kb() -> None:
    """The paper's measure: 50 conjunctions of 30 attributes; here under one policy of 64 rules."""
    names = [f"n{n} = 1" for n in range(30)]
    has = [" & ".join([*names[:29], f"k = {at}"]) for at in range(50)]
    let = [" & ".join([*names[:5], f"k = {at}"]) for at in range(64)]
    text = f"[customers.big]\nhas = {json.dumps(has)}\n[policies.p]\nlet = {json.dumps(let)}\n"
    text += '[[events]]\nid = "0000000000000001"\nclient = "j"\ntopic = "p"\n'
    kept = kg_part.take(config(), b"", text.encode(), random.Random(1).randbytes)
    read = plain.read(text)
    held = kg_part._load(kept)
    assert held is not None
    rows = dict(kg_part._rows(settings.Settings(), held, read, read.customers))
    size = sum(len(row) for key, row in rows.items() if key.endswith("/big"))
    assert 25_000 < size < 30_000
    assert size < kg_part.MOST_BYTES
