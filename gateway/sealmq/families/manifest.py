"""What a policy family offers to everybody but the engine: data, and references to its modules.

What a reference names is imported by whoever needs it, when he needs it: the mediator loads no
command, and `sealmq pub` no doctor. `__init__.py` of the family's folder holds its MANIFEST.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from .faults import BrokenFamily

if TYPE_CHECKING:
    import argparse

    from . import api
    from .api import Family
    from .between import Make
    from .records import FamilyRecord, Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ref(Generic[T]):
    """MODULE:ATTRIBUTE in the family's folder, as Python's entry points are. MODULE alone is the
    module itself, :ATTRIBUTE the folder's own.
    """

    where: str


class Command(Protocol):
    """A command of `sealmq`, a module."""

    def add(self, sub: argparse._SubParsersAction[Any]) -> None:
        """Add the command's parser (with its examples in the epilog)."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; return the exit code."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What `sealmq init --policy NAME` writes: `templates/order.toml` of the family's folder, and
    `templates/EXAMPLE.toml` after the site's own, where there is one.
    """

    help: str
    words: Mapping[str, str] = field(default_factory=dict)
    """What stands for @WORD@ in the templates; a line whose word is missing is left out."""
    closed: str = ""
    """Said of a new site without an example: what is closed at first, and where that stands."""
    examples: tuple[str, ...] = ()
    """Sites of its own for `sealmq init --example`: `templates/EXAMPLE.toml` is then all of it but
    [site] and [policy], and what lies in a folder `templates/EXAMPLE` goes into the site as it is.
    """


class Encode(Protocol):
    """Puts what a client says into its filter."""

    def __call__(self, filter: str, value: str) -> str:
        """The filter as it is sent. Malformed."""


class Check(Protocol):
    """Whether a client can say that."""

    def __call__(self, value: str) -> object:
        """Malformed, unless it can."""


@dataclass(frozen=True, slots=True)
class Says:
    """What a client says with a subscription: an option of `sealmq sub` and `explain`, and an
    argument of the host client's `subscribe`. `option` is an identifier.
    """

    option: str
    metavar: str
    help: str
    encode: Ref[Encode]
    check: Ref[Check]
    needed: str = ""
    """Who has to say it, for the help of `sealmq sub`."""
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lines for the help of commands that take the option, by command."""


class Items(Protocol):
    """What a client puts into a message, as items of m2 (SPEC.md 3.2, 3.4)."""

    def __call__(self, values: Sequence[str]) -> Mapping[int, bytes]:
        """Type to value. Malformed, unless a client can put that."""


@dataclass(frozen=True, slots=True)
class Puts:
    """What a client puts into a message for the family: an option of `sealmq pub`, which may be
    repeated, and a key of `put` of the host client's `publish`. `option` is an identifier.
    """

    option: str
    metavar: str
    help: str
    items: Ref[Items]
    examples: Sequence[str] = ()
    """Lines for the help of `sealmq pub`."""


class MadeRow(NamedTuple):
    """What a client has made: its topic or filter, the client, and the label that it hangs on ("":
    none)."""

    name: str
    by: str
    label: str


class Rows(Protocol):
    """Finds what clients have made among the store's records."""

    def __call__(self, records: Iterable[Record]) -> Iterable[MadeRow]:
        """Of the family."""


@dataclass(frozen=True, slots=True)
class Made:
    """What clients make that hangs on a label or on a client, and stands in the store.

    `key`: its name in JSON; `words`: what it is called; `gone`: what an operator should know when
    its label is gone. `idle`: what one on a topic is called that counts only while the topic has
    the label that it hangs on; "" where there is none of that kind.
    """

    key: str
    words: str
    rows: Ref[Rows]
    gone: str = ""
    idle: str = ""


class PutBack(Protocol):
    """What becomes of rows that a backup has put back. Pure."""

    def __call__(self, held: Iterable[FamilyRecord], now_ms: int) -> Iterable[FamilyRecord]:
        """Those that change. Of what it has changed before, nothing more."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What is lost with the mediator's store, or unknown after a restore.

    `what`: of whom (a list of such parts is read); `mend`: where in sealmq.toml it is put right;
    both "" where the mediator's store has nothing of it. `decided`: what may have been decided
    after a backup; `look`: what to look through, and `by` which command, in which {site} stands for
    the site.
    """

    what: str
    mend: str
    decided: str
    look: str
    by: str
    put_back: Ref[PutBack] | None = None
    """Takes out of force what somebody has to say again, when a backup puts rows back, or a store
    comes that is not the one that was known."""


