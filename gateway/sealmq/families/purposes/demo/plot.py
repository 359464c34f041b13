"""Who plays besides, and what is tried: a worker wears a device (as in HivePBAC), and says what its
pulse may be used for.
"""

from __future__ import annotations

from pathlib import Path

from sealmq.demo.cast import Part, listener
from sealmq.demo.plot import Attempt

SCRIPTS = Path(__file__).with_name("on_device")

# The site that `sealmq init` writes says all that is needed.
SETTINGS = ""

# What the worker's pulse is for at first.
SAFETY, PERFORMANCE = "safety", "staff-performance"
PULSE = "worker/7/pulse"

NOT_ALLOWED = "purposes.deliver.not-allowed"
NOT_OWN = "purposes.entitled.other-label"

PARTS = (
    Part(
        "wristband",
        str(SCRIPTS / "wristband.py"),
        (PULSE, "500", SAFETY, PERFORMANCE),
        label="m1-temp",
    ),
    listener("safety-officer", PULSE, SAFETY, "monitor"),
    listener("shift-planner", PULSE, PERFORMANCE, "monitor", 32),
)

WITHDRAW = Attempt(
    "consent-withdrawn",
    "wristband withdraws consent to staff-performance",
    "shift-planner",
    PULSE,
    NOT_ALLOWED,
    "withheld",
)
RESERVE_OTHER = Attempt(
    "consent-of-others",
    "m2-control-panel consents in the wearer's place",
    "m2-control-panel",
    PULSE,
    NOT_OWN,
)
GIVE_BACK = Attempt(
    "consent-given-back",
    "wristband consents to it again",
    "shift-planner",
    PULSE,
    "purposes.deliver.allowed",
    "accepted",
)

# Who says what its topic may be used for, and who may go on when consent is withdrawn from another.
WEARER, STILL_ALLOWED = "wristband", "safety-officer"
