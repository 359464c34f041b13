"""Six sites of the paper's graph, joined in memory, with real signatures: what crosses, whose word
counts, and attacks on that."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from families.trust.trust_world import (
    END,
    EVERYTHING,
    LINKS,
    NOW,
    World,
    private,
    public,
    signed,
    still,
)
from sealmq.families import signatures
from sealmq.families.trust import exchange as x
from sealmq.families.trust import gossip as g
from sealmq.families.trust import sites as s
from sealmq.families.trust import tokens as t
from sealmq.families.trust.decide import ACCEPTED, HANDED, NOT_ACCEPTED, SIGNED, Rules
from sealmq.families.trust.events import SETTLE_MS
from sealmq.families.trust.gossip import Said, signed_ratings
from sealmq.families.trust.paths import Edges, Oriented
from sealmq.families.trust.ratings import SCALE, rate
from sealmq.families.trust.sites import Introduction, signed_introduction
from sealmq.families.trust.tokens import Token, announcement, signed_text
from sealmq.families.trust.wire import MOST_BYTES, pack, u64

ACCEPT = 5000


@pytest.fixture
def world() -> World:
    return World()


def decided(came: dict[str, list[tuple[str, x.Decision]]]) -> dict[str, dict[str, str]]:
    return {
        site: {by: done.rule.rpartition(".")[2] for by, done in rows}
        for site, rows in sorted(came.items())
    }


def sign_as(site: str) -> Callable[[bytes], bytes]:
    return lambda text: signatures.sign(private(site), text)


# --- what the paper says ---


def test_the_paper_s_token_gathers_the_paper_s_signers_and_is_accepted(world: World) -> None:
    token = world.grant("b1", "c")
    came = world.publish("b1", "c", "a/x")
    # T12 = .60 and T13 = .70 are at π: b2 and b3 sign. b4 thinks .50 of b2: accepted, not signed,
    # and .40 of b3: that copy is refused. b5 thinks .55 of b3, b6 .40 of b4 and .50 of b5. What
    # comes round is judged as well; the bridge drops it as seen.
    assert decided(came) == {
        "b2": {"b1": "signed"},
        "b3": {"b1": "signed", "b4": "accepted"},
        "b4": {"b2": "accepted", "b3": "handed-over-by", "b6": "accepted"},
        "b5": {"b3": "accepted"},
        "b6": {"b4": "handed-over-by", "b5": "accepted"},
    }
    [known] = [k for k in world["b6"]._tokens if k.token.id == token.id]
    assert known.signers == {"b1", "b2", "b3"}
    said = world["b6"].explain("b5", token.id, "a/x", world.now)
    assert said["signers"] == [
        {"signer": "b1", "counts": True, "rating": 0.5},
        {"signer": "b2", "counts": False, "rating": 0.45},
        {"signer": "b3", "counts": False, "rating": 0.4},
    ]
    assert (said["accept"], said["sign"], said["rating"]) == (True, False, 0.5)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(accept=5100),
        Rules(signers=2),
        Rules(way="neighbour"),
        Rules(measure="weakest"),
        Rules(way="spki"),
    ],
    ids=["theta .51", "two signers", "neighbour", "weakest", "spki"],
)
def test_with_other_rules_b6_refuses(rules: Rules) -> None:
    world = World()
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    judge = world["b6"]
    judge.rules = rules
    judge._forget()
    done = judge.message("b5", token.id, "a/x", world.now)
    assert (done.accept, done.rule) == (False, NOT_ACCEPTED)


def test_where_every_member_of_a_path_has_signed_spki_asks_for_no_rating() -> None:
    weak = dict.fromkeys(LINKS, 6000) | {("b1", "b2"): 1000}
    links = [("b1", "b2"), ("b2", "b4"), ("b4", "b6")]
    rules, weights = Rules(way="spki", accept=0, sign=0), replace(still(), block=0, free=0)
    world = World(links, rules, weights, {link: weak[link] for link in links})
    world.grant("b1", "c")
    assert decided(world.publish("b1", "c", "a/x")) == {
        "b2": {"b1": "signed"}, "b4": {"b2": "signed"}, "b6": {"b4": "signed"},
    }  # fmt: skip


def test_a_refused_copy_takes_nothing_from_the_next_one(world: World) -> None:
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    judge = world["b6"]
    for _ in range(3):
        assert not judge.message("b4", token.id, "a/x", world.now).accept
        assert judge.message("b5", token.id, "a/x", world.now).accept


def test_what_goes_in_and_out_between_neighbours_follows_f_s() -> None:
    world = World()
    world.grant("b1", "c", ("a/#", "other/#"))
    # b3 is let have a part of b1's topics, and nothing of b1's is passed on to b5.
    world["b1"].enrol("b3", public("b3"), ("a/public/#",), world.now + 1)
    world["b3"].enrol("b5", public("b5"), ("a/#", "@b2/#"), world.now + 1)
    world.tick()
    private_, public_ = (decided(world.publish("b1", "c", t)) for t in ("a/x", "a/public/x"))
    assert private_["b3"] == {"b4": "accepted"}, "from b4, and not from b1"
    assert public_["b3"] == {"b1": "signed", "b4": "accepted"}
    assert "b5" not in private_ | public_
    token = world["b1"]._tokens.newest("b1", "c")
    assert token is not None
    done = world["b3"].message("b1", token.token.id, "a/x", world.now)
    assert (done.accept, done.rule) == (False, x.UNSUBSCRIBED)
    assert world.sites["b1"].outbound("c", "other/x", world.now).to == ()


def test_a_token_is_announced_once_and_again_when_somebody_has_signed_it(world: World) -> None:
    token = world.grant("b1", "c")
    told: list[tuple[str, frozenset[str]]] = []
    take = x.Exchange._token

    def noted(self: x.Exchange, by: str, one: Token, made: dict[str, bytes], now: int) -> x.Answer:
        if one.id == token.id:
            told.append((f"{by}>{self.me}", frozenset(made)))
        return take(self, by, one, made, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(x.Exchange, "_token", noted)
        for _ in range(5):
            world.publish("b1", "c", "a/x")
    assert len(told) == len(set(told)), "nothing twice"
    said = {line: [sorted(signers) for at, signers in told if at == line] for line, _ in told}
    assert said["b1>b2"][0] == ["b1"]
    again = [rows for rows in said.values() if len(rows) > 1]
    assert again
    assert all(set(before) < set(after) for rows in again for before, after in pairwise(rows))
    assert "b5>b3" not in said, "it has told all of it"


def test_two_neighbours_need_no_more_than_each_other() -> None:
    world = World([("b1", "b2")], Rules(signers=3), ratings={("b1", "b2"): ACCEPT})
    world.grant("b1", "c")
    assert decided(world.publish("b1", "c", "a/x")) == {"b2": {"b1": "accepted"}}


def test_a_line_that_was_down_is_told_everything_again(world: World) -> None:
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    old = world["b6"]
    new = world.sites["b6"] = world.site("b6", Rules(), still())
    for neighbour in ("b4", "b5"):
        new.enrol(neighbour, public(neighbour), EVERYTHING, world.now)
    assert new.message("b5", token.id, "a/x", world.now).rule == x.UNKNOWN_TOKEN
    for key, record in old.changes():
        assert record is not None
        new.restore(key, record, world.now)
    assert new.changes()
    assert new.changes() == [], "what has not changed is not written again"
    assert new._ratings.evidence("b4", world.now) == old._ratings.evidence("b4", world.now)
    for neighbour in ("b4", "b5"):
        new.joined(neighbour, world.now)
        world[neighbour].joined("b6", world.now)
    world.tick(1)
    assert new.message("b5", token.id, "a/x", world.now).rule == ACCEPTED


def test_a_known_token_s_decision_is_looked_up_until_something_changes(world: World) -> None:
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    judge = world["b6"]
    first = judge.message("b5", token.id, "a/x", world.now)
    assert judge.message("b5", token.id, "a/x", world.now) is first
    assert judge.message("b5", token.id, "a/x", END).rule == x.ENDED
    world.rate("b6", "b5", 4000)
    world.tick()
    assert judge.message("b5", token.id, "a/x", world.now).rule == HANDED
    world["b1"].grant("c", (), (), 2, END, world.now)
    world.settle()
    assert not world.sites["b1"].outbound("c", "a/x", world.now).ok


def test_a_removed_neighbour_s_word_ends_with_it(world: World) -> None:
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    judge = world["b6"]
    judge.remove("b5", world.now)
    assert judge.message("b5", token.id, "a/x", world.now).rule == x.NOT_A_NEIGHBOUR
    assert not judge.receive("b5", b"", world.now).ok
    world.tick()
    assert set(judge.ratings()) == {"b4"}
    assert not any("b6" in pair and "b5" in pair for pair in world["b4"].edges())


def test_convergence_takes_no_more_rounds_than_the_longest_path() -> None:
    world = World()
    for n, link in enumerate(LINKS):
        world.rate(link[1], link[0], 4000 + 100 * n)
    rounds = world.tick()
    assert rounds <= 3, "the diameter: signed ratings are passed on as they are"
    assert len({tuple(sorted(site.edges().items())) for site in world.sites.values()}) == 1
    assert len(world["b1"].edges()) == 2 * len(LINKS)


# --- attacks ---


def test_a_hop_that_is_invented_raises_no_average() -> None:
    """b4 and a friend it made up would put perfect edges between b3 and b6."""
    world = World()
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    before = world["b6"].explain("b5", token.id, "a/x", world.now)["signers"]
    introduction = Introduction("b4", "b9", public("b9"), world.now)
    lies = [
        # It has made the key of b9, and introduces it.
        signed_introduction(introduction, sign_as("b4")),
        # Perfect edges into b9, and from it: of sites that do not know it, and so do not say so.
        signed_ratings(
            Said("b9", world.now, END, dict.fromkeys(("b1", "b2", "b3", "b4", "b6"), SCALE)),
            sign_as("b9"),
        ),
        # And of b4 itself, to sites that are no neighbours of it.
        signed_ratings(
            Said("b4", world.now + 1, END, {"b1": SCALE, "b9": SCALE, "b2": 5000, "b3": 4000,
                                        "b6": 5000}),
            sign_as("b4"),
        ),
    ]  # fmt: skip
    for lie in lies:
        assert world["b6"].receive("b4", lie, world.now).rule == x.TAKEN
    graph = world["b6"].edges()
    assert {pair for pair in graph if "b9" in pair} == {("b9", "b4"), ("b4", "b9")}, "a dead end"
    assert ("b1", "b4") not in graph
    assert world["b6"].explain("b5", token.id, "a/x", world.now)["signers"] == before


def test_a_site_that_nobody_has_introduced_rates_nobody(world: World) -> None:
    said = Said("b9", NOW, END, {"b4": SCALE, "b6": SCALE})
    answer = world["b6"].receive("b4", signed_ratings(said, sign_as("b9")), world.now)
    assert (answer.ok, answer.rule) == (False, "trust.ratings.unknown-site")


def test_nobody_speaks_ill_of_an_edge_that_is_not_its_own() -> None:
    """b4 says of b3, in b5's name and in its own, what b5 has not said."""
    world = World()
    good = world["b6"].edges()["b3", "b5"]
    for rater, key in (("b5", "b4"), ("b4", "b4")):
        lies = dict.fromkeys({"b2", "b3", "b5", "b6"} - {rater}, 0)
        said = Said(rater, world.now + 10**9, END, lies)
        answer = world["b6"].receive("b4", signed_ratings(said, sign_as(key)), world.now)
        assert (answer.ok, answer.rule) == (
            (True, x.TAKEN) if rater == key else (False, "trust.ratings.forged")
        )
    graph = world["b6"].edges()
    assert graph["b3", "b5"] == good
    assert ("b5", "b4") not in graph, "b5 does not say that b4 is a neighbour"
    assert graph["b3", "b4"] == 0, "of its own neighbours it may say so"


