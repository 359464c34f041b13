"""[borders] of sealmq.toml: what a border may be, by Bell and LaPadula's rule and without loops."""

from __future__ import annotations

import pytest

from sealmq.site.check import parse
from sealmq.site.differences import differences
from sealmq.site.errors import ConfigError
from sealmq.site.model import Border, Config

SITE = f"""
[site]
name = "north"
id = "00000001"
[labels]
machine = []
shared = []
office = []
watch = ["orders@south"]
[clients]
mill = {{ label = "machine" }}
[peers.south]
fingerprint = "{"ab" * 32}"
listen = "127.0.0.1:8884"
export = ["shared"]
import = ["orders"]
"""
OUT: dict[str, object] = {
    "from": "machine",
    "to": "shared",
    "topics": ["mill/+"],
    "declassify": True,
}
IN: dict[str, object] = {
    "from": "orders@south",
    "to": "watch",
    "topics": ["@south/border/x/#", "@south/orders/+"],
}


def text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace("'", '"')


def site(**tables: dict[str, object]) -> Config:
    rows = ""
    for name, table in tables.items():
        rows += f"[borders.{name}]\n"
        for key, value in table.items():
            rows += f'{key} = "{value}"\n' if isinstance(value, str) else f"{key} = {text(value)}\n"
    return parse(SITE + rows)


def test_without_a_table_there_is_no_border_and_no_client_of_one() -> None:
    config = parse(SITE)
    assert config.borders == {}
    assert {c.kind for c in config.clients.values()} == {"device", "gateway"}


def test_a_border_brings_two_clients_which_nobody_else_can_be() -> None:
    config = site(outlet=OUT, inlet=IN)
    assert config.borders["outlet"] == Border("outlet", "machine", "shared", ("mill/+",), True)
    got = {c.name: (c.label, c.kind) for c in config.clients.values() if c.kind == "border"}
    assert got == {
        "outlet.in": ("machine", "border"),
        "outlet.out": ("shared", "border"),
        "inlet.in": ("orders@south", "border"),
        "inlet.out": ("watch", "border"),
    }
    with pytest.raises(ConfigError, match="kind"):
        parse(SITE.replace('label = "machine"', 'label = "machine", kind = "border"'))
    with pytest.raises(ConfigError, match=r"called mill\.in"):
        parse(SITE.replace("mill =", '"mill.in" =') + rows_of("mill"))
    [row] = [d for d in differences(parse(SITE), config) if d.key == "borders.outlet"]
    assert row.at_next_start


def rows_of(name: str) -> str:
    return f'[borders.{name}]\nfrom = "machine"\nto = "shared"\ntopics = ["a"]\ndeclassify = true\n'


@pytest.mark.parametrize(
    ("table", "declassify", "good"),
    [
        # No exported label dominates one that is not exported: letting out always declassifies.
        (OUT, True, True),
        (OUT, False, False),
        # watch is over orders@south, so who has it could read that before: no write down.
        (IN, False, True),
        (IN, True, False),
        # office is beside it: its readers come in anew.
        ({**IN, "to": "office"}, True, True),
        ({**IN, "to": "office"}, False, False),
    ],
)
def test_who_lets_new_readers_in_has_to_say_so_and_nobody_else_does(
    table: dict[str, object], declassify: bool, good: bool
) -> None:
    said = {**table, "declassify": declassify}
    if good:
        assert site(one=said).borders["one"].declassify is declassify
        return
    with pytest.raises(ConfigError, match="dominate") as error:
        site(one=said)
    key = "declassify" if declassify else "to"
    assert error.value.key == f"borders.one.{key}"


