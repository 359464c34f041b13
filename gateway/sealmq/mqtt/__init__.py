"""Sans-IO MQTT 3.1.1: bytes to packets (Decoder), values to bytes (build), ids in flight. MQTT 5:
`five` (a server's side), `five_client`.

One decoder a connection; the encoders are the functions of `build`. No socket, no clock, no file.
"""

from . import build
from .codec import Decoder
from .errors import (
    BadAlias,
    DecoderDead,
    IdentifierRejected,
    MalformedPacket,
    MqttError,
    NotTaken,
    PacketIdsExhausted,
    PacketTooLarge,
    ProtocolError,
    UnsupportedProtocol,
    UsageError,
)
from .five import speaks as speaks_five
from .inflight import PacketIds, QoS2Receiver
from .packets import (
    Connack,
    Connect,
    Disconnect,
    FilterWishes,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubacks,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unfit,
    Unsuback,
    Unsubscribe,
    Will,
    Wishes,
)

__all__ = [
    "BadAlias",
    "Connack",
    "Connect",
    "Decoder",
    "DecoderDead",
    "Disconnect",
    "FilterWishes",
    "IdentifierRejected",
    "MalformedPacket",
    "MqttError",
    "NotTaken",
    "Packet",
    "PacketIds",
    "PacketIdsExhausted",
    "PacketTooLarge",
    "Pingreq",
    "Pingresp",
    "ProtocolError",
    "Puback",
    "Pubacks",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "QoS2Receiver",
    "Suback",
    "Subscribe",
    "Unfit",
    "Unsuback",
    "Unsubscribe",
    "UnsupportedProtocol",
    "UsageError",
    "Will",
    "Wishes",
    "build",
    "speaks_five",
]
