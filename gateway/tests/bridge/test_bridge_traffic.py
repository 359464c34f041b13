"""What a bridge makes of what its neighbours bring: taken, once, and handed on; or refused, and
named. Sites in memory, with the judge of `trust` or with none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.crossing_world import (
    GIVE,
    LABEL,
    Site,
    World,
    crossing_of,
    m1,
    now,
    policy,
    public,
    site_of,
)
from sealmq.bridge.crossing import DROPPED, HOPS, OK, Crossing
from sealmq.bridge.judging import Plain
from sealmq.bridge.traffic import COUNTED, REFUSED, THERE, Import
from sealmq.client.errors import refusal
from sealmq.families.between import Neighbour
from sealmq.families.trust.example import PAPER
from sealmq.families.trust.tokens import MOST_TOKEN_BYTES, Token
from sealmq.feedback import Said, Told
from sealmq.site.check import parse
from sealmq.site.errors import ConfigError
from sealmq.site.peers import MOST_GIVEN_BYTES
from sealmq_spec.errors import Denied
from sealmq_spec.origin import message_id

GIVES = '[site]\nname = "b2"\nid = "00000002"\n[policy]\norder = ["labels"]\n' + (
    f'[peers.b3]\nfingerprint = "{"ab" * 32}"\nlisten = "127.0.0.1:9"\ngive = [%s]\n'
)
HOME, AWAY = b"\0\0\0\1", b"\0\0\0\2"


def one(**more: Any) -> Crossing:
    said: dict[str, Any] = {
        "seq": 1, "flags": 2, "hops": 1, "site": AWAY, "label": 40, "token": bytes(8),
        "topic": "a/b", "m1": m1(),
    }  # fmt: skip
    return Crossing(**(said | more))


@pytest.fixture
def south(tmp_path: Path) -> Iterator[Site]:
    """A site that no family judges for, with one neighbour, whose label it imports."""
    made = Site("b1", tmp_path, Plain())
    made.traffic.imports[AWAY, 40] = Import("north", "heat")
    made.traffic.sites["north"] = AWAY
    yield made
    made.spool.close()


def test_it_is_published_below_the_mount_as_it_came(south: Site) -> None:
    assert south.take("north", one(flags=3, m1=m1(kind=1))) == [(OK, "")]
    assert south.delivered == [("@north/a/b", m1(kind=1), 3)]


def test_a_clear_crosses_once_as_a_retained_message_does_and_a_will_never(south: Site) -> None:
    clear = one(flags=3, m1=m1(kind=3))
    assert south.take("north", clear) == [(OK, "")]
    south.handed.clear()  # another line
    assert south.take("north", clear._replace(seq=2)) == [(OK, "")]
    assert south.delivered == [("@north/a/b", m1(kind=3), 3)]
    [(code, why)] = south.take("north", one(flags=3, m1=m1(ctr=9, kind=2)))
    assert (code, "a will" in why) == (DROPPED, True)


def test_what_comes_again_is_not_published_again(south: Site) -> None:
    assert south.take("north", one(), one(seq=2)) == [(OK, ""), (OK, "")]
    south.handed.clear()  # another line
    assert south.take("north", one(seq=3)) == [(OK, "")]
    assert len(south.delivered) == 1
    assert south.take("north", one(m1=m1(ctr=4)), one(m1=m1(sender=6))) == [(OK, "")] * 2
    assert len(south.delivered) == 3


def test_what_was_refused_has_used_nothing_up(south: Site) -> None:
    south.errors = [refusal("publish", "a/b", Denied.code, "labels.x", "not now")]
    [(code, why)] = south.take("north", one())
    assert (code, "not now" in why) == (DROPPED, True)
    assert [row["topic"] for row in south.said] == ["@north/a/b"]
    assert south.take("north", one()) == [(OK, "")]
    assert len(south.delivered) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"label": 41}, "not exported"),
        ({"site": b"\0\0\0\3"}, "another site"),
        ({"site": site_of("b1")}, "loop"),
        ({"hops": HOPS + 1}, "hops"),
        ({"topic": "@west/a"}, "third site"),
        ({"m1": b"x"}, "at least 43"),
        ({"m1": m1(kind=2)}, "do not cross"),
    ],
)
def test_what_is_none_of_the_peers_is_refused_and_named(
    south: Site, more: dict[str, Any], words: str
) -> None:
    [(code, why)] = south.take("north", one(**more))
    assert (code, words in why) == (DROPPED, True), why
    assert (len(south.named()), south.delivered) == (1, [])


def test_one_that_comes_late_is_taken_once_however_many_have_overtaken_it(south: Site) -> None:
    """Another line has brought what its sender published after it; its own was away meanwhile."""
    later = [one(m1=m1(ctr=n)) for n in (10_000, 99_000, 1 << 23)]
    for late in (*later, one(), one(m1=m1(ctr=9_999))):
        assert south.take("north", late) == [(OK, "")]
    assert len(south.delivered) == 5
    south.handed.clear()  # another line
    for again in (*later, one()):
        assert south.take("north", again) == [(OK, "")]
    assert (len(south.delivered), south.named()) == (5, [])


# --- over other sites ---

ROW = [("b1", "b2"), ("b2", "b3")]


@pytest.fixture
def row(tmp_path: Path) -> World:
    return World(tmp_path, ROW, "b3")


def test_a_message_goes_where_its_label_is_imported_and_no_site_delivers_another_s(
    row: World,
) -> None:
    row.publish()
    assert row["b3"].delivered == [("@b1/boiler/1", m1(), 2)]
    assert [site.named() for site in row.sites.values()] == [[], [], []]
    assert row["b2"].delivered == []


def test_in_the_papers_graph_it_arrives_once_though_lines_are_cut(tmp_path: Path) -> None:
    world = World(tmp_path, list(PAPER.edges), "b6")
    world.leave()
    world.flow(cut=[("b4", "b6"), ("b1", "b2")])
    assert [topic for topic, _, _ in world["b6"].delivered] == ["@b1/boiler/1"]
    world.flow()
    assert len(world["b6"].delivered) == 1
    assert {n: site.named() for n, site in world.sites.items() if site.named()} == {}
    waiting = [site.spool.count(n) for site in world.sites.values() for n in world.sites]
    assert not any(waiting)


def test_what_goes_to_a_neighbour_goes_to_no_other_and_two_copies_are_one(row: World) -> None:
    b2 = row["b2"].traffic
    b2.exported = {"cold": frozenset({"b1", "b3"})}
    row["b2"].judge.configure(
        policy("b1"), {n: Neighbour(public(n), GIVE) for n in ("b1", "b3")}, {}, now()
    )
    for peer, ctr in (("b3", 3), ("b3", 3), ("b3", 4)):
        b2.own("cold", 20, "boiler/1", 1, m1(ctr), peer, lambda: None)
    assert (row["b2"].spool.count("b1"), row["b2"].spool.count("b3")) == (0, 2)
    b2.exported = {"cold": frozenset({"b1"})}
    waiting = row["b2"].spool.after("b3", 0, 9)
    assert [b2.still_goes("b3", one.message) for one in waiting] == [False, False]


def test_what_no_neighbour_may_have_does_not_leave_and_is_named(tmp_path: Path) -> None:
    give = {("b1", "b2"): ("boiler/open/#",), ("b2", "b3"): ("@b1/boiler/open/a",)}
    world = World(tmp_path, ROW, "b3", give=give)
    world.publish(3, "boiler/closed")
    assert "no neighbour" in world["b1"].named()[0]
    world.publish(4, "boiler/open/b")
    assert "goes on from here" in world["b2"].named()[0], "with the site at which it stopped"
    assert "b2: " in world["b1"].named()[1]
    world.publish(5, "boiler/open/a")
    assert [topic for topic, _, _ in world["b3"].delivered] == ["@b1/boiler/open/a"]


def test_a_client_without_a_token_that_has_the_topic_reaches_nobody(row: World) -> None:
    row.publish(3, "boiler/1", sender=6)
    row.publish(4, "pump/1")
    assert ["token" in why for why in row["b1"].named()] == [True, True]
    assert row["b2"].spool.count("b3") == 0


def test_hops_are_counted_and_end_a_message(row: World) -> None:
    row.publish(3)
    [(code, why)] = row["b2"].take(
        "b1", Crossing(9, 2, HOPS, site_of("b1"), LABEL, row.token(), "boiler/1", m1(4))
    )
    assert (code, "hops" in why) == (DROPPED, True)
    assert row["b2"].spool.count("b3") == 0
    sent = Crossing(9, 2, HOPS - 1, site_of("b1"), LABEL, row.token(), "boiler/1", m1(4))
    assert row["b2"].take("b1", sent) == [(OK, "")]
    [waiting] = row["b2"].spool.after("b3", 0, 9)
    assert crossing_of(waiting).hops == HOPS


def test_what_is_handed_over_again_on_one_line_is_a_replay_and_is_charged(row: World) -> None:
    row.publish(3)
    sent = Crossing(9, 2, 1, site_of("b1"), LABEL, row.token(), "boiler/1", m1(4))
    before = row["b2"].judge.ask("show", {}, now())["ratings"]["b1"]
    assert row["b2"].take("b1", sent) == [(OK, "")]
    for _ in range(4):
        [(code, why)] = row["b2"].take("b1", sent)
        assert (code, "replay" in why) == (DROPPED, True)
    row["b2"].judge.tick(now() + 61_000)
    assert row["b2"].judge.ask("show", {}, now())["ratings"]["b1"] < before
    assert row["b2"].events("rating-crossed")[0]["reason"].endswith("below θ")
    assert row["b2"].events("peer-blocked")[0]["peer"] == "b1"
    row.publish(5)
    assert any("b1 is blocked" in why for why in row["b2"].named())


def test_who_does_much_that_is_bad_is_blocked_without_a_minute_s_delay(row: World) -> None:
    for _ in range(4):
        row["b2"].judge.observe("b1", "rate", now())
    row["b2"].judge.tick(now())
    assert row["b2"].judge.ask("show", {}, now())["blocked"] == ["b1"]


def test_a_message_under_the_token_of_another_site_is_refused_and_charged(row: World) -> None:
    """A site between republishes as b1's what is b2's, or calls it so."""
    row.publish(3)
    theirs = Crossing(9, 2, 1, site_of("b2"), LABEL, row.token(), "boiler/1", m1(8))
    [(code, why)] = row["b3"].take("b2", theirs)
    assert (code, "of another site" in why) == (DROPPED, True)
    assert len(row["b3"].delivered) == 1
    row["b3"].judge.tick(now() + 61_000)
    assert row["b3"].judge.ask("show", {}, now())["ratings"]["b2"] < 0.5


def test_what_a_reader_says_is_charged_to_who_handed_the_message_over(row: World) -> None:
    row.publish(3)
    judge = row["b3"].judge
    said = Said(False, message_id(m1(3)), "@b1/boiler/1")
    told = Told("panel", said, assessor=True)
    assert not judge.vote("cold@b1", told, now()), "a label that it did not come under"
    assert judge.vote("heat@b1", told, now())
    assert not judge.vote("heat@b1", told, now()), "once"
    judge.tick(now() + 61_000)
    assert judge.ask("show", {}, now())["ratings"]["b2"] < 0.5


def test_a_site_that_is_started_again_knows_its_tokens_and_who_has_signed(
    row: World, tmp_path: Path
) -> None:
    row.publish(3)
    token = row.token()
    row["b1"].spool.put_judged(row["b1"].judge.changes())
    kept = row["b1"].spool.judged()
    (tmp_path / "new").mkdir()
    fresh = Site("b1", tmp_path / "new")
    fresh.judge.configure(policy("b1"), {}, {}, now())
    fresh.judge.restore(kept, now())
    [found] = [r for r in fresh.judge.ask("show", {}, now())["tokens"] if r["client"] == "boiler"]
    assert bytes.fromhex(found["id"]) == token, "no new one, which everybody would have to sign"


def test_a_message_that_is_called_another_site_s_uses_up_none_of_that_site_s(
    tmp_path: Path,
) -> None:
    """b2 hands on, under a token of its own, what it calls b1's; b3 does not know b1's certificate,
    and hands that on as well."""
    world = World(tmp_path, [*ROW, ("b3", "b4")], "b4")
    world["b3"].traffic.sites = {}
    b2 = world["b2"].judge
    own = '[families.trust.tokens.boiler]\npublish = ["boiler/#"]\n'
    b2.configure(
        policy("b2", own), {n: Neighbour(public(n), GIVE) for n in ("b1", "b3")}, {}, now()
    )
    tokens = b2.ask("show", {}, now())["tokens"]
    [mine] = [
        bytes.fromhex(r["id"]) for r in tokens if (r["issuer"], r["client"]) == ("b2", "boiler")
    ]
    assert b2.naming("b3", mine)
    world.records()
    stolen = Crossing(9, 2, 1, site_of("b1"), LABEL, mine, "boiler/1", m1(8))
    assert world["b3"].take("b2", stolen) == [(OK, "")]
    world["b3"].handed.clear()
    world.publish(8)
    assert [m for _, m, _ in world["b4"].delivered] == [m1(8)]
    assert "its label of b1" in world["b4"].named()[0]


def test_what_is_given_up_is_counted_under_words_of_this_site_s_own(row: World) -> None:
    row.publish(3)
    sent = Crossing(9, 2, 1, site_of("b1"), LABEL, row.token(), "boiler/1", m1(4))
    b2 = row["b2"]
    for n in range(99):
        b2.take("b1", sent._replace(topic=f"boiler/+{n}", seq=n))
        b2.take("b1", sent._replace(token=n.to_bytes(8, "big"), m1=m1(5 + n)))
        b2.traffic.drop("b1", "t", f"b1: {n} is what it says")
    assert set(b2.traffic.dropped["b1"]) <= {*COUNTED, THERE, REFUSED}
    assert sum(b2.traffic.dropped["b1"].values()) == 3 * 99


def test_a_neighbour_that_is_given_too_much_is_none_and_ends_nothing_else(row: World) -> None:
    long = tuple(f"{n:02}/" + "f" * 70 for n in range(64))
    b2 = row["b2"]
    given = {"b1": Neighbour(public("b1"), GIVE), "b3": Neighbour(public("b3"), long)}
    for _ in range(2):
        b2.judge.configure(policy("b2"), given, {}, now())
    [said, _] = b2.events("token-refused")
    assert (said["peer"], "4096 bytes" in said["reason"]) == ("b3", True)
    b2.judge.joined("b3", now())
    assert b2.judge.pending("b3") == []
    assert not b2.judge.message("b3", row.token(), "boiler/1", now()).accept
    b2.judge.configure(policy("b2"), {**given, "b3": Neighbour(public("b3"), GIVE)}, {}, now())
    b2.judge.joined("b3", now())
    row.records()
    row.publish(3)
    assert len(row["b3"].delivered) == 1
    size = sum(len(filt) + 2 for filt in long)
    with pytest.raises(ConfigError, match=f"filters of {size} bytes"):
        parse(GIVES % ", ".join(f'"{filt}"' for filt in long))
    most = tuple(f"{n:02}/{'f' * 54}" for n in range(64))
    assert sum(len(filt) + 2 for filt in most) <= MOST_GIVEN_BYTES
    parse(GIVES % ", ".join(f'"{filt}"' for filt in most))
    assert len(Token("n" * 64, "@" + "n" * 64, (), most, 1, 2).raw) <= MOST_TOKEN_BYTES


def test_a_new_token_writes_itself_and_not_all_that_are_known(row: World) -> None:
    judge, spool = row["b2"].judge, row["b2"].spool
    row.publish(3)
    written = spool._db.total_changes
    row.publish(4)
    assert spool._db.total_changes - written <= 5, "the message, for whom, both gone, and a window"
    assert judge.changes() == []
    own = '[families.trust.tokens.thief]\npublish = ["boiler/#"]\n'
    known, far = {"b2": Neighbour(public("b2"), GIVE)}, {"b3": public("b3")}
    row["b1"].judge.configure(policy("b1", own), known, far, now())
    row.publish(5, sender=6)
    assert len(spool.judged()) > 4
    assert spool._db.total_changes - written <= 5 + 5 + 3, "one token more"
