"""An external broker, any MQTT 3.1.1 one, unmodified: whether it lets a mediator in, and others."""

from __future__ import annotations

import os

from .credentials import PROBE_PREFIX
from .errors import BrokerError, Refused
from .peer import Peer
from .target import Target

PROBE_S = 5.0

# MQTT 3.1.1 section 3.2.2.3.
_CODES = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not take our client id",
    3: "it is not available",
    4: "user name or password are wrong",
    5: "not authorised",
}


async def connack(target: Target, timeout_s: float = PROBE_S) -> int:
    """Connect as a mediator would, and leave: CONNACK's code. Unreachable when there is none."""
    async with Peer(target, PROBE_PREFIX + os.urandom(4).hex(), timeout_s=timeout_s) as peer:
        return peer.code


async def admitted(target: Target, timeout_s: float = PROBE_S) -> None:
    """Return when the broker lets this mediator in; Unreachable or Refused otherwise."""
    code = await connack(target, timeout_s)
    if code:
        reason = _CODES.get(code, "a code that MQTT does not know")
        raise Refused(
            f"broker {target.address} refuses the mediator: CONNACK {code}, {reason}",
            code,
            "check user and password file" if code in (4, 5) else None,
        )


async def lets_anybody_in(target: Target) -> bool:
    """Whether a client without credentials gets in as well."""
    try:
        return await connack(Target(target.host, target.port)) == 0
    except BrokerError:
        return False
