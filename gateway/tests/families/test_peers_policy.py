"""What families say of topics of other sites, @PEER/..., and of what bridges take away: denied, but
for what this site's own sealmq.toml says. Labels decide as everywhere.
"""

from __future__ import annotations

import pytest

from sealmq.families import registry
from sealmq.families.allowlist.family import Allowlist
from sealmq.families.api import Family, FamilyConfigError
from sealmq.families.decision import Decision
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.owners.family import Owners
from sealmq.families.purposes.family import PurposesFamily
from sealmq.families.purposes.stores import STORES
from sealmq.site.check import parse
from sealmq_spec.const import LIVE
from sealmq_spec.purposes import access

NOW = 1_800_000_000_000
SITE = """
[site]
name = "south"
id = "00000002"
[labels]
control = ["heat@north"]
water = []
[clients]
panel = {{ label = "control" }}
pump = {{ label = "water" }}
[peers.north]
fingerprint = "{fingerprint}"
address = "north.example:8884"
import = ["heat"]
export = ["water"]
[policy]
order = ["labels", "{family}"]
"""


class Asked:
    """A site with one family after labels."""

    def __init__(self, family: Family, more: str) -> None:
        self.family = family.name
        self.engine = Engine([Labels(), family])
        self.configure(more)

    def configure(self, more: str) -> None:
        text = SITE.format(fingerprint="ab" * 32, family=self.family)
        self.engine.load(parse(text + more), [])

    def said(self, client: str, question: str, topic: str, label: str = "heat@north") -> str:
        """The last rule that was asked, without its family; a denial with a !."""
        conn = self.engine.connection(self.engine.who(client))
        if question == "publish":
            return short(conn.publish(topic, 1, False, 9, NOW))
        got = conn.subscribe(topic if question == "subscribe" else "@north/#", 1, NOW)
        if question == "subscribe":
            return short(got)
        conn.subscribed(got, 1, NOW)
        return short(conn.deliver(topic, label, LIVE, NOW, 9))


def short(got: Decision) -> str:
    return ("" if got.allow else "!") + got.votes[-1].rule.partition(".")[2]


READS = "[[families.allowlist.rule]]\nclients = {}\nread = {}\n"


def test_an_allowlist_names_topics_of_a_peer_and_no_wildcard_reaches_there() -> None:
    wide = READS.format('["panel"]', '["#", "+/boiler/#", "%c/#"]')
    site = Asked(Allowlist(), wide)
    assert site.said("panel", "subscribe", "@north/boiler/1") == "!subscribe.not-allowed"
    assert site.said("panel", "subscribe", "#") == "subscribe.allowed"
    site.configure(wide + READS.format('["panel"]', '["@north/boiler/#"]'))
    assert site.said("panel", "subscribe", "@north/boiler/1") == "subscribe.allowed"
    assert site.said("panel", "subscribe", "@north/#") == "subscribe.narrowed"
    assert site.said("panel", "deliver", "@north/boiler/1") == "deliver.allowed"
    assert site.said("panel", "deliver", "@north/mill/1") == "!deliver.not-allowed"
    assert site.said("pump", "subscribe", "@north/boiler/1") == "!subscribe.not-allowed"
    site.configure(READS.format('["panel"]', '["@north/#"]'))
    assert site.said("panel", "subscribe", "#") == "!subscribe.not-allowed"
    assert site.said("panel", "deliver", "boiler/1", "control") == "!deliver.not-allowed"


def test_a_bridge_does_what_the_allowlist_says_of_its_client() -> None:
    site = Asked(Allowlist(), "")
    assert site.said("heat.from.north", "publish", "@north/a") == "!publish.not-allowed"
    assert site.said("water.to.north", "subscribe", "#") == "!subscribe.not-allowed"
    rules = '[[families.allowlist.rule]]\nclients = ["heat.from.north"]\npublish = ["@north/#"]\n'
    site.configure(rules + READS.format('["water.to.north"]', '["pump/#"]'))
    assert site.said("heat.from.north", "publish", "@north/a") == "publish.allowed"
    assert site.said("water.to.north", "subscribe", "#") == "subscribe.narrowed"
    assert site.said("panel", "publish", "@north/a") == "!publish.reserved", "labels say it"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (READS.format('["panel"]', '["@west/#"]'), "the protocol's own"),
        (READS.format('["panel"]', '["@sm1/#"]'), "the protocol's own"),
        (READS.format('["panel"]', '["@%c/#"]'), "the protocol's own"),
        (READS.format('["panel"]', '["@north/#"]\nfrom = ["pump"]'), "no client here"),
    ],
)
def test_an_allowlist_names_no_peer_that_there_is_not(rule: str, words: str) -> None:
    with pytest.raises(FamilyConfigError, match=words):
        Asked(Allowlist(), rule)


