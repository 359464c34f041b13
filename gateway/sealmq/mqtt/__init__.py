"""Sans-IO MQTT 3.1.1: bytes to packets (Decoder), values to bytes (build), ids in flight.

One decoder a connection; the encoders are the functions of `build`. No socket, no clock, no file.
"""

from . import build
from .codec import Decoder
from .errors import (
    DecoderDead,
    IdentifierRejected,
    MalformedPacket,
    MqttError,
    PacketIdsExhausted,
    PacketTooLarge,
    ProtocolError,
    UnsupportedProtocol,
    UsageError,
)
from .inflight import PacketIds, QoS2Receiver
from .packets import (
    Connack,
    Connect,
    Disconnect,
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
)

__all__ = [
    "Connack",
    "Connect",
    "Decoder",
    "DecoderDead",
    "Disconnect",
    "IdentifierRejected",
    "MalformedPacket",
    "MqttError",
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
    "build",
]
