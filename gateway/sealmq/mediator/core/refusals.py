"""How a refused packet is answered: by the table of GATEWAY.md G10, and in no other way.

A notice names a counter only when that packet's own tag has verified and the counter was not used
before: else an injector without a key could make what was delivered look refused.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeVar

from sealmq_spec.errors import Replay, SealError

CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, CONTROL, QUARANTINE = range(6)
"""The packet that is refused. From PUBLISH to CONTROL: `what` of its notice (SPEC.md 4.4)."""

E = TypeVar("E", bound=SealError)


JOURNAL_PART = "mediator.publish.journal-full"
"""The rule by which a client's part of the journal takes nothing more."""


class Repeated(Replay):
    """The counter of a packet that has verified was used before, or lies too low to tell."""


class Proof(Enum):
    """What is known of a packet that is refused."""

    NONE = "not verified"
    REPEATED = "verified, a repeat"
    FIRST = "verified"


class Row(NamedTuple):
    """How it is answered. `named`: the notice has its counter. `ends`: the connection, last."""

    named: bool
    acknowledged: bool
    ends: bool


_NOBODY = Row(named=False, acknowledged=True, ends=False)
_NAMED = Row(named=True, acknowledged=True, ends=False)
_HANG_UP = Row(named=False, acknowledged=False, ends=True)
_USUAL = {Proof.NONE: _NOBODY, Proof.REPEATED: _NOBODY, Proof.FIRST: _NAMED}

# By packet, and whether its QoS is above 0.
TABLE: dict[tuple[int, bool], dict[Proof, Row]] = {
    # There is no session and no notice yet; CONNACK is the acknowledgement.
    (CONNECT, False): dict.fromkeys(Proof, Row(named=False, acknowledged=True, ends=True)),
    (QUARANTINE, False): dict.fromkeys(Proof, _HANG_UP),
    (PUBLISH, False): _USUAL,
    # MQTT knows acknowledgement or end. It may be forged, or the client's own packet that was
    # changed on its way, which can be sent again in the next connection.
    (PUBLISH, True): {Proof.NONE: _HANG_UP, Proof.REPEATED: _NAMED, Proof.FIRST: _NAMED},
    (SUBSCRIBE, False): _USUAL,
    (UNSUBSCRIBE, False): _USUAL,
    (CONTROL, False): _USUAL,
}


def of(error: E, ctr: int) -> E:
    """The refusal of a packet whose own tag has verified, with this counter."""
    error.ctr = ctr
    return error


def proof_of(error: SealError) -> Proof:
    """What is known of the packet that `error` refuses."""
    if not error.ctr:
        return Proof.NONE
    return Proof.REPEATED if isinstance(error, Repeated) else Proof.FIRST


def rule_of(place: str, error: SealError) -> str:
    """The rule that `error` names, or the mediator's own for its class."""
    kind = Replay if isinstance(error, Repeated) else type(error)
    return error.rule or f"mediator.{place}.{kind.__name__.lower()}"
