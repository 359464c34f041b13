"""`python -m sealmq.bridge.process SITE`: a site's bridge to its peers, started by `sealmq up`.

It has no key that opens a message, and no key of a label: those pass from key generator to key
generator, sealed for the other one. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sealmq import feedback, peerkeys
from sealmq.audit import Audit
from sealmq.client import ClientError, Options
from sealmq.client.errors import NotAuthorised, Refused
from sealmq.client.values import Message as Delivered
from sealmq.client.values import News
from sealmq.families.between import Judge
from sealmq.families.between import Neighbour as Known
from sealmq.families.signatures import sign
from sealmq.kglink import Crossings, KgClient, KgError, KgUnavailable
from sealmq.loops import first_error
from sealmq.run.errors import BadHandOver
from sealmq.site.config import load, loads
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout
from sealmq.site.model import Peer
from sealmq_spec.errors import Malformed, SealError, Unavailable

from . import far, judging, serving
from .asking import Asking
from .crossing import Crossing
from .far import Relay
from .line import Line, LineLost, Own
from .neighbour import Neighbour, keys_budget
from .passing import Passing
from .serving import Changed, Publishing, Since, Work, forever, mediator_at, opened, write_told
from .spool import Message, Spool, Told
from .told import ROLE
from .traffic import Import, Over, Traffic, now_ms

log = logging.getLogger("sealmq.bridge")

_TICK_S = 1.0
# What this site's own policy keeps closed is tried again, at first and at most after so long.
_CLOSED_S = 1.0, 15.0
# Messages that the own broker has not taken: the most that a client may have.
_INFLIGHT = 60
# The mediator may not have heard yet of keys that have come.
_KEYS_S = 10.0
# Keys for a site that is no neighbour are sent again: until they are taken, and then now and then.
_FAR_S = 1.0, 15.0
_FAR_TAKEN_S = 600.0
# What the judge keeps is written so often.
_KEEP_S = 5.0


class _Far:
    """A peer that is no neighbour. number: of the keys that were sent last; due: when next. asks:
    labels are imported of it, and none of its keys have come in this run.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer, self.asks = peer, bool(peer.imports)
        self.to = bytes.fromhex(peer.fingerprint)
        self.number, self.due, self.wait, self.said = 0, 0.0, _FAR_S[0], "asking who it is"
        self.reads = keys_budget()

    def again(self) -> None:
        """Keys are due now."""
        self.due, self.wait = 0.0, _FAR_S[0]


