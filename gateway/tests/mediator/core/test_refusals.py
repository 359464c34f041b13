"""The table by which refusals are answered is the one of GATEWAY.md G10, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_world import Shell, opened
from families.gate import Gate
from sealmq.families.api import Ask, Proposal, UnfitFamily, Verdict, Who, deny
from sealmq.mediator.core.refusals import (
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
from sealmq.mqtt import Subscribe
from sealmq_spec.const import OP_NOTICE
from sealmq_spec.const import SUBSCRIBE as SUBSCRIBE_TOKEN
from sealmq_spec.errors import Denied, RateLimited, SealError

SPEC = Path(__file__).parents[4] / "shared_spec" / "GATEWAY.md"
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
    text = SPEC.read_text().partition("## G10 Refusals")[2].partition("\n## ")[0]
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


class Often(Gate):
    """Refuses by the rule gate.shut, of which it says that it is for the rate, or says nothing."""

    def publish(self, ask: Ask) -> Verdict:
        return deny("gate.shut", "too often")

    subscribe = publish

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict:
        return deny("gate.shut", "too often")


@pytest.mark.parametrize("told", [Denied, RateLimited])
def test_a_client_is_told_rate_by_the_rules_that_a_family_has_for_it_and_denied_by_others(
    monkeypatch: pytest.MonkeyPatch, told: type[SealError]
) -> None:
    if told is RateLimited:
        monkeypatch.setattr(Often, "rate_rules", frozenset({"gate.shut"}))
    peer = opened(Shell(Often()))
    peer.send(peer.message())
    peer.send(Subscribe(1, ((peer.client.token("a/#", 1, SUBSCRIBE_TOKEN)[0], 1),)))
    peer.send(peer.command("gate", b"shut bill"))
    said = [said for op, said in peer.told if op == OP_NOTICE]
    assert [(what, code, rule, reason) for what, _, code, rule, reason in said] == [
        (what, told.code, "gate.shut", "too often") for what in (PUBLISH, SUBSCRIBE, CONTROL)
    ]
    assert all(ctr for _, ctr, *_ in said), "it is told which packet"


def test_a_family_that_names_no_rule_of_its_own_for_the_rate_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Often, "rate_rules", frozenset({"gate.open", "other.rule"}))
    with pytest.raises(UnfitFamily, match=r"no rule 'other\.rule'"):
        Shell(Often())
