"""What [families.owners] may say, and conditions and KeyNote text as people write them."""

from __future__ import annotations

import pytest

from families.owners.owners_site import LOC, SITE, config
from sealmq.families.api import FamilyConfigError
from sealmq.families.owners.actions import ALL_ACTIONS, words
from sealmq.families.owners.assertions import BadAssertion, from_fields, from_keynote, keynote
from sealmq.families.owners.expressions import ConditionError, condition
from sealmq.families.owners.settings import read

ROW = '[[families.owners.policy]]\nauthorizer = "POLICY"\nlicensees = ["ann"]\n'
HOURS = '[attributes.hours]\nsource = "calendar"\n'


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ("[families.owners]\nx = 1", "x", "unknown key"),
        ('[families.owners]\ndelegation = "slow"', "delegation", "is 'slow'"),
        ("[families.owners]\nauthenticate = 1", "authenticate", "1"),
        ("[families.owners]\ntypes = 1", "types", "is a table"),
        ("[families.owners.types]\nT = 1", "types.T", "is a table"),
        (LOC.replace('app = "APP"\n', ""), "types.LOC.app", "is missing"),
        (LOC.replace('"APP"', '"A P"'), "types.LOC.app", "is no name"),
        (LOC.replace('owner = "user"', 'owner = "who"'), "types.LOC.owner", "no level"),
        (LOC.replace('owner = "user"', 'owner = "attribute:x"'), "types.LOC.owner", "no sealed"),
        (
            LOC.replace("{user}", "{user:int}"),
            "types.LOC.owner",
            "no level of the topic that is a text",
        ),
        (LOC.replace("{user}", "{user"), "types.LOC.topic", "is no level"),
        (LOC.replace("{user}", "+"), "types.LOC.topic", "topic to publish"),
        (LOC.replace("{place}", "{user}"), "types.LOC.topic", "one name"),
        (LOC.replace("{place}", "{owner}"), "types.LOC.topic", "has a meaning already"),
        (HOURS + LOC.replace("{place}", "{hours}"), "types.LOC.topic", "has a meaning already"),
        (LOC.replace("loc/", "@loc/"), "types.LOC.topic", "protocol's own"),
        (LOC + LOC.replace(".LOC]", ".OTHER]"), "types.OTHER.topic", "reaches topics of APP/LOC"),
        (LOC + 'control = "some"\n', "types.LOC.control", "'some'"),
        (LOC + 'granularity = "fine"\n', "types.LOC.granularity", "'fine'"),
        (LOC + 'attributes = { speed = "float" }\n', "types.LOC.attributes", "'float'"),
        (LOC + 'attributes = { user = "text" }\n', "types.LOC.attributes", "is a level, too"),
        (LOC + 'signed = "yes"\n', "types.LOC.signed", "'yes'"),
        (LOC + 'derives = { seen = "place" }\n', "types.LOC.derives", "no attribute seen"),
        (HOURS + LOC + 'derives = { hours = "plaice" }\n', "types.LOC.derives", "plaice"),
        (LOC.replace('admin = "admin"', 'admin = "*"'), "types.LOC.admin", "is no name"),
        (LOC + "more = 1\n", "types.LOC.more", "unknown key"),
        ('[families.owners.keys]\nann = "00"', "keys.ann", "64 hex digits"),
        ("[families.owners]\npolicy = 1", "policy", "array of tables"),
        (ROW, "policy.0.actions", "which actions"),
        (ROW + 'actions = ["READ"]', "policy.0.actions", "no action 'READ'"),
        (ROW + 'actions = ["RECEIVE"]\ncondition = "a ="', "policy.0.condition", "'='"),
        (ROW + 'actions = ["RECEIVE"]\ncolor = 1', "policy.0.color", "unknown key"),
        (ROW + 'actions = ["RECEIVE"]\nowner = "+"', "policy.0.owner", "is no name"),
        (ROW.replace('["ann"]', "[]"), "policy.0.licensees", "nobody is licensed"),
        (ROW.replace('authorizer = "POLICY"\n', ""), "policy.0.authorizer", "missing"),
        (LOC + ROW + 'actions = ["RECEIVE"]\ncondition = "plaice == 1"', "policy", "plaice"),
        ('[[families.owners.policy]]\nkeynote = "x"', "policy.0.keynote", "begins with Authorizer"),
        ('[[families.owners.policy]]\nkeynote = "x"\nowner = "ann"', "policy.0.keynote", "alone"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(text: str, key: str, what: str) -> None:
    with pytest.raises(FamilyConfigError) as no:
        read(config(SITE + text + "\n"))
    assert no.value.key == key
    assert what in no.value.what
    assert no.value.hint


def test_an_assertion_without_an_owner_is_about_its_author_s_own_events() -> None:
    rows = "".join(
        f'[[families.owners.policy]]\nauthorizer = "{by}"\nlicensees = "cat"\nactions = "RECEIVE"\n'
        for by in ("POLICY", "admin", "ann")
    )
    settings = read(config(SITE + LOC + rows))
    assert [made.owner for made in settings.assertions] == ["*", "*", "ann"]


def test_nobody_gives_everything_by_leaving_a_word_out() -> None:
    fields = {"licensees": ["cat"]}
    with pytest.raises(BadAssertion, match="which actions"):
        from_fields({**fields, "condition": 'place == "a"'}, "ann", "ann")
    made = from_fields({**fields, "condition": 'action in ["RECEIVE", "add_assert"]'}, "ann", "ann")
    assert words(made.actions) == ["RECEIVE", "CHANGE_POLICY"]
    assert from_fields({**fields, "actions": ["*"]}, "ann", "ann").actions == ALL_ACTIONS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a==1&&b==2", "a == 1 && b == 2"),
        ("(a == 1 && b == 2) && c", "a == 1 && b == 2 && c"),
        ("a == 1 || b == 2 && !(c || d)", "a == 1 || b == 2 && !(c || d)"),
        ("(a == 1 || b == 2) && c", "(a == 1 || b == 2) && c"),
        ("!!a", "!!a"),
        ('!(a in [1, true, "x\\"y"])', '!(a in [1, true, "x\\"y"])'),
        ('contract("https://x/y?z=1") && -3 <= a', 'contract("https://x/y?z=1") && -3 <= a'),
        ('action == "add assert"', 'action == "CHANGE_POLICY"'),
        ("  ", ""),
    ],
)
def test_a_condition_has_one_text_which_reads_back(text: str, shown: str) -> None:
    assert condition(text).text == shown
    assert condition(shown).text == shown
    assert condition(shown).node == condition(text).node


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('(a == "1") (b == "2")', "&&"), ("a b", "&&"), ("a = 1", "=="), ("a & b", "&&"),
        ("a | b", "||"), ("a == 'x'", "double quotes"), ("a == \u201cx\u201d", "straight"),
        ('a == "x', "ends with a double quote"), ('"x" == "x"', "a name"), ("7", "compare it"),
        ("a in b", "list"), ('action == "read"', "RECEIVE"), ("(a == 1", "&&"),
        ("(a) == 1 == 2", "&&"), ("contract(a)", "ADDRESS"), ('contract("")', "ADDRESS"),
    ],
)  # fmt: skip
def test_what_is_no_condition_is_refused_with_what_would_be_right(text: str, hint: str) -> None:
    with pytest.raises(ConditionError) as no:
        condition(text)
    assert hint in no.value.hint


