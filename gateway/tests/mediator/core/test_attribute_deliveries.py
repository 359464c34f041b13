"""Deliveries that rest on attributes: what waits is judged by what is told when it goes out, and a
count counts what went out. Core alone, with real keys.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from mediator_world import NOW_MS, PANEL
from reader_scene import POLICY, Client, Scene, payloads
from sealmq.families.api import Ask, Attribute, Family, PutTlv, Verdict, allow, deny
from sealmq.families.api import Duties as DutiesOf
from sealmq.mediator.core import delivery
from sealmq.mediator.core.session import Session
from sealmq.site.check import parse
from sealmq_spec.errors import NoKey

TABLES = """
[attributes.contract]
source = "file"
path = "/nowhere.toml"
of = "subscriber"
[attributes.got]
source = "count"
of = "subscriber"
window = "1h"
"""


class Reads(Family):
    """Lets a reader have messages by an attribute of it."""

    name: ClassVar[str] = "reads"
    rules: ClassVar[dict[str, str]] = {"reads.yes": "It may.", "reads.no": "It may not."}
    duties: ClassVar[DutiesOf] = {"deliver": frozenset({PutTlv})}

    def __init__(self, name: str) -> None:
        self._name = name
        self.anew = False

    def connect(self, ask: Ask) -> Verdict:
        return allow("reads.yes", "")

    publish = subscribe = connect

    def deliver(self, ask: Ask) -> Verdict:
        found = ask.attribute(self._name, ask.who.client)
        if found != "signed" and found != 0:
            return deny("reads.no", "")
        duties = (PutTlv(40, b"x"),) if self.anew else ()
        return allow("reads.yes", "", duties=duties)


def reading(name: str) -> tuple[Scene, Reads, Session, Client]:
    """The panel reads t/#, and may have what the attribute lets it."""
    family = Reads(name)
    scene = Scene(more=[family])
    scene.engine.reload(parse(POLICY + TABLES))
    session = scene.open(PANEL)
    scene.subscribe(session, 1, ("t/#", 2))
    scene.settle()
    client = Client(session)
    client.take()
    client.told.clear()
    return scene, family, session, client


def test_what_waits_when_a_value_is_taken_away_does_not_go_out_by_it() -> None:
    scene, _, session, client = reading("contract")
    signed = Attribute("contract", "panel", "signed", NOW_MS + 60_000)
    scene.engine.take_attributes([signed])
    first = scene.publish("t/1", b"1", 1)
    session.writable(False)
    scene.publish("t/1", b"2", 1)
    scene.engine.take_attributes([signed._replace(until=0)])
    scene.publish("t/1", b"3", 1)
    session.writable(True)
    scene.collect()
    assert payloads(client.messages) == [first]
    assert [rule for _, _, rule in scene.counts.denied] == ["engine.unknown-attribute"] * 2


def test_what_waits_until_a_validity_is_over_does_not_go_out_by_it() -> None:
    scene, _, session, client = reading("contract")
    scene.engine.take_attributes([Attribute("contract", "panel", "signed", NOW_MS + 1)])
    first = scene.publish("t/1", b"1", 1)
    session.writable(False)
    scene.publish("t/1", b"2", 1)
    scene.site.now_ms += 1
    session.writable(True)
    scene.collect()
    assert payloads(client.messages) == [first]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("anew", [False, True], ids=["as it came", "sealed anew"])
def test_once_is_once_also_of_several_that_wait(waits: bool, anew: bool) -> None:
    scene, family, session, client = reading("got")
    family.anew = anew
    if waits:
        session.writable(False)
    for n in range(3):
        scene.publish("t/1", b"%d" % n, 1)
    session.writable(True)
    scene.collect()
    assert len(client.messages) == 1
    assert [rule for _, _, rule in scene.counts.denied] == ["reads.no"] * 2
    scene.site.now_ms += 3_600_000
    scene.publish("t/1", b"4")
    assert len(client.messages) == 2


def test_what_cannot_be_sealed_for_the_reader_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, family, _, client = reading("got")
    family.anew = True

    def fails(*words: object) -> bytes:
        raise NoKey("not now")

    with monkeypatch.context() as patched:
        patched.setattr(delivery, "for_one", fails)
        scene.publish("t/1", b"1")
    assert client.messages == []
    assert not scene.engine.counts.news
    scene.publish("t/1", b"2")
    assert len(client.messages) == 1
    assert scene.engine.counts.news