@pytest.mark.parametrize("store", STORES)
def test_what_a_peers_topics_are_for_is_said_here_or_they_are_for_nothing(store: str) -> None:
    head = f'[families.purposes]\nstore = "{store}"\n[families.purposes.tree]\nheating = []\n'
    own = head + '[families.purposes.reserve]\n"#" = { aip = ["heating"] }\n'
    own += '"+/boiler/#" = { aip = ["heating"] }\n'
    site = Asked(PurposesFamily(), own)
    wide = access("@north/#", "heating")
    assert site.said("panel", "subscribe", access("@west/#", "heating")) == "!subscribe.reserved"
    conn = site.engine.connection(site.engine.who("panel"))

    def read(topic: str, label: str = "heat@north") -> bool:
        return conn.deliver(topic, label, LIVE, NOW, 9).allow

    conn.subscribed(conn.subscribe(wide, 1, NOW), 1, NOW)
    assert not read("@north/boiler/1")
    site.configure(own + '"@north/boiler/#" = { aip = ["heating"] }\n')
    assert site.said("panel", "subscribe", "@north/#") == "!subscribe.no-purpose"
    assert read("@north/boiler/1")
    assert not read("@north/mill/1")
    assert not read("boiler/1", "control"), "it asked for what is north's"
    site.configure(head + '[families.purposes.reserve]\n"@north/#" = { aip = ["heating"] }\n')
    assert read("@north/mill/1")
    conn.subscribed(conn.subscribe(access("#", "heating"), 1, NOW), 1, NOW)
    assert not read("boiler/1", "control"), "what is said of north's is said of north's alone"


def test_what_is_exported_is_for_a_purpose_that_this_site_says() -> None:
    head = '[families.purposes.reserve]\n"pump/#" = { aip = ["care"] }\n'
    site = Asked(PurposesFamily(), head)
    assert site.said("water.to.north", "subscribe", "#") == "!subscribe.no-purpose"
    said = '[families.purposes.presubscribe]\n"water.to.north" = { "#" = "care" }\n'
    site.configure(head + said)
    conn = site.engine.connection(site.engine.who("water.to.north"))
    got = conn.subscribe("#", 1, NOW)
    assert got.allow
    conn.subscribed(got, 1, NOW)
    assert conn.deliver("pump/1", "water", LIVE, NOW, 9).allow
    assert not conn.deliver("other/1", "water", LIVE, NOW, 9).allow
    site.configure(said + head.replace("care", "other"))
    assert not conn.deliver("pump/1", "water", LIVE, NOW, 9).allow


def test_nobody_owns_what_comes_from_another_site_and_nobody_receives_it() -> None:
    site = Asked(Owners(), "")
    assert site.said("panel", "subscribe", "@north/boiler/1") == "!subscribe.peer"
    conn = site.engine.connection(site.engine.who("panel"))
    got = conn.deliver("@north/boiler/1", "heat@north", LIVE, NOW, 9)
    assert (short(got), got.reason) == (
        "!deliver.peer",
        "its owner is a client of another site, and has no say here",
    )


PURPOSE = '[families.purposes.reserve]\n"@north/boiler/#" = { aip = ["care"] }\n' + (
    '[families.purposes.presubscribe]\n"water.to.north" = { "#" = "care" }\n'
)
RULE = '[[families.allowlist.rule]]\nkinds = ["gateway"]\npublish = ["@north/#"]\n' + (
    READS.format('["water.to.north", "panel"]', '["@north/#", "pump/#"]')
)


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("purposes", "", ["what comes from north is for no purpose", "water goes there for no"]),
        ("purposes", "[families.purposes]\nstrict = false\n", ["water goes there for no"]),
        ("purposes", PURPOSE, []),
        ("allowlist", "", ["no rule lets the bridge bring heat@north", "no rule lets anybody read",
                           "no rule lets the bridge take water"]),
        ("allowlist", RULE, []),
        ("owners", "", ["nobody receives what comes from north", "of water goes there what"]),
    ],
)  # fmt: skip
def test_whoever_adds_a_peer_is_told_what_stays_closed(
    name: str, more: str, words: list[str]
) -> None:
    config = parse(SITE.format(fingerprint="ab" * 32, family=name) + more)
    [manifest] = [m for m in registry.manifests() if m.name == name]
    assert manifest.of_peer is not None
    said = list(manifest.load(manifest.of_peer)(config, config.peers["north"]))
    assert [line[: len(word)] for line, word in zip(said, words, strict=True)] == words
