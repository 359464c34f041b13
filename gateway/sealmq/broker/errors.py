"""What can be wrong with a broker: what arrived, and as `hint` what to do. Never a secret."""

from __future__ import annotations


class BrokerError(Exception):
    """Base of this package's errors."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


class BadAddress(BrokerError):
    """A broker's URL, or what belongs to it, that we cannot use."""


class Unreachable(BrokerError):
    """No MQTT broker answers there, or it closed without a CONNACK."""


class Silent(Unreachable):
    """It takes a connection, or did, and says nothing within the time."""


class Closed(Unreachable):
    """It took a connection, and closed it."""


class Untrusted(Unreachable):
    """TLS failed: it is not who it should be, or does not take our certificate."""


class Refused(BrokerError):
    """A broker answers there, and refuses. `code` is its CONNACK's (MQTT 3.1.1 section 3.2.2.3)."""

    def __init__(self, what: str, code: int, hint: str | None = None) -> None:
        super().__init__(what, hint)
        self.code = code
