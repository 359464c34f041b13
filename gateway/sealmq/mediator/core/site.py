"""What all sessions of one worker share. It knows no session, and the shell sets what changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sealmq.broker.promises import BrokerTakes
from sealmq.families.api import Audited
from sealmq.families.engine import Engine
from sealmq.order import Order
from sealmq.site.config import Config
from sealmq_spec.const import WINDOW_S

from .boots import BootSessions
from .keyring import Keyring
from .proof import Newest
from .retained import Retained, RetainedBytes
from .tasks import Queue


@dataclass(slots=True)
class BrokerFace:
    """What the broker promises (sealmq.broker.promises). `qos`: the highest that it knows."""

    retained: bool = True
    qos: int = 2
    shared: bool = False
    keeps_sessions: bool = True


def _none(client: int) -> tuple[str, str] | None:
    return None


@dataclass(slots=True, eq=False)
class Site:
    """`now_ms` (Unix) and `mono_s` (rises only) are set by the shell before each event.

    `away`: why nobody can connect, None while all shared links are up. `refuses`: by which rule,
    and why, nothing of QoS above 0 is taken from a client now (journal). `kg_there`: whether the
    key generator is. `counts`: the audit log's counters.
    """

    number: int
    config: Config
    ring: Keyring
    engine: Engine
    order: Order
    broker: BrokerFace
    counts: Counts
    now_ms: int = 0
    mono_s: float = 0.0
    away: str | None = None
    kg_there: bool = True
    refuses: Callable[[int], tuple[str, str] | None] = _none
    takes: BrokerTakes = field(default_factory=BrokerTakes)
    boots: BootSessions = field(default_factory=BootSessions)
    newest: dict[int, Newest] = field(default_factory=dict)
    retained: Retained = field(default_factory=Retained)
    retained_bytes: RetainedBytes = field(default_factory=lambda: RetainedBytes(1 << 62))
    # Filters that take more than one slice to judge: one at a time, since together each would
    # only take longer.
    searches: Queue = field(default_factory=Queue)

    def broker_id(self, client: int, client_id: str) -> str:
        """The client identifier at the broker: no two sites or clients share one."""
        return f"sealmq/{self.ring.site.hex()}/{client}/{client_id}"

    def clock_fell(self) -> bool:
        """Whether our timestamps are so far ahead of the clock that readers would refuse them."""
        return self.order.ms - self.now_ms > WINDOW_S * 500

    def next_order(self) -> bytes:
        """12 bytes that no other packet of this mediator carries."""
        return self.order.next_bytes(self.now_ms)


class Counts(Protocol):
    """The counters of the audit log (sealmq.audit.Audit)."""

    def count_accepted(self, client: str, topic: str, label: str) -> None:
        """A message was forwarded."""

    def count_delivered(self, client: str, topic: str, label: str, audit: Audited = ()) -> None:
        """A message was written to a reader."""

    def count_denied(
        self,
        client: str,
        topic: str,
        rule: str,
        label: str = "",
        sender: str = "",
        audit: Audited = (),
    ) -> None:
        """A message was withheld from a reader, or dropped. sender: the client that published it,
        "" where it was not looked at.
        """

    def count_unenforced(self, client: str, topic: str, rule: str, question: str) -> None:
        """A deny that `enforce = false` made an allow of."""
