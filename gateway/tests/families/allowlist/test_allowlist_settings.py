"""[families.allowlist] that is wrong: told by key, with what arrived and what would be right."""

from __future__ import annotations

from importlib import resources

import pytest

from families.allowlist.allowlist_site import toml
from families.factory import FACTORY, HEAD
from sealmq.families.allowlist import settings
from sealmq.families.allowlist.settings import Rule
from sealmq.families.api import FamilyConfigError
from sealmq.site.check import parse
from sealmq.site.config import loads
from sealmq.site.errors import ConfigError


def read(text: str) -> tuple[Rule, ...]:
    return settings.read(parse(text))


def test_what_stands_there_is_read() -> None:
    got = read(
        toml(
            'clients = ["monitor"]\nlabels = ["m1-temp", "bottom"]\nkinds = ["app"]\n'
            'publish = ["a/%c/#"]\nread = ["%l", "+/x"]',
            'read = ["#"]',
        )
    )
    first = Rule(("monitor",), ("m1-temp", "bottom"), ("app",), ("a/%c/#",), ("%l", "+/x"))
    assert got == (first, Rule(read=("#",)))
    assert read(FACTORY) == ()
    assert read(FACTORY + "[families.allowlist]\n") == ()


RIGHT = 'read = ["a"]\n'


