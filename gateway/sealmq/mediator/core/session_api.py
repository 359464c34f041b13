"""What every part of a session (publishing, delivery, subscriptions, control, CONNECT) may use of
the session. A part that needs more adds to this Protocol, so that no part has to import session.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sealmq.families.engine import Conn
from sealmq_spec.errors import SealError

from .boots import BootSession
from .effects import Effect
from .keyring import Client
from .site import Site
from .tasks import Task
from .wire import Wire


class SessionApi(Protocol):
    """A session, as its parts see it. session.Session documents the methods."""

    site: Site
    wire: Wire
    client: Client
    link: BootSession
    policy: Conn

    def write(self, data: bytes) -> None: ...
    def emit(self, effect: Effect) -> None: ...
    def audit(self, event: str, **fields: Any) -> None: ...
    def down(self, body: bytes) -> None: ...
    def hold(
        self, task: Task, done: Callable[[], None] | None = None, ends: bool = ...
    ) -> None: ...
    def beside(self, task: Task, done: Callable[[], None] | None = None) -> None: ...
    def refuse(
        self,
        what: int,
        error: SealError,
        rule: str,
        acknowledge: Callable[[], None] | None = None,
        qos: int = 0,
        event: str = "",
        **about: str | None,
    ) -> None: ...
    def close(self, reason: str, code: int = ..., rule: str = ...) -> None: ...
