"""All that a session can want of the shell: this set is closed (gateway/DESIGN.md).

Bytes for the client are not in it: they collect in `Session.out`. An effect that is a question
suspends the task that asked until the shell has given `Session.reply(task, answer)`; an exception
is an answer, too. `tasks.Tasks` fills in `task`; 0: the answer is not wanted, and `reply` is not
called. A question is answered when its session has closed meanwhile, too: what was committed has to
be said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sealmq.mqtt import Publish
from sealmq.store.records import StoreRecord, WillRecord
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
    """An answer: as many connections are open as there may be, and none of them is one too many."""


# --- questions: each gets exactly one reply ---


class Commit(NamedTuple):
    """Make records durable, then let the policy engine index what holds. Answer: list[Held], or
    StoreUnavailable. `urgent`: with a full disk too, as far as space kept back reaches.

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
    proof's.

    Its client identifier at the broker is the shell's to make. Its own link is not read before the
    first PauseLink(False). Answer: Opened, or BrokerAway, StoreUnavailable, NoPlace, Ruled.
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
    """The key generator's time for a nonce of this client. Answer: bytes; None while it is away."""

    task: int
    nonce: bytes


class Provision(NamedTuple):
    """A provisioning request to the key generator. Answer: kglink.Answer, or KgError."""

    task: int
    request: bytes


class Lock(NamedTuple):
    """Wait until no other session's command changes any of these rows, (family, key), and rows of
    clients that are gone are put right; then hold them. No row: wait for the latter alone.

    Answer: whatever; what was judged before is judged again if rows were applied since. A task
    holds none while it waits for some.
    """

    task: int
    rows: frozenset[tuple[str, str]]


class Confirmed(NamedTuple):
    """The first proof under a pending generation came: older ones end. The keyring here has it;
    other workers and the key generator do not know yet. Answer: None, when they do, or are away.
    """

    task: int
    client: int
    gen: int


# --- statements: no answer ---


class SnapshotDrop(NamedTuple):
    """The rest of a snapshot is not wanted any more."""

    token: int


class Unlock(NamedTuple):
    """The rows of a Lock are free."""

    rows: frozenset[tuple[str, str]]


class Forward(NamedTuple):
    """Publish for this client: into the journal (QoS above 0, or retained), then over the publish
    link.

    Of QoS above 0, `Session.accepted(sent)` follows once the broker and the journal have it, or
    `Session.not_taken(sent, why)`, whether the session is still open or not. `sent`: None of QoS 0.
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
    """One audit record. `parted` among its fields: what was counted of readers of its `topic` until
    now is written before it (Audit.part).
    """

    event: str
    fields: Mapping[str, Any]


class Will(NamedTuple):
    """What becomes of this session's stored will: `drop`, `fire`, or `leave` it for its grace.

    One that fires is judged with `Session.policy`, which the shell closes then.
    """

    what: str
    will: WillRecord


class Returned(NamedTuple):
    """(client, client id) is back: what it left behind does not fire."""

    client: int
    client_id: str


class Vouched(NamedTuple):
    """Something in this client's name has verified on a connection that is not open yet."""

    client: int


class Entered(NamedTuple):
    """The session is open: it has no deadline any more, is no stranger, and older connections of
    the same session, or too many of its client, end.
    """


class Deadline(NamedTuple):
    """`close("too slow")` after so many seconds; it takes the place of an earlier one."""

    seconds: float


SURE, MAYBE, LOST = range(3)


class Opened(NamedTuple):
    """Not an effect: the answer to OpenSession. `present`: as in CONNACK; `subs`: stored ones.
    `doubtful`: whether the broker may give packet ids again that the client holds for other
    messages: SURE that it does not, MAYBE, or LOST, as it was since the session began.
    """

    present: bool
    subs: tuple[Any, ...] = ()
    doubtful: int = SURE


class Some(NamedTuple):
    """Not an effect: an answer to Snapshot, 64 messages at most. `token` for more; None: none."""

    messages: Sequence[Publish]
    token: int | None


class End(NamedTuple):
    """The connection is over; `cut`: what the system still holds for the peer never goes out.

    The shell writes what is in `out`, closes socket and own link, gives up what it asked of the key
    generator and the broker for it (answers to the latter may be BrokerAway), and forgets the
    session. The session is `closed` already. It may come again, for a link that was opened late.
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
    Deadline,
    End,
)
ALL = frozenset((*QUESTIONS, *STATEMENTS))
"""The shell has an executor for each of these, or does not start."""