@pytest.mark.parametrize(
    ("rule", "key", "what", "hint"),
    [
        (RIGHT + 'reed = ["a"]', "rule.0.reed", "unknown key 'reed'", "did you mean read?"),
        (RIGHT + 'clients = ["monitr"]', "rule.0.clients", "no client 'monitr'", "mean monitor?"),
        (RIGHT + 'labels = ["m1-tmp"]', "rule.0.labels", "the label 'm1-tmp'", "[labels]"),
        (RIGHT + 'labels = ["none"]', "rule.0.labels", "the label 'none'", "[labels]"),
        (RIGHT + 'kinds = ["devise"]', "rule.0.kinds", "no kind 'devise'", "mean device?"),
        (RIGHT + "clients = []", "rule.0.clients", "about everybody", "take clients out"),
        (RIGHT + 'clients = "monitor"', "rule.0.clients", "a list", 'clients = ["'),
        (RIGHT + "labels = [1]", "rule.0.labels", "a list of texts", 'labels = ["'),
        (RIGHT + 'from = ["monitr"]', "rule.0.from", "no client 'monitr'", "mean monitor?"),
        (RIGHT + 'from = ["%c"]', "rule.0.from", "no client '%c'", "monitor"),
        (RIGHT + 'from = ["+"]', "rule.0.from", "no client '+'", "monitor"),
        (RIGHT + 'from = ["m1-temp"]', "rule.0.from", "no client 'm1-temp'", "mean"),
        (RIGHT + "from = []", "rule.0.from", "about everybody", "take from out"),
        (RIGHT + 'from = "monitor"', "rule.0.from", "a list", 'from = ["'),
        ('publish = ["a"]\nfrom = ["monitor"]', "rule.0.from", "no `read`", 'read = ["'),
        ('read = ["a", "a"]', "rule.0.read", "twice", "once"),
        ('clients = ["monitor"]', "rule.0", "allows nothing", "publish = "),
        ("read = []", "rule.0", "allows nothing", "publish = "),
        ('publish = ["a/#/b"]', "rule.0.publish", "'a/#/b'", "a filter"),
        ('read = ["a+"]', "rule.0.read", "'a+'", "a filter"),
        ('read = [""]', "rule.0.read", "bytes", "a filter"),
        ('read = ["$SYS/#"]', "rule.0.read", "'$SYS/#'", "rename"),
        ('read = ["$share/g/a"]', "rule.0.read", "'$share/g/a'", "$share/GROUP/"),
        ('read = ["@sm1/#"]', "rule.0.read", "'@sm1/#'", "rename"),
        ('publish = ["a/%u"]', "rule.0.publish", "'%u' in 'a/%u'", "%l for its label"),
        ('publish = ["a/%C"]', "rule.0.publish", "'%C'", "%c"),
        ('publish = ["a/x-%c"]', "rule.0.publish", "'x-%c'", "alone in its level"),
        ('publish = ["a/%c%l"]', "rule.0.publish", "'%c%l'", "alone in its level"),
        ('publish = ["100%/a"]', "rule.0.publish", "'100%'", "reached by +"),
        ('sealed = ["a"]\nsealed_for = "a b"', "rule.0.sealed_for", "'a b' is no name", "letter"),
        ('sealed = ["a"]\nsealed_for = ""', "rule.0.sealed_for", "'' is no name", "letter"),
        ('sealed = ["a"]\nsealed_for = ["a"]', "rule.0.sealed_for", "is no name", "letter"),
        (RIGHT + 'sealed_for = "a"', "rule.0.sealed_for", "nothing is sealed for a", "sealed = "),
        (
            'sealed = ["a", "own/%c/#"]\nsealed_for = "crew"',
            "rule.0.sealed_for",
            "'own/%c/#' is each client's own, and all of crew",
            "take sealed_for out",
        ),
        (f'read = ["{"a/" * 32}a"]', "rule.0.read", "has 33 levels", "end it with #"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_with_its_key_and_a_hint(
    rule: str, key: str, what: str, hint: str
) -> None:
    with pytest.raises(FamilyConfigError) as caught:
        read(toml(rule))
    assert caught.value.key == key
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_two_rules_with_one_group_are_refused() -> None:
    one = 'sealed = ["a"]\nsealed_for = "crew"'
    with pytest.raises(FamilyConfigError, match="another rule is sealed for 'crew'") as caught:
        read(toml(one, RIGHT, one))
    assert caught.value.key == "rule.2.sealed_for"
    assert "put both together" in caught.value.hint


def test_what_is_no_array_of_tables_is_refused() -> None:
    for text in ("rule = 1", 'rule = ["a"]', "[families.allowlist.rule]\nread = []"):
        with pytest.raises(FamilyConfigError, match="array of tables"):
            read(f"{FACTORY}[families.allowlist]\n{text}\n")
    with pytest.raises(FamilyConfigError, match="unknown key 'rules'"):
        read(f"{FACTORY}[[families.allowlist.rules]]\nread = ['a']\n")


def test_rules_beyond_the_bound_are_refused() -> None:
    many = ", ".join(f'"a/{i}"' for i in range(settings.MOST_PATTERNS + 1))
    with pytest.raises(FamilyConfigError, match="2001 patterns") as caught:
        read(toml(f"read = [{many}]"))
    assert "%c" in caught.value.hint


def test_the_operator_sees_the_line() -> None:
    text = toml(RIGHT + 'clients = ["monitr"]')
    with pytest.raises(ConfigError) as caught:
        loads(text)
    line = text.splitlines().index('clients = ["monitr"]') + 1
    assert f"line {line}" in str(caught.value)


def test_the_templates_for_init_are_right() -> None:
    folder = resources.files("sealmq.families.allowlist") / "templates"
    example = resources.files("sealmq.site") / "templates/factory.toml"
    factory = example.read_text().replace("@officer@", "")
    assert len(read(HEAD + factory + (folder / "factory.toml").read_text())) == 9
    plain = (folder / "plain.toml").read_text()
    assert read(HEAD + plain) == ()
    lines = [line.removeprefix("# ") for line in plain.splitlines(True)]
    shown = "".join(line for line in lines if " = " in line or line.startswith("["))
    few = '[labels]\ncontrol = []\n[clients]\nthermometer = { label = "control" }\n'
    rules = read(HEAD + few + shown)
    assert len(rules) == 4
    assert any(rule.sealed for rule in rules)
    assert any(rule.when.conditions for rule in rules)
