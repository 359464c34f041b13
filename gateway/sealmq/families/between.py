"""What a family offers that judges between sites (Manifest.between): whose messages are taken, what
goes on to whom. The bridge asks it; it has no socket and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sealmq.feedback import Told

from .api import Policy

NO_TOKEN = bytes(8)
"""Where a message names no token."""

Say = Callable[..., None]
"""Writes an event of the audit log: its name, and fields by name."""


class BadQuestion(Exception):
    """What was asked over the bridge's socket has no answer; with a reason for people."""


class Ruling(NamedTuple):
    """Of a message that a neighbour hands over: whether it is taken, which neighbours get it next,
    the site by whose name it is known here. heals: what it is refused for may be over soon."""

    accept: bool
    to: tuple[str, ...]
    issuer: str
    rule: str
    reason: str
    heals: bool = False


class Sending(NamedTuple):
    """Of an own client's message: whether it leaves, with which token (8 bytes), to whom."""

    ok: bool
    token: bytes
    to: tuple[str, ...]
    rule: str
    reason: str


class Taken(NamedTuple):
    """Of a neighbour's record."""

    ok: bool
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """public: its Ed25519 key. give: filters of what may go to it."""

    public: bytes
    give: Sequence[str]


class Judge(Protocol):
    """Of one site. Records are bytes of the family's own, at most 16 KiB each."""

    relays: bool
    """Whether it lets pass what is for other sites."""

    def configure(
        self,
        policy: Policy,
        neighbours: Mapping[str, Neighbour],
        far: Mapping[str, bytes],
        now_ms: int,
    ) -> None:
        """What sealmq.toml says, and the peers whose certificates are known; far: keys of those
        that are no neighbours. FamilyConfigError."""

    def joined(self, neighbour: str, now_ms: int) -> None:
        """Its line is up."""

    def pending(self, neighbour: str) -> list[bytes]:
        """Records that it has to be sent, in this order; they are not given again."""

    def receive(self, neighbour: str, record: bytes, now_ms: int) -> Taken:
        """One of its records. Never raises on input."""

    def outbound(self, client: str, topic: str, label: str, now_ms: int) -> Sending:
        """A client of this site has published under an exported label."""

    def message(self, neighbour: str, token: bytes, topic: str, now_ms: int) -> Ruling:
        """A neighbour hands a message over. topic: at its own site. Uses nothing up."""

    def issuer(self, neighbour: str, token: bytes) -> str:
        """The site whose message one under this token is; "": nobody knows yet."""

    def naming(self, neighbour: str, token: bytes) -> bool:
        """A message that names the token is about to go to a neighbour, which is told the token
        first, by `pending`. False: it may not have it any more."""

    def knows(self, site: str, public: bytes) -> bool:
        """Whether a site is known by this key: of whom key packets are passed on."""

    def observe(self, neighbour: str, what: str, now_ms: int) -> None:
        """It has done what it should not: "rate", "replay", "outside" or "bad-token"."""

    def delivered(
        self, neighbour: str, message: bytes, topic: str, label: str, now_ms: int
    ) -> None:
        """A message that it has handed over has come to this site's readers. message: as
        sealmq.feedback names it; topic, label: as they are here, @SITE/TOPIC and LABEL@SITE."""

    def vote(self, label: str, told: Told, now_ms: int) -> bool:
        """What a reader says of a message that has been delivered under that label; whether it
        counts."""

    def tick(self, now_ms: int) -> None:
        """Every second or so."""

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        """What has to survive a restart, as far as it has changed since this was last asked: keys,
        and each one's record, None: it has none any more."""

    def restore(self, rows: Iterable[tuple[bytes, bytes]], now_ms: int) -> None:
        """Keys and records, after the first `configure`."""

    def ask(self, op: str, fields: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        """A question that came over the bridge's socket. BadQuestion."""


class Make(Protocol):
    """Makes a site's judge. public: its Ed25519 key; sign: by the private one."""

    def __call__(
        self, me: str, public: bytes, sign: Callable[[bytes], bytes], say: Say
    ) -> Judge: ...
