"""The policy engine: asks the families in their fixed order; the first deny wins.

Anything but an explicit allow is a deny: an exception, an unknown fact, a duty outside the closed
set, a rule that is in no table, an empty order. Sync, no I/O; one thread (the mediator's loop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .api import Ask, Dep, Duty, Family, Policy, Proposal, Question, Record, Seen, Verdict, Who


@dataclass(frozen=True, slots=True)
class Decision:
    """The merged verdict.

    `family` gave the rule ("engine" for the engine's own). `topic` is the topic or filter to go on
    with (parsed, rewritten); `notes` what the families' encodings said. `label` is the label to
    commit before going on (duty LabelTopic), or None. `plain`: allow, no duty, topic as it came.
    `overridden`: it was a deny, and `enforce = false` made an allow of it.
    """

    allow: bool
    rule: str
    reason: str
    family: str
    until: int
    deps: tuple[Dep, ...]
    duties: tuple[Duty, ...]
    topic: str
    notes: Mapping[str, Mapping[str, Any]]
    label: str | None
    plain: bool
    overridden: bool


class Reloaded(NamedTuple):
    """After a change of configuration: records to commit and apply, connections to ask again.

    `connections` are those whose Who changed (label, kind, gone): ask `connect` again and end the
    connection on a deny.
    """

    records: list[Record]
    connections: list[Conn]


class Conn:
    """One client's connection. Each question is a method; the answer is a Decision."""

    who: Who
    ask: Ask

    def connect(self, now_ms: int, tlv: Mapping[int, bytes] = {}) -> Decision:
        raise NotImplementedError

    def publish(
        self,
        topic: str,
        qos: int,
        retain: bool,
        size: int,
        now_ms: int,
        tlv: Mapping[int, bytes] = {},
        message_id: tuple[int, int] | None = None,
    ) -> Decision:
        """allow with `label` set: commit TopicLabel, Engine.apply what holds, and ask again."""
        raise NotImplementedError

    def subscribe(
        self, filter: str, qos: int, now_ms: int, tlv: Mapping[int, bytes] = {}
    ) -> Decision:
        raise NotImplementedError

    def deliver(
        self,
        topic: str,
        label: str,
        how: int,
        now_ms: int,
        size: int = 0,
        tlv: Mapping[int, bytes] = {},
        sender: int = 0,
        message_id: tuple[int, int] | None = None,
        age_ms: int = 0,
    ) -> Decision:
        """`label`: the name of m3's label, "" for a public record; `how`: SPEC.md 3.3."""
        raise NotImplementedError

    def subscribed(self, decision: Decision, qos: int, now_ms: int) -> None:
        """The broker has accepted the subscription that `decision` allowed."""
        raise NotImplementedError

    def unsubscribed(self, filter: str) -> None:
        """`filter` as it arrived behind the token; no question: leaving is always allowed."""
        raise NotImplementedError

    def parse(self, question: Question, topic: str) -> str:
        """The topic or filter without the families' encodings (for UNSUBSCRIBE)."""
        raise NotImplementedError

    def saw(
        self,
        what: Seen,
        topic: str,
        now_ms: int,
        *,
        label: str = "",
        qos: int = 0,
        retain: bool = False,
        size: int = 0,
        how: int = 0,
        tlv: Mapping[int, bytes] = {},
    ) -> None:
        """Tell the families what became of a message (accepted, delivered, refused)."""
        raise NotImplementedError

    def command(self, family: str, body: bytes, now_ms: int) -> Proposal | Verdict:
        """Op 0x81. A Proposal: commit, audit, Engine.apply, reply. A Verdict: the refusal."""
        raise NotImplementedError

    def close(self, now_ms: int) -> None:
        """The connection is gone; its cached verdicts too."""
        raise NotImplementedError


class Engine:
    """The families in their order, the cache of merged verdicts, the facts."""

    def __init__(
        self,
        order: Sequence[Family],
        cache_size: int = 100_000,
        *,
        site: str = "",
        enforce: bool = True,
        on_fault: Callable[[str, str, Exception], None] | None = None,
    ) -> None:
        """`on_fault(family, question, error)` hears of defects in families (for log and audit)."""
        raise NotImplementedError

    def load(self, config: Policy, records: Iterable[Record]) -> list[Record]:
        """Start-up: index the store's records, then the configuration. Gives records to commit."""
        raise NotImplementedError

    def reload(self, config: Policy, *, enforce: bool | None = None) -> Reloaded:
        """The configuration changed; drops exactly the cached verdicts that it reaches."""
        raise NotImplementedError

    def apply(self, records: Iterable[Record]) -> None:
        """What the store says holds, own or from elsewhere."""
        raise NotImplementedError

    def who(self, client: str, number: int = 0) -> Who:
        """The client after the present configuration; label `none` if it is not in there."""
        raise NotImplementedError

    def connection(self, who: Who) -> Conn:
        raise NotImplementedError

    def push_fact(self, name: str, value: Any, valid_until_ms: int, subject: str = "") -> None:
        raise NotImplementedError

    def tick(self, now_ms: int) -> None:
        """Call about once a second."""
        raise NotImplementedError

    def explain(self, conn: Conn, decision: Decision) -> list[str]:
        """Plain lines behind a decision just made: the rule's meaning, then the family's own."""
        raise NotImplementedError

    @property
    def tlvs(self) -> frozenset[int]:
        """TLV types that the families understand (without the critical bit)."""
        raise NotImplementedError

    @property
    def warnings(self) -> list[str]:
        """What has to be said loudly at start, at reload and in status (enforce = false)."""
        raise NotImplementedError
