"""The table by which refusals are answered is the one of GATEWAY.md G10, row by row."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mediator_world import SENSOR, World, sealed
from sealmq.mediator.publishing import Publishing
from sealmq.mediator.refusals import (
    CONNECT,
    CONTROL,
    PUBLISH,
    QUARANTINE,
    SUBSCRIBE,
    TABLE,
    UNSUBSCRIBE,
    Proof,
    Repeated,
    Row,
    of,
    proof_of,
    rule_of,
)
from sealmq.mqtt import Publish
from sealmq_spec.errors import Denied, SealError

SPEC = Path(__file__).parents[3] / "shared_spec" / "GATEWAY.md"
_PACKETS = {
    "CONNECT": (CONNECT, False),
    "any other, in quarantine": (QUARANTINE, False),
    "PUBLISH, QoS 0": (PUBLISH, False),
    "PUBLISH, QoS 1 and 2": (PUBLISH, True),
    "SUBSCRIBE, each filter": (SUBSCRIBE, False),
    "UNSUBSCRIBE, each filter": (UNSUBSCRIBE, False),
    "PUBLISH on `!c1`": (CONTROL, False),
}


def _specified() -> dict[tuple[int, bool], dict[Proof, Row]]:
    text = SPEC.read_text().partition("## G10 Refusals")[2]
    table: dict[tuple[int, bool], dict[Proof, Row]] = {}
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith("| packet |"):
            continue
        packet, known, ctr, acknowledgement, connection = (
            cell.strip() for cell in line.strip("|").split("|")
        )
        row = Row(ctr == "its own", acknowledgement != "none", connection == "ends")
        proofs = list(Proof) if known == "anything" else [Proof(known)]
        for proof in proofs:
            table.setdefault(_PACKETS[packet], {})[proof] = row
    return table


def test_the_mediator_s_table_is_the_spec_s() -> None:
    assert _specified() == TABLE


@pytest.mark.parametrize(
    ("error", "proof"),
    [
        (Denied("x"), Proof.NONE),
        (Repeated("x"), Proof.NONE),
        (of(Repeated("x"), 7), Proof.REPEATED),
        (of(Denied("x"), 7), Proof.FIRST),
    ],
)
def test_what_is_known_of_a_packet(error: SealError, proof: Proof) -> None:
    assert proof_of(error) is proof


def test_a_repeat_is_told_as_replay() -> None:
    assert rule_of("publish", Repeated("x")) == "mediator.publish.replay"
    assert Repeated("x").code == 4


class Local:
    """Stands beside the payload in the frame that refuses it, and can be watched."""


def test_what_is_remembered_of_a_refused_message_does_not_hold_its_bytes() -> None:
    """A client could fill the memory with refused ones of a megabyte each."""
    world = World()
    session = world.session(SENSOR)
    m2 = sealed(session, "a/b", b"x")
    link = world.link(session)
    publishing = Publishing(cast("Any", SimpleNamespace(link=link)))
    watched: list[weakref.ref[Local]] = []

    def refuse() -> None:
        beside = Local()
        watched.append(weakref.ref(beside))
        packet = Publish("a/b", b"a/b", m2, 1, False, packet_id=1)
        try:
            try:
                raise KeyError(packet)
            except KeyError:
                raise of(Denied("not yours"), 1) from None
        except SealError as error:
            publishing._ends(packet, error, "a.rule")

    refuse()
    gc.collect()
    assert link.seen[1].refused is not None
    assert watched[0]() is None
