"""What sealmq.toml says, as frozen values. Made by `config.load` only, which has checked it all.

Labels are a partial order (Chen and Wilson, section 3): each says what it dominates directly,
`below` is the closure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from sealmq.families.hours import Named
from sealmq.kinds import MADE
from sealmq_spec.topics import matches

BOTTOM = "bottom"
TOP = "top"
NONE = "none"
BUILT_IN = (NONE, BOTTOM, TOP)

SUITES = MappingProxyType({"ccm": 1, "chacha": 2})
BROKERS = ("embedded", "mosquitto", "external")
# Each has its own memory of labels, reservations and keys.
MOST_WORKERS = 64
SOURCES = ("time", "file", "calendar", "client", "events", "count")
SUBJECTS = ("subscriber", "owner", "pair", "site")


@dataclass(frozen=True, slots=True)
class Site:
    """[site]. `id` is 4 bytes; `key_file` is absolute or None."""

    name: str
    id: bytes
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Mediator:
    """[mediator]. host, port: where it listens. advertise_*: what clients are told. workers: the
    processes that its clients are spread over; 1: all in its own.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    advertise_host: str = "127.0.0.1"
    advertise_port: int = 1883
    number: int = 1
    on_denied: str = "notice"
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Broker:
    """[broker]. kind: one of BROKERS; the rest is an external one's, its files outside of SITE.

    ca, cert, key: for mutual TLS, all three or none. autosave: every how many seconds it writes
    what it holds to disk; what it acknowledged since may be lost with it.
    """

    kind: str = "embedded"
    url: str | None = None
    user: str | None = None
    password_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    autosave: int = 30


@dataclass(frozen=True, slots=True)
class Policy:
    """[policy]: the families in the order in which they are asked."""

    order: tuple[str, ...] = ("labels",)
    enforce: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """[limits]: what one client, or all clients of one label, can make the gateway keep.

    topics, label_topics: topics that the client, the label's clients, have created; one of more
    than 128 bytes counts once for each 128 that it has begun. sessions: of a client, that the
    broker keeps while it is away. queue_messages, queue_kib: what the site's own Mosquitto queues
    for each of these; the former is also how many packets it holds for a mediator that does not
    read. journal_mib: acknowledged messages that the broker may not have saved, of all clients.
    retained_mib: a client's retained messages. rows: of policy families' that a client has made;
    one of more than 1 KiB counts once for each KiB begun. family_mib: what all clients have made in
    one family.
    """

    topics: int = 1000
    label_topics: int = 20_000
    sessions: int = 8
    queue_messages: int = 100_000
    queue_kib: int = 8192
    journal_mib: int = 128
    retained_mib: int = 16
    rows: int = 1000
    family_mib: int = 256


