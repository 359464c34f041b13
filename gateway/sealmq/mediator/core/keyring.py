"""What the key generator lets a mediator know, ready for use: clients, link roots, topic keys,
public records.

Immutable but for caches: a change at the key generator makes a new Keyring (SPEC.md 1.1, 2, 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sealmq.aead import Aead, Seal, make
from sealmq.kinds import BORDER, GATEWAY
from sealmq.site.canary import is_canary
from sealmq_spec.const import M3_HEAD, REF_GRANT, REF_LABEL
from sealmq_spec.delivery import grant
from sealmq_spec.envelope import put_m3, tail_m3
from sealmq_spec.keys import grant_key, outer_key
from sealmq_spec.records import get_manifest, get_record

_OPENERS = 256
_TAILS = 16_384
# Back-links that one fetch brings: the mediator does not know which epoch the client lacks.
_OLD = 64


class SnapshotError(Exception):
    """The key generator's snapshot is not of the agreed shape."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label as a mediator knows it.

    `previous` is (epoch, Unix time at which its hand-over ends). Of one that a peer exports:
    `mount`, the first level of its topics with the slash; and once its keys have come `site` and
    `there`, its number at that site, and `epochs`, there -> here.
    """

    number: int
    name: str
    suite: int
    epoch: int
    previous: tuple[int, int] | None = None
    site: bytes = b""
    there: int = 0
    epochs: Mapping[int, int] = field(default_factory=dict)

    @property
    def mount(self) -> str:
        _, at, peer = self.name.rpartition("@")
        return f"@{peer}/" if at else ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A policy family's grant (SPEC.md 3.3, ref 2), by its `key`: family and name. `holders`: the
    numbers of the clients to which messages are sealed under it; G goes to nobody else. Without
    any it is the mediators' own: under it a broker's copy is sealed.
    """

    number: int
    epoch: int
    suite: int
    holders: frozenset[int]
    g: bytes = field(repr=False)
    key: tuple[str, str] = "", ""

    def told(self, until: int = 0) -> bytes:
        """Body of the control packet that brings it. until: Unix seconds, 0 for no end."""
        return grant(self.number, self.epoch, self.suite, until, self.g)


@dataclass(frozen=True, slots=True)
class Client:
    """A client.

    `links` maps a provisioning generation to its link root k_c^M; `pending` are unconfirmed ones.
    `epochs` maps a generation to the epoch of the label's roots that it came with. Sessions and
    wills of generations up to `ended` are over: it was disabled, rotated or relabelled since.
    """

    number: int
    name: str
    label: int
    kind: str
    suite: int
    disabled: bool
    links: Mapping[int, bytes] = field(repr=False)
    pending: frozenset[int] = frozenset()
    epochs: Mapping[int, int] = field(default_factory=dict)
    ended: int = 0
    since: int = 0

    def goes_on(self, gen: int) -> bool:
        """Whether a connection that began under `gen` may go on (SPEC.md 7.2).

        That a later generation was made, or confirmed, ends none.
        """
        return gen > self.ended

    def ended_before(self, gen: int, proved: int) -> bool:
        """Whether there was such a generation and no proof under it is taken any more. proved: the
        newest of which one was taken; the key generator may not have heard of that yet, or these
        slots may be from before it did."""
        if gen < proved and proved in self.links:
            return True
        return gen <= self.ended or gen < min(self.links, default=0)


Sealer = tuple[bytes, Seal]
"""The first 8 bytes of an m3, all that its nonce is not, and the outer cipher."""


