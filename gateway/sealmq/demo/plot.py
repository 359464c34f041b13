"""What is tried, by whom, on which topic. Actors, judges and display all look here.

One allowed act stands among the forbidden ones: a demo in which all is refused shows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

TEMPERATURE_1 = "machine/1/temperature"
TEMPERATURE_2 = "machine/2/temperature"
ANGLE_1 = "machine/1/arm/angle"
NEW = "machine/1/arm/speed"

OTHER_LABEL = "labels.publish.other-label"
SUBSCRIBE_ABOVE = "labels.subscribe.above"
REPLAYED = "mediator.publish.replay"
BEHIND = "mediator.connect.behind"
CHANGED = "mediator.publish.unauthentic"


@dataclass(frozen=True, slots=True)
class Attempt:
    """`who` does it or is its victim; `rule`: of the audit record or the reader's own class."""

    name: str
    title: str
    who: str
    topic: str
    rule: str
    expected: str = "refused"


PUBLISH_OTHER = Attempt(
    "publish-other-label",
    "m2-temp-sensor publishes on machine/1/temperature",
    "m2-temp-sensor",
    TEMPERATURE_1,
    OTHER_LABEL,
)
FIRST_PUBLISH = Attempt(
    "first-publish",
    "m1-control-panel publishes on a new topic",
    "m1-control-panel",
    NEW,
    "labels.publish.first",
    "accepted",
)
PUBLISH_TAKEN = Attempt(
    "publish-taken-topic",
    "m2-control-panel publishes on that topic",
    "m2-control-panel",
    NEW,
    OTHER_LABEL,
)
SUBSCRIBE_OTHER = Attempt(
    "subscribe-above",
    "m2-control-panel subscribes to machine/1/temperature",
    "m2-control-panel",
    TEMPERATURE_1,
    SUBSCRIBE_ABOVE,
)
REPLAY_PUBLISH = Attempt(
    "replay-to-mediator",
    "network: a PUBLISH of m1-temp-sensor once more",
    "m1-temp-sensor",
    TEMPERATURE_1,
    REPLAYED,
)
REPLAY_CONNECT = Attempt(
    "replay-connect",
    "network: the CONNECT of m2-control-panel once more",
    "m2-control-panel",
    "",
    BEHIND,
)
CHANGE_M2 = Attempt(
    "change-to-mediator",
    "network: one bit of m1-control-panel's m2 flipped",
    "m1-control-panel",
    ANGLE_1,
    CHANGED,
)
REPLAY_M3 = Attempt(
    "replay-to-reader",
    "broker's side: an old m3 once more towards monitor",
    "monitor",
    TEMPERATURE_2,
    "Replay",
)
CHANGE_M3 = Attempt(
    "change-to-reader",
    "broker's side: one bit of an m3 flipped",
    "m1-arm-operator",
    ANGLE_1,
    "Unauthentic",
)
HANDED = Attempt(
    "handed-to-lower-reader",
    "m1-temp-sensor is handed m3 of machine/1/arm/angle",
    "m1-temp-sensor",
    ANGLE_1,
    "NoKey",
)

# Without those of the acts of policy families (act.py).
OWN = (
    PUBLISH_OTHER,
    FIRST_PUBLISH,
    PUBLISH_TAKEN,
    SUBSCRIBE_OTHER,
    REPLAY_PUBLISH,
    CHANGE_M2,
    REPLAY_CONNECT,
    REPLAY_M3,
    CHANGE_M3,
    HANDED,
)

# Topics of derivation records (SPEC.md 8).
RECORDS = "@sm1/z/"
HANDED_TO = "handed-to-m1-temp-sensor"


def control(records: bool) -> str:
    """Who opens what the lower reader cannot, as a proof that the packets were good.

    By the public records somebody above; the publisher, where the broker has no records: there
    the mediator sends them to its clients alone.
    """
    return "m1-arm-operator" if records else "m1-control-panel"


def handed_to_control(records: bool) -> str:
    """The name of the control's script."""
    return f"handed-to-{control(records)}"
