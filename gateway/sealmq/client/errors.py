"""What can go wrong for a host client, as types.

Refusals by the protocol's rules are the classes of `sealmq_spec.errors`; when the gateway sent a
notice they are `Refused` as well and carry its rule and reason. What happens to a connection, to a
file or to the peer's bytes is a `ClientError`. No text holds a payload or a key.
"""

from __future__ import annotations

from sealmq_spec import errors as spec
from sealmq_spec.errors import SealError


class ClientError(Exception):
    """Base of what is no protocol refusal. `hint` says what to do about it, or is None."""

    hint: str | None = None

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        if hint is not None:
            self.hint = hint


def in_words(error: Exception) -> str:
    """The error, with what to do about it if that is known."""
    hint = getattr(error, "hint", None)
    return f"{error} ({hint})" if hint else str(error)


class ConnectFailed(ClientError):
    """No TCP connection to the mediator, or no answer to CONNECT in time."""


class ConnectRefused(ClientError):
    """CONNACK with another return code than 0 (MQTT 3.1.1, 3.2.2.3; MQTT 5, 3.2.2.2);
    `return_code` is 1 to 255.
    """

    def __init__(self, return_code: int) -> None:
        text = _CONNACK.get(return_code, "for a reason that is not known here")
        super().__init__(f"the mediator refused the connection: {text} (CONNACK {return_code})")
        self.return_code = return_code


class NotAuthorised(ConnectRefused):
    """CONNACK 5: the proof does not verify, or the client is unknown or disabled."""


class ServerUnavailable(ConnectRefused):
    """CONNACK 3: the mediator's broker or store is away."""


class BadWelcome(ClientError):
    """What came behind CONNACK was no valid welcome, so nothing of this peer is trusted (4.4)."""


class PeerFault(ClientError):
    """The peer broke MQTT 3.1.1 or our limits; the connection was ended."""


class ConnectionLost(ClientError):
    """The connection ended; what was underway may or may not have been accepted."""


class TimedOut(ClientError):
    """No answer in time. A message of QoS 1 or 2 stays underway and may still be accepted."""


class Unconfirmed(TimedOut):
    """No receipt of the gateway covers the message: it may be lost."""


class StateError(ClientError):
    """The state file cannot be used."""


class StateBusy(StateError):
    """Another process uses the state file."""


class Exposed(ClientError):
    """Others can read the enrolment."""


class Closed(ClientError):
    """The client is not connected: before `connect`, or after `disconnect`."""


class Refused(SealError):
    """The gateway refused, with a notice (SPEC.md 4.4).

    Always an instance of the notice's class too (`Denied`, `Stale`, ...). `what` is "publish",
    "subscribe", ...; `subject` the topic or filter; `rule` the policy rule, "" if there is none.
    """

    what = ""
    subject = ""
    rule = ""
    reason = ""


class UnknownClass(SealError):
    """A notice whose class this version does not know."""


_CONNACK = {
    1: "unacceptable protocol version",
    2: "client identifier rejected",
    3: "its broker or store is unavailable",
    4: "bad user name or password",
    5: "not authorised",
    # Of MQTT 5.
    0x81: "it found the CONNECT malformed",
    0x83: "it does not keep what was asked for",
    0x95: "the CONNECT, or what it lets be sent, is of a wrong size",
    0x9A: "its broker retains nothing",
    0x9B: "its broker does not have the will's QoS",
}
_BASES: tuple[type[SealError], ...] = (
    spec.Malformed,
    spec.Unauthentic,
    spec.Stale,
    spec.Replay,
    spec.Denied,
    spec.WrongEpoch,
    spec.Unavailable,
    spec.TooLarge,
    spec.RateLimited,
    spec.Unsupported,
)
# One class for each notice class: Refused and the protocol's own at once.
_REFUSED: dict[int, type[Refused]] = {
    base.code: type(f"{base.__name__}ByGateway", (Refused, base), {}) for base in _BASES
}
_UNKNOWN: type[Refused] = type("UnknownClassByGateway", (Refused, UnknownClass), {})
_NAMES = {base.code: base.__name__ for base in _BASES}
_TO = {
    "publish": "publish to",
    "subscribe": "subscription to",
    "unsubscribe": "unsubscribing from",
    "control": "command for",
}


def class_name(code: int) -> str:
    """The name of a notice class, say "Denied"."""
    return _NAMES.get(code, f"class {code}")


def refusal(what: str, subject: str, code: int, rule: str, reason: str) -> Refused:
    """The typed error for a notice of class `code`."""
    by = f"by rule {rule}" if rule else f"({class_name(code)})"
    text = f"{_TO.get(what, what)} {subject} refused {by}: {reason or 'no reason given'}"
    error = _REFUSED.get(code, _UNKNOWN)(text)
    error.what, error.subject, error.rule, error.reason = what, subject, rule, reason
    return error


# Of MQTT 5, what 3.1.1 says with another number.
_OF_FIVE = {0x84: 1, 0x87: 5, 0x88: 3}


def connect_refused(code: int) -> ConnectRefused:
    """The typed error for a CONNACK return code, or a reason code of MQTT 5."""
    code = _OF_FIVE.get(code, code)
    return {3: ServerUnavailable, 5: NotAuthorised}.get(code, ConnectRefused)(code)
