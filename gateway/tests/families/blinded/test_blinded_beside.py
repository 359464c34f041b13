"""Blinded policies beside owners in one order."""

from __future__ import annotations

import secrets

import pytest

from families.blinded.blinded_site import MEDIATORS
from sealmq.families.api import TopicLabel
from sealmq.families.blinded import coded, kg_part
from sealmq.families.engine import Engine
from sealmq.families.registry import load
from sealmq.site.check import parse

SITE = """
[site]
name = "s"
id = "00c0ffee"
[labels]
all = []
[clients]
ann = { label = "all" }
bob = { label = "all" }
[policy]
order = ["labels", %s]
[families.owners.types.T]
app = "A"
topic = "t/{user}"
owner = "user"
%s
[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["owner"]
actions = ["PUBLISH", "RECEIVE"]
[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["*"]
actions = ["SUBSCRIBE"]
%s
"""
BOB = """
[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["bob"]
actions = ["RECEIVE"]
"""
ID = "00000000000000aa"
KEPT = f"""
[customers.bob]
has = ["a = %s"]
[policies.t]
let = ["a = 1"]
[[events]]
id = "{ID}"
client = "ann"
topic = "t"
"""
TLV = {coded.TLV: bytes.fromhex(ID)}


def engine(order: str, *, attributes: str = "", bob: str = BOB, has: str = "1") -> Engine:
    config = parse(SITE % (order, attributes, bob))
    made = Engine(load(config.policy.order))
    made.apply(made.load(config, [TopicLabel("t/ann", "all", "ann", 0)]))
    kept = kg_part.take(config, b"", (KEPT % has).encode(), secrets.token_bytes)
    made.take_told({"blinded": dict(kg_part.rows(config, kept))})
    return made


ORDERS = pytest.mark.parametrize("order", ['"owners", "blinded"', '"blinded", "owners"'])


@ORDERS
def test_a_reader_gets_what_its_owner_and_its_policy_let_it_have(order: str) -> None:
    for bob, has, gets in ((BOB, "1", True), ("", "1", False), (BOB, "2", False)):
        made = engine(order, bob=bob, has=has)
        assert made.connection(made.who("ann", 1)).publish("t/ann", 0, False, 1, 0, TLV).allow
        reader = made.connection(made.who("bob", 2))
        reader.subscribed(reader.subscribe("t/#", 0, 0), 0, 0)
        got = reader.deliver("t/ann", "all", 0, 0, 1, TLV, grant=MEDIATORS)
        assert got.allow is gets, (bob, has, got.rule)


@ORDERS
def test_sealed_attributes_of_owners_and_a_policy_id_are_not_taken_together(order: str) -> None:
    """Both want the broker's copy under a grant of their own, and it has one place."""
    made = engine(order, attributes='attributes = { speed = "int" }')
    got = made.connection(made.who("ann", 1)).publish("t/ann", 0, False, 1, 0, TLV)
    assert (got.allow, got.rule) == (False, "engine.duty-conflict")