class Audit(NamedTuple):
    """[audit]: keep_ms: how old a segment of the audit log has to be before it is deleted; 0: none
    is. report: the folder of a report that has to have read it, absolute or None.
    """

    keep_ms: int = 0
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """[metrics]: where /metrics and /healthz are served, on this machine alone."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Label:
    """One label: what it dominates directly, and the suite of its keys (SPEC.md 1.2)."""

    name: str
    over: tuple[str, ...] = ()
    suite: int = 1


@dataclass(frozen=True, slots=True)
class Client:
    """One client. suite: of its link and of everything under its secret.

    rotation: how often the operator had its secret replaced.
    """

    name: str
    label: str
    kind: str = "device"
    suite: int = 1
    disabled: bool = False
    rotation: int = 0


@dataclass(frozen=True, slots=True)
class Peer:
    """[peers.NAME]: another site. fingerprint: SHA-256 of its certificate, in hex. address: where
    it listens; listen: where we wait for it; one of the two makes it a neighbour. far: it is none,
    and what passes goes by way of neighbours.

    exports: labels whose messages, and keys, go to it. imports: its labels that come here, each as
    LABEL@NAME. give: of a neighbour, filters of what goes to it, others' topics as @SITE/TOPIC;
    None: what it is exported.
    """

    name: str
    fingerprint: str
    address: tuple[str, int] | None = None
    listen: tuple[str, int] | None = None
    exports: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    give: tuple[str, ...] | None = None
    far: bool = False

    def client_out(self, label: str) -> str:
        """The client, of kind gateway, that takes what is published under an exported label."""
        return f"{label}.to.{self.name}"

    def client_in(self, label: str) -> str:
        """The client, of kind gateway, that publishes what comes of an imported label."""
        return f"{label}.from.{self.name}"

    def label_in(self, label: str) -> str:
        """What an imported label is called here."""
        return f"{label}@{self.name}"


@dataclass(frozen=True, slots=True)
class Border:
    """[borders.NAME]: what is published under label_in, on topics that match one of `topics`, is
    opened here and published again under label_out, below `mount`. declassify: whether the operator
    has said that this lets in readers who could not read it before.
    """

    name: str
    label_in: str
    label_out: str
    topics: tuple[str, ...]
    declassify: bool = False

    @property
    def client_in(self) -> str:
        """The client, of kind border, that reads."""
        return f"{self.name}.in"

    @property
    def client_out(self) -> str:
        """The client, of kind border, that publishes."""
        return f"{self.name}.out"

    @property
    def mount(self) -> str:
        """Where it publishes, and nobody else does."""
        return f"{MADE}{self.name}/"

    def place(self, topic: str) -> str:
        """Where a message on that topic is published again."""
        return self.mount + _at_home(topic)

    def refuses(self, topic: str, label: str) -> str:
        """Why a message does not pass; "": it does. What a border has made leaves its site by no
        other one, and a message passes two at most: out of its site, and into another.
        """
        if label != self.label_in:
            return f"label: it has {label}, and this border opens {self.label_in}"
        if not any(matches(filt, topic) for filt in self.topics):
            return "not listed: no filter of this border matches its topic"
        home = _at_home(topic)
        if home.startswith(MADE):
            if home == topic:
                return "loop: a border of this site has made it"
            if "/" not in home[len(MADE) :] or home.split("/", 2)[2].startswith(MADE):
                return "hops: it has passed two borders"
        return ""


def _at_home(topic: str) -> str:
    return topic.partition("/")[2] if topic.startswith("@") else topic


@dataclass(frozen=True, slots=True)
class Creation:
    """One [[creation]] rule: who may create a topic that matches `filter`. Both empty: nobody."""

    filter: str
    labels: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribute:
    """[attributes.NAME]: what families' conditions may ask about. source: one of SOURCES. zone: of
    "time" and "calendar", whose; path: of "file", where, absolute or None. of: one of SUBJECTS, ""
    for clients and the site. by: of "client", who tells it; family: of "events", whose; valid_ms:
    of both, how long at most; window_ms: of "count".
    """

    source: str
    zone: str = ""
    path: Path | None = None
    of: str = ""
    hours: Named | None = None
    by: tuple[str, ...] = ()
    family: str = ""
    valid_ms: int = 0
    window_ms: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All values that a calendar has."""
        return () if self.hours is None else self.hours.names


@dataclass(frozen=True, slots=True)
class Config:
    """A whole sealmq.toml. `labels` holds the site's own labels, without bottom, top and none, and
    those that neighbours export to it; `clients` those of its bridges and borders, too.

    `families` holds the tables [families.NAME] as they stand; each family checks its own. `text`:
    what it was read from.
    """

    site: Site
    mediator: Mediator
    broker: Broker
    policy: Policy
    limits: Limits
    labels: Mapping[str, Label]
    clients: Mapping[str, Client]
    topics: Mapping[str, str]
    creation: tuple[Creation, ...]
    attributes: Mapping[str, Attribute]
    families: Mapping[str, Mapping[str, Any]]
    below: Mapping[str, frozenset[str]] = field(repr=False)
    peers: Mapping[str, Peer] = field(default_factory=dict)
    borders: Mapping[str, Border] = field(default_factory=dict)
    audit: Audit = field(default_factory=Audit)
    metrics: Metrics | None = None
    announce: bool = False
    text: str = field(default="", repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Tells this text of sealmq.toml from any other one."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def dominates(self, a: str, b: str) -> bool:
        """Whether a ≥ b. `none` is isolated: it dominates nothing and nothing dominates it."""
        if a == b:
            return a != NONE and a in self.below
        return b in self.below.get(a, frozenset())

    def strict_pairs(self) -> Iterator[tuple[str, str]]:
        """Every (high, low) with low < high, bottom and top included."""
        for high, lows in self.below.items():
            for low in lows:
                yield high, low
