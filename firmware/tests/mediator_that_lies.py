"""A mediator that holds every link root and says what it likes, to make a device seal twice under
one nonce: false welcomes, old packets and answers again, messages refused or lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mqtt_frames import ConnectionClosed
from peer import Peer
from peer_connection import Connection
from peer_site import Site, make
from sealmq_spec import const, control, provision
from sealmq_spec.tlv import pack

U24 = const.U24
STALE, EPOCH = 3, 6  # notice classes (SPEC.md 4.4)


def same_gen(site: Site, packet: bytes) -> bytes:
    """A key generator's answer while a gen is pending: that one, with its link root."""
    if not site.gen:
        return site.answer(packet)
    suite, client, _, _, nonce = provision.get_ask(packet)
    o = site.own
    plain = provision.body(
        site.gen, o.label, o.epoch, o.suite, site.suite, site.mediator, site.kseq,
        site.now_ms(), o.r, o.r_bar, site.km[site.gen], b"\x00",
    )  # fmt: skip
    order = site.order()
    return provision.answer(
        make, site.id, site.ps, suite, provision.OK, client, nonce, order, plain
    )


class Liar:
    """Hooks of the scripted peer; `chance` draws what is said."""

    def __init__(self, peer: Peer, chance: random.Random) -> None:
        self.peer = peer
        self.chance = chance
        self.old: list[bytes] = []  # packets down, as they were sent
        self.answers: list[bytes] = []
        self.told: dict[str, int] = {}
        peer.on_welcome = self._welcome
        peer.on_publish = self._publish
        peer.on_ask = self._ask
        peer.on_ping = self._ping

    def honest(self) -> None:
        """From now on."""
        peer = self.peer
        peer.on_welcome = peer.on_publish = peer.on_ask = peer.on_ping = None

    def _count(self, lie: Any) -> None:
        self.told[lie.__name__] = self.told.get(lie.__name__, 0) + 1

    def _down(self, c: Connection, body: bytes) -> None:
        packet = c.down(body)
        self.old.append(packet)
        c.publish(const.CONTROL, packet)

    def _body(self, c: Connection, status: int, want: bool, **lies: int) -> bytes:
        s, w = c.site, self.peer.window
        at: dict[str, int] = {
            "ms": s.now_ms(), "floor": c.boot, "top": w.top, "mask": w.mask,
            "epoch": s.own.epoch, "kseq": s.kseq, **lies,
        }  # fmt: skip
        items = c.kg_time(provision.time_nonce(c.salt, c.boot, c.conn)) if want else []
        return control.welcome(
            status,
            at["ms"],
            at["floor"],
            at["top"],
            at["mask"],
            at["epoch"],
            at["kseq"],
            pack(items),
        )

    # --- welcomes ---

    def _welcome(self, c: Connection, want: bool) -> bool:
        lies: list[Callable[[Connection, bool], None]] = [
            self.true, self.true, self.true, self.behind, self.behind, self.again, self.false_time,
            self.false_window, self.false_epoch, self.twice, self.forgets,
        ]  # fmt: skip
        lie = self.chance.choice(lies)
        self._count(lie)
        lie(c, want)
        return True

    def true(self, c: Connection, want: bool) -> None:
        self._down(c, self._body(c, const.READY, want))

    def behind(self, c: Connection, want: bool) -> None:
        """Boot counters that were, that are, and the last ones."""
        floors = (0, 1, max(c.boot - 1, 0), c.boot, min(c.boot + 3, U24), U24 - 1, U24)
        self._down(c, self._body(c, const.BEHIND, want, floor=self.chance.choice(floors)))

    def again(self, c: Connection, want: bool) -> None:
        """A packet of before, in place of the welcome or in front of it."""
        for packet in self.chance.sample(self.old, min(len(self.old), 2)):
            c.publish(const.CONTROL, packet)
        self.true(c, want)

    def false_time(self, c: Connection, want: bool) -> None:
        ms = self.chance.choice(
            (0, 1, c.site.now_ms() - 10**9, c.site.now_ms() + 10**9, 4 * 10**12)
        )
        self._down(c, self._body(c, const.READY, want, ms=ms))

    def false_window(self, c: Connection, want: bool) -> None:
        top = self.chance.choice((0, 1, 5000, U24))
        self._down(c, self._body(c, const.READY, want, top=top, mask=2**64 - 1))

    def false_epoch(self, c: Connection, want: bool) -> None:
        epoch = c.site.own.epoch + self.chance.choice((-1, 1, 5))
        self._down(c, self._body(c, const.READY, want, epoch=max(epoch, 0), kseq=0))

    def twice(self, c: Connection, want: bool) -> None:
        self.true(c, want)
        self.true(c, False)

    def forgets(self, c: Connection, want: bool) -> None:
        """All that it knew of boot sessions, its windows too."""
        self.peer.highest = (0, 0, 0)
        self.peer.window.__init__()  # type: ignore[misc]
        self.true(c, want)

    # --- the rest ---

    def _publish(self, c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        draw = self.chance.random()
        if draw < 0.1:
            raise ConnectionClosed("a message is lost")
        if draw < 0.3:
            code = STALE if draw < 0.15 else EPOCH
            if code == EPOCH and draw < 0.2:
                c.site.new_epoch()
            self._down(c, control.notice(1, ctr, code, "lie", ""))
            if qos:
                c.send(0x40, c.publish_pid)
            return True
        return False

    def _ask(self, c: Connection, packet: bytes) -> bool:
        for old in self.answers[-2:]:
            c.publish(const.CONTROL, old)
        made = same_gen if self.chance.random() < 0.5 else Site.answer
        answer = made(c.site, packet)
        self.answers.append(answer)
        c.publish(const.CONTROL, answer)
        return True

    def _ping(self, c: Connection) -> bool:
        for packet in self.old[-2:]:
            c.publish(const.CONTROL, packet)
        c.send(0xD0, b"")
        return True
