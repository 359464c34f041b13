"""[families.purposes] of sealmq.toml: what is wrong is told with line and hint, everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from families.factory import FACTORY
from families.purposes.purposes_factory import DPO, READER, SENSOR, TEMP, House, toml
from sealmq.cli import main as cli
from sealmq.families.api import FamilyConfigError, Verdict
from sealmq.families.purposes import settings
from sealmq.site.check import parse
from sealmq.site.config import ConfigError, loads
from sealmq.site.layout import Layout, prepare
from sealmq_spec import purposes as say

FAMILY = "[families.purposes."

# Name, what stands below [families.purposes], the key, the words of the line, of what, of the hint.
WRONG = [
    ("a typo", 'mood = "fos"', "mood", "mood =", "unknown key", "did you mean mode?"),
    ("mode", 'mode = "fob"', "mode", "mode =", "'fob'", "hybrid, fop, fos"),
    ("mode's type", "mode = 3", "mode", "mode =", "3", "one of"),
    ("store", 'store = "disk"', "store", "store =", "'disk'", "cache, tree, flat"),
    ("strict", 'strict = "yes"', "strict", "strict =", "neither true nor", "strict = true"),
    ("published", "published = 1", "published", "published =", "neither", "true"),
    (
        "what [limits] has now",
        "limit = 5",
        "limit",
        "limit =",
        "all families alike",
        "[limits] rows",
    ),
    ("no table", "tree = []", "tree", "tree =", "tree is a table", FAMILY + "tree]"),
    ("a tree's list", '[families.purposes.tree]\na = "b"', "tree.a", "a =", "list of names", "["),
    (
        "a purpose",
        '[families.purposes.tree]\na = ["b//c"]',
        "tree.a",
        "a =",
        "empty level",
        "PURPOSES.md",
    ),
    (
        "a circle",
        '[families.purposes.tree]\n"a.x" = ["b"]\nb = ["c"]\nc = ["a.x"]',
        "tree.a.x",
        '"a.x" =',
        "in a circle: a.x > b > c > a.x",
        "cannot be below itself",
    ),
    (
        "a circle by name",
        '[families.purposes.tree]\n"a/b" = ["a"]',
        "tree.a/b",
        '"a/b" =',
        "circle",
        "by its name",
    ),
    (
        "a filter",
        '[families.purposes.reserve]\n"a/#/b" = {}',
        "reserve.a/#/b",
        '"a/#/b"',
        "# stands alone and last",
        "PURPOSES.md",
    ),
    (
        "a filter with a sign of TOML",
        '[families.purposes.reserve]\n"a=b/#/c" = {}',
        "reserve.a=b/#/c",
        '"a=b/#/c"',
        "# stands alone and last",
        "PURPOSES.md",
    ),
    (
        "a reserved filter",
        '[families.purposes.reserve]\n"$SYS/#" = {}',
        "reserve.$SYS/#",
        '"$SYS/#"',
        "the protocol's own",
        "rename",
    ),
    (
        "a deep filter",
        '[families.purposes.reserve]\n"' + "a/" * 33 + '" = {}',
        "reserve." + "a/" * 33,
        '"a/a/',
        "at most 32 levels",
        "#",
    ),
    (
        "a reservation",
        '[families.purposes.reserve]\n"a" = ["b"]',
        "reserve.a",
        '"a" =',
        "a reservation is a table",
        "aip",
    ),
    (
        "a set",
        '[families.purposes.reserve]\n"a/b" = { aip = ["x"], pop = ["y"] }',
        "reserve.a/b.pop",
        '"a/b" =',
        "unknown key",
        "pip",
    ),
    (
        "a purpose that the tree has not",
        '[families.purposes.reserve]\nx = { aip = ["biling"] }\n'
        '[families.purposes.tree]\nops = ["billing"]',
        "reserve.x",
        "x = {",
        "'biling' is not in",
        "did you mean billing?",
    ),
    (
        "a presubscribed client",
        '[families.purposes.presubscribe]\nmonitr = { "a" = "b" }',
        "presubscribe.monitr",
        "monitr =",
        "no client 'monitr'",
        "did you mean monitor?",
    ),
    (
        "a presubscription",
        '[families.purposes.presubscribe]\nmonitor = "a"',
        "presubscribe.monitor",
        "monitor =",
        "filters are a table",
        "PURPOSE",
    ),
    (
        "a presubscribed purpose",
        '[families.purposes.presubscribe]\nmonitor = { "a" = ["b"] }',
        "presubscribe.monitor",
        "monitor =",
        "is no purpose",
        "PURPOSE",
    ),
    (
        "a word",
        'published = true\n[families.purposes.words]\nreserve = "RESERVE"',
        "words.reserve",
        "reserve =",
        "must begin with !",
        'reserve = "!',
    ),
    (
        "a word that would make a text mean two things",
        'published = true\n[families.purposes.words]\nhash = "ALL"',
        "words",
        "[families.purposes.words]",
        "begins canonical texts",
        "a close that does not end with }",
    ),
    (
        "words of a form that is not read",
        '[families.purposes.words]\nap = "!FOR"',
        "words",
        "[families.purposes.words]",
        "does not read",
        "published = true",
    ),
    (
        "a word that there is not",
        'published = true\n[families.purposes.words]\nreserv = "!R"',
        "words.reserv",
        "reserv =",
        "unknown key",
        "did you mean reserve?",
    ),
    (
        "a word's type",
        "published = true\nwords = { ap = 1 }",
        "words.ap",
        "words =",
        "1 to 32",
        "ap =",
    ),
    ("grants", "grant = {}", "grant", "grant =", "an array", "[[families.purposes.grant]]"),
    (
        "a grant's client",
        '[[families.purposes.grant]]\nfilter = "a"\n'
        '[[families.purposes.grant]]\nfilter = "b"\nclients = ["nobody"]',
        "grant.1.clients",
        'clients = ["nobody"]',
        "no client 'nobody'",
        "there is",
    ),
    (
        "a grant's label",
        '[[families.purposes.grant]]\nfilter = "a"\nlabels = ["none"]',
        "grant.0.labels",
        "labels =",
        "no client has the label 'none'",
        "[labels]",
    ),
    (
        "a grant's filter",
        '[[families.purposes.grant]]\nclients = ["monitor"]',
        "grant.0.filter",
        "[[families.purposes.grant]]",
        "a grant has a filter",
        "filter =",
    ),
    (
        "a grant's key",
        '[[families.purposes.grant]]\nfilter = "a"\nclient = "monitor"',
        "grant.0.client",
        "client =",
        "unknown key",
        "did you mean clients?",
    ),
]


@pytest.mark.parametrize(
    ("more", "key", "line", "what", "hint"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_what_is_wrong_is_told_with_its_line_and_a_hint(
    more: str, key: str, line: str, what: str, hint: str
) -> None:
    text = toml(more)
    with pytest.raises(ConfigError) as caught:
        loads(text, Path("somewhere/sealmq.toml"))
    error = caught.value
    assert error.key == f"families.purposes.{key}"
    assert what in error.what
    assert hint in (error.hint or "")
    assert error.line is not None
    assert line in text.splitlines()[error.line - 1]
    assert str(error).startswith(f"somewhere/sealmq.toml, line {error.line}: families.purposes.")


def test_a_steward_is_a_client() -> None:
    with pytest.raises(ConfigError, match="no client 'dpo'"):
        loads(toml().replace(f'["{DPO}"]', '["dpo"]'))


def test_all_of_it_together() -> None:
    text = toml(
        'mode = "fos"\nstrict = false\nstore = "tree"\npublished = true\n'
        '[families.purposes.tree]\nops = ["billing", "ops/route"]\n'
        '[families.purposes.reserve]\n"a/#" = { aip = ["ops"], pip = ["ops/route"] }\n"b" = {}\n'
        '[families.purposes.presubscribe]\nmonitor = { "a/+" = "billing" }\n'
        '[families.purposes.words]\nap = "!FOR"\n'
        '[[families.purposes.grant]]\nfilter = "a/#"\nclients = ["monitor"]\nlabels = ["top"]\n'
    )
    loads(text)
    found, purposes, reader = settings.read(parse(text))
    assert (found.mode, found.strict, found.store) == ("fos", False, "tree")
    assert found.reserve == {
        "a/#": (frozenset({"ops"}), frozenset({"ops/route"})),
        "b": (frozenset(), frozenset()),
    }
    assert found.presubscribe == {("monitor", "a/+"): "billing"}
    assert found.grants == (settings.Grant("a/#", ("monitor",), ("top",)),)
    assert purposes.known("ops/route")
    assert not purposes.known("x")
    assert reader.published is not None


def test_what_stands_nowhere_has_its_default() -> None:
    found = settings.read(parse(FACTORY)).settings
    assert (found.mode, found.strict, found.store) == ("hybrid", True, "cache")


# A table that protects nothing


def test_a_table_that_no_family_in_the_order_reads_is_an_error() -> None:
    """An ACL that silently does nothing is what people suffer from most."""
    text = FACTORY + '[families.purposes]\nstewards = ["root"]\n'
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert "nothing reads this" in str(caught.value)
    assert caught.value.hint == ('[policy] order = ["labels", "purposes"], or take its tables out')
    assert caught.value.line == text.splitlines().index("[families.purposes]") + 1
    with pytest.raises(ConfigError) as caught:
        loads(toml().replace("[families.purposes]", "[families.prposes]"))
    assert caught.value.hint == "did you mean purposes?"


def test_an_order_that_names_no_family_is_told_with_its_line() -> None:
    text = FACTORY + '[policy]\norder = ["labels", "purpose"]\n'
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert (caught.value.key, caught.value.line) == ("policy.order", len(text.splitlines()))
    # Where the tables are right and the order is not, the order is what is said to be wrong.
    with pytest.raises(ConfigError) as caught:
        loads(text + "[families.purposes]\n")
    assert (caught.value.key, caught.value.hint) == ("policy.order", "did you mean purposes?")


@pytest.mark.parametrize(
    ("order", "what"),
    [
        ('["purposes"]', "purposes stands on labels, which is not there"),
        ('["purposes", "labels"]', "purposes stands on labels, which comes after it"),
    ],
)
def test_an_order_without_what_a_family_stands_on_is_refused(order: str, what: str) -> None:
    text = FACTORY + f"[policy]\norder = {order}\n"
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert (caught.value.key, caught.value.line) == ("policy.order", len(text.splitlines()))
    assert what in str(caught.value)
    assert caught.value.hint == '[policy] order = ["labels", "purposes"]'


# Reload


@pytest.mark.parametrize("more", [w[1] for w in WRONG[:8]])
def test_a_refused_reload_leaves_the_old_policy_in_force(more: str) -> None:
    house = House('[families.purposes.tree]\na = ["b"]\n')
    house.reserve(SENSOR, TEMP, ("a",))
    house.take(READER, TEMP, "b")
    before = house.config
    with pytest.raises(FamilyConfigError):
        house.engine.reload(parse(toml(more)))
    house.config = before
    assert house.read(READER, TEMP).allow
    assert house.take(READER, TEMP, "c").rule == "purposes.unknown"
    assert not house.take(READER, "machine/2/temperature").allow
    assert house.reserve(SENSOR, TEMP, ("c",)) == "!unknown"


def test_a_reload_reaches_what_it_changes() -> None:
    house = House()
    house.reserve(SENSOR, TEMP, ("a",))
    house.take(READER, "machine/#", "b")
    assert not house.read(READER, TEMP).allow
    house.reload(toml('[families.purposes.tree]\na = ["b"]\n'))
    assert house.read(READER, TEMP).allow
    assert [raw for _, raw in house.engine.due()] == [say.access("machine/#", "b")]
    cached = house.read(READER, TEMP)
    house.reload(toml('[families.purposes.tree]\na = ["b"]\n') + "# a comment\n")
    assert house.read(READER, TEMP) is cached
    house.reload(toml('[families.purposes.tree]\na = ["c"]\n'))
    got = house.read(READER, TEMP)
    assert (got.allow, got.rule) == (False, "purposes.unknown")
    house.reload(toml('store = "flat"\n[families.purposes.reserve]\n"#" = { aip = ["b"] }\n'))
    assert house.read(READER, TEMP).allow
    assert [r.filter for r in house.family.state.store] == [TEMP, "#"]


def test_a_presubscription_in_the_file_is_live() -> None:
    presub = '[families.purposes.presubscribe]\nmonitor = {{ "{}" = "{}" }}\n'
    house = House(presub.format(TEMP, "a"))
    house.reserve(SENSOR, TEMP, ("a",))
    assert house.take(READER, TEMP).allow
    assert house.read(READER, TEMP).allow
    house.reload(toml(presub.format(TEMP, "b")))
    assert house.read(READER, TEMP).rule == "purposes.deliver.not-allowed"
    assert (house.conn(READER), TEMP) in house.engine.due()
    house.reload(toml())
    assert house.read(READER, TEMP).rule == "purposes.deliver.no-purpose"


def test_nobody_is_kept_waiting_for_what_was_meant_in_a_large_tree() -> None:
    for count, hint in ((100, "; did you mean p/7?"), (1000, "")):
        names = ", ".join(f'"p/{n}"' for n in range(count))
        house = House(f"[families.purposes.tree]\np = [{names}]\n")
        got = house.tell(SENSOR, say.reserve(TEMP, ("p-7",)))
        assert isinstance(got, Verdict)
        assert got.reason == f"the site has no purpose p-7{hint}"


def test_a_client_that_a_grant_names_cannot_be_forgotten_there() -> None:
    """As with [[creation]]: a name that is not there any more is told, not passed over."""
    text = toml(f'[[families.purposes.grant]]\nfilter = "a"\nclients = ["{SENSOR}"]\n')
    loads(text)
    gone = "\n".join(line for line in text.splitlines() if not line.startswith(f"{SENSOR} ="))
    with pytest.raises(ConfigError, match=f"no client '{SENSOR}'"):
        loads(gone)


# Commands


@pytest.mark.parametrize(
    "words",
    [
        ("up", "SITE"),
        ("status", "SITE"),
        ("topic", "list", "SITE"),
        ("explain", "SITE", "publish", "--client", "monitor", "-t", "x"),
        ("client", "add", "SITE", "new", "--label", "bottom"),
        ("purposes", "show", "SITE"),
    ],
    ids=lambda words: "-".join(words[:2]).replace("-SITE", ""),
)
def test_commands_tell_it_in_one_line_and_a_hint(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "factory"
    root.mkdir()
    text = toml('mode = "fob"\n')
    (root / "sealmq.toml").write_text(text)
    prepare(Layout.of(root))
    code = cli.main([str(root) if word == "SITE" else word for word in words])
    err = "".join(capsys.readouterr())
    assert code != 0
    line = text.splitlines().index('mode = "fob"') + 1
    assert f"sealmq.toml, line {line}: families.purposes.mode: mode is 'fob'" in err
    assert "one of: hybrid, fop, fos" in err
    assert "Traceback" not in err
    assert (root / "sealmq.toml").read_text() == text