def test_one_who_speaks_ill_of_all_is_routed_around_once_blocked(world: World) -> None:
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    said = Said("b4", world.now + 1, END, {"b2": 0, "b3": 0, "b6": 0})
    world["b6"].receive("b4", signed_ratings(said, sign_as("b4")), world.now)
    judge = world["b6"]
    assert judge.message("b5", token.id, "a/x", world.now).rule == NOT_ACCEPTED
    for _ in range(40):
        judge.observe("b4", "replay", world.now)
    world.tick()
    assert judge.blocked() == {"b4"}
    assert judge.message("b5", token.id, "a/x", world.now).rule == ACCEPTED
    assert judge.message("b4", token.id, "a/x", world.now).rule == x.BLOCKED
    assert not any("b4" in pair for pair in judge.edges())


def test_a_site_that_turns_bad_after_a_long_good_time_is_refused_soon() -> None:
    world = World(weights=replace(still(), cap=50), ratings=None)
    token = world.grant("b1", "c")
    judge = world["b2"]

    def passed(bad: bool, n: int) -> str:
        rule = judge.message("b1", token.id, "a/x", world.now).rule
        if rule in (ACCEPTED, SIGNED):
            judge.forwarded("b1", n.to_bytes(4, "big"), "a/x", world.now)
            judge.vote("assessor", n.to_bytes(4, "big"), not bad, world.now, assessor=True)
        world.tick(SETTLE_MS)
        return rule

    judge._ratings.restore("b1", 49, 0, world.now)
    world.publish("b1", "c", "a/x")
    world.tick()
    assert {passed(False, n) for n in range(5)} == {SIGNED}
    found = [passed(True, n) for n in range(100, 112)]
    assert found[0] == SIGNED
    assert found.count(SIGNED) + found.count(ACCEPTED) <= 9
    assert found[-1] == NOT_ACCEPTED, "an edge below θ is a path below θ"


