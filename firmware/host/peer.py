"""A scripted mediator and key generator for one client, on 127.0.0.1, for tests and measurements.

It follows SPEC.md from the other side with the portable package and `cryptography`, so a client
that talks to it talks to the protocol. What a test wants to go wrong is an attribute or a hook.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import unquote

from mqtt_frames import ConnectionClosed
from peer_connection import Connection
from peer_site import Site
from sealmq_spec import const, control, provision
from sealmq_spec.topics import matches, split_token
from sealmq_spec.window import Window


class Peer:
    """Listens and plays mediator. `events` is what happened, in order."""

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()
        self.events: list[tuple[Any, ...]] = []
        self.highest = (0, 0, 0)
        self.window = Window()
        self.present = 0
        self.gives_kg_time = True
        self.denied: dict[str, tuple[int, str, str]] = {}
        # Hooks that return True when they did all there was to do.
        self.on_connect: Callable[[Connection], bool] | None = None
        self.on_welcome: Callable[[Connection, bool], bool] | None = None
        self.on_publish: Callable[[Connection, str, bytes, int, int], bool] | None = None
        self.on_subscribe: Callable[[Connection, str, int], bool] | None = None
        self.on_ping: Callable[[Connection], bool] | None = None
        self.on_command: Callable[[Connection, str, int], bool] | None = None
        self.on_ask: Callable[[Connection, bytes], bool] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []

    def settle(self) -> None:
        """Waits until every connection that a client has ended is seen to be over."""
        for thread in self._threads:
            thread.join(10)

    def settle_after(self, seconds: float) -> None:
        """Holds back what comes next."""
        time.sleep(seconds)

    def log(self, *event: Any) -> None:
        self.events.append(event)

    def said(self, what: str) -> list[tuple[Any, ...]]:
        """The events of one kind, without their first word."""
        return [event[1:] for event in self.events if event[0] == what]

    @contextmanager
    def serving(self) -> Iterator[Self]:
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=Connection(self, sock).run, daemon=True)
            self._threads.append(thread)
            thread.start()

    def on_packet(self, c: Connection, first: int, body: bytes) -> None:
        kind = first & 0xF0
        if kind == 0x30:
            self._publish(c, first, body)
        elif kind == 0x80 or kind == 0xA0:
            self._subscribe(c, kind, body)
        elif kind == 0xC0:
            self.log("ping")
            if self.on_ping is None or not self.on_ping(c):
                c.send(0xD0, b"")
        elif kind == 0x40:
            self.log("puback", int.from_bytes(body, "big"))
        elif kind == 0xE0:
            raise ConnectionClosed("disconnect")
        else:
            raise ConnectionClosed(f"packet {first:02x}")

    def _publish(self, c: Connection, first: int, body: bytes) -> None:
        n = int.from_bytes(body[:2], "big")
        topic, rest = body[2 : 2 + n], body[2 + n :]
        qos = first >> 1 & 3
        pid, payload = (rest[:2], rest[2:]) if qos else (b"", rest)
        c.publish_pid = pid
        if topic == const.CONTROL:
            if payload[0] == const.ASK:
                self.log("asked", provision.get_ask(payload)[2])
                if self.on_ask is None or not self.on_ask(c, payload):
                    c.publish(topic, self.site.answer(payload))
            elif payload[0] == const.UP:
                c.take_up(payload)
            return
        ctr, m1, plain = c.unseal(topic, first & 7, payload)
        name = topic.decode()
        fresh = self.window.look(ctr) == 0
        if fresh:
            self.window.mark(ctr)
        self.log("publish", name, plain, first & 7, ctr, m1[1] & 15, m1[26])
        if self.on_publish is not None and self.on_publish(c, name, m1, ctr, qos):
            return
        if name in self.denied:
            c.notice(1, ctr, *self.denied[name])
        else:
            for filt, granted in c.filters.items():
                if fresh and matches(_without_purpose(filt), name):
                    c.publish(topic, c.m3(topic, m1, self.site.own), granted)
        if qos:
            c.send(0x40, pid)

    def _subscribe(self, c: Connection, kind: int, body: bytes) -> None:
        s = self.site
        n = int.from_bytes(body[2:4], "big")
        qos = body[4 + n] if kind == 0x80 else 0
        ctr, tag, filt = split_token(body[4 : 4 + n].decode())
        op = const.SUBSCRIBE if kind == 0x80 else const.UNSUBSCRIBE
        aead = c.aead(const.USE_CONTROL)
        control.check_token(
            aead, s.suite, op, ctr, c.salt, s.id, s.client, s.mediator, qos, filt, tag
        )
        self.log("subscribe" if op == const.SUBSCRIBE else "unsubscribe", filt, qos)
        c.subscribe_pid = body[:2]
        number = int.from_bytes(ctr, "big")
        if self.on_subscribe is not None and self.on_subscribe(c, filt, number):
            return
        if op == const.UNSUBSCRIBE:
            c.filters.pop(filt, None)
            c.send(0xB0, body[:2])
        elif filt in self.denied:
            c.notice(2, number, *self.denied[filt])
            c.send(0x90, body[:2] + b"\x80")
        else:
            c.filters[filt] = qos
            c.send(0x90, body[:2] + bytes((qos,)))


def _without_purpose(filt: str) -> str:
    """The filter of `!AP/FILTER{PURPOSE}` (PURPOSES.md P2), else `filt`. Our client wrote it."""
    return unquote(filt[4 : filt.index("{")]) if filt.startswith("!AP/") else filt
