"""Who may use the embedded broker: mediators, by one name and password drawn anew at each start.

They live in the memory of supervisor, broker and mediator and travel between them through pipes:
never in a file, an argument list, the environment or a log.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

# Every client id of a mediator begins so; the gate and the topic plugin hold to it.
ID_PREFIX = "sealmq/"
# Whoever only asks whether a broker serves.
PROBE_PREFIX = ID_PREFIX + "probe/"


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password (SPEC.md 1.1: the broker accepts mediators only)."""

    user: str
    password: str = field(repr=False)

    @classmethod
    def draw(cls) -> Credentials:
        """New ones, 256 bits strong."""
        return cls("mediator", secrets.token_urlsafe(32))

    def match(self, user: str | None, password: str | bytes | None) -> bool:
        """Whether these are they; the time taken tells nothing but their length."""
        given = password.encode() if isinstance(password, str) else password
        # `&`, not `and`: the password is compared whatever the name is.
        return hmac.compare_digest(self.user.encode(), (user or "").encode()) & hmac.compare_digest(
            self.password.encode(), given or b""
        )
