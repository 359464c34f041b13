"""The mediator's links to the broker (gateway/DESIGN.md): what each carries, what its fall means.

They know MQTT and nothing of clients' sessions.
"""

from .broker import BrokerAddress, BrokerAway, BrokerLink
from .credit import Credit
from .live import LiveLink
from .own import OwnLink, end_session, open_again
from .publish import NotTaken, PublishLink
from .snapshots import Snapshot, SnapshotCut, SnapshotEnded, Snapshots

__all__ = [
    "BrokerAddress",
    "BrokerAway",
    "BrokerLink",
    "Credit",
    "LiveLink",
    "NotTaken",
    "OwnLink",
    "PublishLink",
    "Snapshot",
    "SnapshotCut",
    "SnapshotEnded",
    "Snapshots",
    "end_session",
    "open_again",
]
