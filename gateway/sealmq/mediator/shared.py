"""What a worker is told when it begins, and what it asks of the process that owns store, keys and
configuration (gateway/DESIGN.md, Workers).

With one worker that is the same process (single.py); with more it is the acceptor's, over a socket
(worker.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sealmq.audit.chain import Chain
from sealmq.audit.totals import Totals
from sealmq.families.attributes import Attribute
from sealmq.families.records import Record
from sealmq.kgtypes import Answer
from sealmq.site.config import Config
from sealmq.site.layout import Layout
from sealmq.store import Held, KeptSession, SessionMark, StoreRecord, WillRecord

from .core.keyring import Keyring
from .journal_file import folder_of
from .keysource import KeySource

Row = tuple[str, str]

# How late a publish link that waits for the broker may be, compared with others.
_APART_MS = 2000


class Begin(NamedTuple):
    """One worker's start. number: 0 to `workers` - 1. `ring.inst` is its own. broker: as it was
    handed over.
    """

    layout: Layout
    config: Config
    ring: Keyring
    number: int
    workers: int
    broker: dict[str, Any]
    kg_there: bool
    blind_ms: int = 0
    """Before this (Unix ms) messages may have gone out that no count has."""
    chain: Chain | None = None
    """What seals the audit log of a worker that is a process."""

    @property
    def of_all(self) -> str:
        """The beginning of names at the broker that all workers of this mediator share."""
        return f"sealmq/{self.ring.site.hex()}/mediator-{self.config.mediator.number}"

    @property
    def name(self) -> str:
        """The beginning of the client identifiers of its links at the broker."""
        return f"{self.of_all}/w{self.number}" if self.number else self.of_all

    @property
    def journal(self) -> Path:
        """The folder of its journal."""
        return folder_of(self.layout.state_of("mediator"), self.number)

    @property
    def reopening(self) -> Path:
        """A file that is there while the broker gets kept sessions back (kept_sessions.py)."""
        return self.layout.state_of("mediator") / f"reopening-{self.number}"

    def journal_most(self, config: Config) -> int:
        """Bytes that its journal may have: this worker's part of the mediator's."""
        return (config.limits.journal_mib << 20) // self.workers

    @property
    def first(self) -> bool:
        """Whether it is the worker that does what is done once for all of them."""
        return self.number == 0

    @property
    def apart_ms(self) -> int:
        """How far apart retained copies of several workers may be and come in either order."""
        return _APART_MS if self.workers > 1 else 0

    def mine(self, client: int) -> bool:
        """Whether this client's connections, wills and kept sessions are this worker's."""
        return worker_of(client, self.workers) == self.number


def totals_of(layout: Layout, config: Config, name: str) -> Totals:
    """What a process of the mediator counts; name: its worker's number, or "owner"."""
    return Totals(layout.totals("mediator", name) if config.metrics else None, layout.seen(name))


class SharedStore(Protocol):
    """The store, as sealmq.store.Store has it: what a mediator reads at its start, and `commit`."""

    def records(self) -> list[Record]: ...
    def sessions(self) -> dict[int, SessionMark]: ...
    def wills(self) -> list[WillRecord]: ...
    def kept(self) -> list[KeptSession]: ...

    async def commit(
        self, records: Sequence[StoreRecord], urgent: bool = False, part: str = ""
    ) -> list[Held]:
        """As Store.commit; when it returns each other worker has applied it, or is ended.

        The caller applies what it returns in the same step. `part`: a topic filter, of whose
        readers the others write down what they counted before they apply it.
        """


class SharedKg(Protocol):
    """The key generator, as far as a mediator asks it for its clients (sealmq.kglink.KgClient)."""

    @property
    def lost(self) -> bool:
        """Whether it is away."""

    async def answer(self, packet: bytes) -> Answer:
        """To a provisioning request; all workers know the link slots that it brings when this
        returns, unless they have keys, or will at once, that are as new. Raises KgError.
        """

    async def time(self, client: int, nonce: bytes, suite: int) -> bytes:
        """Its time for a client. Raises KgError."""

    async def confirm(self, client: int, gen: int) -> None:
        """Tells it that a client has proved that it holds `gen`. Raises KgError."""


class SharedLocks(Protocol):
    """Rows that commands change, at all workers (locks.py)."""

    async def take(self, rows: frozenset[Row]) -> bool: ...
    def free(self, rows: Iterable[Row]) -> None: ...
    async def alone(self) -> None: ...
    def together(self) -> None: ...


