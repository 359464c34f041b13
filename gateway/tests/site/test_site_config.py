"""sealmq.toml: each thing that can be wrong is refused with its key, its line and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealmq.site import config
from sealmq.site.config import Config, ConfigError, load, loads

HEAD = '[site]\nname = "f"\nid = "01020304"\n'

WRONG = [
    # what is wrong, text behind HEAD, key, line, part of the text, part of the hint
    ("unknown table", "[brokr]", "brokr", 4, "unknown key", "broker"),
    ("unknown key", '[mediator]\nlisen = "a:1"', "mediator.lisen", 5, "unknown key", "listen"),
    ("unknown label", '[clients]\nx = { label = "mon" }', "clients.x", 5, "'mon'",
     "none, top; a new one goes below [labels]"),
    ("near label", '[labels]\nmonitor = []\n[topics]\n"a/b" = "montor"', "topics.a/b", 7,
     "no label 'montor'", "monitor"),
    ("label below", '[labels]\na = ["b"]', "labels.a", 5, "no label 'b'", "there is: a"),
    ("itself", '[labels]\na = ["a"]', "labels.a", 5, "a > a", "circles"),
    ("cycle", '[labels]\na = ["b"]\nb = ["c"]\nc = ["a"]', "labels.a", 5, "a > b > c > a", "circ"),
    ("nobody's home", 'key_file = "~sealmq-nobody/site.key"', "site.key_file", 4,
     "'~sealmq-nobody/site.key'", "the whole path"),
    ("NUL in a path", r'key_file = "/k\u0000"', "site.key_file", 4, "is no path", "NUL"),
    ("endless port", f'[mediator]\nlisten = "127.0.0.1:{"1" * 5000}"', "mediator.listen", 5,
     "is no address", "1 to 65535"),
    ("endless number", f"[mediator]\nnumber = {'1' * 5000}", "", None, "not TOML", "small"),
    ("nested without end", f"[labels]\na = {'[' * 100_000}", "", None, "not TOML",
     "no value|stands once"),
    ("label twice", "[labels]\na = []\na = []", "", None, "not TOML", "once"),
    ("client twice", '[clients]\nx = {label="top"}\nx = {label="top"}', "", None, "not TOML",
     "once"),
    ("named twice", '[labels]\na = []\nb = ["a", "a"]', "labels.b", 6, "twice", "once"),
    ("label bottom", "[labels]\nbottom = []", "labels.bottom", 5, "built in", "another name"),
    ("label top", "[labels]\ntop = []", "labels.top", 5, "built in", "another name"),
    ("label none", "[labels]\nnone = []", "labels.none", 5, "built in", "another name"),
    ("over top", '[labels]\na = ["top"]', "labels.a", 5, "top has its place", "take it out"),
    ("label's name", '[labels]\n"a b" = []', "labels.a b", 5, "no name", "letter or digit"),
    ("client's name", '[clients]\n"../x" = { label = "top" }', "clients.../x", 5, "no name",
     "1 to"),
    ("hidden name", '[clients]\n".x" = { label = "top" }', "clients..x", 5, "no name",
     "begin|start"),
    ("long name", f'[labels]\n{"a" * 65} = []', "labels." + "a" * 65, 5, "no name", "64"),
    ("label no list", '[labels]\na = "b"', "labels.a", 5, "list of names", '["...'),
    ("list of numbers", "[labels]\na = [1]", "labels.a", 5, "list of names", '["...'),
    ("client no table", '[clients]\nx = "top"', "clients.x", 5, "table", "label ="),
    ("client, no label", '[clients]\nx = { kind = "app" }', "clients.x", 5, "label is missing",
     "="),
    ("client's key", '[clients]\nx = { label = "top", secret = "s" }', "clients.x.secret", 5,
     "unknown key", "there is: disabled, kind, label, rotation, suite"),
    ("disabled", '[clients]\nx = { label = "top", disabled = "yes" }', "clients.x", 5,
     "disabled is true or false, not 'yes'", ""),
    ("rotation", '[clients]\nx = { label = "top", rotation = -1 }', "clients.x", 5,
     "rotation is -1", "how often"),
    ("kind", '[clients]\nx = { label = "top", kind = "toaster" }', "clients.x", 5, "'toaster'",
     "device, app"),
    ("suite", '[labels]\na = { over = [], suite = "rot13" }', "labels.a", 5, "'rot13'",
     "ccm, chacha"),
    ("topic wildcard", '[topics]\n"a/+/b" = "top"', "topics.a/+/b", 5, "no +, #", "section 9"),
    ("topic empty", '[topics]\n"" = "top"', "topics.", None, "1 to 1024", "section 9"),
    ("topic long", f'[topics]\n"{"a" * 1025}" = "top"', "topics." + "a" * 1025, 5, "1025",
     "section 9"),
    ("topic reserved $", '[topics]\n"$SYS/a" = "top"', "topics.$SYS/a", 5, "own", "rename"),
    ("topic reserved !", '[topics]\n"!c1" = "top"', "topics.!c1", 5, "own", "rename"),
    ("topic reserved @", '[topics]\n"@sm1/x" = "top"', "topics.@sm1/x", 5, "own", "rename"),
    ("topic's label", '[topics]\n"a" = 1', "topics.a", 5, "int", "LABEL"),
    ("creation filter", '[[creation]]\nfilter = "a/#/b"', "creation.0.filter", 5, "# stands",
     "sect"),
    ("creation label", '[[creation]]\nfilter = "a"\n[[creation]]\nfilter = "b"\nlabels = ["x"]',
     "creation.1", 6, "no label 'x'", "bottom"),
    ("creation client", '[[creation]]\nfilter = "a"\nclients = ["x"]', "creation.0", 4, "no client",
     "none is defined"),
    ("creation table", "[creation]\nx = 1", "creation", 4, "array of tables", "[[creation]]"),
    ("id", '[site]\nname="f"\nid="0102030g"', "site.id", 3, "8 hex", "put it back"),
    ("no id", '[site]\nname="f"', "site.id", 1, "id is missing", "id ="),
    ("port", '[mediator]\nlisten = "localhost"', "mediator.listen", 5, "no address", "HOST:PORT"),
    ("port 0", '[mediator]\nlisten = "localhost:0"', "mediator.listen", 5, "no address",
     "1 to 65535"),
    ("bare ipv6", '[mediator]\nlisten = "::1:1883"', "mediator.listen", 5, "no address", "[IPV6]"),
    ("anywhere", '[mediator]\nlisten = "0.0.0.0:1883"', "mediator.listen", 5, "reach", "advertise"),
    ("number", "[mediator]\nnumber = 0", "mediator.number", 5, "from 1", None),
    ("number true", "[mediator]\nnumber = true", "mediator.number", 5, "from 1", None),
    ("workers", "[mediator]\nworkers = 0", "mediator.workers", 5, "from 1 to 64", "1 is right"),
    ("workers, many", "[mediator]\nworkers = 65", "mediator.workers", 5, "from 1 to 64", None),
    ("on_denied", '[mediator]\non_denied = "shout"', "mediator.on_denied", 5, "'shout'", "notice"),
    ("broker scheme", '[broker]\nurl = "http://h"', "broker.url", 5, "no broker's", "mqtt://"),
    ("broker path", '[broker]\nurl = "mqtt://h/x"', "broker.url", 5, "no broker's", "mqtt://"),
    ("broker port", '[broker]\nurl = "mqtt://h:99999"', "broker.url", 5, "no URL", "mqtt://"),
    ("broker both", '[broker]\nkind = "embedded"\nurl = "mqtt://h"', "broker.url", 6, "embedded",
     "take kind"),
    ("external, no url", '[broker]\nkind = "external"', "broker.url", 4, "url is missing", "="),
    ("order empty", "[policy]\norder = []", "policy.order", 5, "at least one", "labels"),
    ("order twice", '[policy]\norder = ["labels", "labels"]', "policy.order", 5, "once", "labels"),
    ("enforce", '[policy]\nenforce = "no"', "policy.enforce", 5, "neither true", None),
    ("family", "[families]\npurposes = 1", "families.purposes", 5, "table", "[families.purposes]"),
    ("not TOML", "[site = 1", "", 4, "not TOML", "quotes"),
    ("torn in a table's name", "\n[clients", "", 5, "not TOML", "quotes"),
    ("torn in a value", '[clients]\nx = { label = "to', "", 5, "not TOML", "quotes"),
    ("torn behind a line", "[labels]\na = [\n", "", 5, "not TOML", "quotes"),
    ("attribute no table", "[attributes]\ntime = 3", "attributes.time", 5, "is a table",
     "[attributes.time]"),
    ("attribute's name", '[attributes."a b"]\nsource = "time"', "attributes.a b", 4, "no name", ""),
    ("no source", '[attributes.time]\nzone = "UTC"', "attributes.time.source", None, "missing",
     "source ="),
    ("source", '[attributes.time]\nsource = "clock"', "attributes.time.source", 5, "'clock'",
     "time, file, calendar, client, events, count"),
    ("no zone", '[attributes.time]\nsource = "time"', "attributes.time.zone", None, "missing",
     "zone ="),
    ("zone", '[attributes.time]\nsource = "time"\nzone = "Europe/Berlyn"',
     "attributes.time.zone", 6, "knows no time zone 'Europe/Berlyn'", "Europe/Berlin"),
    ("zone's key", '[attributes.time]\nsource = "time"\npath = "x"', "attributes.time.path", 6,
     "unknown key", "of, source, zone|source, zone"),
    ("no path", '[attributes.paid]\nsource = "file"', "attributes.paid.path", None, "missing",
     "path ="),
    ("path", '[attributes.paid]\nsource = "file"\npath = "/x.yaml"', "attributes.paid.path", 6,
     "what it is", ".toml or .json"),
    ("attribute of", '[attributes.paid]\nsource = "file"\npath = "/x.toml"\nof = "bob"',
     "attributes.paid.of", 7, "of is 'bob'", "subscriber, owner, pair, site"),
    ("time of", '[attributes.day]\nsource = "time"\nzone = "UTC"\nof = "pair"',
     "attributes.day.of", 7, "of is 'pair'", "one of: site"),
    ("no else", '[attributes.day]\nsource = "calendar"\nzone = "UTC"\nhours = {}',
     "attributes.day.else", None, "missing", "else ="),
    ("no hours", '[attributes.day]\nsource = "calendar"\nzone = "UTC"\nelse = "X"',
     "attributes.day.hours", None, "1 to 32 names", "WORK_DAY ="),
    ("hours", '[attributes.day]\nsource = "calendar"\nzone = "UTC"\nelse = "X"\n'
     '[attributes.day.hours]\nA = { between = ["8:00", "18:00"] }',
     "attributes.day.hours.A", 9, "'8:00' is no time of day", "07:00"),
    ("hours' key", '[attributes.day]\nsource = "calendar"\nzone = "UTC"\nelse = "X"\n'
     '[attributes.day.hours]\nA = { at = "8:00" }',
     "attributes.day.hours.A.at", 9, "unknown key", "between, weekdays"),
    ("hours no table", '[attributes.day]\nsource = "calendar"\nzone = "UTC"\nelse = "X"\n'
     '[attributes.day.hours]\nA = "8:00"', "attributes.day.hours.A", 9, "are a table", "between"),
    ("told by nobody", '[attributes.a]\nsource = "client"\nof = "site"\nvalid = "1h"',
     "attributes.a.by", None, "nobody tells it", "by ="),
    ("told by a stranger", '[attributes.a]\nsource = "client"\nof = "site"\nvalid = "1h"\n'
     'by = ["x"]', "attributes.a.by", 8, "no client 'x'", ""),
    ("told of nothing", '[attributes.a]\nsource = "client"\nby = ["x"]\nvalid = "1h"',
     "attributes.a.of", None, "missing", "of ="),
    ("no validity", '[clients]\nx = { label = "top" }\n[attributes.a]\nsource = "client"\n'
     'of = "site"\nby = ["x"]', "attributes.a.valid", None, "missing", "valid ="),
    ("validity", '[clients]\nx = { label = "top" }\n[attributes.a]\nsource = "client"\n'
     'of = "site"\nby = ["x"]\nvalid = "1 h"', "attributes.a.valid", 10, "no length of time", "1h"),
    ("no time", '[attributes.a]\nsource = "count"\nof = "pair"\nwindow = "0s"',
     "attributes.a.window", 7, "no length of time", "1h"),
    ("counted of an owner", '[attributes.a]\nsource = "count"\nof = "owner"\nwindow = "1h"',
     "attributes.a.of", 6, "none of which counts all", 'of = "subscriber"'),
    ("counted of the site", '[attributes.a]\nsource = "count"\nof = "site"\nwindow = "1h"',
     "attributes.a.of", 6, "none of which counts all", 'of = "subscriber"'),
    ("events of no family", '[attributes.a]\nsource = "events"\nof = "owner"\nvalid = "1h"\n'
     'family = "purposes"', "attributes.a.family", 8, "has no 'purposes'", "labels"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "key", "line", "what", "hint"),
    [row[1:] for row in WRONG],
    ids=[row[0] for row in WRONG],
)
def test_wrong(text: str, key: str, line: int | None, what: str, hint: str | None) -> None:
    whole = text if text.startswith("[site]") else HEAD + text
    with pytest.raises(ConfigError) as caught:
        loads(whole)
    error = caught.value
    assert error.key == key
    assert what in str(error)
    if hint is not None:
        assert any(part in (error.hint or "") for part in hint.split("|"))
    if line is not None:
        assert error.line == line
        assert f"line {line}" in str(error)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        loads(HEAD + '[broker]\nurl = "mqtt://user:tell-nobody@host"')
    assert "tell-nobody" not in str(caught.value) + str(caught.value.hint)


def test_a_key_inside_the_site_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sealmq.toml"
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    for inside in ("x.key", "../" + tmp_path.name + "/x.key", str(link / "x.key")):
        path.write_text(HEAD + f'key_file = "{inside}"')
        with pytest.raises(ConfigError, match="inside the site"):
            load(path)
    path.write_text(HEAD + f'key_file = "{tmp_path.parent}/x.key"')
    assert load(path).site.key_file == tmp_path.parent / "x.key"


def test_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sealmq.toml"
    path.write_text(HEAD + "[labels]\na b = []")
    with pytest.raises(ConfigError, match=rf"{path}, line 5: not TOML"):
        load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(path)


DIAMOND = HEAD + '[labels]\nbase = []\nleft = ["base"]\nright = ["base"]\ntip = ["left", "right"]\n'


def test_the_order_is_the_transitive_closure() -> None:
    config = loads(DIAMOND)
    assert config.dominates("tip", "base")
    assert config.dominates("tip", "tip")
    assert config.dominates("left", "bottom")
    assert config.dominates("top", "tip")
    for a, b in [("base", "tip"), ("left", "right"), ("right", "left"), ("bottom", "base"),
                 ("tip", "top")]:  # fmt: skip
        assert not config.dominates(a, b)
    pairs = list(config.strict_pairs())
    # tip 3, left 1, right 1; top over 4 and bottom; 4 over bottom
    assert len(pairs) == len(set(pairs)) == 5 + 5 + 4


def test_none_is_isolated() -> None:
    config = loads(DIAMOND)
    for name in ("none", "top", "bottom", "tip"):
        assert not config.dominates("none", name)
        assert not config.dominates(name, "none")
    assert all("none" not in pair for pair in config.strict_pairs())
    assert not config.dominates("nobody", "nobody")


def test_a_long_chain_is_no_recursion() -> None:
    lines = ["l0 = []", *(f'l{i} = ["l{i - 1}"]' for i in range(1, 1200))]
    config = loads(HEAD + "[labels]\n" + "\n".join(reversed(lines)))
    assert config.dominates("l1199", "l0")
    assert not config.dominates("l0", "l1199")


def test_everything_that_can_stand_there() -> None:
    config: Config = loads(
        HEAD
        + """[mediator]