class BenchSite(Protocol):
    """A site under the family for the benches, a module.

    All clients of such a site have one label. Each publishes `bench/CLIENT/value`, reads `bench/#`
    or some of it, and subscribes to filters below `rate/`.
    """

    @property
    def SETTINGS(self) -> Mapping[str, str]:
        """What `put_in` gets for `sealmq bench gateway`."""

    def put_in(self, doc: MutableMapping[str, Any], clients: Sequence[str], settings: Any) -> None:
        """[families.NAME] of its sealmq.toml; there is none yet."""

    def as_sent(self, filter: str) -> str:
        """How a client subscribes to a filter."""

    def held(
        self, count: int, clients: Sequence[str], topics: Sequence[str]
    ) -> Iterable[tuple[str, bytes]]:
        """Key and value of the records that its store begins with, `count` of them or none."""

    def judging(self) -> Sequence[dict[str, Any]]:
        """What judging costs without a site: rows after shared_spec/bench.schema.json."""


class Wild(Protocol):
    """What takes long to judge, for `sealmq bench gateway --part wild`."""

    def __call__(self, turn: int) -> tuple[Sequence[str], Sequence[str]]:
        """Commands that come before, and filters as they are sent; others in each turn."""


class BenchCommand(Protocol):
    """`sealmq bench NAME`, a module."""

    @property
    def about(self) -> str:
        """What it measures, in a line of the evidence."""

    @property
    def first(self) -> Sequence[str]:
        """Arguments of the first run for the evidence: a bar that is missed must not end it."""

    @property
    def closer(self) -> Sequence[str]:
        """Arguments of a second run, of few variants in many rounds, for the evidence."""

    def add(self, kinds: argparse._SubParsersAction[Any]) -> None:
        """Add the parser NAME."""


