"""Who plays besides, what their site says, and what is tried: alice, who works in the control room,
wears a device, and says who receives her pulse.
"""

from __future__ import annotations

from pathlib import Path

from sealmq.demo.cast import OPERATION, Part, listener
from sealmq.demo.plot import Attempt

from .. import rules

SCRIPTS = Path(__file__).with_name("on_device")

OWNER, FRIEND = "alice", "bob"
PULSE = f"control-room/{OWNER}/pulse"
_LABEL = "ctrl-room-temp"

# What the factory publishes besides has no control: there the other families decide, as without us.
SETTINGS = """
[families.owners.types.MACHINE]
app = "FACTORY"
topic = "machine/{machine}/{reading}"
owner = "machine"
control = "none"

[families.owners.types.ARM]
app = "FACTORY"
topic = "machine/{machine}/arm/{reading}"
owner = "machine"
control = "none"

[families.owners.types.ROOM]
app = "FACTORY"
topic = "control-room/{reading}"
owner = "reading"
control = "none"

[families.owners.types.WORKER]
app = "FACTORY"
topic = "worker/{worker}/{reading}"
owner = "worker"
control = "none"

[families.owners.types.PULSE]
app = "WATCH"
topic = "control-room/{person}/pulse"
owner = "person"

[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["*"]
app = "FACTORY"
actions = ["PUBLISH"]

[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["owner"]
app = "WATCH"
actions = ["PUBLISH", "RECEIVE", "CHANGE_POLICY"]
"""

PARTS = (
    Part(
        OWNER,
        str(SCRIPTS / "watch.py"),
        (PULSE, "300", OPERATION),
        (PULSE,),
        32,
        OPERATION,
        _LABEL,
    ),
    listener(FRIEND, PULSE, OPERATION, _LABEL),
)

PRIVATE = Attempt(
    "owner-private",
    "bob asks for alice's pulse, who has said nothing yet",
    FRIEND,
    PULSE,
    rules.DELIVER_NOT_ALLOWED,
    "withheld",
)
LET_ONESELF = Attempt(
    "owner-others",
    "bob asserts that he may receive it",
    FRIEND,
    PULSE,
    rules.NO_CHANGE_POLICY,
)
LET = Attempt(
    "owner-asserts",
    "alice's wristband asserts that he may",
    FRIEND,
    PULSE,
    rules.DELIVER_ALLOWED,
    "accepted",
)
TAKE_BACK = Attempt(
    "owner-retracts",
    "alice's wristband retracts that",
    FRIEND,
    PULSE,
    rules.DELIVER_NOT_ALLOWED,
    "withheld",
)
