"""Tokens, keys, ratings and events, each alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from subjective_logic import BinomialOpinion

from families.trust.trust_world import END, NOW, private, public, signed
from sealmq.families import signatures
from sealmq.families.trust import tokens as t
from sealmq.families.trust.decide import Rules
from sealmq.families.trust.events import AGREE, ALONE, MOST_EVENTS, MOST_VOTERS, SETTLE_MS, Events
from sealmq.families.trust.gossip import Board, Said, read_ratings, signed_ratings
from sealmq.families.trust.ratings import (
    HOUR_MS,
    MOST_CHANNELS,
    SCALE,
    Ratings,
    Weights,
    opinion,
    part,
    rate,
)
from sealmq.families.trust.sites import (
    MOST_SITES,
    Introduction,
    Sites,
    read_introduction,
    signed_introduction,
)
from sealmq.families.trust.tokens import (
    Token,
    Tokens,
    announcement,
    read_announcement,
)
from sealmq.families.trust.wire import BadRecord, pack, unpack


def token(publish: tuple[str, ...] = ("a/#",), serial: int = 1, issuer: str = "b1") -> Token:
    return Token(issuer, "c", publish, ("b/+",), serial, END)


def store(*sites: str) -> Tokens:
    keys = {site: public(site) for site in sites or ("b1", "b2", "b3")}
    return Tokens(keys.get)


# --- tokens ---


def test_a_token_is_read_as_it_was_written_and_no_other_bytes_are_one() -> None:
    made = Token("b1", "thermometer", ("a/+/c", "b/#"), (), 7, END)
    assert Token.read(made.raw) == made
    assert len(made.id) == 8
    draw = random.Random(1)
    for _ in range(300):
        raw = bytearray(made.raw)
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        try:
            other = Token.read(bytes(raw))
        except BadRecord:
            continue
        assert other != made
        assert (other.raw, other.id != made.id) == (bytes(raw), True)
    for cut in range(len(made.raw)):
        with pytest.raises(BadRecord):
            Token.read(made.raw[:cut])
    with pytest.raises(BadRecord, match="written otherwise"):
        Token.read(made.raw + pack(b"more"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"issuer": "b/1"}, "no name"),
        ({"client": ""}, "no name"),
        ({"client": "@"}, "no name"),
        ({"publish": ("b", "a")}, "in order, each once"),
        ({"publish": ("a", "a")}, "in order, each once"),
        ({"publish": ("a/#/b",)}, "stands alone"),
        ({"publish": ("@b2/a",)}, "nobody publishes"),
        ({"publish": tuple(f"a{n:02}" for n in range(65))}, "64 at most"),
        ({"publish": tuple(f"{n}" * 1000 for n in range(5))}, "at most 4096 bytes"),
        ({"serial": -1}, "64 bits"),
    ],
)
def test_what_can_be_no_token_is_refused(change: dict[str, object], what: str) -> None:
    fields = {"issuer": "b1", "client": "c", "publish": ("a",), "subscribe": ()}
    Token(**{**fields, "serial": 1, "until_ms": END})  # type: ignore[arg-type]
    with pytest.raises(BadRecord, match=what):
        Token(**{**fields, "serial": 1, "until_ms": END, **change})  # type: ignore[arg-type]


def test_a_token_lets_publish_in_f_p_and_subscribe_below_f_s() -> None:
    made = Token("b", "c", ("home/groundfloor/kitchen",), ("home/firstfloor/#",), 1, END)
    assert made.may_publish("home/groundfloor/kitchen")
    assert not made.may_publish("home/groundfloor")
    assert made.may_subscribe("home/firstfloor/+/lamp")
    assert not made.may_subscribe("home/+/lamp")
    assert made.may_receive("home/firstfloor")
    assert not made.may_receive("home/groundfloor/kitchen")
    everything = Token("b", "c", ("#",), (), 1, END)
    assert everything.may_publish("a/b")
    for none in ("@b2/a", "$SYS/a", "a/+", "#", "", "a\0", "\ud800", "a" * 1025):
        assert not everything.may_publish(none)


def test_signers_of_all_announcements_are_united() -> None:
    known, made = store(), token()
    first = known.announce(made, signed(made, "b1", "b2"), NOW)
    assert first.fresh == ("b1", "b2")
    later = known.announce(made, signed(made, "b1", "b3"), NOW)
    assert later.fresh == ("b3",)
    assert later.known.signers == {"b1", "b2", "b3"}
    assert known.announce(made, {}, NOW).known.signers == {"b1", "b2", "b3"}
    record = announcement(made, later.known.signatures)
    assert read_announcement(record) == (made, signed(made, "b1", "b2", "b3"))


def test_without_its_issuer_s_signature_there_is_no_token() -> None:
    made = token()
    for signatures_, rule in (
        ({}, t.NO_SIGNATURE),
        (signed(made, "b2"), t.NO_SIGNATURE),
        ({"b1": signed(made, "b2")["b2"]}, t.FORGED),
        ({"b1": signed(token(serial=2), "b1")["b1"]}, t.FORGED),
    ):
        with pytest.raises(BadRecord) as refused:
            store().announce(made, signatures_, NOW)
        assert refused.value.rule == rule
    with pytest.raises(BadRecord) as refused:
        store("b2").announce(made, signed(made, "b1"), NOW)
    assert refused.value.rule == t.NO_SIGNATURE


def test_a_signature_of_somebody_else_or_of_another_token_signs_nothing() -> None:
    known, made = store(), token()
    wide = token(("#",))
    others = {"b2": signed(made, "b3")["b3"], "b3": signed(wide, "b3")["b3"]}
    done = known.announce(made, {**signed(made, "b1"), **others}, NOW)
    assert (done.fresh, done.forged) == (("b1",), ("b2", "b3"))


def test_a_replaced_token_comes_back_neither_wider_nor_at_all() -> None:
    known, wide, narrow = store(), token(("#",), 1), token(("a/b",), 2)
    known.announce(wide, signed(wide, "b1", "b2"), NOW)
    known.announce(narrow, signed(narrow, "b1"), NOW)
    assert known.get(wide.id) is None
    for again in (wide, token(("a/#",), 2)):
        with pytest.raises(BadRecord) as refused:
            known.announce(again, signed(again, "b1"), NOW)
        assert refused.value.rule == t.SUPERSEDED
    known.tick(END)
    assert len(known) == 0
    with pytest.raises(BadRecord) as refused:
        known.announce(wide, signed(wide, "b1"), NOW)
    assert refused.value.rule == t.SUPERSEDED
    with pytest.raises(BadRecord) as refused:
        known.announce(narrow, signed(narrow, "b1"), END)
    assert refused.value.rule == t.EXPIRED


def test_what_one_issuer_has_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t, "MOST_OF_ISSUER", 2)
    known = store()
    for issuer, client, fits in (
        ("b1", "c1", True), ("b1", "c2", True), ("b1", "c3", False), ("b2", "c3", True),
    ):  # fmt: skip
        made = Token(issuer, client, ("a",), (), 1, END)
        if fits:
            known.announce(made, signed(made, issuer), NOW, "b3")
        else:
            with pytest.raises(BadRecord) as refused:
                known.announce(made, signed(made, issuer), NOW, "b3")
            assert refused.value.rule == t.FULL


def test_a_signature_waits_for_its_signer_s_key_and_goes_with_it() -> None:
    keys = {"b1": public("b1")}
    known, made = Tokens(keys.get), token()
    assert known.announce(made, signed(made, "b1", "b2"), NOW).fresh == ("b1",)
    keys["b2"] = public("b2")
    assert [one.signers for one in known.rekeyed("b2")] == [{"b1", "b2"}]
    keys["b2"] = public("b3")
    known.rekeyed("b2")
    assert known.announce(made, {}, NOW).known.signers == {"b1"}
    del keys["b1"]
    known.rekeyed("b1")
    assert known.get(made.id) is None
    # Its serials stay: who makes a key doubtful for a while brings no older token back.
    keys["b1"] = public("evil")
    known.rekeyed("b1")
    assert known.get(made.id) is None
    keys["b1"] = public("b1")
    assert [one.token for one in known.rekeyed("b1")] == [made]
    older = token(("#",), 0)
    with pytest.raises(BadRecord):
        known.announce(older, signed(older, "b1"), NOW)
    assert known.get(made.id) is not None


# --- records ---


def test_records_that_are_cut_or_too_long_are_malformed() -> None:
    assert unpack(pack(b"a", b"", b"bc")) == [b"a", b"", b"bc"]
    for bad in (b"\0", b"\0\2a", pack(b"a") + b"\0", b"\xff\xff" + bytes(99), bytes(20_000)):
        with pytest.raises(BadRecord):
            unpack(bad)


def test_records_of_all_kinds_survive_no_flipped_bit() -> None:
    def sign(text: bytes) -> bytes:
        return signatures.sign(private("b1"), text)

    said = signed_ratings(Said("b1", 1, END, {"b2": 6000, "b3": 1}), sign)
    told = signed_introduction(Introduction("b1", "b9", public("b9"), 1), sign)
    assert read_ratings(said)[0].ratings == {"b2": 6000, "b3": 1}
    draw = random.Random(2)
    for _ in range(200):
        for record in (said, told):
            raw = bytearray(record)
            raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
            board = Board({"b1": public("b1")}.get)
            sites = Sites("me", public("me"))
            sites.enrol("b1", public("b1"))
            with pytest.raises(BadRecord):
                _take(record is said, bytes(raw), board, sites)


def _take(ratings: bool, record: bytes, board: Board, sites: Sites) -> bool:
    if ratings:
        return board.take(*read_ratings(record), NOW)
    return sites.introduced(*read_introduction(record))


def test_the_graph_has_a_site_s_newest_ratings_and_no_older_ones() -> None:
    board = Board(public)

    def say(rater: str, serial: int, rating: int) -> bool:
        said = Said(rater, serial, END, {"b1": rating} if rater == "b2" else {"b2": rating})
        return board.take(said, signatures.sign(private(rater), said.raw), NOW)

    assert [say("b1", 1, 5000), say("b2", 1, 6000), say("b2", 2, 1000)] == [True] * 3
    version = board.version
    assert [say("b2", 1, 6000), say("b2", 2, 6000)] == [False] * 2
    assert (board.edges(), board.version) == ({("b1", "b2"): 1000, ("b2", "b1"): 5000}, version)
    board.tick(END, {"b1", "b2"})
    assert len(board) == 0


# --- keys ---


def introduced(sites: Sites, by: str, site: str, key: bytes, serial: int = 1) -> bool:
    made = Introduction(by, site, key, serial)
    return sites.introduced(made, signatures.sign(private(by), made.raw))


def test_only_neighbours_introduce_and_never_a_neighbour_s_key() -> None:
    sites = Sites("me", public("me"))
    for neighbour in ("b4", "b5"):
        sites.enrol(neighbour, public(neighbour))
    assert introduced(sites, "b4", "b1", public("b1"))
    assert not introduced(sites, "b4", "b1", public("b2")), "the serial has been used"
    assert introduced(sites, "b4", "b5", public("b9"))
    assert introduced(sites, "b4", "me", public("b9"))
    assert [sites.key(s) for s in ("b1", "b5", "me")] == [public(s) for s in ("b1", "b5", "me")]
    with pytest.raises(BadRecord, match="no neighbour"):
        introduced(sites, "b1", "b2", public("b2"))
    forged = Introduction("b5", "b2", public("b2"), 1)
    with pytest.raises(BadRecord, match="has not signed"):
        sites.introduced(forged, signatures.sign(private("b4"), forged.raw))
    assert sites.key("b2") is None
    assert list(sites) == ["me", "b4", "b5", "b1"]


def test_where_neighbours_disagree_no_key_counts_until_one_is_blocked_or_the_operator_speaks() -> (
    None
):
    sites = Sites("me", public("me"))
    for neighbour in ("b4", "b5"):
        sites.enrol(neighbour, public(neighbour))
    introduced(sites, "b4", "b1", public("b1"))
    introduced(sites, "b5", "b1", public("evil"))
    assert (sites.key("b1"), sites.doubtful()) == (None, ["b1"])
    sites.blocked = frozenset({"b5"})
    assert (sites.key("b1"), sites.doubtful()) == (public("b1"), [])
    sites.blocked = frozenset()
    sites.pin("b1", public("b1"))
    assert sites.key("b1") == public("b1")
    sites.pin("b1", None)
    introduced(sites, "b5", "b1", b"", 2)
    assert sites.key("b1") == public("b1")
    sites.remove("b4")
    assert sites.key("b1") is None


def test_a_neighbour_introduces_so_many_sites_and_no_more() -> None:
    sites = Sites("me", public("me"))
    sites.enrol("b4", public("b4"))
    for n in range(MOST_SITES):
        assert introduced(sites, "b4", f"x{n}", public("x"))
    with pytest.raises(BadRecord, match="introduces 256"):
        introduced(sites, "b4", "one-more", public("x"))
    assert introduced(sites, "b4", "x0", b"", 2), "what it has said it may change"


# --- ratings ---


def test_ratings_have_the_figures_of_the_paper_s_model() -> None:
    found = [rate(*evidence) for evidence in ((0, 0), (1, 0), (10, 0), (10, 5), (1000, 5))]
    assert found == [5000, 6666, 9166, 6470, 9940]
    assert [round(rate_ / SCALE, 3) for rate_ in found] == [0.5, 0.667, 0.917, 0.647, 0.994]


def test_opinions_are_those_of_subjective_logic() -> None:
    draw = random.Random(3)
    for _ in range(300):
        r, s = draw.randrange(2000), draw.randrange(2000)
        base = draw.randrange(SCALE + 1)
        theirs = BinomialOpinion.from_evidence(r, s, base / SCALE)
        ours = opinion(r, s, base)
        assert ours[:3] == pytest.approx(
            [float(x) for x in (theirs.belief, theirs.disbelief, theirs.uncertainty)], abs=1e-6
        )
        assert rate(r, s, base) == pytest.approx(SCALE * float(theirs.probability()), abs=1.1)


def until_below(weights: Weights, good: int, threshold: int) -> int:
    held = Ratings(weights)
    held.add("b", NOW)
    for _ in range(good):
        held.saw("b", True, NOW)
    bad = 0
    while held.ratings(NOW)["b"] >= threshold:
        held.saw("b", False, NOW)
        bad += 1
    return bad


def test_after_a_long_good_time_few_bad_messages_are_enough() -> None:
    uncapped = Weights(cap=1 << 40)
    assert until_below(uncapped, 1000, 6000) == 134
    assert until_below(Weights(), 1000, 6000) == 6
    assert until_below(Weights(), 1000, Weights().block) <= 20


def test_evidence_has_a_half_life() -> None:
    held = Ratings(Weights(half_life_ms=HOUR_MS))
    held.add("b", NOW)
    for _ in range(32):
        held.saw("b", True, NOW)
    assert held.evidence("b", NOW + 5 * HOUR_MS) == (1, 0)
    assert held.ratings(NOW + 100 * HOUR_MS)["b"] == 5000
    assert held.evidence("b", NOW) == held.evidence("b", NOW + 50 * HOUR_MS), "time goes one way"


def test_a_neighbour_is_blocked_below_one_rating_and_comes_back_at_another() -> None:
    held = Ratings(Weights(half_life_ms=HOUR_MS))
    held.add("b", NOW)
    held.saw("b", False, NOW)
    assert held.ratings(NOW)["b"] == 1428
    assert held.blocked == {"b"}
    later = NOW + 90 * 60_000
    assert 2500 < held.ratings(later)["b"] < 4000
    assert held.blocked == {"b"}, "it is between the two"
    assert held.ratings(NOW + 4 * HOUR_MS)["b"] >= 4000
    assert held.blocked == frozenset()


def test_a_part_of_one_has_four_digits() -> None:
    assert [part(x) for x in (0, 1, 0.6, 0.0001)] == [0, 10_000, 6000, 1]
    assert [part(x) for x in (True, "0.6", -0.1, 1.0001, 0.00001, None)] == [None] * 6


def test_rules_have_theta_at_most_pi() -> None:
    for wrong in ({"accept": 6001}, {"sign": 10_001}, {"accept": -1}, {"signers": 0}):
        with pytest.raises(ValueError, match=r"θ|signers"):
            replace(Rules(), **wrong)  # type: ignore[arg-type]


# --- events ---


def events() -> tuple[Ratings, Events]:
    ratings = Ratings(Weights(cap=1000, half_life_ms=1 << 50))
    for neighbour in ("b4", "b5"):
        ratings.add(neighbour, NOW)
    return ratings, Events(ratings)


def test_an_event_charges_who_forwarded_it_first() -> None:
    ratings, held = events()
    held.forwarded("b4", b"m", "a", NOW)
    held.forwarded("b5", b"m", "a", NOW)
    held.forwarded("b5", b"n", "a", NOW)
    assert held.vote("assessor", b"m", False, NOW, assessor=True)
    held.settle(NOW + SETTLE_MS - 1)
    assert ratings.evidence("b4", NOW) == (0, 0)
    held.settle(NOW + SETTLE_MS)
    assert [tuple(map(round, ratings.evidence(b, NOW))) for b in ("b4", "b5")] == [(0, 5), (1, 0)]
    assert len(held) == 0


def test_a_client_has_one_vote_a_message_and_none_about_what_is_settled() -> None:
    ratings, held = events()
    held.forwarded("b4", b"m", "a", NOW)
    assert held.vote("eve", b"m", True, NOW)
    for _ in range(10):
        assert not held.vote("eve", b"m", False, NOW)
    held.settle(NOW + SETTLE_MS)
    assert ratings.evidence("b4", NOW) == pytest.approx((1, 0))
    assert not held.vote("eve", b"m", False, NOW)
    assert not held.vote("eve", b"unknown", False, NOW)


@pytest.mark.parametrize(("liars", "bad"), [(1, ALONE), (AGREE, 50)])
def test_one_reader_alone_costs_a_neighbour_little_two_that_agree_in_full(
    liars: int, bad: int
) -> None:
    ratings, held = events()
    for n in range(50):
        held.forwarded("b4", bytes([n]), "a", NOW)
        for liar in range(liars):
            assert held.vote(f"liar-{liar}", bytes([n]), False, NOW)
    held.settle(NOW + SETTLE_MS)
    assert tuple(map(round, ratings.evidence("b4", NOW))) == (50 - bad, 5 * bad)


def test_good_votes_are_worth_no_more_than_none() -> None:
    ratings, held = events()
    held.forwarded("b4", b"m", "a", NOW)
    for n in range(60):
        held.vote(f"c{n}", b"m", True, NOW)
    held.settle(NOW + SETTLE_MS)
    assert ratings.evidence("b4", NOW) == pytest.approx((1, 0))


def test_events_are_bounded() -> None:
    ratings, held = events()
    for n in range(MOST_EVENTS + 10):
        held.forwarded("b4", n.to_bytes(4, "big"), "a", NOW)
    assert len(held) == MOST_EVENTS
    assert ratings.evidence("b4", NOW)[0] == pytest.approx(10)
    newest = MOST_EVENTS.to_bytes(4, "big")
    counted = [held.vote(f"c{n}", newest, True, NOW) for n in range(MOST_VOTERS + 10)]
    assert sum(counted) == MOST_VOTERS


# --- channels: what a neighbour hands over of one issuer ---


def handed_over(held: Events, ratings: Ratings, issuer: str, bad: bool, number: int) -> None:
    message = f"{issuer} {number}".encode()
    held.forwarded("b4", message, f"@{issuer}/a", NOW)
    if bad:
        held.vote("assessor", message, False, NOW, assessor=True)
    held.settle(NOW + SETTLE_MS)
    ratings.ratings(NOW + SETTLE_MS)


def test_a_bad_issuer_closes_its_way_and_costs_the_neighbour_once() -> None:
    ratings = Ratings()
    ratings.add("b4", NOW)
    held = Events(ratings)
    for number in range(20):
        handed_over(held, ratings, "b1", False, number)
    good, _ = ratings.evidence("b4", NOW)
    handed_over(held, ratings, "b2", True, 0)
    assert ratings.closed == frozenset(), "one complaint may be wrong"
    handed_over(held, ratings, "b2", True, 1)
    assert ratings.closed == {("b4", "b2")}
    for number in range(2, 9):
        handed_over(held, ratings, "b2", True, number)
    assert ratings.closed == {("b4", "b2")}, "b1's way stays open"
    assert ratings.evidence("b4", NOW)[1] == pytest.approx(5, rel=1e-3)
    assert ratings.evidence("b4", NOW)[0] == pytest.approx(good, rel=1e-3)
    # Its own messages cost it each time, and so do those of ever more issuers.
    handed_over(held, ratings, "b4", True, 0)
    handed_over(held, ratings, "b3", True, 0)
    assert ratings.evidence("b4", NOW)[1] == pytest.approx(15, rel=1e-3)
    # A day later it costs again; what is aged away opens the way.
    day = ratings.weights.half_life_ms
    before = ratings.evidence("b4", NOW + 2 * day)[1]
    ratings.saw("b4", False, NOW + 2 * day, "b2")
    assert ratings.evidence("b4", NOW + 2 * day)[1] == before + 5
    ratings.ratings(NOW + 3 * day)
    assert ("b4", "b2") in ratings.closed
    ratings.ratings(NOW + 9 * day)
    assert ratings.closed == frozenset()


def test_who_makes_up_issuers_pushes_out_his_own_channels_alone() -> None:
    ratings = Ratings()
    for neighbour in ("b4", "b5"):
        ratings.add(neighbour, NOW)
    for _ in range(2):
        ratings.saw("b5", False, NOW, "b2")
    for number in range(MOST_CHANNELS + 50):
        ratings.saw("b4", True, NOW, f"x{number}")
    ratings.ratings(NOW)
    assert ratings.closed == {("b5", "b2")}
    assert len(ratings._channels) == MOST_CHANNELS
    ratings.remove("b5")
    assert ratings.closed == frozenset()
    plain = Ratings(Weights(by_issuer=False))
    plain.add("b4", NOW)
    for _ in range(3):
        plain.saw("b4", False, NOW, "b2")
    plain.ratings(NOW)
    assert plain.closed == frozenset()
    assert plain.evidence("b4", NOW)[1] == 15