class Bridge:
    """One run with what crosses now; begun anew when that changes."""

    def __init__(
        self,
        layout: Layout,
        crossings: Crossings,
        own: Own,
        kg: KgClient,
        audit: Audit,
        since: Since | None = None,
    ) -> None:
        self._layout, self._crossings, self.own = layout, crossings, own
        self._kg, self._audit, self._since = kg, audit, since or Since()
        shown = peerkeys.read(own.der)
        self._config = loads(crossings.text)
        peers = crossings.peers.values()
        self._neighbours = {one.name: Neighbour(self, one) for one in peers if not one.far}
        self._far = {one.name: _Far(one) for one in peers if one.far}
        self._said = dict.fromkeys(self._neighbours, "beginning")
        self._in: dict[Import, Passing] = {}
        self._ways: dict[Import, Publishing] = {}
        self._out: dict[Import, Passing] = {}
        # What this site's own policy does not let go to a peer, and why; when it is tried again.
        self._closed: dict[Import, str] = {}
        # Labels that are imported here, and not exported there.
        self._lacks: dict[str, list[str]] = {}
        # By peer: this site's clients for it that are disabled.
        self._disabled: dict[str, list[str]] = {}
        self._again, self._wait = 0.0, _CLOSED_S[0]
        # Its name is the one that its neighbours know it by.
        self.judge: Judge = judging.of(
            self._config.policy.order, shown.name, shown.public,
            lambda text: sign(own.key, text), self._event,
        )  # fmt: skip
        self.spool = Spool(
            layout.state_of(ROLE) / "spool.db", self._lost, keeps=self.judge.changes,
            soon=self._soon,
        )  # fmt: skip
        self._ended = False
        # Of what it does while it runs.
        self._group: asyncio.TaskGroup | None = None
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._site = shown.site
        self.traffic = Traffic(
            shown.site, self.spool, self.judge, self._deliver, self._audit.write, self._news
        )
        self._relay = Relay(bytes.fromhex(shown.fingerprint), self._passes)
        self._number = int(now_ms())
        self._asking = Asking(layout, lambda op, said: self.judge.ask(op, said, now_ms()))
        self._written = ""

    # --- life ---

    async def run(self) -> None:
        """Until cancelled. Changed, or KgError when the key generator is gone."""
        try:
            self._begin()
            await self._clients()
            async with asyncio.TaskGroup() as group:
                self._group = group
                for name, work in (
                    ("keys", self._keys()),
                    ("tick", self._tick()),
                    ("asked", self._asking.serve()),
                    ("spool", self._spooling()),
                    *((name, one.run()) for name, one in self._neighbours.items()),
                ):
                    group.create_task(work, name=f"bridge: {name}")
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self._group = None
            with contextlib.suppress(sqlite3.Error):
                self.spool.write()  # and is acknowledged
            for client in (*self._out.values(), *self._in.values()):
                with contextlib.suppress(ClientError, SealError):
                    await client.disconnect()
            self._ended = True
            self.spool.close()

    def _soon(self, seconds: float, work: Told) -> None:
        def works() -> None:
            try:
                if not self._ended:
                    work()
            except sqlite3.Error as error:
                if not self._broken.done():
                    self._broken.set_exception(error)

        asyncio.get_running_loop().call_later(seconds, works)

    async def _spooling(self) -> None:
        """sqlite3.Error: what could not be written has not been acknowledged, and comes again."""
        await self._broken

    def _begin(self) -> None:
        exported: dict[str, frozenset[str]] = {}
        for row in self._crossings.clients:
            if row["disabled"]:
                self._disabled.setdefault(row["peer"], []).append(row["enrolment"]["name"])
                continue
            if row["out"]:
                held = exported.get(row["label"], frozenset())
                exported[row["label"]] = held | {row["peer"]}
            elif row["there"]:
                site, where = bytes.fromhex(row["site"]), Import(row["peer"], row["label"])
                self.traffic.imports[(site, int(row["there"]))] = where
            else:
                self.traffic.awaited.add(row["peer"])
        self.traffic.neighbours = frozenset(self._neighbours)
        self.traffic.exported = exported
        self.traffic.names = self._crossings.names
        self._configure()
        self.judge.restore(self.spool.judged(), now_ms())
        self.spool.keep_only(self._neighbours)

    def _configure(self) -> None:
        """The judge knows of peers what their certificates say."""
        public: dict[str, bytes] = {}
        for name, der in self.spool.certificates().items():
            peer = self._crossings.peers.get(name)
            shown = peerkeys.read(der)
            if peer is None or shown.fingerprint != peer.fingerprint:
                continue
            if self.judge.relays and shown.name != name:
                continue
            public[name] = shown.public
            # Of two that say one id, which no later SealMQ keeps, the one counts that came first.
            if shown.site not in self.traffic.sites.values() or name in self.traffic.sites:
                self.traffic.sites[name] = shown.site
        neighbours = {}
        for name in public.keys() & self._neighbours.keys():
            peer = self._crossings.peers[name]
            give = peer.give if peer.give is not None else ("#",) if peer.exports else ()
            neighbours[name] = Known(public[name], give)
        behind = {name: public[name] for name in public.keys() & self._far.keys()}
        self.judge.configure(self._config, neighbours, behind, now_ms())

    def _known(self, name: str, der: bytes) -> None:
        """A peer has shown its certificate. LineLost: it is none, or it cannot be called so."""
        try:
            shown = peerkeys.read(der)
        except peerkeys.BadPeer as error:
            raise LineLost(str(error)) from None
        if self.judge.relays and shown.name != name:
            raise LineLost(
                f"it calls itself {shown.name}, and other sites do: sealmq peer add {shown.name}"
            )
        # Whose a message is, is said by the site's id.
        if shown.site == self._site:
            raise LineLost("its certificate says this site's own id")
        for other, site in self.traffic.sites.items():
            if site == shown.site and other != name:
                raise LineLost(
                    f"its certificate says the id of {other}'s site, which came first: one of them "
                    "lies, or is a copy (sealmq peer remove)"
                )
        if self.spool.certificates().get(name) != der:
            self.spool.put_certificate(name, der)
            self._configure()

    async def _clients(self) -> None:
        address = mediator_at(self._layout)
        for row in self._crossings.clients:
            label, enrolment = row["label"], row["enrolment"]
            which = Import(row["peer"], label)
            if row["disabled"]:
                continue
            if not row["out"]:
                heard = self._heard(which.here)
                client = self._in[which] = Passing.of(
                    enrolment, address, Options(inflight=_INFLIGHT), None, heard
                )
                await client.connect()
                self._ways[which] = Publishing(client, self._later, _KEYS_S)
                continue
            # One for each peer: families may let one have what another may not.
            take = partial(self._take, label, int(row["number"]), row["peer"])
            options = Options(client_id="bridge", clean=False, settle=True)
            client = self._out[which] = Passing.of(enrolment, address, options, take)
            try:
                await client.connect()
            except NotAuthorised:
                # Its broker keeps no sessions: what comes while the bridge is away is lost.
                options = Options(settle=True)
                client = self._out[which] = Passing.of(enrolment, address, options, take)
                await client.connect()
                log.warning("%s: the broker keeps no session for it", label)
            await self._subscribe(which)

    async def _subscribe(self, which: Import) -> None:
        """A label that this site's policy keeps closed stops nothing else."""
        try:
            await self._out[which].subscribe("#", qos=1)
        except Refused as error:
            if isinstance(error, Unavailable):
                raise
            if which not in self._closed:
                log.warning("%s does not go to %s: %s", which.label, which.peer, error)
            self._closed[which] = str(error)
        else:
            self._closed.pop(which, None)

    async def _open_closed(self) -> None:
        if not self._closed or time.monotonic() < self._again:
            return
        for which in list(self._closed):
            await self._subscribe(which)
        self._again = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, _CLOSED_S[1])

    # The mediator has judged it (GATEWAY.md G11), and tells it to this label's client.
    def _heard(self, label: str) -> Callable[[News], None]:
        def heard(news: News) -> None:
            if news.family != feedback.NAME:
                return
            try:
                self.judge.vote(label, feedback.read_told(news.said), now_ms())
            except Malformed as error:
                log.warning("feedback: %s", error)

        return heard

    # --- messages ---

    def _lost(self, neighbour: str, one: Message, why: str) -> None:
        self.traffic.lost(neighbour, one, why)

    def _take(
        self, label: str, number: int, peer: str, client: Passing, messages: list[Delivered]
    ) -> None:
        own, kept = self.traffic.own, not client.options.clean
        to: set[str] = set()
        for message in messages:
            topic, m1, _, _, _, _, qos, *_ = message
            safe = partial(client.settle, message)
            to.update(own(label, number, topic, qos, m1, peer, safe, kept and qos > 0))
        self._news(to)

    def _news(self, to: Iterable[str]) -> None:
        for name in to:
            if name in self._neighbours:
                self._neighbours[name].news.set()

    def _deliver(self, where: Import, one: Crossing, over: Over) -> None:
        """SealError: it will never be taken. What may heal is waited for."""
        way = self._ways.get(where)
        if way is None:
            over(Unavailable("its label does not come here any more"))
            return
        way.put(f"@{where.peer}/{one.topic}", one.m1, one.flags & 1 == 1, over)

    def _later(self, work: Work) -> None:
        # Who ends has its clients tell, too: what has not been answered is brought again.
        if self._group is None:
            work.close()
        else:
            self._group.create_task(work, name="bridge: message")

    # --- keys ---

    async def keys_for(self, name: str, der: bytes) -> bytes:
        """What a neighbour's key generator is to have."""
        return await self._kg.peer_give(name, der)

    async def keys_of(self, name: str, der: bytes, packet: bytes) -> None:
        """A peer's key generator has given these. KgDenied, KgBad."""
        numbers = await self._kg.peer_take(name, der, packet)
        site = peerkeys.read(der).site
        imports = self.traffic.imports
        for which in [one for one, where in imports.items() if where.peer == name]:
            del imports[which]
        wanted = {where.label for where in self._in if where.peer == name}
        self._lacks[name] = sorted(wanted - numbers.keys())
        for label, number in numbers.items():
            if Import(name, label) in self._in:
                imports[(site, number)] = Import(name, label)
        self.traffic.awaited.came(name)

    async def _keys(self) -> None:
        """Gives peers new keys as they are made, and notices when other labels cross. `client
        enable` changes the keys alone: neither sealmq.toml nor a session of ours.
        """
        held, policy = self._crossings.kseq, self._crossings.policy
        async for kseq, now in self._kg.peer_watch():
            if (kseq, now) != (held, policy):
                policy = now
                await self._reread()
            if kseq != held:
                held = kseq
                for one in self._neighbours.values():
                    with contextlib.suppress(LineLost):  # which it has ended
                        await one.give()
                for behind in self._far.values():
                    behind.again()
                    await self._send_far(behind)

    async def _reread(self) -> None:
        found = await self._kg.peer_enrol()
        config = loads(found.text)
        same = (config.policy.order, found.peers, _who(found)) == (
            self._config.policy.order, self._crossings.peers, _who(self._crossings),
        )  # fmt: skip
        if not same:
            raise Changed
        self.traffic.names = found.names
        self._config = config
        self._configure()
        self._news(self._neighbours)
        self._again, self._wait = 0.0, _CLOSED_S[0]

    # --- keys for sites that are no neighbours ---

    async def far_keys(self, label: str) -> None:
        """A message under this label is about to leave: whoever imports it needs its keys."""
        for one in self._far.values():
            if label in one.peer.exports:
                await self._send_far(one)

    async def _send_far(self, one: _Far, answers: bool = False) -> None:
        """Send our keys if its certificate is known, and ask for its keys until they have come.
        answers: it has just asked. It is not asked back, or two sites would go on for ever.
        """
        if not self.judge.relays:
            one.said = "no policy family of this site judges between sites"
            one.due = time.monotonic() + _FAR_S[1]
            return
        der = self.spool.certificates().get(one.peer.name)
        if der is None or peerkeys.read(der).fingerprint != one.peer.fingerprint:
            self._tell(one, far.HELLO)
        else:
            try:
                packet = await self._kg.peer_give(one.peer.name, der)
            except KgUnavailable:
                raise
            except KgError as error:  # of this peer: the others' lines go on
                one.said = str(error)
            else:
                one.number = self._tell(one, far.KEYS, packet)
                if one.asks and not answers:
                    self._tell(one, far.HELLO)
        one.due = time.monotonic() + one.wait
        one.wait = min(2 * one.wait, _FAR_S[1])

    def _tell(self, one: _Far, what: int, body: bytes = b"") -> int:
        """Send it a packet, by way of all neighbours. Returns the packet's number."""
        self._number += 1
        self._spread(far.pack(self.own, one.to, self._number, what, body))
        return self._number

    def _spread(self, raw: bytes, but: str = "") -> None:
        for name, neighbour in self._neighbours.items():
            if name != but:
                neighbour.pass_on(raw)

    def _passes(self, site: str, public: bytes) -> bool:
        return self.judge.relays and self.judge.knows(site, public)

    async def far(self, neighbour: str, raw: bytes) -> None:
        """A neighbour brings a packet. SealError."""
        packet, onward = self._relay.take(raw)
        if onward:
            self._spread(onward, neighbour)
        if packet is None:
            return
        shown = packet.shown
        peers = self._far.values()
        one = next((one for one in peers if one.peer.fingerprint == shown.fingerprint), None)
        if one is None:
            log.info("a packet of %s, which is no peer here", shown.name)
            return
        try:
            self._known(one.peer.name, shown.der)
        except LineLost as error:
            one.said = str(error)
            return
        if packet.what == far.HELLO:
            one.again()
            await self._send_far(one, answers=True)
        elif packet.what == far.KEYS:
            if one.reads.take(0, time.monotonic()):
                return  # it sends them again
            try:
                await self.keys_of(one.peer.name, shown.der, packet.body)
            except KgError as error:
                one.said = str(error)
                return
            one.asks = False
            self._tell(one, far.TAKEN, packet.number.to_bytes(8, "big"))
        elif packet.what == far.TAKEN and int.from_bytes(packet.body[:8], "big") == one.number:
            one.said = "its keys are there"
            if not one.asks:
                one.due = time.monotonic() + _FAR_TAKEN_S

    # --- what it tells ---

    def joined(self, name: str, line: Line) -> None:
        """LineLost."""
        self._known(name, line.peer)
        self.judge.joined(name, now_ms())
        self.traffic.up.add(name)
        self._audit.write("bridge-up", peer=name)
        self.say(name, "up")
        for one in self._far.values():
            if one.number == 0 or one.due:
                one.due = min(one.due, time.monotonic() + _FAR_S[0])

    def lost(self, name: str, why: str) -> None:
        """Its line has ended: what was on its way there is kept on disk."""
        self.traffic.up.discard(name)
        self.spool.plan()
        self._audit.write("bridge-down", peer=name, reason=why)
        self.say(name, why)

    def say(self, name: str, line: str) -> None:
        """Of a neighbour's line."""
        if line != self._said.get(name):
            self._said[name] = line
            log.info("%s: %s", name, line)
        self._write()

    def _event(self, event: str, **fields: Any) -> None:
        self._audit.write(event, **fields)

    async def _tick(self) -> None:
        kept = time.monotonic()
        while True:
            self.judge.tick(now_ms())
            self._news(self._neighbours)
            for behind in self._far.values():
                if time.monotonic() >= behind.due:
                    await self._send_far(behind)
            await self._open_closed()
            for client in (*self._out.values(), *self._in.values()):
                if client.error is not None:
                    raise client.error
            if time.monotonic() - kept > _KEEP_S:
                kept = time.monotonic()
                self.spool.put_judged(self.judge.changes())
            self._write()
            await asyncio.sleep(_TICK_S)

    def _write(self) -> None:
        said = {**self._said, **{name: one.said for name, one in self._far.items()}}
        for which, why in self._closed.items():
            said[which.peer] += f"; {which.label} does not go there: {why}"
        for name, labels in self._lacks.items():
            if labels:
                said[name] += f"; it does not export {', '.join(labels)}"
        for name, clients in self._disabled.items():
            said[name] += f"; disabled here: {', '.join(clients)}"
        lines: dict[str, dict[str, Any]] = {
            name: {
                "line": line,
                "waiting": self.spool.count(name),
                "dropped": dict(self.traffic.dropped.get(name, {})),
            }
            for name, line in said.items()
        }
        for name, line in self._said.items():
            lines[name]["since_ms"] = self._since.of(name, line == "up")
        text = json.dumps(lines)
        if text != self._written and write_told(self._layout, ROLE, lines):
            self._written = text