class Shared(Protocol):
    """What all workers of a mediator share. Whether `kg` is there is said by Mediates.set_kg."""

    @property
    def store(self) -> SharedStore: ...
    @property
    def kg(self) -> SharedKg: ...
    @property
    def locks(self) -> SharedLocks: ...

    async def renew(self) -> Keyring | None:
        """The same keys under another instance number; None if none is in reserve. StoreError."""

    async def reopened(self) -> None:
        """Returns when the broker has the kept sessions of other workers' clients, or when that
        takes too long.
        """

    def passed(self, topic: str, ms: int, seq: int, origin: tuple[int, int] | None) -> None:
        """Tells the other workers that a retained copy has passed here."""

    def took(self, topic: str, client: int, size: int) -> None:
        """Tells the other workers that so many retained bytes went to the broker."""

    def live(self, there: bool) -> None:
        """Tells the other workers whether marks come over the live link here."""

    def marked(self, worker: int, number: int) -> None:
        """Tells that worker that a mark of its own came over the live link here."""

    async def derived(self, rows: list[Attribute]) -> list[Attribute]:
        """Tells the other workers what families have derived from events here. Gives what counts of
        the same now.
        """

    def inform(self, client: int, family: str, said: bytes) -> None:
        """Has the worker of this client tell it what a family says."""

    def tell(self, news: dict[str, Any]) -> None:
        """Reports what `sealmq status` shows of this worker; `away` None: clients can connect."""


class Mediates(Protocol):
    """What the mediator of a worker offers (mediator.py)."""

    async def run(self) -> None:
        """Links, clocks, wills; until it is cancelled."""

    async def stop(self) -> None:
        """Ends all sessions, their wills left to their grace."""

    async def written(self) -> bool:
        """After `stop`. Whether the store has all that was counted."""

    async def close(self) -> None:
        """Journal and audit log are written to their end."""

    def connection(self, early: bytes) -> asyncio.Protocol:
        """For a connection of which these bytes have come; it begins with them."""

    def apply(self, records: list[Record], part: str = "") -> None:
        """Applies what another worker has committed."""

    def take_attributes(self, rows: list[Attribute]) -> None:
        """What sources of attributes have told."""

    def take_ring(self, ring: Keyring) -> None:
        """Takes these keys over."""

    async def ended(self) -> None:
        """Returns when what those sessions had begun is over that the newest keys have ended."""

    async def reopened(self) -> None:
        """Returns when the broker has the kept sessions of this worker's clients."""

    async def reload(self, config: Config) -> None:
        """Takes this sealmq.toml over. Raises StoreError: not yet."""

    def set_kg(self, there: bool) -> None:
        """The key generator came or went."""

    def links_came(self, client: int, links: list[dict[str, Any]]) -> None:
        """A client's link slots, newer than the keyring."""

    def passed(self, topic: str, ms: int, seq: int, origin: tuple[int, int] | None) -> None:
        """A retained copy has passed at another worker."""

    def took(self, topic: str, client: int, size: int) -> None:
        """So many bytes retained went to the broker from another worker."""

    def live(self, worker: int, there: bool) -> None:
        """Whether marks come over another worker's live link (links/credit.py)."""

    def marked(self, worker: int, number: int) -> None:
        """A mark of this worker came over another worker's live link."""

    def inform(self, client: int, family: str, said: bytes) -> None:
        """Tells a client of this worker's what a family says."""


Fresh = list[tuple[int, list[dict[str, Any]]]]
"""Link slots that came since the snapshot was asked for."""


class Worker(Protocol):
    """What the owner wants of a worker, in whichever process."""

    index: int

    async def ring(self, keys: KeySource, fresh: Fresh) -> None:
        """Returns when it has taken these keys over, or was ended."""

    async def ended(self) -> None:
        """Returns when what those sessions had begun is over that the newest keys have ended."""

    async def config(self, config: Config) -> None:
        """Returns when it has taken sealmq.toml over, or was ended. Raises StoreError: not yet."""

    async def attributes(self, rows: list[Attribute]) -> None:
        """Returns when it judges by what sources have told, or was ended."""

    async def links(self, client: int, links: list[dict[str, Any]]) -> None:
        """Returns when it knows a client's link slots, or was ended."""

    def set_kg(self, there: bool) -> None:
        """The key generator came or went."""


def worker_of(client: int, workers: int) -> int:
    """The worker to which a client belongs, by its number."""
    return client % workers