def test_junk_that_nobody_complains_of_buys_no_more_than_the_cap() -> None:
    world = World(weights=replace(still(), cap=50))
    judge = world["b6"]
    for n in range(1000):
        judge.forwarded("b4", n.to_bytes(4, "big"), "a/x", world.now)
    world.tick(SETTLE_MS)
    assert sum(judge._ratings.evidence("b4", world.now)) <= 50.001
    assert judge.ratings()["b4"] < rate(51, 0)


def test_a_token_that_is_widened_or_replayed_opens_nothing(world: World) -> None:
    old = world.grant("b1", "c", ("a/#",), 1)
    world.publish("b1", "c", "a/x")
    new = world.grant("b1", "c", ("a/y",), 2)
    world.publish("b1", "c", "a/y")
    judge = world["b6"]
    assert judge.message("b5", new.id, "a/y", world.now).accept
    assert judge.message("b5", old.id, "a/x", world.now).rule == x.UNKNOWN_TOKEN
    wide = Token("b1", "c", ("#",), (), 3, END)
    for record, rule in (
        (announcement(old, signed(old, "b1", "b2", "b3")), "trust.token.superseded"),
        (announcement(wide, signed(old, "b1", "b2", "b3")), "trust.token.forged"),
        (announcement(wide, signed(wide, "b2", "b5")), "trust.token.unsigned"),
    ):
        assert judge.receive("b5", record, world.now).rule == rule
    for id in (old.id, wide.id):
        assert judge.message("b5", id, "a/x", world.now).rule == x.UNKNOWN_TOKEN
    # And within the token that counts, what lies outside F_p does not cross, and is charged.
    before = judge._ratings.evidence("b5", world.now)[1]
    assert judge.message("b5", new.id, "a/x", world.now).rule == x.OUTSIDE
    assert judge._ratings.evidence("b5", world.now)[1] > before


