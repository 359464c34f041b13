"""A site's purposes as the mediator would judge them now: sealmq.toml and the store, read only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sealmq.cli.errors import OperatorError, UsageError
from sealmq.cli.policy_view import View
from sealmq.site.layout import Layout
from sealmq.store import Reader
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter

from ...bearers import BEARER
from ...filters import crosses
from ...records import FamilyRecord
from .. import records as rows
from ..family import PurposesFamily
from ..state import State
from ..store import Reservation

FAMILY = rows.NAME
Origin = tuple[str, int | None]
"""Who made it, and when (Unix ms)."""
SITE: Origin = "", None
"""Of what stands in sealmq.toml."""


@dataclass(frozen=True, slots=True)
class Made:
    """A reservation and where it comes from: `by` "" is sealmq.toml. counts: its topic still has
    the label that entitled to it."""

    reservation: Reservation
    by: str
    at_ms: int | None
    counts: bool


@dataclass(frozen=True, slots=True)
class Presub:
    """For which purpose a client subscribes to a filter without one; `by` "" is sealmq.toml."""

    client: str
    filter: str
    purpose: str
    by: str
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class Setting:
    """`mode` or `strict`; `by` "" is sealmq.toml, or the default."""

    value: str
    by: str
    at_ms: int | None


class PurposesView:
    """`view` is the whole policy, `state` what the family knows."""

    def __init__(self, layout: Layout) -> None:
        self.view = View(layout)
        if FAMILY not in self.view.config.policy.order:
            raise OperatorError(
                "this site judges without purposes",
                hint=f'[policy] order = ["labels", "purposes"] in {layout.config}',
            )
        self.state: State = next(
            f.state for f in self.view.engine.order if isinstance(f, PurposesFamily)
        )
        # Who made a row, and when, by its key.
        self._made: dict[str, Origin] = {}
        for record in self.view.records:
            if isinstance(record, FamilyRecord) and record.family == FAMILY:
                if record.key.startswith(BEARER):
                    continue
                if record.value is None:
                    self._made.pop(record.key, None)
                else:
                    self._made[record.key] = rows.origin(record.value)

    def setting(self, name: str) -> Setting:
        """What holds of "mode" and "strict", and who said it."""
        value = self.state.mode if name == "mode" else str(self.state.strict).lower()
        return Setting(value, *self._made.get(rows.SETTING + name, SITE))

    def made(self, r: Reservation, counts: bool = True) -> Made:
        """With who made it, and when."""
        made = SITE
        if r.source == "client":
            made = self._made.get(rows.RESERVATION + r.filter, SITE)
        return Made(r, *made, counts)

    def reservations(self, filter: str | None = None) -> list[Made]:
        """All, or those that share a topic with the filter; by filter, sealmq.toml's first."""
        state = self.state
        found = [self.made(r) for r in state.store]
        found += [self.made(r, counts=False) for r in state.dormant.values()]
        found = [m for m in found if filter is None or crosses(m.reservation.filter, filter)]
        return sorted(found, key=lambda m: (m.reservation.filter, m.by))

    def matching(self, topic: str) -> list[Made]:
        """Those of a topic, its own too if that does not count now."""
        found = [self.made(r) for r in self.state.store.eip(topic).of]
        idle = self.state.dormant.get(topic)
        found += [] if idle is None else [self.made(idle, counts=False)]
        return sorted(found, key=lambda m: (m.reservation.filter, m.by))

    def presubscriptions(self, filter: str | None = None) -> list[Presub]:
        """All, or those whose filter shares a topic with this one."""
        state = self.state
        found = {key: Presub(*key, ap, "", None) for key, ap in state.settings.presubscribe.items()}
        made_by_clients = (
            ((client, filt), ap)
            for client, mine in state.presubs.items()
            for filt, (ap, *_) in mine.items()
        )
        for key, ap in made_by_clients:
            made = self._made.get(f"{rows.PRESUBSCRIPTION}{key[0]}/{key[1]}", SITE)
            # sealmq.toml goes first.
            found.setdefault(key, Presub(*key, ap, *made))
        kept = [p for p in found.values() if filter is None or crosses(p.filter, filter)]
        return sorted(kept, key=lambda p: (p.client, p.filter))

    def access(self, raw: str) -> tuple[str, str] | None:
        """(filter, purpose) of a subscription as it was sent; None when it names no purpose."""
        try:
            return self.state.reader.read_access(raw)
        except SealError:
            return None

    def kept(self, layout: Layout) -> list[tuple[str, str, str]]:
        """(client, client id, filter as it was sent) of what the broker keeps for those away."""
        if not layout.mediator_db.exists():
            return []
        reader = Reader.open_readonly(layout.mediator_db)
        try:
            found = reader.kept_subs()
        finally:
            reader.close()
        names = _names(layout) if found else {}
        return [(names.get(k.client, f"number {k.client}"), k.client_id, k.filter) for k in found]

    def purposes(self) -> list[str]:
        """Those of the tree, and what their names stand below; [] without a tree."""
        return sorted(self.state.purposes.names)

    def branches(self) -> Iterator[tuple[int, str, bool]]:
        """The tree from its tops: (depth, purpose, whether it was shown with what is below)."""
        below: dict[str, list[str]] = {purpose: [] for purpose in self.purposes()}
        for parent, children in self.state.settings.tree.items():
            below[parent] += children
        for purpose in list(below):
            above = purpose.rpartition("/")[0]
            if above and purpose not in below[above]:
                below[above].append(purpose)
        lower = {child for children in below.values() for child in children}
        seen: set[str] = set()
        left = [(0, purpose) for purpose in reversed(list(below)) if purpose not in lower]
        while left:
            depth, purpose = left.pop()
            again = purpose in seen and bool(below[purpose])
            yield depth, purpose, again
            seen.add(purpose)
            if not again:
                left += [(depth + 1, child) for child in sorted(below[purpose], reverse=True)]


def _names(layout: Layout) -> dict[int, str]:
    """Clients by number; {} where only the key generator may look."""
    from sealmq.kg.core import list_clients
    from sealmq.kg.errors import KgRefusal
    from sealmq.kg.store import KgStore

    try:
        store = KgStore.open_readonly(layout.kg_db)
        try:
            return {row["number"]: row["name"] for row in list_clients(store)}
        finally:
            store.close()
    except (KgRefusal, OSError):
        return {}


def checked_filter(filt: str) -> None:
    """UsageError unless it is a topic filter."""
    try:
        check_filter(filt)
    except (SealError, UnicodeEncodeError) as error:
        raise UsageError(f"{filt!r} is no topic filter", str(error)) from None
