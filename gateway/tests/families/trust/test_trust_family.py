"""What a token lets an own client do at its home, its settings, and `sealmq trust`."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from families.factory import HEAD
from families.trust.trust_world import END, World, private, public, signed
from sealmq.bridge import told
from sealmq.cli.main import main
from sealmq.doctor.policy import in_policy
from sealmq.families.api import FamilyConfigError, Follow, TopicLabel
from sealmq.families.engine import Conn, Engine
from sealmq.families.labels.family import Labels
from sealmq.families.trust import doctor, simulate
from sealmq.families.trust.decide import Rules
from sealmq.families.trust.example import PAPER
from sealmq.families.trust.family import Trust
from sealmq.families.trust.ratings import HOUR_MS, SCALE, Weights
from sealmq.families.trust.settings import LocalToken, read
from sealmq.families.trust.tokens import Token, announcement
from sealmq.site.canary import CLIENTS
from sealmq.site.check import parse
from sealmq.site.config import Config, load
from sealmq.site.layout import Layout
from sealmq_spec.topics import matches

NOW = 1_800_000_000_000
ROOT = Path(__file__).resolve().parents[4]
SITE = (
    HEAD
    + """
[labels]
low = []
[clients]
ann = { label = "low" }
bob = { label = "low" }
eve = { label = "low" }
"""
)
TOKENS = """
[families.trust.tokens.ann]
publish = ["home/groundfloor/kitchen", "state/+"]
subscribe = ["home/firstfloor/#"]
[families.trust.tokens.bob]
subscribe = ["home/+/lamp", "@city/weather/#"]
"""


def config(more: str = TOKENS) -> Config:
    return parse(SITE + more)


class Site:
    def __init__(self, more: str = TOKENS) -> None:
        self.engine = Engine([Labels(), Trust()])
        self.engine.load(config(more), [])

    def client(self, name: str) -> Conn:
        return self.engine.connection(self.engine.who(name))


def test_a_client_publishes_what_its_token_has_and_nothing_else() -> None:
    site = Site()
    for name, topic, rule in (
        ("ann", "home/groundfloor/kitchen", "trust.publish.token"),
        ("ann", "state/ann", "trust.publish.token"),
        ("ann", "state/ann/more", "trust.publish.outside"),
        ("ann", "home/firstfloor/x", "trust.publish.outside"),
        ("bob", "home/1/lamp", "trust.publish.outside"),
        ("eve", "home/groundfloor/kitchen", "trust.publish.outside"),
    ):
        got = site.client(name).publish(topic, 0, False, 0, NOW)
        assert (got.votes[-1].rule, got.allow) == (rule, rule.endswith("token"))


def test_a_client_subscribes_below_its_token_and_to_nothing_wider() -> None:
    site = Site()
    for name, filt, rule in (
        ("ann", "home/firstfloor/+/lamp", "trust.subscribe.token"),
        ("ann", "home/firstfloor/#", "trust.subscribe.token"),
        ("ann", "$share/g/home/firstfloor/a", "trust.subscribe.token"),
        ("ann", "home/#", "trust.subscribe.outside"),
        ("ann", "#", "trust.subscribe.outside"),
        ("ann", "$share/g/#", "trust.subscribe.outside"),
        ("bob", "home/firstfloor/lamp", "trust.subscribe.token"),
        ("bob", "home/firstfloor/+", "trust.subscribe.outside"),
        ("eve", "home/firstfloor/a", "trust.subscribe.outside"),
        ("eve", "@sm1/a", "trust.subscribe.records"),
    ):
        got = site.client(name).subscribe(filt, 0, NOW)
        assert (got.votes[-1].rule, got.allow) == (rule, not rule.endswith("outside")), filt
        assert (Follow() in got.duties) == (rule == "trust.subscribe.token"), "it ends with it"
    judged = Trust()
    judged.configure(config())
    conn = Engine([judged]).connection(site.engine.who("ann"))
    assert conn.subscribe("a/#/b", 0, NOW).rule == "trust.subscribe.malformed"
    assert conn.subscribe("$share/g", 0, NOW).rule == "trust.subscribe.malformed"


def test_what_is_delivered_lies_in_the_token_also_after_it_has_changed() -> None:
    site = Site()
    ann, bob = site.client("ann"), site.client("bob")
    assert site.client("eve").connect(NOW).allow
    for conn, topic, rule in (
        (ann, "home/firstfloor/a", "trust.deliver.token"),
        (ann, "home/groundfloor/kitchen", "trust.deliver.outside"),
        (bob, "@city/weather/rain", "trust.deliver.token"),
        (bob, "@town/weather/rain", "trust.deliver.outside"),
        (ann, "@city/weather/rain", "trust.deliver.outside"),
    ):
        assert conn.deliver(topic, "low", 0, NOW).votes[-1].rule == rule
    assert ann.deliver("@sm1/x", "", 0, NOW).votes[-1].rule == "trust.deliver.record"
    kept, gone = (
        bob.deliver("home/a/lamp", "low", 0, NOW),
        ann.deliver("home/firstfloor/a", "low", 0, NOW),
    )
    site.engine.load(config(TOKENS.replace("firstfloor", "attic")), [])
    assert bob.deliver("home/a/lamp", "low", 0, NOW) is kept
    assert ann.deliver("home/firstfloor/a", "low", 0, NOW) is not gone
    assert ann.deliver("home/firstfloor/a", "low", 0, NOW).rule == "trust.deliver.outside"
    assert not ann.subscribe("home/firstfloor/#", 0, NOW).allow


def test_random_tokens_judge_as_their_definition_says() -> None:
    draw = random.Random(1)
    levels = ("a", "b", "+", "#")

    def filt() -> str:
        words = [draw.choice(levels) for _ in range(draw.randint(1, 3))]
        return "/".join(w for n, w in enumerate(words) if "#" not in words[:n])

    topics = [f"{a}/{b}" for a in "abc" for b in "abc"] + list("abc")
    site, seen = Site(""), set()
    conns = {name: site.client(name) for name in ("ann", "bob")}
    for _ in range(60):
        tokens = {n: [[filt() for _ in range(draw.randint(0, 2))] for _ in "ps"] for n in conns}
        text = "".join(
            f"[families.trust.tokens.{n}]\npublish = {json.dumps(p)}\nsubscribe = {json.dumps(s)}\n"
            for n, (p, s) in tokens.items()
        )
        site.engine.load(config(text), [TopicLabel(t, "low", "ann", 1) for t in topics])
        for name, (publish, subscribe) in tokens.items():
            for topic in topics:
                said = conns[name].publish(topic, 0, False, 0, NOW).allow
                assert said == any(matches(f, topic) for f in publish)
                got = conns[name].deliver(topic, "low", 0, NOW).allow
                assert got == any(matches(f, topic) for f in subscribe)
                seen |= {("p", said), ("s", got)}
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[families.trust]\nways = 1", "ways"),
        ('[families.trust]\nway = "any"', "way"),
        ('[families.trust]\nmeasure = "mean"', "measure"),
        ("[families.trust]\nsign = 1.5", "sign"),
        ("[families.trust]\naccept = 0.55555", "accept"),
        ("[families.trust]\naccept = 0.7", "accept"),
        ("[families.trust]\nsigners = 0", "signers"),
        ("[families.trust]\nbad = 1", "bad"),
        ("[families.trust]\ncap = 4", "cap"),
        ("[families.trust]\nfree = 0.1", "free"),
        ('[families.trust]\nhalf_life = "1 day"', "half_life"),
        ("[families.trust]\ntokens = 1", "tokens"),
        ("[families.trust.tokens.nobody]\n", "tokens.nobody"),
        ("[families.trust.tokens]\nann = 1", "tokens.ann"),
        ("[families.trust.tokens.ann]\nread = []", "tokens.ann.read"),
        ('[families.trust.tokens.ann]\npublish = "a"', "tokens.ann.publish"),
        ('[families.trust.tokens.ann]\npublish = ["a/#/b"]', "tokens.ann.publish"),
        ('[families.trust.tokens.ann]\npublish = ["@city/a"]', "tokens.ann.publish"),
        ('[families.trust.tokens.ann]\nsubscribe = ["$SYS/#"]', "tokens.ann.subscribe"),
        (f"[families.trust.tokens.ann]\npublish = {['a'] * 65}", "tokens.ann.publish"),
    ],
)
def test_settings_that_are_wrong_are_refused_with_their_key(text: str, key: str) -> None:
    with pytest.raises(FamilyConfigError) as refused:
        read(config(text))
    assert refused.value.key == key
    assert refused.value.hint


def test_settings_say_all_that_decides() -> None:
    found = read(config(
        '[families.trust]\nway = "spki"\nmeasure = "weakest"\nsign = 0.7\naccept = 0.65\n'
        'signers = 2\n'
        'bad = 7\nbase = 0.4\nhalf_life = "2d"\ncap = 90\nblock = 0.1\nfree = 0.2\n' + TOKENS
    ))  # fmt: skip
    assert found.rules == Rules("spki", "weakest", 7000, 6500, 2)
    assert found.weights == Weights(7, 4000, 48 * HOUR_MS, 90, 1000, 2000)
    assert found.tokens["bob"] == LocalToken((), ("@city/weather/#", "home/+/lamp"))
    assert read(config("")).rules == Rules()


# --- commands ---


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    root, key = tmp_path / "site", tmp_path / "key"
    words = ["--example", "factory", "--policy", "trust", "--key-file", str(key)]
    assert main(["init", str(root), *words]) == 0
    return Layout.open(root)


def test_a_new_site_is_closed_and_the_example_s_clients_have_tokens(
    tmp_path: Path, layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(read(load(layout.config)).tokens) == 8
    assert main(["trust", "show", str(layout.root), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["tokens"]["monitor"] == {
        "publish": [], "subscribe": ["control-room/#", "machine/#"],
    }  # fmt: skip
    assert shown["rules"] == {
        "way": "path", "measure": "average", "k": 1, "accept": 0.5, "sign": 0.6,
    }  # fmt: skip
    plain = tmp_path / "plain"
    assert main(["init", str(plain), "--policy", "trust", "--key-file", str(tmp_path / "k")]) == 0
    assert "closed    who has no token publishes and reads nothing" in capsys.readouterr().out
    assert read(load(plain / "sealmq.toml")).tokens == {}
    # What is commented out is what counts without it.
    lines = (plain / "sealmq.toml").read_text().partition("# [families.trust]\n")[2].splitlines()
    said = "[families.trust]\n" + "\n".join(line.removeprefix("# ") for line in lines)
    assert read(config(said)) == read(config(""))


def test_the_doctor_s_tokens_are_there_for_a_visit_and_out_to_the_byte(layout: Layout) -> None:
    before = layout.config.read_bytes()
    with in_policy(layout):
        tokens = read(load(layout.config)).tokens
        assert set(CLIENTS) <= set(tokens)
        for client in CLIENTS:
            assert not any(matches(f, doctor.UNTOLD) for f in tokens[client].publish)
    assert layout.config.read_bytes() == before


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    code = main(["trust", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_paper_s_example_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ran(capsys, "simulate", "--example", "paper")
    signers = found["signers"]
    assert isinstance(signers, dict)
    assert {s: (row["rating"], row["path"]) for s, row in signers.items()} == {
        "b1": (0.5, [["b1", "b2", "b4", "b6"], ["b1", "b3", "b4", "b6"]]),
        "b2": (0.45, [["b2", "b4", "b6"]]),
        "b3": (0.4, [["b3", "b4", "b6"]]),
    }
    assert (code, found["decision"]) == (0, "accept")
    assert set(found["otherwise"].values()) == {"refuse"}  # type: ignore[attr-defined]
    assert found["as_printed"] == {"b1": 0.375, "b2": 0.3, "b3": 0.267}


@pytest.mark.parametrize(
    ("evidence", "rating"),
    [("0,0", 0.5), ("1,0", 0.667), ("10,0", 0.917), ("10,5", 0.647), ("1000,5", 0.994)],
)
def test_what_evidence_is_worth_by_command(
    capsys: pytest.CaptureFixture[str], evidence: str, rating: float
) -> None:
    code, found = ran(capsys, "show", "--evidence", evidence)
    assert (code, round(found["rating"], 3)) == (0, rating)  # type: ignore[call-overload]


def test_paths_and_explain_read_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ratings.json"
    scene = {"ratings": [["a", "b", 0.6], ["b", "c", 0.3]], "issuer": "a", "judge": "c"}
    file.write_text(json.dumps(scene))
    code, found = ran(capsys, "paths", str(file))
    assert (code, found["signers"]) == (
        0, {"a": {"rating": 0.45, "path": [["a", "b", "c"]], "others": []}},
    )  # fmt: skip
    assert ran(capsys, "explain", str(file))[0] == 1
    file.write_text(json.dumps({**scene, "accept": 0.45}))
    assert ran(capsys, "explain", str(file))[0] == 0
    file.write_text(json.dumps({**scene, "judge": ""}))
    assert main(["trust", "paths", str(file)]) == 1
    assert "no name of a site" in capsys.readouterr().err
    file.write_text("{")
    assert main(["trust", "paths", str(file)]) == 1
    assert "holds no JSON" in capsys.readouterr().err


@pytest.fixture
def up(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its folder, as of b6 of the paper's graph, to which a token of b1's client has come."""
    world = World()
    token = world.grant("b1", "c")
    world.publish("b1", "c", "a/x")
    b6 = world["b6"]
    edges = [[*ends, rating / SCALE] for ends, rating in PAPER.edges.items()]
    scene: dict[str, Any] = {
        "ratings": edges,
        "issuer": "b1",
        "signers": ["b1", "b2", "b3"],
        "judge": "b6",
    }
    live: dict[str, Any] = {
        "neighbours": ["b3", "b4", "b5", "b7", "b8"], "blocked": ["b7"], "doubtful": [],
        "ratings": {"b3": 0.6, "b4": 0.4, "b5": 0.5, "b7": 0.1},
        "votes": {"good": 0, "bad": 1}, "tokens": [], "count": 0,
    }  # fmt: skip

    def ask(_: Layout, op: str, **fields: Any) -> dict[str, Any]:
        if op == "explain":
            return b6.explain(fields["from"], token.id, fields["topic"], world.now)
        return scene if op == "scene" else live

    monkeypatch.setattr(told, "ask", ask)
    monkeypatch.setattr(told, "runs", lambda _: True)
    return str(layout.root)