def test_signatures_that_one_neighbour_strips_another_brings(world: World) -> None:
    """b5 hands b6 the token as if nobody but b1 had signed it; b4 has the rest of it."""
    token = world.grant("b1", "c")
    judge = world["b6"]
    judge.rules = Rules(signers=2, accept=4000)
    judge._forget()
    bare = announcement(token, signed(token, "b1"))
    whole = announcement(token, signed(token, "b1", "b2", "b3"))
    assert judge.receive("b5", bare, world.now).ok
    assert judge.message("b5", token.id, "a/x", world.now).rule == NOT_ACCEPTED
    assert judge.receive("b4", whole, world.now).ok
    assert judge.receive("b5", bare, world.now).ok
    assert judge.message("b5", token.id, "a/x", world.now).rule == ACCEPTED


def test_old_ratings_come_back_for_nobody(world: World) -> None:
    record = world["b5"]._board.record("b5")
    assert record is not None
    world.rate("b5", "b3", 1000)
    world.tick()
    assert world["b6"].edges()["b3", "b5"] == 1000
    assert world["b6"].receive("b5", record, world.now).rule == x.KNOWN
    assert world["b6"].edges()["b3", "b5"] == 1000


def test_what_is_forged_or_malformed_is_held_against_who_sent_it(world: World) -> None:
    judge, token = world["b6"], Token("b1", "c", ("a/#",), (), 5, END)
    before = judge._ratings.evidence("b5", world.now)[1]
    records = [
        b"\xff",
        announcement(token, {"b1": bytes(64)}),
        announcement(token, {**signed(token, "b1"), "b2": bytes(64)}),
        signed_ratings(Said("b3", world.now + 5, END, {"b1": 0}), sign_as("b4")),
        signed_introduction(Introduction("b5", "b9", public("b9"), END), sign_as("b4")),
        signed_introduction(Introduction("b4", "b9", public("b9"), END), sign_as("b4")),
    ]
    for record in records:
        assert not judge.receive("b5", record, world.now).ok
    assert judge._ratings.evidence("b5", world.now)[1] == pytest.approx(before + 5 * len(records))


def test_a_token_of_this_site_or_of_one_without_links_comes_from_nobody(world: World) -> None:
    own = world.grant("b6", "c")
    assert world["b6"].message("b5", own.id, "a/x", world.now).rule == x.OWN
    # b9 is known by its key, and no links lead to it: it was removed, or never there.
    world["b6"].pin("b9", public("b9"), world.now)
    token = Token("b9", "c", ("a/#",), (), 1, END)
    made = {s: signatures.sign(private(s), signed_text(s, token.raw)) for s in ("b9", "b5", "b4")}
    for rules in (Rules(accept=0, sign=0), Rules(way="neighbour", accept=0, sign=0),
                  Rules(way="spki", accept=0, sign=0)):  # fmt: skip
        world["b6"].rules = rules
        world["b6"]._forget()
        world["b6"].receive("b5", announcement(token, made), world.now)
        done = world["b6"].message("b5", token.id, "a/x", world.now)
        assert (done.rule, done.reason) == (NOT_ACCEPTED, "no links lead to b9")


def test_ratings_end_and_hold_for_no_more_than_two_days(world: World) -> None:
    judge = world["b6"]
    for until, rule in (
        (world.now, "trust.ratings.expired"),
        (NOW + 2**40, "trust.ratings.too-long"),
    ):
        said = Said("b4", world.now + 1, until, {"b2": 0, "b3": 0, "b6": 0})
        assert judge.receive("b4", signed_ratings(said, sign_as("b4")), world.now).rule == rule
    assert judge.edges()["b2", "b4"] == 5000
    # Who is not heard of for an hour is in nobody's graph.
    for site in ("b4", "b5", "b6"):
        world[site].tick(world.now + x.VALID_MS)
    assert not any("b1" in pair for pair in judge.edges())


def test_no_record_that_a_neighbour_makes_up_raises_or_moves_an_edge(world: World) -> None:
    draw, judge = random.Random(7), world["b6"]
    world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    world["b4"].joined("b6", world.now)
    good = world["b4"].pending("b6")
    kinds = {record[2:12] for record in good}
    assert len(kinds) == 3
    edges, known = dict(judge.edges()), {k.token.id: k.signers for k in judge._tokens}
    for _ in range(400):
        one, other = bytearray(draw.choice(good)), draw.choice(good)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(one))
            how = draw.random()
            if how < 0.4:
                one[at] ^= 1 << draw.randrange(8)
            elif how < 0.7:
                del one[at : at + draw.randint(1, 40)]
            else:
                one[at:at] = other[draw.randrange(len(other)) :][:40]
            one = one or bytearray(1)
        answer = judge.receive("b4", bytes(one), world.now)
        assert not answer.ok or answer.rule == x.KNOWN or bytes(one) in good
    assert dict(judge.edges()) == edges
    assert {k.token.id: k.signers for k in judge._tokens} == known


