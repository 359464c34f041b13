"""All that a session can want of the shell: this set is closed (gateway/DESIGN.md).

Bytes for the client are not in it: they collect in `Session.out`. An effect that is a question suspends
the task that asked until the shell has given `Session.reply(task, answer)`; an exception is an answer,
too. `tasks.Tasks` fills in `task`; 0: the answer is not wanted, and `reply` is not called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sealmq.mqtt import Publish
from sealmq.store.records import StoreRecord, WillRecord

if TYPE_CHECKING:
    from .inbound import Sent

LIVE, OWN = "live", "own"
"""The links that a subscription can stand on."""


# --- questions: each gets exactly one reply ---


class Commit(NamedTuple):
    """Make records durable, then let the policy engine index what holds. Answer: list[Held], or
    StoreUnavailable. `urgent`: with a full disk too, as far as space kept back reaches.
    """

    task: int
    records: tuple[StoreRecord, ...]
    urgent: bool = False


class OpenSession(NamedTuple):
    """A place for this session, and its session at the broker. `clean` as in CONNECT; `gen` is the proof's.

    Answer: Opened, or BrokerAway, StoreUnavailable, NoPlace, Ruled.
    """

    task: int
    gen: int
    clean: bool


class Subscribe(NamedTuple):
    """Filters with their QoS onto a link. Answer: the codes, one a filter (0x80: refused).

    An own link that is not there yet is opened (a clean session's first `$share`).
    """

    task: int
    link: str
    filters: tuple[tuple[str, int], ...]


class Unsubscribe(NamedTuple):
    """Filters off a link. Answer: None."""

    task: int
    link: str
    filters: tuple[str, ...]


class Snapshot(NamedTuple):
    """The retained messages that match a filter, as they stand at the broker.

    Answer: Retained chunk `Some`, or BrokerAway, NotTaken.
    """

    task: int
    filter: str


class SnapshotMore(NamedTuple):
    """The next chunk of a snapshot. Answer as to Snapshot."""

    task: int
    token: int


class Yield(NamedTuple):
    """Gives others a turn: what follows would hold the loop for long. Answer: None."""

    task: int


class AskTime(NamedTuple):
    """The key generator's time for a nonce of this client. Answer: bytes, or None while it is away."""

    task: int
    nonce: bytes


class Provision(NamedTuple):
    """A provisioning request to the key generator. Answer: kglink.Answer, or KgError."""

    task: int
    request: bytes


class Lock(NamedTuple):
    """Wait until no other session's command changes any of these rows, (family, key), then hold them.

    Answer: None. Hold none while you wait for some: `Unlock` first.
    """

    task: int
    rows: frozenset[tuple[str, str]]


# --- statements: no answer ---


class SnapshotDrop(NamedTuple):
    """The rest of a snapshot is not wanted any more."""

    token: int


class Unlock(NamedTuple):
    """The rows of a Lock are free."""

    rows: frozenset[tuple[str, str]]


class Forward(NamedTuple):
    """Publish for this client: into the journal (QoS above 0, or retained), then over the publish link.

    Of QoS above 0, `Session.accepted(sent)` follows once the broker and the journal have it, or `Session.not_taken(sent, why)`.
    """

    sent: Sent
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    client: int


class Answer(NamedTuple):
    """An acknowledgement on the own link; `data` is encoded."""

    data: bytes


class PauseLink(NamedTuple):
    """Read nothing more from the own link, or go on."""

    on: bool


class Audit(NamedTuple):
    """One audit record."""

    event: str
    fields: Mapping[str, Any]


class Will(NamedTuple):
    """What becomes of this session's stored will: `drop`, `fire`, or `leave` it for its grace."""

    what: str
    will: WillRecord


class Returned(NamedTuple):
    """(client, client id) is back: what it left behind does not fire."""

    client: int
    client_id: str


class Confirmed(NamedTuple):
    """The first proof under a pending generation came: older ones end."""

    client: int
    gen: int


class Vouched(NamedTuple):
    """Something in this client's name has verified on a connection that is not open yet."""

    client: int


class Deadline(NamedTuple):
    """End the connection after so many seconds; 0: no deadline any more."""

    seconds: float


class Opened(NamedTuple):
    """Not an effect: the answer to OpenSession. `present`: as in CONNACK; `subs`: stored ones."""

    present: bool
    subs: tuple[Any, ...] = ()


class Some(NamedTuple):
    """Not an effect: an answer to Snapshot. At most 64 messages; `token` for more, None: the end."""

    messages: Sequence[Publish]
    token: int | None


class End(NamedTuple):
    """The connection is over; `cut`: what the system still holds for the peer never goes out.

    The shell closes socket and own link and forgets the session. The session is `closed` already.
    """

    cut: bool = False


Question = (
    Commit
    | OpenSession
    | Subscribe
    | Unsubscribe
    | Snapshot
    | SnapshotMore
    | Yield
    | AskTime
    | Provision
    | Lock
)
Statement = (
    SnapshotDrop
    | Unlock
    | Forward
    | Answer
    | PauseLink
    | Audit
    | Will
    | Returned
    | Confirmed
    | Vouched
    | Deadline
    | End
)
Effect = Question | Statement
QUESTIONS = (
    Commit,
    OpenSession,
    Subscribe,
    Unsubscribe,
    Snapshot,
    SnapshotMore,
    Yield,
    AskTime,
    Provision,
    Lock,
)
STATEMENTS = (
    SnapshotDrop,
    Unlock,
    Forward,
    Answer,
    PauseLink,
    Audit,
    Will,
    Returned,
    Confirmed,
    Vouched,
    Deadline,
    End,
)
ALL = frozenset((*QUESTIONS, *STATEMENTS))
"""The shell has an executor for each of these, or does not start."""