class Facts:
    def get(self, name: str) -> str | int | bool | None:
        known: dict[str, str | int | bool] = {"t": True, "f": False, "s": "b", "n": 2, "w": "true"}
        return known.get(name)

    def signed(self, address: str) -> bool:
        return address == "yes"


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("x", None), ("!x", None), ("x || t", True), ("x && f", False), ("x && t", None),
        ("x || f", None), ("!(x && f)", True), ('s == "b"', True), ('s != "b"', False),
        ("s == 2", None), ("s != 2", None), ("n == 2", True), ('t == "true"', True),
        ('w == true', True), ('f == "true"', False), ('t == "yes"', None), ('s < "c"', True),
        ("n < 3", True), ("n >= 3", False), ('n < "3"', None), ("t < 3", None), ("s", None),
        ('s in ["a", "b"]', True), ("s in [1]", None), ('s in [1, "b"]', True),
        ('s in ["a", "c"]', False), ("x in [1]", None), ("s == x", None), ("s == s", True),
        ('contract("yes")', True), ('contract("no")', False), ("true", True), ("false", False),
    ],
)  # fmt: skip
def test_what_is_unknown_is_never_met_nor_is_its_contrary(text: str, met: bool | None) -> None:
    found = condition(text).met
    assert found is not None
    assert found(Facts()) is met


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "begins with"), ("hello\nAuthorizer: a", "begins with"),
        ("Authorizer: a\nConditions: true", "names no licensee"),
        ("Authorizer: a\nLicensee:\nConditions: true", "names no licensee"),
        ("Licensee: a", "without Authorizer"),
        ("Authorizer: a\nLicensee: b && c", "no licensee"),
        ("Authorizer: a\nLicensee: b\nLicensee: c", "stands twice"),
        ("Authorizer: a\nLicensee: b\nSignature: x", "is not read here"),
        ("Authorizer: a\nLicensee: b\nConditions: x (y)", "stands wrong"),
        ("Authorizer: a\nLicensee: b\nConditions: x -> \"false\"", "is nothing"),
    ],
)  # fmt: skip
def test_keynote_text_that_is_none_is_refused(text: str, what: str) -> None:
    with pytest.raises(BadAssertion, match=what):
        keynote(text)


def test_keynote_text_says_what_the_paper_s_says() -> None:
    text = """
    KeyNote-Version: 2
    Authorizer: "Bob"
    Licensees: "Alice" || Eve || **
    Comment: over there
    Conditions: (owner == "Bob") && ((action == "RECEIVE") || (action == "ADD_ASSERT")) -> "true";
    """
    [found] = keynote(text)
    made = from_keynote(found, "*")
    assert (made.authorizer, made.owner) == ("Bob", "Bob")
    assert made.licensees == ("*", "Alice", "Eve")
    assert words(made.actions) == ["RECEIVE", "CHANGE_POLICY"]
    assert made.condition.met is None, "an index finds all of it"