listen = "[::1]:2883"
advertise = "gateway.example:1883"
number = 7
on_denied = "disconnect"
[broker]
url = "mqtt://broker.example:8883"
user = "sealmq"
[policy]
order = ["labels", "purposes"]
enforce = false
[labels]
low = []
high = { over = ["low"], suite = "chacha" }
[clients]
gone = { label = "none" }
app.label = "high"
app.suite = "chacha"
[topics]
"a/b" = "low"
[[creation]]
filter = "a/#"
labels = ["low"]
clients = ["app"]
[families.purposes]
mode = "hybrid"
"""
    )
    assert (config.mediator.host, config.mediator.port) == ("::1", 2883)
    assert (config.mediator.advertise_host, config.mediator.advertise_port) == (
        "gateway.example",
        1883,
    )
    assert config.mediator.number == 7
    assert config.mediator.on_denied == "disconnect"
    assert (config.broker.kind, config.broker.user) == ("external", "sealmq")
    assert config.policy.order == ("labels", "purposes")
    assert config.policy.enforce is False
    assert config.labels["high"].suite == 2
    assert config.labels["low"].suite == 1
    assert config.clients["gone"].label == "none"
    assert config.clients["app"].suite == 2
    assert config.topics["a/b"] == "low"
    assert config.creation[0].clients == ("app",)
    assert config.families["purposes"]["mode"] == "hybrid"


# Older Pythons raise this where links lead in a circle.
def test_a_path_whose_links_cannot_be_followed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(path: Path) -> Path:
        raise RuntimeError(f"Symlink loop from {path}")

    path = tmp_path / "sealmq.toml"
    path.write_text(HEAD + 'key_file = "/somewhere/key"\n')
    monkeypatch.setattr(Path, "resolve", resolve)
    with pytest.raises(ConfigError, match="cannot be followed") as caught:
        load(path)
    assert (caught.value.key, caught.value.line) == ("site.key_file", 4)


def test_what_a_check_of_ours_did_not_expect_is_a_refusal_without_the_file_s_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: str, path: Path | None) -> Config:
        raise ZeroDivisionError("the file says hush")

    monkeypatch.setattr(config, "parse", broken)
    path = tmp_path / "sealmq.toml"
    path.write_text(HEAD)
    with pytest.raises(ConfigError, match="ZeroDivisionError") as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: it cannot be checked")
    assert "hush" not in str(caught.value)
