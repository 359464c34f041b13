"""All that a session can ask of the shell: this set is closed (gateway/DESIGN.md).

Bytes for the client are not in it: they collect in `Session.out`. An effect that is a question
suspends the task that asked it until the shell calls `Session.reply(task, answer)`; the answer may
be an exception. `tasks.Tasks` fills in `task`; with 0 no answer is wanted, and `reply` is not
called. A question is answered even if its session has closed meanwhile: its audit records still
have to say what was committed. These are not answered after that: Snapshot, SnapshotMore, AwaitRoom
and Provision; the tasks that ask them end with their session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sealmq.mqtt import Publish
from sealmq.store.records import NEVER, StoreRecord, WillRecord
from sealmq_spec.errors import Unavailable

if TYPE_CHECKING:
    from .boots import Sent

LIVE, OWN = "live", "own"
"""The links that a subscription can stand on."""


class BrokerAway(Exception):
    """An answer: the broker cannot be reached, does not let this mediator in, or was lost
    meanwhile.
    """


class NoPlace(Unavailable):
    """An answer: all places are taken, and no client has a connection to give up (registry.py)."""


# --- questions: each gets exactly one reply ---


class Commit(NamedTuple):
    """Make records durable, then let the policy engine index what holds. Answer: list[Held],
    StoreUnavailable, or StoreFull. `urgent`: on a full disk too, as far as the reserved space
    reaches.

    The answer, and the audit records that it brings, come before what follows from the new rows
    (subscriptions that pause) is looked at. `part`: a topic filter; what other workers counted of
    readers there is written down before they go by the rows.
    """

    task: int
    records: tuple[StoreRecord, ...]
    urgent: bool = False
    part: str = ""


class OpenSession(NamedTuple):
    """A place for this session, and its session at the broker. `clean` as in CONNECT; `gen` is the
    proof's. `fresh`: nothing of an older session, though this one may be kept. `expiry`: how long
    one that is kept outlives its connection, as in Wishes.

    The shell chooses the client identifier at the broker. The session's own link is not read before
    the first PauseLink(False). Answer: Opened, or BrokerAway, StoreUnavailable, NoPlace,
    DeniedByRule.
    """

    task: int
    gen: int
    clean: bool
    fresh: bool = False
    expiry: int = NEVER


class Subscribe(NamedTuple):
    """Filters with their QoS onto a link. Answer: the codes, one a filter (0x80: refused).

    If there is no own link yet, it is opened (a clean session's first `$share`).
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

    Answer: Some, or BrokerAway, NotTaken, SnapshotCut.
    """

    task: int
    filter: str


class SnapshotMore(NamedTuple):
    """The next chunk of a snapshot. Answer as to Snapshot."""

    task: int
    token: int


class Yield(NamedTuple):
    """Gives others a turn, since what follows may take long. Answer: None."""

    task: int


class AwaitRoom(NamedTuple):
    """Waits until the journal takes something of this client again. Answer: whether it does; it
    may not for ROOM_S."""

    task: int
    client: int


class AskTime(NamedTuple):
    """The key generator's time for a nonce of this client. Answer: bytes; None while it is away."""

    task: int
    nonce: bytes


class Provision(NamedTuple):
    """A provisioning request to the key generator. Answer: kglink.Answer, or KgError."""

    task: int
    request: bytes


class Lock(NamedTuple):
    """Wait until no other session's command holds any of these rows, (family, key), and until rows
    of clients that are gone are put right; then lock them. No row: wait for the latter alone.

    The answer does not matter: what was judged before is judged again if rows were applied since.
    A task holds no locks while it waits for others.
    """

    task: int
    rows: frozenset[tuple[str, str]]


class Confirmed(NamedTuple):
    """The first proof under a pending generation came: older generations end. The keyring here says
    so already. Answer: None, when other workers and the key generator know, or are away.
    """

    task: int
    client: int
    gen: int


# --- statements: no answer ---


class SnapshotDrop(NamedTuple):
    """The rest of a snapshot is no longer wanted."""

    token: int


class Unlock(NamedTuple):
    """Unlock the rows of a Lock."""

    rows: frozenset[tuple[str, str]]


class Forward(NamedTuple):
    """Publish for this client: into the journal (QoS above 0, or retained), then over the publish
    link.

    With QoS above 0, `Session.accepted(sent)` follows once broker and journal have it, or
    `Session.not_taken(sent, why)`, whether the session is still open or not. `sent`: None with QoS
    0.
    """

    sent: Sent | None
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
    """One audit record. With a field `parted`, what was counted so far of readers of its `topic` is
    written before it (Audit.part).
    """

    event: str
    fields: Mapping[str, Any]


class Will(NamedTuple):
    """What becomes of this session's stored will: `drop`, `fire`, or `leave` it for its grace.

    A will that fires is judged with `Session.policy`, which the shell closes then.
    """

    what: str
    will: WillRecord


class Returned(NamedTuple):
    """(client, client id) is back: the wills that it left do not fire."""

    client: int
    client_id: str


class Vouched(NamedTuple):
    """Something in this client's name has verified on a connection that is not open yet."""

    client: int


class Entered(NamedTuple):
    """The session is open: it has no deadline any more, is no stranger, and older connections of
    the same session, or too many of its client, end.
    """


class Tell(NamedTuple):
    """Tell these clients, by name, what this family says (SPEC.md 4.4, op 9): `Session.news` of
    each open session of theirs, of whichever worker. Who has none is told nothing.
    """

    family: str
    tells: tuple[tuple[str, bytes], ...]


class Deadline(NamedTuple):
    """`Session.close("too slow")` after so many seconds; it replaces an earlier deadline."""

    seconds: float


SURE, MAYBE, LOST = range(3)


class Opened(NamedTuple):
    """Not an effect: the answer to OpenSession. `present`: as in CONNACK. `subs`: the session's
    subscriptions as the store has them. `doubtful`: whether the broker may use packet ids again
    that the client still holds for other messages. SURE: it does not; MAYBE; LOST: it may, since
    the broker was lost after the session began.
    """

    present: bool
    subs: tuple[Any, ...] = ()
    doubtful: int = SURE


class Some(NamedTuple):
    """Not an effect: an answer to Snapshot, 64 messages at most. `token` for more; None: none."""

    messages: Sequence[Publish]
    token: int | None


class End(NamedTuple):
    """The connection is over; `cut`: what the system has not sent yet is thrown away.

    The shell writes what is in `out`, closes socket and own link, gives up what it asked of the key
    generator and the broker for it (answers to the latter may be BrokerAway), and forgets the
    session. The session is `closed` already. This may come twice: again for a link that was opened
    late.
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
    | AwaitRoom
    | AskTime
    | Provision
    | Lock
    | Confirmed
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
    | Vouched
    | Entered
    | Tell
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
    AwaitRoom,
    AskTime,
    Provision,
    Lock,
    Confirmed,
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
    Vouched,
    Entered,
    Tell,
    Deadline,
    End,
)
ALL = frozenset((*QUESTIONS, *STATEMENTS))
"""The shell has an executor for each of these, or does not start."""