@pytest.mark.parametrize(
    ("by", "topic", "code", "said"),
    [
        ("b5", "a/x", 0, "a/x by b5 is taken (trust.message.accepted: 1 signer at θ = 0.5 or "
         "above, 1 needed); it goes on to: b4"),
        ("b4", "a/x", 1, "a/x by b4 is refused: b4, rated 0.4, has handed it over "
         "(trust.message.handed-over-by)"),
        ("b5", "z/x", 1, "z/x by b5 is refused: its client's token does not have the topic "),
        ("b9", "a/x", 1, "a/x by b9 is refused: 'b9' is no neighbour "),
    ],
)  # fmt: skip
def test_explain_of_a_message_ends_with_that_message_s_verdict(
    up: str, capsys: pytest.CaptureFixture[str], by: str, topic: str, code: int, said: str
) -> None:
    words = ["explain", up, "--token", "@b1/c"]
    assert ran(capsys, *words)[0] == 0, "the token itself"
    assert main(["trust", *words, "--from", by, "--topic", topic]) == code
    assert capsys.readouterr().out.splitlines()[-1].startswith(said)
    assert ran(capsys, *words, "--from", by, "--topic", topic)[0] == code


def test_explain_refuses_half_a_message_and_says_what_to_give(
    up: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, says in (
        ((up, "--topic", "a/x"), "--topic a/x without --from; "),
        ((up, "--from", "b5"), "--from b5 without --topic; "),
        ((up, "--from", "b5", "--topic", "@b1/a/x"), "say it as at its own site: a/x"),
        ((str(tmp_path / "r.json"), "--from", "b5", "--topic", "a/x"), "give its folder"),
    ):
        assert main(["trust", "explain", "--token", "@b1/c", *words]) == 2
        assert says in capsys.readouterr().err


def test_show_says_what_comes_of_a_neighbour_s_rating(
    up: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trust", "show", up]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] == "b"]
    assert lines == [
        "b3: rated 0.6, at π = 0.6 or above: what comes over it is taken and signed",
        "b4: rated 0.4, below θ = 0.5: nothing is taken over it",
        "b5: rated 0.5, below π = 0.6: what comes over it is taken, and not signed",
        "b7: rated 0.1, BLOCKED: nothing is taken over it",
        "b8: not rated yet",
    ]


def test_a_token_says_who_has_signed_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, file = Token("b1", "c", ("a/#",), (), 1, END), tmp_path / "token.hex"
    wrong = signed(made, "b3")["b3"]
    file.write_text(announcement(made, {**signed(made, "b1", "b2", "b4"), "b3": wrong}).hex())
    keys = [f"--public={s}={public(s).hex()}" for s in ("b1", "b2")]
    code, found = ran(capsys, "token", str(file), *keys)
    assert (code, found["signers"], found["unknown"]) == (0, ["b1", "b2"], ["b3", "b4"])
    code, found = ran(capsys, "token", str(file), *keys, f"--public=b3={public('b9').hex()}")
    assert (code, found["wrong"]) == (1, ["b3"])
    assert ran(capsys, "token", str(file), keys[1])[0] == 1, "its issuer's key is not given"
    file.write_text("00" * 50)
    assert main(["trust", "token", str(file)]) == 1
    assert "no token" in capsys.readouterr().err
    assert private("b1").hex() not in file.read_text()


# --- simulation ---


def test_the_same_draw_is_the_same_world_whatever_the_rule() -> None:
    plan = simulate.Plan(sites=12, rounds=3, messages=8)
    one, other = (
        simulate.World(plan, rules, random.Random(5)) for rules in simulate.RULES.values()
        if rules in (Rules(), Rules(measure="weakest"))
    )  # fmt: skip
    assert one._traffic == other._traffic
    kinds = [{name: (s.kind, s.neighbours) for name, s in w.sites.items()} for w in (one, other)]
    assert kinds[0] == kinds[1]


def simulated(plan: simulate.Plan, rules: Rules, seed: int) -> list[dict[str, Any]]:
    rounds = simulate.World(plan, rules, random.Random(seed)).run()
    return [simulate.measures(n, counts) for n, counts in enumerate(rounds, 1)]


def test_honest_sites_deliver_what_is_good_and_find_who_turns_bad() -> None:
    honest = simulate.Plan(sites=12, rounds=4, messages=12, shares={}, wrong=0)
    for rules in simulate.RULES.values():
        rows = simulated(honest, rules, 1)
        assert [row["good_delivered"] for row in rows] == [1.0] * 4
    bad = simulate.Plan(
        sites=16, rounds=12, messages=16, shares={simulate.MALICIOUS: 0.07}, wrong=0
    )
    rows = simulated(bad, Rules(), 2)
    found = [row["recall"] for row in rows if row["recall"] is not None]
    assert found[0] == 0, "its good history speaks for it"
    assert found[-1] > 0.8


def test_channels_find_as_much_and_close_less() -> None:
    """As gateway/TRUST.md says: without them a neighbour falls with what it hands over."""
    plan = simulate.Plan(sites=24, rounds=14, messages=20, shares={simulate.MALICIOUS: 0.1})
    sums = []
    for each in (plan, replace(plan, weights=Weights(by_issuer=False))):
        worlds = [simulate.World(each, Rules(), random.Random(n)).run() for n in range(3)]
        late = zip(*(counts for world in worlds for counts in world[8:]), strict=True)
        sums.append(simulate.measures(0, simulate.Counts(*map(sum, late))))
    now, before = sums
    assert now["recall"] > 0.9
    assert now["precision"] > 0.7 > 2 * before["precision"]
    assert now["good_delivered"] > 0.95 > before["good_delivered"] + 0.1


def test_simulation_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "--sites", "8", "--rounds", "2", "--messages", "4", "--seed", "3")
    code, found = ran(capsys, *words)
    assert code == 0
    assert list(found["rules"]) == list(simulate.RULES)  # type: ignore[call-overload]
    far = found["convergence"]
    assert isinstance(far, dict)
    assert far["diameter"] <= far["rounds"] <= far["longest_path"]
    assert ran(capsys, *words)[1] == found, "the same seed, the same answer"
    assert main(["trust", "simulate", "--sites", "8", "--rounds", "1", "--rule", "average"]) == 0
    assert "good delivered" in capsys.readouterr().out
    assert main(["trust", "simulate", "--sites", "1"]) == 2
