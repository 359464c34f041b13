"""What each part of a session has of the whole. A part says what more it needs; session.py, which
has all of it, knows the parts.
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


class Whole(Protocol):
    """A session, for its parts."""

    site: Site
    wire: Wire
    client: Client
    link: BootSession
    policy: Conn

    def write(self, data: bytes) -> None: ...
    def emit(self, effect: Effect) -> None: ...
    def audit(self, event: str, **fields: Any) -> None: ...
    def down(self, body: bytes) -> None: ...
    def hold(self, task: Task, done: Callable[[], None] | None = None) -> None: ...
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
    def close(self, reason: str) -> None: ...
