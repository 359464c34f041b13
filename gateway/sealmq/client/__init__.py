"""The host client library: a CPython program as a SealMQ client, with the device's operations."""

from .blocking import BlockingClient
from .client import Client
from .errors import (
    BadWelcome,
    ClientError,
    Closed,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    NotAuthorised,
    PeerFault,
    Refused,
    ServerUnavailable,
    StateError,
    TimedOut,
    Unconfirmed,
)
from .values import How, Message, News, Notice, Options, Will

__all__ = [
    "BadWelcome",
    "BlockingClient",
    "Client",
    "ClientError",
    "Closed",
    "ConnectFailed",
    "ConnectRefused",
    "ConnectionLost",
    "How",
    "Message",
    "News",
    "NotAuthorised",
    "Notice",
    "Options",
    "PeerFault",
    "Refused",
    "ServerUnavailable",
    "StateError",
    "TimedOut",
    "Unconfirmed",
    "Will",
]