def test_a_disputed_key_ends_its_tokens_until_the_operator_speaks(world: World) -> None:
    """b5 would pass off a key of its own as b1's; it reaches that b1's tokens count no more."""
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    judge = world["b6"]
    assert judge.message("b5", token.id, "a/x", world.now).accept
    serial = world.now + 10
    lie = signed_introduction(Introduction("b5", "b1", public("evil"), serial), sign_as("b5"))
    assert judge.receive("b5", lie, world.now).rule == x.TAKEN
    assert judge.doubtful() == ["b1"]
    assert judge.message("b5", token.id, "a/x", world.now).rule == x.UNKNOWN_TOKEN
    forged = Token("b1", "c", ("#",), (), 2, END)
    made = {"b1": signatures.sign(private("evil"), signed_text("b1", forged.raw))}
    assert not judge.receive("b5", announcement(forged, made), world.now).ok
    judge.pin("b1", public("b1"), world.now)
    assert judge.doubtful() == []
    # Nobody has to announce it again.
    assert judge.message("b5", token.id, "a/x", world.now).accept
    assert judge.receive("b5", announcement(forged, made), world.now).rule == "trust.token.forged"


def test_what_was_introduced_by_a_neighbour_that_is_blocked_counts_no_more(world: World) -> None:
    judge = world["b6"]
    lie = Introduction("b5", "b9", public("b9"), world.now + 10)
    judge.receive("b5", signed_introduction(lie, sign_as("b5")), world.now)
    token = Token("b9", "c", ("a/#",), (), 1, END)
    assert judge.receive("b5", announcement(token, signed(token, "b9")), world.now).ok
    for _ in range(60):
        judge.observe("b5", "rate", world.now)
    world.tick()
    assert judge.blocked() == {"b5"}
    assert judge.token(token.id) is None
    assert not judge.receive("b4", announcement(token, signed(token, "b9")), world.now).ok


def test_what_nobody_can_see_or_keep_is_no_evidence(world: World) -> None:
    judge = world["b6"]
    with pytest.raises(ValueError, match="none of bad-token, outside, rate, replay"):
        judge.observe("b5", "looks", world.now)
    before = dict(judge.edges())
    rows = [record or b"" for _, record in judge.changes()]
    too_much = pack(x.EVIDENCE, b"b4", u64(10**9), u64(0), u64(world.now), u64(0))
    for n, row in enumerate((b"", b"\xff", too_much, *(row[:-1] for row in rows))):
        judge.restore(b"t%d" % n, row, world.now)
    assert {record for _, record in judge.changes()} == {None}, "it goes from the disk"
    assert judge._ratings.evidence("b4", world.now)[0] < 100
    assert judge.edges() == before


def test_a_way_that_is_closed_is_closed_for_its_issuer_alone_and_stays_so(world: World) -> None:
    judge, token = world["b6"], world.grant("b1", "c")
    world.rate("b6", "b5", 9000)
    world.publish("b1", "c", "a/x")
    other = world.grant("b5", "d")
    world.publish("b5", "d", "a/x")
    world.tick()
    assert judge.message("b5", token.id, "a/x", world.now).accept
    for n in range(3):
        judge.forwarded("b5", bytes([n]), "@b1/a/x", world.now)
        judge.vote("assessor", bytes([n]), False, world.now, assessor=True)
    world.tick(SETTLE_MS)
    assert judge.message("b5", token.id, "a/x", world.now).rule == x.CLOSED
    assert judge.explain("b5", token.id, "a/x", world.now)["rule"] == x.CLOSED
    assert judge.message("b5", other.id, "a/x", world.now).accept, "b5's own go on"
    assert judge.message("b4", token.id, "a/x", world.now).rule != x.CLOSED
    again = world.site("b6", Rules(), still())
    again.enrol("b5", public("b5"), EVERYTHING, world.now)
    for key, row in judge.changes():
        again.restore(key, row or b"", world.now)
    again.tick(world.now + 60_000)
    judge.tick(world.now + 60_000)
    assert ("b5", "b1") in again._ratings.closed
    assert again._ratings.held(("b5", "b1")) == judge._ratings.held(("b5", "b1"))


# --- what one neighbour can do to others ---


def test_what_one_neighbour_brings_takes_no_room_from_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = world["b6"]
    judge._tokens._most = 3
    monkeypatch.setattr(t, "MOST_OF_ISSUER", 5)

    def brings(by: str, issuer: str, client: str) -> str:
        made = Token(issuer, client, ("a",), (), 1, END)
        return judge.receive(by, announcement(made, signed(made, issuer)), world.now).rule

    there = [len(judge._tokens), judge._tokens._of_neighbour["b4"]]
    assert there[1] == 1, "what it lets this site have"
    assert [brings("b4", "b4", f"c{n}") for n in range(4)] == [x.TAKEN] * 2 + [t.FULL] * 2
    assert len(judge._tokens) == there[0] + 2, "what is refused is not kept"
    assert [brings("b5", "b1", f"c{n}") for n in range(2)] == [x.TAKEN] * 2
    judge.enrol("b9", public("b9"), ("new/#",), world.now)
    assert judge.issued("@b9") is not None, "this site's own are not in anybody's share"
    restored = world.site("b6", Rules(), still())
    for name in ("b4", "b5"):
        restored.enrol(name, public(name), EVERYTHING, world.now)
    rows = sorted(judge.changes(), key=lambda row: b"introduc" not in (row[1] or b"")[:32])
    for key, record in rows:
        restored.restore(key, record or b"", world.now)
    assert restored._tokens._of_neighbour["b4"] == 3, "shares survive a restart"


