"""What operators write: what is taken, and what is refused with its key and a hint."""

from __future__ import annotations

import pytest

from sealmq.families.blinded import plain, words
from sealmq.families.blinded.words import BadWords


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("type=company&service = datamining", ['service = "datamining"', 'type = "company"']),
        ('a = "x & y"', ['a = "x & y"']),
        ("a >= -4 & a != 5 & a in 1..9", ['a != "5"', 'a >= "-4"', "a in 1..9"]),
        ("p in {Q2, Q1, Q2}", ['p in {"Q1", "Q2"}']),
        ("a = 1 & a = 1", ['a = "1"']),
    ],
)
def test_a_conjunction_has_one_canonical_text(text: str, canonical: list[str]) -> None:
    assert [atom.text for atom in words.conjunction(text)] == canonical


@pytest.mark.parametrize(
    "text",
    ["", " ", "a", "a =", "a = 1 &", "& a = 1", "a = 1 b = 2", "a < x", "a <= 01", "a in 9..1",
     "a in {}", "a in {x,}", "a = x & ", "1a = 2", 'a = "x', 'a = "\\ud800"', "a in -0..3x",
     f"a in 1..{'9' * 5000}", "a in \u0663..\u0667",
     f"a = {'x' * 257}", " & ".join(f"n{n} = 1" for n in range(33))],
)  # fmt: skip
def test_what_is_no_conjunction_is_refused(text: str) -> None:
    with pytest.raises(BadWords):
        words.conjunction(text)


def test_a_long_run_of_white_space_is_gone_through_once() -> None:
    """As much as an operator may put: tried over and over it took the key generator hours."""
    many = " " * (1 << 21)
    assert len(words.conjunction(f"a{many}in{many}1..2{many}&{many}b{many}={many}c{many}")) == 2
    for text in (f"a{many}x", f"a{many}in{many}x", f"a{many}={many}b{many}c", f"a in {{x{many}y}}"):
        with pytest.raises(BadWords):
            words.conjunction(text)


@pytest.mark.parametrize("texts", [[], "", [""], None, [1], 7, ["a = 1", ""]])
def test_an_empty_policy_or_conjunction_is_refused(texts: object) -> None:
    with pytest.raises(BadWords):
        words.policy(texts)


@pytest.mark.parametrize("texts", ["a != 1", "a > 1", "a = 1 & a = 2", "action = receive"])
def test_nobody_has_a_comparison_two_values_or_an_action(texts: str) -> None:
    with pytest.raises(BadWords):
        words.having(texts)


BASE = """
[customers.miner]
has = ["type = company"]
[policies."heat"]
let = ["type = company"]
[policies."heat/b/secret"]
let = ["type = nobody"]
[types."heat/b"]
has = ["class = statistics & period = any"]
"""
EVENT = '[[events]]\nid = "00000000000000%s"\nclient = "j"\ntopic = "%s"\n'


def test_the_longest_prefix_counts_and_leaves_out_longer_ones() -> None:
    read = plain.read(BASE + EVENT % ("01", "heat/b") + 'session = "period = Q1"\n')
    (event,) = read.events
    kind = read.kind(event)
    assert (kind.policy, kind.type) == ("heat", "heat/b")
    assert read.but(event) == ("heat/b/secret",)
    # A session's value takes the place of the type's.
    assert read.is_(kind) == ({"class": "statistics", "period": "Q1"},)
    assert plain.longest(["heat", "heat/b"], "heat/bc") == "heat"
    assert plain.longest(["heat/b"], "heat") is None
    assert plain.longest(["/a"], "/a/b") == "/a"
    more = '[policies."heat/b!"]\nlet = ["a = 1"]\n[policies."heat/b/z/y"]\nlet = ["a = 1"]\n'
    read = plain.read(BASE + more + EVENT % ("01", "heat/b"))
    assert read.but(read.events[0]) == ("heat/b/secret", "heat/b/z/y")


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("x = 1\n", "types.heat/b.x"),
        ("[customers.y]\n", "customers.y.has"),
        ('[customers.y]\nhas = ["a > 1"]\n', "customers.y.has"),
        ('[customers.y]\nhas = ["a = 1"]\nwants = []\n', "customers.y.wants"),
        ('[policies."a/#"]\nlet = ["a = 1"]\n', "policies"),
        ('[policies."$a"]\nlet = ["a = 1"]\n', "policies"),
        (EVENT % ("01", "cold"), "events"),
        (EVENT % ("01", "heat") + EVENT % ("01", "heat/b"), "events"),
        (EVENT % ("zz", "heat"), "events.0.id"),
        (EVENT % ("01", "heat/+"), "events.0"),
        (EVENT % ("01", "heat") + EVENT % ("01", "heat"), "events"),
        (EVENT % ("01", "heat") + "sealed = 1\n", "events.0.sealed"),
        (EVENT % ("01", "heat") + 'session = ["a = 1", "a = 2"]\n', "events.0.session"),
        ("[[oops]]\n", "oops"),
        ("]", ""),
        (f"x = {'9' * 5000}\n", ""),
    ],
)
def test_what_is_wrong_is_named_by_its_key(more: str, key: str) -> None:
    with pytest.raises(plain.BadPlain) as caught:
        plain.read(BASE + more)
    assert caught.value.key == key


def test_a_policy_that_says_who_publishes_says_it_of_everybody() -> None:
    acts = BASE.replace('let = ["type = company"]', 'let = ["type = company & action = publish"]')
    with pytest.raises(plain.BadPlain, match="does not let j publish"):
        plain.read(acts + EVENT % ("01", "heat/b"))
    read = plain.read(acts + (EVENT % ("01", "heat/b")).replace('"j"', '"miner"'))
    kind = read.kind(read.events[0])
    # It lets publish and not receive.
    assert read.lets(kind, read.customers["miner"], words.PUBLISH)
    assert not read.lets(kind, read.customers["miner"])
