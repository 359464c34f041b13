"""Bridges of sites joined in memory: what one sends the next gets at once. Judges and spools are
real; what is delivered is noted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sealmq.bridge import crossing
from sealmq.bridge.crossing import Crossing
from sealmq.bridge.spool import Spool, Waiting
from sealmq.bridge.traffic import Handed, Import, Over, Traffic
from sealmq.families import signatures
from sealmq.families.between import Judge, Neighbour
from sealmq.families.trust.between import Between
from sealmq.site.check import parse

BOILER, LABEL = 5, 16
GIVE = ("boiler/#", *(f"@b{n}/#" for n in range(1, 10)))


def site_of(name: str) -> bytes:
    return name.encode().ljust(4, b"\1")


def private(name: str) -> bytes:
    return name.encode().ljust(32, b"\1")


def public(name: str) -> bytes:
    return signatures.public_of(private(name))


def m1(ctr: int = 3, sender: int = BOILER, kind: int = 0) -> bytes:
    head = bytes((0x11, 16 + kind)) + (7).to_bytes(3, "big") + sender.to_bytes(3, "big")
    head += (9).to_bytes(3, "big") + b"saltsalt" + ctr.to_bytes(3, "big")
    return head + (1_800_000_000).to_bytes(4, "big") + b"\0" + bytes(16)


def policy(name: str, more: str = "") -> Any:
    text = f'[site]\nname = "{name}"\nid = "{site_of(name).hex()}"\n'
    text += '[policy]\norder = ["labels", "trust"]\n[labels]\nheat = []\n'
    text += '[clients]\nboiler = { label = "heat" }\nthief = { label = "heat" }\n'
    text += f"[families.trust]\n{more}\n"
    if name == "b1":
        text += '[families.trust.tokens.boiler]\npublish = ["boiler/#"]\n'
    return parse(text)


class Site:
    """One bridge. `errors` are raised by its broker first, one a message."""

    def __init__(self, name: str, folder: Path, judge: Judge | None = None, more: str = "") -> None:
        self.name, self.more = name, more
        self.said: list[dict[str, Any]] = []
        self.delivered: list[tuple[str, bytes, int]] = []
        self.errors: list[Exception] = []
        self.spool = Spool(
            folder / f"{name}.db", lambda who, one, why: self.traffic.lost(who, one, why),
            keeps=lambda: self.judge.changes(),
        )  # fmt: skip
        self.judge = judge or Between(
            name, public(name), lambda text: signatures.sign(private(name), text), self.event
        )
        self.traffic = Traffic(
            site_of(name), self.spool, self.judge, self._deliver, self.event, lambda to: None
        )
        self.traffic.names = {BOILER: "boiler", 6: "thief"}
        self.handed: dict[str, Handed] = {}

    def event(self, event: str, **fields: Any) -> None:
        self.said.append({"event": event, **fields})

    def _deliver(self, where: Import, one: Crossing, over: Over) -> None:
        asyncio.get_running_loop().call_soon(self._delivers, where, one, over)

    def _delivers(self, where: Import, one: Crossing, over: Over) -> None:
        if self.errors:
            over(self.errors.pop(0))
        else:
            self.delivered.append((f"@{where.peer}/{one.topic}", one.m1, one.flags))
            over(None)

    def named(self) -> list[str]:
        return [row["reason"] for row in self.said if row["event"] == "bridge-dropped"]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.said if row["event"] == name]

    def take(self, by: str, *some: Crossing) -> list[tuple[int, str]]:
        async def all_at_once() -> list[tuple[int, str]]:
            handed = self.handed.setdefault(by, Handed())
            loop = asyncio.get_running_loop()
            answers: list[asyncio.Future[tuple[int, str]]] = [loop.create_future() for _ in some]
            for one, answered in zip(some, answers, strict=True):

                def answer(code: int, why: str, to: Any = answered) -> None:
                    to.set_result((code, why))

                self.traffic.take(by, handed, one, answer)
            return await asyncio.gather(*answers)

        answers = asyncio.run(all_at_once())
        self.spool.write()
        return answers


class World:
    """Sites that know each other's keys, with b1's label imported at `last`."""

    def __init__(
        self, folder: Path, links: Sequence[tuple[str, str]], last: str, more: str = "",
        give: Mapping[tuple[str, str], Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        self.links = [*links, *((b, a) for a, b in links)]
        names = sorted({end for link in links for end in link})
        self.sites = {name: Site(name, folder, more=more) for name in names}
        for name, site in self.sites.items():
            near = {b for a, b in self.links if a == name}
            given = {b: (give or {}).get((name, b), GIVE) for b in near}
            known = {b: Neighbour(public(b), given[b]) for b in near}
            far = {x: public(x) for x in ("b1", last) if x != name and x not in near}
            far = far if name in ("b1", last) else {}
            site.judge.configure(policy(name, more), known, far, now())
            site.judge.restore((), now())
            site.traffic.neighbours = frozenset(near)
            site.traffic.sites = {b: site_of(b) for b in {*near, *far}}
        self.last = last
        self.sites["b1"].traffic.exported = {"heat": frozenset({last})}
        self.sites[last].traffic.imports[site_of("b1"), LABEL] = Import("b1", "heat")
        for a, b in self.links:
            self.sites[a].judge.joined(b, now())
        for _ in range(3):
            for site in self.sites.values():
                site.judge.tick(now())
            self.records()

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    def records(self) -> None:
        """All that judges tell each other."""
        for _ in range(50):
            told = [(a, b, r) for a, b in self.links for r in self[a].judge.pending(b)]
            if not told:
                return
            for a, b, record in told:
                self[b].judge.receive(a, record, now())
        raise AssertionError("it goes in circles")

    def publish(self, ctr: int = 3, topic: str = "boiler/1", sender: int = BOILER) -> None:
        self.leave(ctr, topic, sender)
        self.flow()

    def leave(self, ctr: int = 3, topic: str = "boiler/1", sender: int = BOILER) -> None:
        """b1's client has published; nothing has gone yet."""
        b1 = self["b1"]
        b1.traffic.own("heat", LABEL, topic, 1, m1(ctr, sender), self.last, lambda: None)
        b1.spool.write()

    def flow(self, cut: Sequence[tuple[str, str]] = ()) -> None:
        """All that waits goes, over all lines but those that are cut."""
        for _ in range(50):
            moved = [self._one(a, b) for a, b in self.links if {(a, b), (b, a)}.isdisjoint(cut)]
            if not any(moved):
                return
        raise AssertionError("it goes in circles")

    def _one(self, a: str, b: str) -> bool:
        some = self[a].spool.after(b, 0, 1000)
        for waiting in some:
            if not self[a].traffic.still_goes(b, waiting.message):
                self[a].spool.done(b, waiting)
                continue
            self.records()
            [(code, why)] = self[b].take(a, crossing_of(waiting))
            self[a].spool.done(b, waiting)
            if code != crossing.OK:
                self[a].traffic.lost(b, waiting.message, f"{b}: {why}")
        self[a].spool.write()
        return bool(some)

    def token(self, client: str = "boiler") -> bytes:
        shown = self["b1"].judge.ask("show", {}, now())["tokens"]
        [found] = [row["id"] for row in shown if row["client"] == client]
        return bytes.fromhex(found)


def crossing_of(waiting: Waiting) -> Crossing:
    one = waiting.message
    return Crossing(
        waiting.seq, one.flags, one.hops, one.site, one.number, one.token, one.topic, one.m1
    )


def now() -> int:
    return time.time_ns() // 1_000_000