def test_a_blocked_neighbour_brings_no_token_and_is_told_so(world: World) -> None:
    judge, held = world["b6"], len(world["b6"]._tokens)
    for _ in range(60):
        judge.observe("b4", "rate", world.now)
    judge.tick(world.now)
    made = Token("b4", "c", ("a",), (), 1, END)
    found = judge.receive("b4", announcement(made, signed(made, "b4")), world.now)
    assert (found.ok, found.rule, len(judge._tokens)) == (False, x.BLOCKED, held)


def test_who_did_not_take_a_token_is_told_it_again_after_a_while(world: World) -> None:
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    assert world["b1"].naming("b2", token.id)
    assert world["b1"].pending("b2") == []
    world.tick(x.REMIND_MS + 1)
    assert world["b1"].naming("b2", token.id)
    told = [t.read_announcement(record)[0] for record in world["b1"].pending("b2")]
    assert told == [token]


def test_what_was_told_of_a_token_that_is_renewed_or_over_is_forgotten(world: World) -> None:
    for serial in range(1, 9):
        world.grant("b1", "c", (f"a/{serial}/#", "a/x"), serial)
        world.publish("b1", "c", "a/x")
        for site in world.sites.values():
            site.changes()
    for site in world.sites.values():
        for told in site._announced.values():
            assert all(site.token(id) is not None for id in told)


def test_two_tokens_with_one_id_count_for_nobody_and_cost_no_neighbour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b1's client finds two, and has b4 and b5 told one each: b6 judges what b4 hands over by the
    other one."""
    monkeypatch.setattr(t, "ID_BYTES", 1)
    wide, narrow = _clash()
    judge = world["b6"]
    assert judge.receive("b5", announcement(narrow, signed(narrow, "b1")), world.now).ok
    assert judge.message("b5", narrow.id, "n", world.now).accept
    found = judge.receive("b4", announcement(wide, signed(wide, "b1")), world.now)
    assert (found.ok, found.rule) == (False, t.CLASH)
    before = [judge._ratings.evidence(n, world.now) for n in ("b4", "b5")]
    for by, topic in (("b4", "w"), ("b5", "n"), ("b4", "elsewhere")):
        done = judge.message(by, wide.id, topic, world.now)
        assert (done.accept, done.rule) == (False, t.CLASH)
    assert [judge._ratings.evidence(n, world.now) for n in ("b4", "b5")] == before


def _clash() -> tuple[Token, Token]:
    first = Token("b1", "c0", ("w",), (), 1, END)
    more = (Token("b1", f"c{n}", ("n",), (), 1, END) for n in range(1, 10_000))
    return first, next(one for one in more if one.id == first.id)


def test_the_longest_token_with_all_its_signers_fits_into_a_record() -> None:
    long = "n" * 64
    filters = tuple(f"{n:02}/" + "f" * 56 for n in range(64))
    made = Token(long, long, filters, (), 1, END)
    assert len(made.raw) > t.MOST_TOKEN_BYTES - 80
    names = [f"{n:064}" for n in range(t.MOST_SIGNERS)]
    record = pack(x.BROUGHT, b"b" * 64) + announcement(made, dict.fromkeys(names, bytes(64)))
    assert t.read_announcement(announcement(made, dict.fromkeys(names, bytes(64))))[0] == made
    assert len(record) <= MOST_BYTES


# --- what a neighbour's records cost ---


class Verified:
    """How often somebody's signature was verified."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, true = 0, signatures.is_signed

        def counted(public: bytes, text: bytes, signature: bytes) -> bool:
            self.count += 1
            return true(public, text, signature)

        patch.setattr(t, "is_signed", counted)

    def since(self) -> int:
        found, self.count = self.count, 0
        return found


def introduces(world: World, by: str, site: str, key: bytes) -> str:
    """To b6, something new each time."""
    serial = max(
        (made.serial for made, _ in world["b6"]._sites._introduced[by].values()), default=0
    )
    made = Introduction(by, site, key, max(serial, world.now) + 1)
    return world["b6"].receive(by, signed_introduction(made, sign_as(by)), world.now).rule


def brought(world: World, count: int, *signers: str) -> list[Token]:
    """Tokens of the first of these that b5 has told b6."""
    some = [Token(signers[0], f"c{n}", ("a",), (), 1, END) for n in range(count)]
    for one in some:
        assert world["b6"].receive("b5", announcement(one, signed(one, *signers)), world.now).ok
    return some


def counting(world: World, some: list[Token], signer: str) -> int:
    """Those that b6 takes the signer's signature of for right."""
    held = [world["b6"].known(one.id) for one in some]
    return sum(known is not None and signer in known.signers for known in held)