class Keyring:
    """One snapshot. `inst` is this mediator's instance number."""

    def __init__(self, site: bytes, inst: int, snapshot: Mapping[str, Any]) -> None:
        self.site = site
        self.inst = inst
        try:
            self._read(snapshot)
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(f"snapshot of the key generator: {error!r}") from None

    def __repr__(self) -> str:
        return f"<Keyring kseq={self.kseq} labels={len(self.labels)} clients={len(self.clients)}>"

    def _read(self, snapshot: Mapping[str, Any]) -> None:
        self.kseq = int(snapshot["kseq"])
        # Why nothing may be opened, or "" (kg/stores.py).
        self.closed = str(snapshot.get("closed", ""))
        self.labels: dict[int, Label] = {}
        self._ek: dict[tuple[int, int], bytes] = {}
        for row in snapshot["labels"]:
            number, epoch = int(row["number"]), int(row["epoch"])
            self._ek[number, epoch] = _key(row["ek"])
            before = row.get("previous")
            previous = None
            if before:
                previous = int(before["epoch"]), int(before["handover_end"])
                self._ek[number, previous[0]] = _key(before["ek"])
            # Here a copy of an older version has them.
            for old in row.get("older", ()):
                self._ek[number, int(old["epoch"])] = _key(old["ek"])
            site, there, epochs = row.get("origin") or ("", 0, ())
            self.labels[number] = Label(
                number,
                row["name"],
                int(row["suite"]),
                epoch,
                previous,
                bytes.fromhex(site),
                int(there),
                {int(theirs): int(ours) for theirs, ours in epochs},
            )
        for number, epoch, ek in snapshot.get("older", ()):
            self._ek[int(number), int(epoch)] = _key(ek)
        self.mounts = frozenset(label.mount for label in self.labels.values() if label.mount)
        self.clients = {c.number: c for c in map(_client, snapshot["clients"])}
        self.records: dict[tuple[int, int], bytes] = {}
        # label -> older epoch -> the back-link to it from the current one.
        self.back_links: dict[int, dict[int, bytes]] = {}
        for text in snapshot["records"]:
            record = bytes.fromhex(text)
            _, _, n, e_n, top, _, _, _ = get_record(record)
            if n == top:
                self.back_links.setdefault(n, {})[e_n] = record
            else:
                self.records[top, n] = record
        manifests = [bytes.fromhex(text) for text in snapshot["manifests"]]
        self.manifests = {get_manifest(manifest)[1]: manifest for manifest in manifests}
        # Labels whose messages a bridge takes to other sites, or a border under another one; to a
        # bridge that brings messages of another site nothing goes.
        own = {number for number, label in self.labels.items() if not label.site}
        self.leaving = frozenset(
            c.label
            for c in self.clients.values()
            if c.kind == BORDER or (c.kind == GATEWAY and c.label in own)
        )
        holders: dict[int, set[int]] = {}
        for number, client in snapshot.get("holders", ()):
            holders.setdefault(int(number), set()).add(int(client))
        # By family and name. A copy of an older version has none.
        self.grants: dict[tuple[str, str], Grant] = {}
        for row in snapshot.get("grants", ()):
            number = int(row["number"])
            who = frozenset(holders.get(number, ()))
            made = _grant(row, who)
            self.grants[made.key] = made
        # By number and epoch: what no client holds, and none held of those that are over.
        mine = [made for made in self.grants.values() if not made.holders]
        mine += [_grant(row, frozenset()) for row in snapshot.get("older_grants", ())]
        self._of_nobody = {(made.number, made.epoch): made for made in mine}
        # What the key generator's parts of families tell: by family, and by key.
        self.told: dict[str, dict[str, bytes]] = {}
        for family, key, text in snapshot.get("told", ()):
            self.told.setdefault(family, {})[key] = bytes.fromhex(text)
        # By label and how.
        self._sealers: dict[tuple[int, int], Sealer] = {}
        # By a grant's number, epoch and how.
        self._to_grant: dict[tuple[int, int, int], Sealer] = {}
        self._tails: dict[bytes, bytes] = {}
        self._openers: dict[tuple[int, int, int], Aead] = {}
        self._grant_openers: dict[tuple[int, int, int], Aead] = {}
        # By the first bytes of an m3: (how, label, epoch, the label's name, whether it is current).
        self.heads: dict[bytes, tuple[int, int, int, str, bool]] = {}

    def bearers(self) -> dict[str, int]:
        """Each client's name, and since when (Unix ms) it bears it."""
        return {
            client.name: client.since * 1000
            for client in self.clients.values()
            if client.since and not is_canary(client.name)
        }

    def set_links(self, number: int, links: list[dict[str, Any]]) -> None:
        """A client's link slots as the key generator has just told them."""
        client = self.clients.get(number)
        if client is not None:
            self.clients[number] = replace(client, **_slots(links))

    def confirm(self, number: int, gen: int) -> None:
        """The key generator is told that a client holds `gen`: once, if the next snapshot says so.
        Which generations have ended does not depend on it (Client.ended_before)."""
        client = self.clients.get(number)
        if client is not None:
            self.clients[number] = replace(client, pending=client.pending - {gen})

    def lacks(self, client: Client, epoch: int) -> int:
        """The current epoch of the client's label if `epoch` is older; else 0."""
        label = self.labels.get(client.label)
        return label.epoch if label is not None and epoch < label.epoch else 0

    def goes_on(self, number: int, gen: int | None, label: int | None) -> bool:
        """Whether what a client sent under `gen`, sealed under `label`, may still be published: the
        client is there, and was not disabled, rotated or relabelled since. None: that is not known.
        """
        client = self.clients.get(number)
        if client is None or client.disabled:
            return False
        return (gen is None or client.goes_on(gen)) and (label is None or client.label == label)

    def sealer(self, label: Label, how: int) -> Sealer:
        """What seals m3 under a label's current epoch and this mediator's instance."""
        sealer = self._sealers.get((label.number, how))
        if sealer is None:
            whole = bytearray(M3_HEAD)
            put_m3(whole, 0, label.suite, REF_LABEL, how, label.number, label.epoch, 0, 0, 0)
            ek = self._ek[label.number, label.epoch]
            aead = self._outer(label, label.epoch, self.inst, ek)
            sealer = self._sealers[label.number, how] = bytes(whole[:8]), aead.seal
        return sealer

    def sealer_to(self, grant: Grant, how: int) -> Sealer:
        """What seals m3 under a grant and this mediator's instance."""
        number, epoch, suite = grant.number, grant.epoch, grant.suite
        sealer = self._to_grant.get((number, epoch, how))
        if sealer is None:
            whole = bytearray(M3_HEAD)
            put_m3(whole, 0, suite, REF_GRANT, how, number, epoch, 0, 0, 0)
            key = grant_key(self.site, suite, number, epoch, self.inst, grant.g)
            sealer = self._to_grant[number, epoch, how] = bytes(whole[:8]), make(suite, key).seal
        return sealer

    def of_nobody(self, number: int, epoch: int) -> Grant | None:
        """The grant of this number and epoch, if it is one under which a broker's copy may lie: no
        client holds it, nor did one when it ended.
        """
        return self._of_nobody.get((number, epoch))

    def opener_of(self, grant: Grant, inst: int) -> Aead:
        """The outer cipher of a grant and any instance."""
        which = grant.number, grant.epoch, inst
        aead = self._grant_openers.get(which)
        if aead is None:
            if len(self._grant_openers) >= _OPENERS:
                self._grant_openers.clear()
            key = grant_key(self.site, grant.suite, *which, grant.g)
            aead = self._grant_openers[which] = make(grant.suite, key)
        return aead

    def tail(self, topic: bytes) -> bytes:
        """What follows m3's header in its associated data."""
        tail = self._tails.get(topic)
        if tail is None:
            if len(self._tails) >= _TAILS:
                self._tails.clear()
            tail = self._tails[topic] = tail_m3(self.site, topic)
        return tail

    def opener(self, number: int, epoch: int, inst: int) -> Aead | None:
        """The outer cipher of any known (label, epoch) and instance;
        None when this mediator lacks the key.
        """
        aead = self._openers.get((number, epoch, inst))
        if aead is None:
            ek = self._ek.get((number, epoch))
            if ek is None:
                return None
            if len(self._openers) >= _OPENERS:
                self._openers.clear()
            aead = self._outer(self.labels[number], epoch, inst, ek)
            self._openers[number, epoch, inst] = aead
        return aead

    def _outer(self, label: Label, epoch: int, inst: int, ek: bytes) -> Aead:
        key = outer_key(self.site, label.suite, label.number, epoch, inst, ek)
        return make(label.suite, key)

    def reads(self, reader: int, label: int) -> bool:
        """Whether a client at label `reader` can open what is sealed for `label`."""
        return reader == label or (reader, label) in self.records

    def mounted(self, topic: str) -> bool:
        """Whether a topic or a filter is a peer's: its first level is the mount of one."""
        return topic[: topic.find("/") + 1] in self.mounts

    def names(self, reader: int, label: int, number: int) -> tuple[str, str]:
        """Names of a label and of a client for a client at label `reader`; "" where it could read
        nothing of them, so that it learns of nobody who is beside or above it. Who has sent what
        came from a peer is no client here."""
        of, client = self.labels.get(label), self.clients.get(number)
        if of is not None and of.mount:
            client = None
        return (
            of.name if of is not None and self.reads(reader, label) else "",
            client.name if client is not None and self.reads(reader, client.label) else "",
        )

    def records_for(self, reader: int, label: int, epoch: int = 0) -> list[bytes]:
        """What opens `label` for a client at label `reader`; `epoch`: an older one of m1, if known.

        Derivation first, then back-links: to the epoch before the current one, of which live
        messages may come while its hand-over runs, and to `epoch`. Then the label's manifest,
        without which a reader refuses the former (SPEC.md 8).
        """
        path = self.records.get((reader, label))
        if path is None and label != reader:
            return []  # nothing leads there, so back-links would be of no use
        rows = [] if path is None else [path]
        known = self.labels.get(label)
        links = self.back_links.get(label, {})
        before = known.previous[0] if known and known.previous else 0
        rows += [links[old] for old in {before: 0, epoch: 0} if old in links]
        if before and label in self.manifests:
            rows.append(self.manifests[label])
        return rows

    def old_records(self, label: int) -> list[bytes]:
        """The back-links to the newest of a label's older epochs, newest first."""
        links = self.back_links.get(label, {})
        return [links[epoch] for epoch in sorted(links, reverse=True)[:_OLD]]

    def public(self) -> list[bytes]:
        """Every record and manifest, for the retained topics under @sm1."""
        links = [record for row in self.back_links.values() for record in row.values()]
        return [*self.records.values(), *links, *self.manifests.values()]


def _key(text: str) -> bytes:
    key = bytes.fromhex(text)
    if len(key) != 32:
        raise ValueError("a key that has not 32 bytes")
    return key


def _grant(row: Mapping[str, Any], holders: frozenset[int]) -> Grant:
    key = row["family"], row["name"]
    return Grant(
        int(row["number"]), int(row["epoch"]), int(row["suite"]), holders, _key(row["g"]), key
    )


def _client(row: Mapping[str, Any]) -> Client:
    return Client(
        int(row["number"]),
        row["name"],
        int(row["label"]),
        row["kind"],
        int(row["suite"]),
        bool(row["disabled"]),
        **_slots(row["links"]),
        ended=int(row.get("ended", 0)),
        since=int(row.get("since", 0)),
    )


def _slots(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "links": {int(row["gen"]): _key(row["km"]) for row in rows},
        "pending": frozenset(int(row["gen"]) for row in rows if row["pending"]),
        "epochs": {int(row["gen"]): int(row["epoch"]) for row in rows if "epoch" in row},
    }
