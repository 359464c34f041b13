"""A policy family that the test makes, in a started site: what it asks of the mediator is done, or
nothing is let through.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attack_scene import LIVE, QOS1, TOPIC, Scene, answer, notices, pid_of
from attack_scene import scene as scene_of
from installed_family import installed
from running_site import Site, sealmq, until
from wire import packet, publish, text

FAMILY = """\
from sealmq.families.api import Family, LabelTopic, PutTlv, SealToLink, allow
from sealmq.families.manifest import Manifest, Ref

# By question: the client for whom it asks, and what for.
ASKS = {
    "connect": ("m1-arm-operator", PutTlv(40, b"x")),
    "publish": ("m1-control-panel", SealToLink()),
    "subscribe": ("m2-control-panel", PutTlv(40, b"x")),
    "deliver": ("m1-reader", PutTlv(40, b"x")),
}


class Asking(Family):
    name = "asking"
    rules = {"asking.yes": "The family has nothing against it."}
    DECLARES

    def _answer(self, ask):
        client, duty = ASKS[ask.question]
        duties = (duty,) if ask.who.client == client else ()
        return allow("asking.yes", "yes", duties=duties)

    connect = publish = subscribe = deliver = _answer


MANIFEST = Manifest(name="asking", family=Ref(":Asking"))
"""
BAD = "engine.bad-duty"


def _ordered(site: Site) -> None:
    site.edit('order = ["labels"]\n', 'order = ["labels", "asking"]\n')


@pytest.fixture
def asking(site: Site, tmp_path: Path) -> Iterator[Scene]:
    """A site whose family asks for what it has not declared, of one client for each question."""
    _ordered(site)
    with installed(tmp_path / "installed", "asking", FAMILY.replace("DECLARES", "duties = {}")):
        site.up()
        with scene_of(site) as made:
            yield made


def test_what_a_family_has_not_declared_is_a_deny_on_every_question(asking: Scene) -> None:
    assert asking.client("m1-arm-operator").connect() == b"\0\x05"

    panel = asking.client("m1-control-panel")
    panel.connect(keepalive=0)
    assert panel.publish(b"machine/1/setpoint", b"20") == [(0x40, pid_of(1))]
    assert [n[3] for n in notices(panel)] == [BAD]

    other = asking.client("m2-control-panel")
    other.connect(keepalive=0)
    token, _ = other.session.token("machine/2/temperature")
    other.wire.send(packet(0x82, b"\0\x07" + text(token.encode()) + b"\0"))
    assert answer(other) == (0x90, b"\0\x07\x80")
    assert [n[3] for n in notices(other)] == [BAD]

    reader, sensor = asking.client("m1-reader"), asking.client("m1-temp-sensor")
    for raw in (reader, sensor):
        raw.connect(keepalive=0)
    reader.subscribe("machine/1/temperature")
    sensor.wire.send(publish(TOPIC, sensor.seal(TOPIC, b"21.5"), QOS1, 1))
    assert answer(sensor) == (0x40, pid_of(1))
    assert asking.heard() == [(TOPIC, b"21.5", LIVE)], "the others are served"
    assert reader.barrier() == [], "not delivered without what the family asked for"

    def faults() -> bool:
        rows = asking.site.audit("family-fault", family="asking")
        return {row["question"] for row in rows} == {"connect", "publish", "subscribe", "deliver"}

    until("a record of each fault", faults)


@pytest.mark.parametrize(
    ("question", "duty"),
    [
        pytest.param("connect", "PutTlv", marks=pytest.mark.full),
        ("publish", "SealToLink"),
        pytest.param("deliver", "LabelTopic", marks=pytest.mark.full),
    ],
)
def test_a_family_that_asks_for_what_nobody_does_is_refused_when_it_is_loaded(
    site: Site, tmp_path: Path, question: str, duty: str
) -> None:
    _ordered(site)
    declares = f'duties = {{"{question}": frozenset({{{duty}}})}}'
    with installed(tmp_path / "installed", "asking", FAMILY.replace("DECLARES", declares)):
        done = sealmq("up", site.path)
    assert done.returncode != 0
    assert f"'asking' asks for {duty} on {question}" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
