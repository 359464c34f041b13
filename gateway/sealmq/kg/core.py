"""The key generator's operations on its store (Chen and Wilson, section 4 and Algorithm 1).

Synchronous and used from one thread at a time; no socket, no loop. A change is on disk before a
method returns, and `on_change` is told after that.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import Connection

from sealmq import peerkeys
from sealmq.kgtypes import Applied
from sealmq.kinds import GATEWAY, OF_THE_SITE
from sealmq.order import Order
from sealmq.site.canary import is_canary
from sealmq.site.config import loads
from sealmq.site.differences import differences
from sealmq.site.model import Config, Peer
from sealmq_spec.identity import Identity

from . import closing, exchange, kept, limits, rows, snapshot
from .bucket import Buckets
from .converge import Converge
from .errors import Bad, Denied, Unknown
from .provide import Answered, Provider
from .rekey import Asked, picked
from .rows import ClientRow
from .store import Clock, KgStore, clock_ms, counter
from .tools import Tools


class OnChange(Protocol):
    """Told when kseq has risen; `client`: when only that client's link slots changed."""

    def __call__(self, kseq: int, client: int | None) -> None: ...


class Kg:
    """One key generator: a store opened for writing, a configuration, an instance number."""

    def __init__(
        self,
        store: KgStore,
        config: Config,
        *,
        clock: Clock = clock_ms,
        on_change: OnChange = lambda kseq, client: None,
        key: X25519PrivateKey | None = None,
    ) -> None:
        self._key = key
        self._store, self._config, self._clock, self._on_change = store, config, clock, on_change
        self.inst = store.take_inst()
        self._order = Order(self.inst)
        self._provider = Provider(store, config.site.id, self._order, clock)
        self._whole: dict[str, Any] | None = None
        # The one whose pieces are being fetched, if more of them follow.
        self._fetched: dict[str, Any] | None = None
        self._told = kept.Told()
        self._keys = snapshot.Keys()
        # What peers have asked for, and may have to wait for.
        self._asks = Buckets(limits.PEER_BURST, limits.PEER_EVERY_MS)
        self._wanted: dict[str, tuple[bytes, exchange.Told]] = {}

    def __repr__(self) -> str:
        return f"<Kg inst={self.inst}>"

    @property
    def config(self) -> Config:
        """The configuration that was applied last."""
        return self._config

    def apply(self, config: Config) -> Applied:
        """Make the keys be as sealmq.toml says. Bad: it cannot be done, and nothing was changed."""
        if config.site.id != self._config.site.id:
            raise Bad(
                f"sealmq.toml says site {config.site.id.hex()}, these keys are of site "
                f"{self._config.site.id.hex()}",
                "put the id back, under [site]",
            )
        with self._store.transaction() as tx:
            other = rows.policy(tx) != config.text
            done = self._converge(tx, config)
            # As in `keep`: under a policy that cannot be told, mediators would get no keys either.
            # At a start it is the one in force, and to encode much would only hold others up.
            if other:
                self._told.rows(tx, self._store.vault, config)
        done = replace(done, differences=differences(self._config, config))
        self._config = config
        self._whole = None
        # Also where no key changes: mediators then ask which sealmq.toml is in force.
        self._changed(done.kseq, None)
        return done

    def hold(self, name: str, out: bool) -> Applied:
        """Put a client out, whatever sealmq.toml says; or let it say again who is out.

        Goes by the policy in force, so that a mistake in the file keeps nobody in.
        """
        with self._store.transaction() as tx:
            number = self._named(tx, name).number
            held = rows.out(tx)
            rows.put_out(tx, held | {number} if out else held - {number})
            text = rows.policy(tx)
            done = self._converge(tx, loads(text) if text else self._config)
        if done.changed:
            self._changed(done.kseq, None)
        return done

    def keep(self, family: str, said: bytes) -> Applied:
        """Have a policy family keep what comes of `said`. Bad: nothing changed."""
        with self._store.transaction() as tx:
            changed = kept.take(tx, self._store.vault, self._config, family, said)
            done = self._converge(tx, self._config)
            if changed and not done.changed:
                done = replace(done, kseq=self._store.rise(tx), changed=True)
            if changed:
                done.notes.append(f"{family} keeps something else from now on")
            # What mediators would be told is made before it is kept: if it cannot be, nothing is.
            self._told.rows(tx, self._store.vault, self._config)
        if done.changed:
            self._changed(done.kseq, None)
        return done

    def kept(self, family: str) -> bytes:
        """What an operator is shown of what a policy family keeps."""
        with self._store.transaction() as tx:
            return kept.shown(tx, self._store.vault, self._config, family)

    def rekey(self, names: list[str], handover_s: int, below: bool) -> Applied:
        """New epochs for labels, with `below` for all that they dominate as well.

        The old ones stay good for live messages for `handover_s` more seconds.
        """
        until = self._clock() // 1000 + handover_s
        with self._store.transaction() as tx:
            numbers = rows.labels(tx)
            wanted = frozenset(numbers[n].number for n in picked(self._config, names, below))
            done = self._converge(tx, self._config, Asked(wanted, until))
        self._changed(done.kseq, None)
        return done

    # Whichever operation is the first to go by a policy: who is gone by it has left, and whoever
    # bears the name later inherits nothing.
    def _converge(self, tx: Connection, config: Config, asked: Asked | None = None) -> Applied:
        there = rows.clients(tx).values()
        gone = {row.name for row in there if not row.removed} - config.clients.keys()
        notes = kept.leave(tx, self._store.vault, config, frozenset(gone))
        run = Converge(tx, config, self._tools(), asked)
        run.run()
        kseq = run.kseq or counter(tx, "kseq")
        return Applied(kseq, run.kseq is not None, run.notes + notes, run.left, run.epochs)

    def _tools(self) -> Tools:
        order = self._order
        return Tools(
            self._store.vault,
            lambda: order.next_bytes(self._clock()),
            self._store.rise,
            self._clock() // 1000,
        )

    def _changed(self, kseq: int, client: int | None) -> None:
        if client is None:
            self._whole = self._fetched = None
        elif self._whole is not None:  # with many labels it takes a while to make
            links = self.links(client)
            self._whole = snapshot.with_links(self._whole, kseq, client, links)
        self._on_change(kseq, client)

    # --- for mediators ----------------------------------------------------------------------------

    def hello(self, mediator: int) -> tuple[bytes, int]:
        """(site, a new instance number)."""
        self._known(mediator)
        return self._config.site.id, self._store.take_inst()

    def meet(self, store: bytes) -> str:
        """A mediator comes with this store. Why the site is closed because of that, or ""."""
        with self._store.transaction() as tx:
            if not closing.meet(tx, store):
                return ""
            kseq, reason = self._store.rise(tx), closing.closed(tx)
        self._changed(kseq, None)
        return reason

    def _known(self, mediator: int) -> None:
        number = self._config.mediator.number
        if mediator != number:
            raise Unknown(f"mediator {mediator} is not known", f"it is {number}")

    def snapshot(self, at: int = 0, kseq: int | None = None) -> dict[str, Any]:
        """One piece of what a mediator may know. Changed: kseq is neither the present one, nor that
        of the one which is being fetched. That ends with its last piece, or when more has changed
        since than clients' link slots: clients may get keys all the time.
        """
        whole = self._fetched
        if whole is None or whole["kseq"] != kseq:
            if self._whole is None:
                self._whole = snapshot.build(self._store, self._config, self._told, self._keys)
            whole = self._whole
        piece = snapshot.piece(whole, at, kseq)
        self._fetched = whole if "next" in piece else None
        return piece

    def answer(self, packet: bytes, mediator: int) -> tuple[Answered, list[dict[str, Any]]]:
        """A provisioning answer, and the client's link slots from now on.

        `mediator`: who passes the request on. A request that was made for another one is refused.
        """
        self._known(mediator)
        done = self._provider.answer(packet, mediator)
        if done.changed:
            self._changed(done.kseq, done.client.number)
        return done, self.links(done.client.number)

    def time(self, number: int, nonce_c: bytes, suite: int) -> bytes:
        """KG time for a client (SPEC.md 7.3)."""
        return self._provider.time(number, nonce_c, suite)

    def confirm(self, number: int, gen: int) -> bool:
        """End the slots before `gen`. True when that changed something."""
        with self._store.transaction() as tx:
            row = rows.client(tx, number)
            slots = rows.links(tx, self._store.vault, number).get(number, [])
            slot = next((s for s in slots if s.gen == gen), None)
            if row is None or slot is None:
                raise Unknown(f"client {number} has no generation {gen}")
            if not slot.pending:
                return False
            rows.confirm_link(tx, number, gen)
            kseq = self._store.rise(tx)
        self._changed(kseq, number)
        return True

    def links(self, number: int) -> list[dict[str, Any]]:
        """A client's link slots, as in a snapshot."""
        with self._store.transaction() as tx:
            found = rows.links(tx, self._store.vault, number)
        return snapshot.link_list(found.get(number, []))

    # --- for the operator -------------------------------------------------------------------------

    def reopen(self) -> bool:
        """Let a closed site go on with what its mediator's store holds; False: it was not closed.

        Proofs that were recorded while it was closed end as well.
        """
        with self._store.transaction() as tx:
            if not closing.reopen(tx):
                return False
            closing.end_links(tx)
            kseq = self._store.rise(tx)
        self._changed(kseq, None)
        return True

    def enrol(self, name: str) -> dict[str, Any]:
        """The enrolment of a client (SPEC.md 7.1). It holds the secret: never log it."""
        return self.enrolments([name])[0]

    def enrolments(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Those of several, in their order."""
        doctors = next(filter(is_canary, names), None)
        if doctors is not None:
            raise Denied(f"client {doctors} is the doctor's, and is never enrolled")
        with self._store.transaction() as tx:
            known = rows.clients(tx)
            found = [self._there(known.get(name), name) for name in names]
            its_own = next((row for row in found if row.kind in OF_THE_SITE), None)
            if its_own is not None:
                raise Denied(f"client {its_own.name} is {_whose(its_own)}, and is never enrolled")
            return [self._enrolment(row, rows.ps(tx, self._store.vault, row)) for row in found]

    def lend(self, name: str) -> tuple[dict[str, Any], bytes]:
        """(enrolment, identity dump) to act as that client without a new generation.

        A client that has none yet gets one, confirmed; so does one whose only one is pending. Where
        the confirmed one is of an older epoch, the pending one is lent, and stays pending.
        """
        mediator = self._config.mediator.number
        with self._store.transaction() as tx:
            row = self._named(tx, name)
            if row.kind in OF_THE_SITE:
                raise Denied(f"client {name} is {_whose(row)}, and is not lent")
            if row.disabled:
                raise Denied(f"client {name} is disabled: its label is none")
            slots = rows.links(tx, self._store.vault, row.number).get(row.number, [])
            ps = rows.ps(tx, self._store.vault, row)
            own = rows.current_roots(tx, self._store.vault, row.label)
            slot = next((s for s in slots if not s.pending and s.mediator == mediator), None)
            fresh = False
            if slot is None or slot.epoch != own.epoch:
                first = slot is None
                slot, fresh = self._provider.pending(tx, row, 0, mediator)
                if first:
                    rows.confirm_link(tx, row.number, slot.gen)
                    fresh = True
            kseq = self._store.rise(tx) if fresh else counter(tx, "kseq")
            enrolment = self._enrolment(row, ps)
        ident = Identity(self._config.site.id, row.number, mediator, ps, row.name, row.suite)
        ident.gen, ident.kseq, ident.km = slot.gen, kseq, slot.km
        ident.own = own
        if fresh:
            self._changed(kseq, row.number)
        return enrolment, ident.dump()

    # --- for bridges ------------------------------------------------------------------------------

    def peer_enrol(self, peer: str) -> list[dict[str, Any]]:
        """Of each label that goes to a peer or comes from it: peer, label (as its own site calls
        it), `out`, its number here and the enrolment of the bridge's client, whose secret that
        holds; disabled; of what comes, the site and the label's number there ("" and 0: no keys
        have come yet).
        """
        who = self._peer(peer)
        wanted = [(label, True, who.client_out(label)) for label in who.exports]
        wanted += [(label, False, who.client_in(label)) for label in who.imports]
        with self._store.transaction() as tx:
            made = []
            known = rows.imports(tx)
            for label, out, name in wanted:
                row = self._named(tx, name)
                there = None if out else known.get(row.label)
                made.append(
                    {
                        "peer": peer, "label": label, "out": out, "number": row.label,
                        "enrolment": self._enrolment(row, rows.ps(tx, self._store.vault, row)),
                        "disabled": row.disabled,
                        "site": there.site.hex() if there else "",
                        "there": there.number if there else 0,
                    }
                )  # fmt: skip
            return made

    def border_enrol(self, name: str) -> dict[str, Any]:
        """A border's two clients, `in` and `out`: the enrolment of each, whose secret that holds,
        and `disabled`. senders: who may have published under its label, by number.
        """
        border = self._config.borders.get(name)
        if border is None:
            raise Unknown(f"there is no border {name}", "[borders] in sealmq.toml has those")
        made: dict[str, Any] = {}
        with self._store.transaction() as tx:
            for word, client in (("in", border.client_in), ("out", border.client_out)):
                row = self._named(tx, client)
                enrolment = self._enrolment(row, rows.ps(tx, self._store.vault, row))
                made[word] = {"enrolment": enrolment, "disabled": row.disabled}
            label = rows.labels(tx)[border.label_in].number
            found = rows.clients(tx).values()
            made["senders"] = {row.number: row.name for row in found if row.label == label}
        return made

    def publishers(self) -> dict[int, str]:
        """Who may have published under a label that is exported, by number."""
        exported = {label for peer in self._config.peers.values() for label in peer.exports}
        with self._store.transaction() as tx:
            numbers = {row.number for row in rows.labels(tx).values() if row.name in exported}
            found = rows.clients(tx).values()
            return {row.number: row.name for row in found if row.label in numbers}

    def peer(self, name: str) -> dict[str, Any]:
        """A peer as the policy in force has it."""
        return asdict(self._peer(name))

    def peer_give(self, peer: str, der: bytes) -> bytes:
        """What its key generator is to have, sealed for that alone: the keys of what is exported,
        and of which imports new ones are needed.
        """
        who, between = self._between(peer, der)
        with self._store.transaction() as tx:
            return between.seal(exchange.said(tx, self._store.vault, who))

    @property
    def peers_wait(self) -> bool:
        """Whether a peer has asked for new keys that it could not have yet."""
        return bool(self._wanted)

    def peers_due(self) -> list[Applied]:
        """New keys that peers have asked for, and had to wait for, are made when they are due."""
        made = []
        for name, (site, told) in list(self._wanted.items()):
            del self._wanted[name]
            if name in self._config.peers:
                made.append(self._take(self._config.peers[name], site, told))
        return made

    def peer_take(self, peer: str, der: bytes, packet: bytes) -> tuple[Applied, dict[str, int]]:
        """What a peer's key generator has given. The second value: labels that it exports to us, by
        its number for each.
        """
        who, between = self._between(peer, der)
        try:
            told = exchange.read(between.open(packet))
        except peerkeys.BadPeer as error:
            raise Denied(f"peer {peer}: {error}") from None
        site = peerkeys.read(der).site
        done = self._take(who, site, told)
        mine = {one.label: one.number for one in told.exports if one.label in who.imports}
        return done, mine

    def _take(self, who: Peer, site: bytes, told: exchange.Told) -> Applied:
        """What it asks for and cannot have yet is asked again by `peers_due`."""
        now_ms = self._clock()
        self._wanted.pop(who.name, None)

        def may(number: int) -> bool:
            return self._asks.take((who.name, number), now_ms)

        with self._store.transaction() as tx:
            told = exchange.with_room(tx, who, told, now_ms // 1000)
            asked = exchange.taken(tx, who, site, told, now_ms // 1000, may)
            done = Applied(counter(tx, "kseq"), False, [], [], [])
            if asked.labels or told.exports:
                done = self._converge(tx, self._config, asked)
                exchange.note(tx, who, site, told)
            stale = exchange.waiting(tx, who, told)
        if stale:
            self._wanted[who.name] = site, exchange.Told((), stale)
        if done.changed:
            self._changed(done.kseq, None)
        return done

    def _peer(self, name: str) -> Peer:
        found = self._config.peers.get(name)
        if found is None:
            raise Unknown(f"there is no peer {name}", "sealmq peer list SITE shows those there are")
        return found

    # Whoever shows a certificate is the peer only by its fingerprint.
    def _between(self, peer: str, der: bytes) -> tuple[Peer, peerkeys.Between]:
        who = self._peer(peer)
        if self._key is None:
            raise Denied("this key generator has no key for peers")
        try:
            shown = peerkeys.read(der)
            if not hmac.compare_digest(shown.fingerprint, who.fingerprint):
                raise peerkeys.BadPeer("another fingerprint than sealmq.toml has")
            if shown.site == self._config.site.id:
                raise peerkeys.BadPeer("it has this site's own id")
            return who, peerkeys.Between(self._key, self._config.site.id, shown)
        except peerkeys.BadPeer as error:
            raise Denied(f"peer {peer}: {error}") from None

    def _named(self, tx: Connection, name: str) -> ClientRow:
        return self._there(rows.client_named(tx, name), name)

    def _there(self, row: ClientRow | None, name: str) -> ClientRow:
        if row is None or row.removed:
            raise Unknown(
                f"there is no client {name}", "sealmq client list SITE shows those there are"
            )
        return row

    def _enrolment(self, row: ClientRow, ps: bytes) -> dict[str, Any]:
        mediator = self._config.mediator
        return {
            "sealmq": 1,
            "site": self._config.site.id.hex(),
            "client": row.number,
            "name": row.name,
            "ps": ps.hex(),
            "suite": row.suite,
            "mediator": {
                "number": mediator.number,
                "host": mediator.advertise_host,
                "port": mediator.advertise_port,
            },
        }

    def clients(self) -> list[dict[str, Any]]:
        """Every client, removed ones included; nothing secret."""
        return list_clients(self._store)

    def labels(self) -> list[dict[str, Any]]:
        """Every label, removed ones included; nothing secret."""
        return list_labels(self._store)

    def kseq(self) -> int:
        """How often the keys have changed, as snapshots and identities carry it."""
        with self._store.transaction() as tx:
            return counter(tx, "kseq")

    def status(self) -> dict[str, Any]:
        """site, kseq, inst and how many there are."""
        with self._store.transaction() as tx:
            return {
                "site": self._config.site.id.hex(),
                "kseq": counter(tx, "kseq"),
                "inst": self.inst,
                "labels": sum(not row.removed for row in rows.labels(tx).values()),
                "clients": sum(not row.removed for row in rows.clients(tx).values()),
            }


def _whose(row: ClientRow) -> str:
    return f"a {'bridge' if row.kind == GATEWAY else row.kind}'s"


def list_labels(store: KgStore) -> list[dict[str, Any]]:
    """Every label; also of a store that was opened without its key."""
    with store.transaction() as tx:
        epochs = rows.epochs(tx)
        return [
            {
                "number": row.number,
                "name": row.name,
                "suite": row.suite,
                "epoch": epochs[row.number][-1].epoch,
                "removed": row.removed,
            }
            for row in rows.labels(tx).values()
        ]


def list_clients(store: KgStore) -> list[dict[str, Any]]:
    """Every client; also of a store that was opened without its key."""
    with store.transaction() as tx:
        names = {row.number: row.name for row in rows.labels(tx).values()}
        slots = rows.generations(tx)
        return [
            {
                "number": row.number,
                "name": row.name,
                "label": names.get(row.label, "none"),
                "kind": row.kind,
                "suite": row.suite,
                "disabled": row.disabled,
                "removed": row.removed,
                "rotation": row.rotation,
                "gen": slots.get(row.number, (0, 0))[0],
                "pending": slots.get(row.number, (0, 0))[1],
            }
            for row in rows.clients(tx).values()
        ]
