"""A site that lives through anything: clients, rekeying, backups, losses, restores.

All that its key generators ever issue is written down; what must never repeat is checked at once.
Everything follows from one seed, the clock too.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

from kg.helpers import Device, MadeSite, own
from sealmq.aead import make
from sealmq.backup.make import backup
from sealmq.backup.restore import restore
from sealmq.kg import rows
from sealmq.kg.core import Kg
from sealmq.kg.errors import Unauthentic, Unknown
from sealmq.kg.store import KgStore, counter
from sealmq.site.config import NONE, load
from sealmq_spec import provision
from sealmq_spec.records import Roots, derive, get_manifest, get_record

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
Key = tuple[int, int]


def within_reach(site: bytes, held: list[Roots], packets: Iterable[bytes]) -> set[Key]:
    """(label, epoch) of all that these roots open for somebody who keeps to no rule of readers."""
    have = {(r.label, r.epoch): r for r in held}
    todo = list(have)
    by_source: dict[Key, list[bytes]] = {}
    for packet in packets:
        _, _, _, _, top, e_top, _, _ = get_record(packet)
        by_source.setdefault((top, e_top), []).append(packet)
    while todo:
        source = todo.pop()
        for packet in by_source.get(source, []):
            got = derive(make, site, have[source], packet)
            if (got.label, got.epoch) not in have:
                have[got.label, got.epoch] = got
                todo.append((got.label, got.epoch))
    return set(have)


class Issued:
    """All that was ever given away, by what it must stay unique in."""

    def __init__(self) -> None:
        self.insts: set[int] = set()
        self.kseq = 0
        self.seen: dict[tuple[str, Any], Any] = {}
        self.records: set[bytes] = set()
        self.orders: dict[bytes, bytes] = {}
        self.kids: dict[bytes, bytes] = {}

    def inst(self, number: int) -> None:
        """A new instance number."""
        assert number not in self.insts, f"inst {number} again"
        self.insts.add(number)

    def only(self, kind: str, place: Any, value: Any) -> None:
        """`place` never stands for another value."""
        assert self.seen.setdefault((kind, place), value) == value, f"{kind} {place} again"

    def packet(self, packet: bytes, order: bytes) -> None:
        """A packet of the key generator; its 12 bytes of order are its nonce."""
        assert self.orders.setdefault(order, packet) == packet, f"order {order.hex()} again"

    def store(self, store: KgStore) -> None:
        """What stands in a store now."""
        with store.transaction() as tx:
            epochs = rows.epochs(tx)
            for label in rows.labels(tx).values():
                self.only("label", label.number, label.name)
                for epoch in epochs[label.number]:
                    # kseq is the same whenever this very epoch is met again, and it is cheap
                    place = (label.number, epoch.epoch)
                    if self.seen.get(("made", place)) == epoch.kseq:
                        continue
                    self.only("made", place, epoch.kseq)
                    one = rows.roots(tx, store.vault, *place, label.suite)
                    self.only("epoch", place, one.r + one.r_bar)
            for client in rows.clients(tx).values():
                self.only("client", client.number, client.name)
            for number, links in rows.links(tx, store.vault).items():
                for link in links:
                    self.only("gen", (number, link.gen), link.km)
                    self.only("epoch of gen", (number, link.gen), link.epoch)
            for packet in rows.records(tx).values():
                self._record(packet)
            for _, packet in rows.manifests(tx).values():
                get_manifest(packet)
                self.packet(packet, packet[16:28])
            kseq = counter(tx, "kseq")
        assert kseq >= self.kseq, f"kseq {kseq} behind {self.kseq}"
        self.kseq = kseq

    def _record(self, packet: bytes) -> None:
        if packet in self.records:
            return
        self.records.add(packet)
        self.packet(packet, packet[102:114])
        for kid in (packet[14:22], packet[22:30]):
            assert kid not in self.kids, "a kid again"
            self.kids[kid] = packet


class World:
    """One site and its clients' devices. Each method is something that happens."""

    def __init__(self, site: MadeSite, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.site, self.folder = site, folder
        self.key, self.id = site.kg_key, site.config.site.id
        self.head = site.layout.config.read_text().partition("[labels]")[0]
        self.ms = START_MS
        self.labels: dict[str, list[str]] = {"l0": [], "l1": ["l0"], "l2": [], "l3": ["l1", "l2"]}
        self.clients: dict[str, dict[str, Any]] = {}
        self.devices: dict[str, Device] = {}
        self.thieves: list[tuple[Device, list[Roots], dict[Key, bool]]] = []
        self.backups: list[Path] = []
        self.again: list[Path] = []
        self.issued = Issued()
        self.steps: list[str] = []
        self.restores = self.made = self.reckoned = 0
        self.store: KgStore
        self.kg: Kg
        self._write()
        self.open()
        for label in self.labels:
            self.add_client(label)

    def clock(self) -> int:
        """Unix time in ms."""
        return self.ms

    def step(self) -> None:
        """Something happens, and is looked at."""
        name = self.random.choices(list(STEPS), list(STEPS.values()))[0]
        self.steps.append(name)
        self.ms += self.random.choice((35_000, 60_000, 95_000))
        getattr(self, name)()
        self.issued.store(self.store)

    # --- the key generator ------------------------------------------------------------------------

    def open(self) -> None:
        """Start."""
        self.store = KgStore.open(self.site.layout.kg_db, self.key, self.id, self.clock)
        self.kg = Kg(self.store, load(self.site.layout.config), clock=self.clock)
        self.issued.inst(self.kg.inst)
        self._reload()

    def restart(self) -> None:
        """Stop and start."""
        self.store.close()
        self.open()

    def hello(self) -> None:
        """A mediator takes an instance number."""
        self.issued.inst(self.kg.hello(1)[1])

    def wait(self) -> None:
        """Time goes by."""
        self.ms += self.random.randrange(3 * DAY_MS)

    def rekey(self) -> None:
        """The operator rekeys."""
        names = self.random.sample(sorted(self.labels), 1)
        self.kg.rekey(names, self.random.choice((0, 60)), self.random.random() < 0.5)

    # --- clients ----------------------------------------------------------------------------------

    def provision(self) -> None:
        """A client asks; its answer may be lost, and it may not come to prove it."""
        name = self.random.choice(sorted(self.devices))
        device = self.devices[name]
        self.ms += 2000  # no question of rate
        request = device.ask()
        done, _ = self.kg.answer(request, 1)
        self.issued.packet(done.packet, done.packet[2:14])
        if not self._is_in(name):
            assert done.status == provision.DISABLED
            return
        assert done.status == provision.OK
        if self.random.random() < 0.2:
            return
        device.accept(done.packet)
        if self.random.random() < 0.7:
            self.kg.confirm(device.ident.client, device.ident.gen)

    def lend(self) -> None:
        """A tool acts as a client."""
        name = self.random.choice(sorted(self.devices))
        if self._is_in(name):
            self.kg.lend(name)

    def add_client(self, label: str | None = None) -> None:
        """A new one."""
        self.made += 1
        name = f"c{self.made}"
        picked = label or self.random.choice(sorted(self.labels))
        self.clients[name] = {"label": picked, "disabled": False, "rotation": 0}
        self._reload()
        self._enrol(name)

    def disable(self) -> None:
        """One is out."""
        name = self.random.choice(sorted(self.clients))
        self._leaves(name)
        self.clients[name]["disabled"] = True
        self._reload()

    def enable(self) -> None:
        """One is in again."""
        name = self.random.choice(sorted(self.clients))
        self.clients[name]["disabled"] = False
        self._reload()

    def rotate(self) -> None:
        """One gets a new secret; the old one is a thief's."""
        name = self.random.choice(sorted(self.clients))
        self._leaves(name)
        self.clients[name]["rotation"] += 1
        self._reload()
        self._enrol(name)

    def remove(self) -> None:
        """One is taken out of sealmq.toml."""
        if len(self.clients) > 2:
            name = self.random.choice(sorted(self.clients))
            self._leaves(name)
            del self.clients[name], self.devices[name]
            self._reload()

    def relabel(self) -> None:
        """One gets another label."""
        name = self.random.choice(sorted(self.clients))
        label = self.random.choice(sorted(self.labels))
        if not load(self.site.layout.config).dominates(label, self.clients[name]["label"]):
            self._leaves(name)
        self.clients[name]["label"] = label
        self._reload()

    # --- the order --------------------------------------------------------------------------------

    def add_label(self) -> None:
        """A new one above some."""
        if len(self.labels) < 7:
            self.made += 1
            name = f"l{self.made + 3}"
            self.labels[name] = self.random.sample(sorted(self.labels), 2)
            self._reload()

    def cut_edge(self) -> None:
        """One label does not dominate another one directly any more."""
        name = self.random.choice(sorted(self.labels))
        if self.labels[name]:
            self.labels[name].remove(self.random.choice(self.labels[name]))
            self._reload()

    # --- losses -----------------------------------------------------------------------------------

    def backup(self) -> None:
        """While it runs."""
        path = self.folder / f"{len(self.backups)}.backup"
        now_s = self.clock() // 1000
        backup(self.site.layout, self.id, self.site.key_file, path, lambda: now_s)
        self.backups.append(path)

    def restore(self) -> None:
        """Of any backup; what was there may be whole, torn, or gone with its folder."""
        if not self.backups:
            return
        self.restores += 1
        self.ms += 600_000  # it takes an operator that long
        self.store.close()
        lost = self.random.choice(("nothing", "torn", "store", "folder"))
        # With nothing left, a restore of another backup in between is not seen.
        seen = [*self.backups[self.reckoned :], *self.again]
        if lost == "folder" and not seen:
            lost = "nothing"
        chosen = self.random.choice(seen if lost == "folder" else self.backups)
        self.again = [chosen] if lost == "folder" else []
        self.reckoned = len(self.backups)
        self.steps.append(f"({lost})")
        if lost == "torn":
            self.site.layout.kg_db.write_bytes(b"SQLite format 3\0" + bytes(5000))
        elif lost == "store":
            self.site.layout.kg_db.unlink()
        elif lost == "folder":
            shutil.rmtree(self.site.layout.kg_db.parent)
            self.site.layout.salt.unlink()
        layout = self.site.layout
        done = restore(layout, chosen, clock=self.clock)
        assert done.kseq > self.issued.kseq
        for name, rotation in done.drawn.items():
            self.clients[name]["rotation"] = rotation
            assert load(layout.config).clients[name].rotation == rotation
        self.open()
        for name in done.drawn:
            self._stolen(name)
            self._enrol(name)
        self.check_clients()

    # --- what has to hold -------------------------------------------------------------------------

    def check_clients(self) -> None:
        """Who is in gets in, with what it holds; whose secret is an old one does not."""
        for name, device in self.devices.items():
            self.ms += 2000
            done, _ = self.kg.answer(device.ask(), 1)
            assert (done.status == provision.OK) == self._is_in(name)
            if done.status == provision.OK:
                device.accept(done.packet)
        for device, _, _ in self.thieves:
            self.ms += 2000
            try:
                done, _ = self.kg.answer(device.ask(), 1)
            except (Unauthentic, Unknown):
                continue
            assert not self._is_in(device.ident.name) or self._same_secret(device)

    def check_keys(self) -> None:
        """Nobody reaches more than the order gives him, with all that was ever public."""
        config = load(self.site.layout.config)
        number = {row["name"]: row["number"] for row in self.kg.labels()}
        now = {row["name"]: row["epoch"] for row in self.kg.labels() if not row["removed"]}
        current = {(number[name], epoch) for name, epoch in now.items()}
        self.check_clients()
        for name, device in self.devices.items():
            if self._is_in(name):
                label = self.clients[name]["label"]
                reach = within_reach(self.id, [own(device)], self.issued.records) & current
                assert reach == {
                    (number[low], now[low]) for low in now if config.dominates(label, low)
                }
        for _, roots, before in self.thieves:
            reach = within_reach(self.id, roots, self.issued.records)
            assert reach <= before.keys(), "who left reaches what came later"

    def _is_in(self, name: str) -> bool:
        row = self.clients.get(name)
        return row is not None and not row["disabled"] and row["label"] != NONE

    def _same_secret(self, device: Device) -> bool:
        mine = self.devices.get(device.ident.name)
        return mine is not None and mine.ident.ps == device.ident.ps

    # What its device holds at that moment somebody keeps for ever.
    def _leaves(self, name: str) -> None:
        if self._is_in(name):
            self._stolen(name)

    def _stolen(self, name: str) -> None:
        device = self.devices.get(name)
        if device is None:
            return
        known = {key: True for kind, key in self.issued.seen if kind == "epoch"}
        roots = [own(device)] if device.ident.own else []
        self.thieves.append((deepcopy(device), roots, known))

    def _enrol(self, name: str) -> None:
        self.devices[name] = Device(self.kg.enrol(name))

    def _reload(self) -> None:
        self._write()
        self.kg.apply(load(self.site.layout.config))

    def _write(self) -> None:
        lines = [self.head, "[labels]"]
        lines += [f"{name} = {over!r}" for name, over in self.labels.items()]
        lines.append("[clients]")
        for name, row in self.clients.items():
            words = [f'label = "{row["label"]}"', f"rotation = {row['rotation']}"]
            words.append(f"disabled = {'true' if row['disabled'] else 'false'}")
            lines.append(f"{name} = {{ {', '.join(words)} }}")
        self.site.layout.config.write_text("\n".join(lines) + "\n")


STEPS = {
    "provision": 12, "lend": 1, "hello": 2, "restart": 1, "wait": 3, "rekey": 3, "add_client": 2,
    "disable": 3, "enable": 2, "rotate": 2, "remove": 1, "relabel": 2, "add_label": 1,
    "cut_edge": 2, "backup": 3, "restore": 3,
}  # fmt: skip
