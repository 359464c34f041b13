"""The scripted peer with one thing more: a subscription to "N/SIZE" gets N messages of SIZE bytes.

"N/SIZE/new" makes each of them come from a sender and through a mediator that the client has not
heard of, so that it holds no key for it: at most 60, or the client gives up windows. As with
mqtt_server.py each message is sent when the one before has been read.
"""

from __future__ import annotations

import os
from contextlib import closing

from mqtt_server import TOPIC, Reading, payload, wanted
from peer import Peer
from peer_connection import Connection
from peer_site import make
from sealmq_spec import const
from sealmq_spec.envelope import nonce_m1, put_m1, tail_m1
from sealmq_spec.keys import inner_key

_SENDER = 1000


class BenchPeer(Peer):
    """A Peer that sends what a subscription's name asks for."""

    def _subscribe(self, c: Connection, kind: int, body: bytes) -> None:
        super()._subscribe(c, kind, body)
        # Not the last event: another connection's end may come between.
        filt = self.said("subscribe")[-1][0]
        asked = wanted(filt)
        if asked is None:
            return
        with closing(Reading(c.sock)) as reading:
            self._send(c, reading, *asked)

    def _send(self, c: Connection, reading: Reading, count: int, size: int, how: str) -> None:
        inst = self.site.inst
        salt = os.urandom(8)
        for n in range(1, count + 1):
            ctr = n
            if how == "new":
                salt, ctr = os.urandom(8), 1
                self.site.inst += 1
            reading.wait()
            m1 = self._m1(_SENDER + (n if how == "new" else 0), salt, ctr, payload(n, size))
            c.publish(TOPIC, c.m3(TOPIC, m1, self.site.own))
        self.site.inst = inst

    def _m1(self, sender: int, salt: bytes, ctr: int, plain: bytes) -> bytes:
        """A message of another client at the same label."""
        s, own = self.site, self.site.own
        buf = bytearray(27 + len(plain) + 16)
        now = s.now_ms() // 1000
        put_m1(buf, 0, own.suite, const.LIVE, own.epoch, sender, 1, salt, ctr, now, 0)
        buf[27 : 27 + len(plain)] = plain
        key = inner_key(s.id, own.suite, sender, 1, salt, own.r_bar)
        aad = bytes(buf[:27]) + tail_m1(s.id, own.label, TOPIC)
        make(own.suite, key).seal_into(nonce_m1(buf, 0), aad, buf, 27, len(plain))
        return bytes(buf)