def test_a_key_that_goes_and_comes_back_has_nothing_verified_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = world["b6"]
    introduces(world, "b5", "b9", public("b9"))
    some = brought(world, 20, "b9", "b5")
    verified = Verified(monkeypatch)
    judge.changes()
    for _ in range(3):
        for key, counts in ((b"", 0), (public("evil"), 0), (public("b9"), 20)):
            judge.tick(world.now)
            assert introduces(world, "b5", "b9", key) == x.TAKEN
            assert counting(world, some, "b9") == counts
            world.now += s.STEADY_MS
            assert len(judge.changes()) <= 2, "the introduction, and no token"
    assert verified.since() == 0
    # What was right by one key is right by no other one, and a new signature by that one counts.
    judge.tick(world.now)
    introduces(world, "b5", "b9", public("evil"))
    new = {"b9": sign_as("evil")(signed_text("b9", some[0].raw))}
    assert judge.receive("b5", announcement(some[0], new), world.now).rule == x.TAKEN
    assert counting(world, some, "b9") == 1


def test_a_key_goes_at_once_and_comes_back_once_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = world["b6"]
    introduces(world, "b5", "b9", public("b9"))
    some = brought(world, 3, "b9")
    looked: list[str] = []
    true = t.Tokens.rekeyed

    def counted(self: t.Tokens, site: str) -> list[t.Known]:
        looked.append(site)
        return true(self, site)

    monkeypatch.setattr(t.Tokens, "rekeyed", counted)
    for key in (b"", public("b9"), public("evil"), b"", public("b9")):
        assert introduces(world, "b5", "b9", key) == x.TAKEN
        judge.tick(world.now)
        assert (judge.key("b9"), counting(world, some, "b9")) == (None, 0)
        assert judge.doubtful() == []
    assert looked == ["b9"]
    judge.tick(world.now + s.STEADY_MS - 1)
    assert judge.key("b9") is None
    judge.tick(world.now + s.STEADY_MS)
    assert (judge.key("b9"), counting(world, some, "b9")) == (public("b9"), 3)
    assert looked == ["b9", "b9"]
    # A clock that was set back, and what the operator says, keep nobody waiting.
    introduces(world, "b5", "b9", b"")
    introduces(world, "b5", "b9", public("b9"))
    judge.tick(world.now)
    assert judge.key("b9") == public("b9")
    introduces(world, "b4", "b8", public("b8"))
    introduces(world, "b4", "b8", public("evil"))
    judge.pin("b8", public("b8"), world.now)
    assert judge.key("b8") == public("b8")


def test_keys_that_wait_come_a_few_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s, "MOST_COME", 2)
    judge, names = world["b6"], [f"x{n}" for n in range(5)]
    for key in (public("one"), public("other")):
        for name in names:
            introduces(world, "b5", name, key)
    found = []
    for second in range(4):
        judge.tick(world.now + s.STEADY_MS + second)
        found.append(sum(judge.key(name) == public("other") for name in names))
    assert found == [2, 4, 5, 5]


def test_who_says_ever_new_things_of_a_site_is_refused_and_charged(world: World) -> None:
    judge = world["b6"]
    before = judge._ratings.evidence("b5", world.now)[1]
    keys = [public("b9"), b""] * s.MOST_NEWS
    found = [introduces(world, "b5", "b9", key) for key in keys]
    assert found == [x.TAKEN] * s.MOST_NEWS + [s.TOO_OFTEN] * s.MOST_NEWS
    assert judge._ratings.evidence("b5", world.now)[1] == before + 5 * s.MOST_NEWS
    assert introduces(world, "b5", "b8", public("b8")) == x.TAKEN, "others it may introduce"
    assert introduces(world, "b4", "b9", public("b9")) == x.TAKEN, "and so may others"
    world.now += s.STEADY_MS
    judge.tick(world.now)
    assert introduces(world, "b5", "b9", public("b9")) == x.TAKEN


def test_signatures_that_came_before_their_key_are_tried_a_few_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(t, "MOST_TRIED", 4)
    some = brought(world, 10, "b5", "b9")
    wrong = Token("b5", "wrong", ("a",), (), 1, END)
    made = signed(wrong, "b5") | {"b9": sign_as("b4")(b"")}
    assert world["b6"].receive("b5", announcement(wrong, made), world.now).ok
    assert counting(world, some, "b9") == 0
    verified, found = Verified(monkeypatch), []
    introduces(world, "b5", "b9", public("b9"))
    for _ in range(4):
        found.append((verified.since(), counting(world, some, "b9")))
        world["b6"].tick(world.now)
    assert found == [(4, 4), (4, 8), (3, 10), (0, 10)]
    assert counting(world, [wrong], "b9") == 0