def test_a_label_that_is_lowered_later_is_no_licence() -> None:
    text = SITE.replace('["orders@south"]', "[]")
    rows = '[borders.one]\nfrom = "orders@south"\nto = "watch"\ntopics = ["@south/a"]\n'
    parse(SITE + rows)
    with pytest.raises(ConfigError, match="does not dominate"):
        parse(text + rows)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({**OUT, "from": "shared", "to": "machine"}, "cross as they are sealed"),
        ({**OUT, "to": "office"}, "no other site is on either side"),
        ({**OUT, "to": "orders@south"}, "only that site publishes"),
        ({**OUT, "from": "nobody"}, "there is no label"),
        ({**OUT, "from": "bottom"}, "built in"),
        ({**OUT, "to": "top"}, "built in"),
        # What comes in stays: else borders at three sites could form a loop.
        ({**IN, "to": "shared", "declassify": True}, "what south has published would go there"),
        ({**OUT, "topics": []}, "1 to 64"),
        ({**OUT, "topics": [f"a/{n}" for n in range(65)]}, "1 to 64"),
        ({**OUT, "topics": ["a", "a"]}, "twice"),
        ({**OUT, "topics": ["#"]}, "nobody has listed"),
        ({**OUT, "topics": ["+/a"]}, "nobody has listed"),
        ({**OUT, "topics": ["/a"]}, "nobody has listed"),
        ({**OUT, "topics": ["$share/g/a"]}, "protocol's own"),
        ({**OUT, "topics": ["@south/a"]}, "protocol's own"),
        ({**OUT, "topics": ["a/#/b"]}, "no filter"),
        ({**OUT, "topics": ["border/inlet/#"]}, "in circles"),
        ({**OUT, "topics": ["border/+/a"]}, "in circles"),
        ({**IN, "topics": ["orders/1"]}, "no topic of south's"),
        ({**IN, "topics": ["@west/orders/1"]}, "no topic of south's"),
        ({**IN, "topics": ["@south/@west/a"]}, "another site"),
        ({**IN, "topics": ["@south/#"]}, "nobody has listed"),
        ({**OUT, "declassify": "yes"}, "neither true nor false"),
        ({**OUT, "hops": 3}, "unknown key"),
        ({"to": "shared", "topics": ["a"]}, "from is missing"),
    ],
)
def test_what_is_no_border_is_refused_with_what_would_be_right(
    table: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        site(one=table)
    assert error.value.hint or "unknown" in said or "neither" in said
    assert error.value.line is not None


def test_so_many_borders_and_no_longer_names() -> None:
    with pytest.raises(ConfigError, match="17 borders"):
        site(**{f"b{n}": OUT for n in range(17)})
    with pytest.raises(ConfigError, match="no border can be called"):
        site(**{"b" * 25: OUT})


@pytest.mark.parametrize(
    ("border", "topic", "label", "why"),
    [
        ("outlet", "mill/1", "machine", ""),
        ("outlet", "mill/1", "office", "label"),
        ("outlet", "mill/1/2", "machine", "not listed"),
        ("outlet", "border/inlet/a", "machine", "not listed"),
        ("inlet", "@south/orders/1", "orders@south", ""),
        ("inlet", "@south/border/x/a", "orders@south", ""),
        ("inlet", "@south/border/x/border/y/a", "orders@south", "hops"),
        ("inlet", "@south/border/x", "orders@south", "hops"),
        ("inlet", "@south/orders/1", "watch", "label"),
        ("inlet", "orders/1", "orders@south", "not listed"),
    ],
)
def test_a_border_passes_what_is_listed_under_its_label_and_has_passed_one_border_at_most(
    border: str, topic: str, label: str, why: str
) -> None:
    found = site(outlet=OUT, inlet=IN).borders[border].refuses(topic, label)
    assert found.partition(":")[0] == why


def test_what_a_border_of_the_site_has_made_goes_out_by_no_other_one() -> None:
    """Whatever its table lists: as if sealmq.toml had not been checked."""
    loop = Border("outlet", "machine", "shared", ("border/#", "mill/#"), True)
    assert loop.refuses("border/inlet/border/x/mill/1", "machine").startswith("loop")
    assert loop.refuses("mill/1", "machine") == ""


def test_a_topic_says_which_borders_its_message_has_passed() -> None:
    borders = site(outlet=OUT, inlet=IN).borders
    there = borders["outlet"].place("mill/1")
    assert there == "border/outlet/mill/1"
    assert borders["inlet"].place(f"@south/{there}") == "border/inlet/border/outlet/mill/1"


def test_where_nothing_guards_a_borders_place_there_is_no_border() -> None:
    order = '[policy]\norder = ["allowlist"]\n'
    assert parse(SITE + order).borders == {}
    table = '[borders.a]\nfrom = "machine"\nto = "shared"\ntopics = ["m/+"]\ndeclassify = true\n'
    with pytest.raises(ConfigError, match="in their place") as refused:
        parse(SITE + table + order)
    assert refused.value.key == "policy.order"
    assert refused.value.hint == 'order = ["labels"], with others after it'