class BenchWhole(Protocol):
    """What `sealmq bench NAME` runs, and the tables of it, a module."""

    def main(self, argv: Sequence[str]) -> int:
        """Measure; the exit code."""

    def beside(
        self, rows: Sequence[dict[str, Any]], closer: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The rows of both runs."""

    def shown(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those that the tables show."""

    def table(self, rows: Sequence[dict[str, Any]]) -> str:
        """The tables, for people."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured of the family, by modules that are part of a checkout (but `command`).

    `variant`: of `sealmq bench gateway`, as sealmq-VARIANT. A family whose site needs more than
    settings and records has neither: `variant` is "", `site` None.
    """

    variant: str = ""
    site: Ref[BenchSite] | None = None
    wild: Ref[Wild] | None = None
    command: Ref[BenchCommand] | None = None
    whole: Ref[BenchWhole] | None = None
    """With `command`, or neither."""
    between: Ref[Mapping[str, Callable[[bool], list[dict[str, Any]]]]] | None = None
    """What judging between sites costs, for `sealmq bench bridge`: rows by part; True: quick."""


class DoctorPart(Protocol):
    """What `sealmq doctor` does about a family while that judges, a module."""

    def put_in(self, doc: MutableMapping[str, Any]) -> None:
        """What the tries need in the site's sealmq.toml."""

    def take_out(self, doc: MutableMapping[str, Any]) -> None:
        """All of that; it need not be there."""

    def as_sent(self, filter: str) -> str:
        """How a reader of the doctor's asks for a filter."""

    def tries(self, at: Any) -> Mapping[str, Callable[[], Awaitable[str]]]:
        """What must fail, by name. `at`: `sealmq.doctor.at_mediator.AtMediator`, and a try is one
        of `sealmq.doctor.result`."""


@dataclass(frozen=True, slots=True)
class Doctor:
    """`does`: what its tries do, for the help."""

    does: str
    part: Ref[DoctorPart]


class AuditField(NamedTuple):
    """A field in which the family's verdicts say more of a delivery: in the log's record
    `delivered`, in `explain --json`, and in the reports.

    `name`: of no other family and no other field of the log; lower case, `_`. `what` it says, for
    the log's schema. `bound`: its greatest length in characters, 1,024 at most; more is cut off.
    """

    name: str
    what: str
    bound: int


class KgPart(Protocol):
    """What the key generator asks a family for, a module: no other process loads it. Pure."""

    def grants(self, config: api.Policy) -> Mapping[str, Collection[str]]:
        """The grants that this policy wants: a name of at most 64 characters for each, and the
        names of the clients that hold it. Whoever is disabled holds none, whatever this says.

        Asked after `configure` has taken the same policy.
        """


class KgKeeps(Protocol):
    """What the key generator has a family keep, and what of it mediators are told, a module: no
    other process loads it. Pure. `kept` is what `take` gave last, b"" before; it is sealed in the
    key generator's store, in backups as well. All of it goes by the policy that `configure` took.
    """

    def take(
        self, config: api.Policy, kept: bytes, said: bytes, draw: Callable[[int], bytes]
    ) -> bytes:
        """What is kept once an operator has said that. `draw` gives so many bytes by chance.
        FamilyConfigError: it cannot be.
        """

    def shown(self, kept: bytes) -> bytes:
        """What the operator has said."""

    def left(
        self, config: api.Policy, kept: bytes, names: Collection[str], draw: Callable[[int], bytes]
    ) -> bytes:
        """What is kept when clients of these names are gone: who bears one later is another one."""

    def grants(self, config: api.Policy, kept: bytes) -> Mapping[str, Collection[str]]:
        """As KgPart's."""

    def rows(self, config: api.Policy, kept: bytes) -> Iterable[tuple[str, bytes]]:
        """What mediators are told, by key: Family.told gets it, and nothing else."""


class OfPeer(Protocol):
    """What the family still keeps closed of what crosses between this site and a peer."""

    def __call__(self, config: api.Policy, peer: api.PeerPolicy) -> Iterable[str]:
        """A line for people for each: what, and where it would be opened."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A family by what others iterate over. Every field has a caller in production."""

    name: str
    family: Ref[type[Family]]
    """What judges: all that the mediator loads."""
    stands_on: tuple[str, ...] = ()
    """The families that have to stand before it in `[policy] order`."""
    policy: Policy | None = None
    names_clients: tuple[str, ...] = ()
    """Keys of its [families.NAME] that list clients, at any depth, or are tables by client; those
    that are called `clients` everybody knows."""
    commands: Mapping[str, Ref[Command]] = field(default_factory=dict)
    """Commands of `sealmq`, by their word."""
    says: Says | None = None
    puts: Puts | None = None
    hints: Mapping[str, str] = field(default_factory=dict)
    """What to do about a refusal, by its rule."""
    audit: tuple[AuditField, ...] = ()
    """What `audited` of the family names; shared_spec/audit.schema.json has them, too
    (gateway/audit_schema.py)."""
    between: Ref[Make] | None = None
    """What judges between sites, for the bridge alone."""
    kg_part: Ref[KgPart] | None = None
    """Which grants there are, that its verdicts may name in SealToGrant, and who holds them."""
    kg_keeps: Ref[KgKeeps] | None = None
    """In the place of kg_part: what operators give the key generator alone to keep."""
    of_peer: Ref[OfPeer] | None = None
    """Asked by `sealmq peer add`."""
    made: Made | None = None
    lost: Lost | None = None
    doctor: Doctor | None = None
    bench: Bench | None = None
    fuzz: Ref[type[Any]] | None = None
    """A target of `python -m fuzz` (gateway/fuzz), which is part of a checkout."""
    demo: Ref[Any] | None = None
    """An act of the demo, which is part of a checkout: `sealmq.demo.acts.Act`."""

    def load(self, ref: Ref[T]) -> T:
        """What a reference of this manifest names. BrokenFamily."""
        module, _, attribute = ref.where.partition(":")
        try:
            found = import_module(f"{__package__}.{self.name}" + (f".{module}" if module else ""))
            return cast(T, getattr(found, attribute) if attribute else found)
        except (Exception, SystemExit) as error:
            raise BrokenFamily(self.name, f"Ref({ref.where!r})", error) from error