def test_nobody_puts_another_signature_in_the_place_of_one_whose_key_is_away(world: World) -> None:
    judge = world["b6"]
    introduces(world, "b5", "b9", public("b9"))
    [one] = brought(world, 1, "b5", "b9")
    introduces(world, "b5", "b9", b"")
    junk = signed(one, "b5") | {"b9": bytes(64)}
    assert judge.receive("b4", announcement(one, junk), world.now).ok
    # It survives a restart, too, and counts as what it is.
    kept = [row for key, row in judge.changes() if key == b"t" + one.id]
    assert signed(one, "b9")["b9"] in (kept[0] or b"")
    world.now += s.STEADY_MS
    judge.tick(world.now)
    introduces(world, "b5", "b9", public("b9"))
    held = judge.known(one.id)
    assert held is not None
    assert held.signatures == signed(one, "b5", "b9")


def test_a_token_whose_issuer_s_key_is_away_stays_on_disk(world: World) -> None:
    judge = world["b6"]
    introduces(world, "b5", "b9", public("b9"))
    [one] = brought(world, 1, "b9", "b5")
    rows = dict(judge.changes())
    introduces(world, "b5", "b9", b"")
    rows |= dict(judge.changes())
    world.now += s.STEADY_MS
    judge.tick(world.now)
    introduces(world, "b5", "b9", public("b9"))
    rows |= dict(judge.changes())
    again = world.site("b6", Rules(), still())
    for neighbour in ("b4", "b5"):
        again.enrol(neighbour, public(neighbour), EVERYTHING, world.now)
    for key, row in sorted(rows.items(), key=lambda row: b"introduc" not in (row[1] or b"")[:32]):
        again.restore(key, row or b"", world.now)
    held = again.known(one.id)
    assert held is not None
    assert held.signers == {"b9", "b5"}


def test_ever_new_ratings_build_no_graph_again_and_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, tokens = world["b6"], []
    for issuer in ("b1", "b2", "b3", "b5"):
        tokens.append(world.grant(issuer, "c"))
        world.publish(issuer, "c", "a/x")
    monkeypatch.setattr(x, "EDGES_A_SECOND", 2 * 7 * 2 * len(LINKS))
    built: list[str] = []

    def counted(edges: Edges, issuer: str) -> Oriented:
        built.append(issuer)
        return Oriented(edges, issuer)

    monkeypatch.setattr(x, "Oriented", counted)

    def says(rating: int) -> None:
        said = Said("b4", world.now + rating, END, {"b2": 5000, "b3": rating, "b6": 5000})
        assert judge.receive("b4", signed_ratings(said, sign_as("b4")), world.now).rule == x.TAKEN
        for token in tokens:
            judge.message("b5", token.id, "a/x", world.now)

    judge._owed = 0
    says(1)
    assert judge.edges()["b3", "b4"] == 1, "what costs little counts at once"
    for rating in range(2, 100):
        says(rating)
    work = len(built)
    assert work <= 4 * len(tokens), "two seconds' worth, and what was under way"
    for second in range(1, 11):
        judge.tick(world.now + 1000 * second)
        says(100 + second)
    assert len(built) <= work + 10 * 14, "and each second what it pays for"
    judge.tick(world.now + x.PERIOD_MS)
    assert judge.edges()["b3", "b4"] == 110, "nothing is lost"


def test_ratings_count_at_the_latest_after_a_minute_and_a_block_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = world["b6"]
    judge.edges()
    monkeypatch.setattr(x, "EDGES_A_SECOND", 1)
    judge._forget()
    for _ in range(100):
        judge._owes(len(judge.edges()))
    said = Said("b4", world.now + 1, END, {"b2": 17, "b3": 4000, "b6": 5000})
    assert judge.receive("b4", signed_ratings(said, sign_as("b4")), world.now).rule == x.TAKEN
    assert judge.edges()["b2", "b4"] != 17
    judge._due_ms = world.now + 10 * x.PERIOD_MS
    for second in range(60):
        judge.tick(world.now + 1000 * second)
    judge.tick(world.now + x.PERIOD_MS)
    assert judge.edges()["b2", "b4"] == 17
    judge._owes(1000)
    for _ in range(60):
        judge.observe("b4", "rate", world.now)
    judge.tick(world.now + x.PERIOD_MS)
    assert not any("b4" in pair for pair in judge.edges())


def test_ratings_that_one_neighbour_brings_are_bounded_and_take_no_room_from_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, share = world["b6"], world["b6"]._board._brought
    most = max(share("b4", but=""), share("b5", but="")) + 4
    monkeypatch.setattr(g, "MOST_OF_NEIGHBOUR", most)
    room = most - share("b5", but="")
    for site in ("b8", "b9"):
        introduces(world, "b5", site, public(site))

    def brings(by: str, rater: str, count: int, serial: int) -> str:
        others = {f"x{n}": 1 for n in range(count)}
        said = signed_ratings(Said(rater, world.now + serial, END, others), sign_as(rater))
        return judge.receive(by, said, world.now).rule

    assert [brings("b5", "b9", room - 1, 1), brings("b5", "b8", 2, 1)] == [x.TAKEN, g.FULL]
    assert brings("b5", "b8", 1, 1) == x.TAKEN, "what was refused has used nothing up"
    assert brings("b5", "b9", room, 2) == g.FULL
    assert brings("b5", "b9", room - 2, 2) == x.TAKEN, "its newest take the place of older ones"
    assert brings("b4", "b8", 4, 2) == x.TAKEN, "in the share of who brings them now"
    assert brings("b5", "b9", room, 3) == x.TAKEN