def _who(of: Crossings) -> list[tuple[Any, ...]]:
    return [
        (r["peer"], r["label"], r["out"], r["number"], r["disabled"], r["enrolment"])
        for r in of.clients
    ]


async def _serve(layout: Layout, secrets: dict[str, object]) -> None:
    key, der = _handed(secrets)
    own = Own(der, key)
    audit, since = opened(layout, ROLE, ROLE, secrets), Since()

    async def once() -> None:
        async with await KgClient.connect(layout.kg_socket) as kg:
            await Bridge(layout, await kg.peer_enrol(), own, kg, audit, since).run()

    def fails(why: str) -> None:
        write_told(
            layout,
            ROLE,
            {
                peer.name: {"line": why}
                | ({} if peer.far else {"since_ms": since.of(peer.name, False)})
                for peer in _peers(layout)
            },
        )

    await forever(layout, ROLE, audit, once, fails)


def _peers(layout: Layout) -> list[Peer]:
    with contextlib.suppress(SiteError, OSError):
        return list(load(layout.config).peers.values())
    return []


def main(arguments: list[str] | None = None) -> int:
    """As `serving.main`."""
    return serving.main(ROLE, arguments, _serve)


def _handed(secrets: dict[str, object]) -> tuple[bytes, bytes]:
    try:
        key, der = (str(secrets[word]) for word in ("line", "certificate"))
        return bytes.fromhex(key), bytes.fromhex(der)
    except (KeyError, ValueError):
        raise BadHandOver("the hand-over holds no line key") from None


if __name__ == "__main__":
    sys.exit(main())
