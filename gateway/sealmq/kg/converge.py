"""From sealmq.toml to keys: the one place that creates, relabels and removes (Algorithm 1).

It compares what should be with what is and makes the difference, in one transaction of the caller.
So it does not matter where an earlier run was cut off: the next one repairs it. Numbers stick to
names for ever. A client that is relabelled, rotated or removed loses its link slots and has to
provision anew; one that leaves (leaving.py) takes no key along that is good for what comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from sealmq.families import registry
from sealmq.kgtypes import NewEpoch
from sealmq.kinds import GATEWAY, OF_THE_SITE
from sealmq.site.canary import is_canary
from sealmq.site.model import BOTTOM, NONE, TOP, Client, Config
from sealmq_spec.const import (
    CCM,
    LABEL_BOTTOM,
    LABEL_FIRST,
    LABEL_NONE,
    LABEL_TOP,
    U24,
)

from . import grants, leaving, limits, rekey, rows
from .errors import Bad
from .publish import Publisher
from .rekey import Asked
from .rows import ClientRow, EpochRow, LabelRow
from .store import counter
from .tools import Tools


class Converge:
    """One run. `kseq` is the new change counter; None: nothing changed.

    epochs: what was made anew. left: who has left which label, and why. drawn: clients with a new
    secret. notes: what the operator should know.
    """

    def __init__(
        self, tx: Connection, config: Config, tools: Tools, asked: Asked | None = None
    ) -> None:
        self._tx, self._config, self._tools = tx, config, tools
        self._asked = asked or Asked(frozenset(), 0)
        self.kseq: int | None = None
        self.epochs: list[NewEpoch] = []
        self.left: list[tuple[str, str, str]] = []
        self.drawn: list[str] = []
        self.notes: list[str] = []
        self._labels: dict[str, LabelRow] = {}
        self._rotated: set[int] = set()
        self._over: set[int] = set()  # labels whose present roots somebody keeps who must not

    def run(self) -> None:
        """Bad when sealmq.toml asks for what cannot be; then nothing must be committed."""
        before = rows.pairs(self._tx)
        self._do_labels()
        numbers = {name: row.number for name, row in self._labels.items()}
        pairs = {(numbers[high], numbers[low]) for high, low in self._config.strict_pairs()}
        self._do_clients(before, pairs)
        self._over |= leaving.lost(before, pairs, set(numbers.values()))
        self._do_keys(pairs)
        self._do_grants()
        # A mediator takes a policy over after the grants that it wants: it waits for keys of it.
        if rows.policy(self._tx) != self._config.text and registry.has_kg_part(
            self._config.policy.order
        ):
            self._changed()
        rows.put_policy(self._tx, self._config.text)

    def _changed(self) -> int:
        if self.kseq is None:
            self.kseq = self._tools.rise(self._tx)
        return self.kseq

    # --- labels -----------------------------------------------------------------------------------

    def _do_labels(self) -> None:
        have = rows.labels(self._tx)
        want = {BOTTOM: CCM, TOP: CCM}
        want.update((label.name, label.suite) for label in self._config.labels.values())
        free = self._free((row.number for row in have.values()), LABEL_FIRST, "label")
        for name, suite in want.items():
            old = have.get(name)
            if old is None:
                fixed = {BOTTOM: LABEL_BOTTOM, TOP: LABEL_TOP}
                new = LabelRow(fixed.get(name) or free(), name, suite, False)
            else:
                _same_suite("label", name, old.suite, suite)
                new = replace(old, removed=False)
                # Nobody looked after its keys meanwhile; nobody but the operator had the doctor's.
                if old.removed and not is_canary(name):
                    self._over.add(old.number)
            self._put_label(old, new)
        for name, row in have.items():
            if name in want:
                continue
            if not row.removed and not is_canary(name):
                self.notes.append(
                    f"label {name} is gone: topics that have it are closed to everybody until they "
                    f"get another one; sealmq topic list SITE --label {name}"
                )
            self._put_label(row, replace(row, removed=True))

    def _put_label(self, old: LabelRow | None, new: LabelRow) -> None:
        if new != old:
            self._changed()
            rows.put_label(self._tx, new)
        if not new.removed:
            self._labels[new.name] = new

    # --- clients ----------------------------------------------------------------------------------

    def _do_clients(self, before: set[leaving.Pair], pairs: set[leaving.Pair]) -> None:
        def dominates(a: int, b: int) -> bool:
            return a == b or (a, b) in pairs

        have = rows.clients(self._tx)
        out = self._held(have)
        free = self._free((row.number for row in have.values()), 1, "client")
        for name, client in self._config.clients.items():
            label = LABEL_NONE if client.label == NONE else self._labels[client.label].number
            old = have.get(name)
            if old is None or old.removed:
                self._add_client(old, client, label, free)
                continue
            if client.kind not in OF_THE_SITE:  # those keep what they were made with
                _same_suite("client", name, old.suite, client.suite)
            new = replace(
                old,
                label=label,
                kind=client.kind,
                disabled=client.disabled or not label or old.number in out,
                rotation=max(old.rotation, client.rotation),
            )
            self._put_client(old, new, before, dominates)
        for name, row in have.items():
            if name not in self._config.clients:
                gone = replace(row, removed=True, disabled=True)
                self._put_client(row, gone, before, dominates)

    # Whom `client disable` has put out while sealmq.toml was wrong stays out once it is put right,
    # until the file says so itself or `client enable` lets him in. So does who has no line there.
    def _held(self, have: Mapping[str, ClientRow]) -> frozenset[int]:
        out, clients = rows.out(self._tx), self._config.clients
        here = {name: row for name, row in have.items() if row.number in out and name in clients}
        left = [n for n, row in here.items() if not (row.removed or clients[n].disabled)]
        for name in left:
            note = f"client {name} stays disabled, as `sealmq client disable` has said; "
            if clients[name].kind not in OF_THE_SITE:  # those have no line to say it in
                note += "sealmq.toml does not say so: the same command writes it there, "
            self.notes.append(note + "`sealmq client enable` lets it in")
        held = frozenset(here[name].number for name in left)
        rows.put_out(self._tx, held)
        return held

    def _add_client(
        self, old: ClientRow | None, client: Client, label: int, free: Callable[[], int]
    ) -> None:
        new = ClientRow(
            number=free() if old is None else old.number,
            name=client.name,
            label=label,
            kind=client.kind,
            suite=client.suite,
            disabled=client.disabled or not label,
            removed=False,
            gen=0 if old is None else old.gen,
            rotation=client.rotation if old is None else max(client.rotation, old.rotation + 1),
            ended=0 if old is None else old.ended,
            since=self._tools.now_s,
        )
        self._changed()
        rows.put_client(self._tx, new, self._new_ps(new))
        if client.kind == GATEWAY and not client.disabled:
            # What was sealed before is none of the peer's.
            self._over.add(label)

    def _new_ps(self, row: ClientRow) -> bytes:
        self.drawn.append(row.name)
        return rows.new_ps(self._tools.vault, row.number, row.suite)

    def _put_client(
        self,
        old: ClientRow,
        new: ClientRow,
        before: set[leaving.Pair],
        dominates: Callable[[int, int], bool],
    ) -> None:
        if new == old:
            return
        self._changed()
        rotated = new.rotation != old.rotation
        if rotated:
            self._rotated.add(new.number)
        if new.label != old.label or new.disabled or rotated:
            rows.drop_links(self._tx, new.number)
            new = replace(new, ended=new.gen)
        rows.put_client(self._tx, new, self._new_ps(new) if rotated else None)
        reason = leaving.why(old, new, dominates)
        if reason is not None:
            self.left.append((new.name, self._label_name(old.label), reason))
            self._over |= leaving.at_and_below(old.label, before)

    def _label_name(self, number: int) -> str:
        rows_ = rows.labels(self._tx).values()
        return next((row.name for row in rows_ if row.number == number), NONE)

    # --- keys -------------------------------------------------------------------------------------

    def _do_keys(self, pairs: set[leaving.Pair]) -> None:
        labels = {row.number: row for row in self._labels.values()}
        epochs = rows.epochs(self._tx)
        for number, label in labels.items():
            mine = epochs.setdefault(number, [])
            if not mine:
                first = EpochRow(number, 1, 0, self._changed())
                rows.new_epoch(self._tx, self._tools.vault, label, first)
                mine.append(first)
            elif number in self._asked.given:
                roots, until = self._asked.given[number]
                mine.append(self._next(label, mine[-1], until, limits.EPOCHS_A_DAY, roots))
            elif number in self._over:
                mine.append(self._next(label, mine[-1], self._tools.now_s, limits.EPOCHS_A_DAY))
            elif number in self._asked.labels:
                mine.append(self._next(label, mine[-1], self._asked.until, limits.ASKED_A_DAY))
            del mine[: -limits.KEPT]
        publisher = Publisher(self._tx, self._config.site.id, self._tools, labels)
        publisher.run(epochs, pairs)
        if publisher.changed:
            self._changed()

    def _next(
        self, label: LabelRow, last: EpochRow, until: int, most: int, given: bytes | None = None
    ) -> EpochRow:
        kseq = self._changed()
        fresh = rekey.draw(self._tx, self._tools, label, last, until, kseq, most, given)
        self.epochs.append(NewEpoch(label.name, fresh.epoch, until))
        return fresh

    def _do_grants(self) -> None:
        there = rows.clients(self._tx).items()
        clients = {n: row.number for n, row in there if not (row.disabled or row.removed)}
        changed, notes = grants.converge(
            self._tx,
            self._tools.vault,
            grants.wanted(self._tx, self._tools.vault, self._config),
            clients,
            self._rotated,
        )
        self.notes += notes
        if changed:
            self._changed()

    # Numbers that were given away since a backup that was restored lie below the counter.
    def _free(self, taken: Iterable[int], first: int, what: str) -> Callable[[], int]:
        last = max((number for number in taken if number >= first), default=first - 1)
        last = max(last, counter(self._tx, what))

        def take() -> int:
            nonlocal last
            last += 1
            if last > U24:
                raise Bad(f"all {what} numbers are used up", "make a new site")
            return last

        return take


def _same_suite(what: str, name: str, have: int, want: int) -> None:
    if have != want:
        names = {1: "ccm", 2: "chacha"}
        raise Bad(
            f"{what} {name}: its keys were made for suite {names[have]}, sealmq.toml says "
            f"{names[want]}",
            f"put suite {names[have]} back, or give the {what} another name",
        )
