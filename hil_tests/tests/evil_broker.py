"""An external broker in the attacker's hands: it behaves well until a test makes it do otherwise.

It keeps every packet that it gets, sends anything on any link, holds packets back, serves old
retained copies. It knows no keys, except those that a test got from a client. It recognises a
mediator's links by their client identifiers: one for all that is published, one for all that is
delivered to clean sessions, one for each kept session, short ones for retained messages.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from free_ports import free_port
from running_site import until
from wire import packet, publish, split

# How identifiers of shared links end; what those of links for retained messages contain; the topic
# of the message that ends a snapshot; how topics of marks end, by which a mediator sees what has
# passed: one comes after every hundred messages or so.
PUBLISH_LINK, LIVE_LINK = "/publish", "/live"
_SNAPSHOT_LINK, _END, _MARK = "/snapshot/", b"@sealmq/end/", b"/mark"

_PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 0x30, 0x40, 0x50, 0x60, 0x70


class Published(NamedTuple):
    """A PUBLISH that came from a mediator."""

    client_id: str
    first: int
    topic: bytes
    payload: bytes


class Call(NamedTuple):
    """A CONNECT that came from a mediator."""

    client_id: str
    clean: bool


@dataclass
class Waiting:
    """A message for a session that is kept; pid: 0 until it is sent."""

    topic: bytes
    payload: bytes
    qos: int
    pid: int


class EvilBroker:
    """Listens from the beginning; every connection has a thread of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.calls: list[Call] = []
        # But for marks.
        self.published: list[Published] = []
        # (client id, first byte, body) of all packets after CONNECT.
        self.packets: list[tuple[str, int, bytes]] = []
        self.retained: dict[bytes, bytes] = {}
        # The QoS of retained messages that were published; those that a test puts in have QoS 0.
        self._retained_qos: dict[bytes, int] = {}
        # Filters whose retained messages a mediator has taken.
        self.fetched: list[str] = []
        self.honest()
        self._lines: dict[str, Line] = {}
        # Every connection, and the lock that its thread holds while it handles what came.
        self._peers: dict[socket.socket, threading.Lock] = {}
        # The filters of each session with their QoS; and what kept sessions have not acknowledged
        # yet, sent or not: a client that has just hung up may still seem to be there.
        self._filters: dict[str, dict[str, int]] = {}
        self._queues: dict[str, list[Waiting]] = {}
        self._lock = threading.RLock()
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, name="evil broker", daemon=True).start()

    def close(self) -> None:
        """No more connections; those that are there end."""
        self._server.close()
        for line in list(self._lines.values()):
            line.close()

    # --- what the attacker does ---

    def honest(self) -> None:
        """From now on it behaves well."""
        # Served in place of all that is retained, whatever the filter.
        self.instead: list[tuple[bytes, bytes]] | None = None
        # For these filters the end of a snapshot never comes.
        self.endless: set[str] = set()
        # Whether it hangs up at a packet, or at a CONNECT.
        self.ends: Callable[[int, bytes], bool] = lambda first, body: False
        self.refuses: Callable[[str], bool] = lambda client_id: False
        # Asked before a PUBLISH is passed on and acknowledged.
        self.holds: Callable[[Published], bool] = lambda p: False

    def forget(self) -> None:
        """Nothing is retained that a client published."""
        with self._lock:
            for topic in [topic for topic in self.retained if not topic.startswith(b"@")]:
                del self.retained[topic]

    def tell(
        self, client_id: str, topic: bytes, payload: bytes, first: int = _PUBLISH, pid: int = 0
    ) -> None:
        """Sends a PUBLISH that nobody published, over the link by which this client is reached."""
        self.line(client_id).send(publish(topic, payload, first, pid))

    def line(self, client_id: str) -> Line:
        """The link by which the client with this identifier is reached: its own, if it has one."""
        with self._lock:
            own = [line for name, line in self._lines.items() if _is(name, client_id)]
        assert len(own) < 2, f"{len(own)} links of {client_id}: {list(self._lines)}"
        return own[0] if own else self.shared(LIVE_LINK)

    def shared(self, link: str) -> Line:
        """The publish link or the live link."""
        with self._lock:
            found = [line for name, line in self._lines.items() if name.endswith(link)]
            names = list(self._lines)
        assert len(found) == 1, f"{len(found)} links {link}: {names}"
        return found[0]

    def lines(self) -> list[Line]:
        """The links that are there."""
        with self._lock:
            return list(self._lines.values())

    def seen(self, topic: bytes) -> list[bytes]:
        """Payloads published on a topic so far."""
        with self._lock:
            return [p.payload for p in self.published if p.topic == topic]

    def filters(self, client_id: str) -> set[str]:
        """The filters of a client's kept sessions."""
        with self._lock:
            return {f for name, fs in self._filters.items() if _is(name, client_id) for f in fs}

    def asked(self) -> list[str]:
        """Filters of all SUBSCRIBEs so far, on whatever link. A client's new filter is always among
        them: if another client holds it, too, its retained messages are still fetched.
        """
        self.settle()
        with self._lock:
            bodies = [body for _, first, body in self.packets if first & 0xF0 == 0x80]
        found = [filt for body in bodies for filt in _filters(body[2:])]
        return [filt for filt in found if not filt.encode().startswith(_END)]

    def acknowledged(self, client_id: str, pid: int) -> None:
        """Waits for a PUBACK on the link by which this client is reached."""
        body, name = pid.to_bytes(2, "big"), self.line(client_id).client_id

        def there() -> bool:
            with self._lock:
                return any(p == (name, _PUBACK, body) for p in self.packets)

        until("PUBACK at the broker", there)

    def settle(self) -> None:
        """Waits until all that mediators have sent up to now was handled.

        Connections have threads of their own: a later message could overtake an earlier one.
        """
        until("the broker to read what it was sent", self._idle)

    def _idle(self) -> bool:
        with self._lock:
            peers = list(self._peers.items())
        return not any(_busy(peer, working) for peer, working in peers)

    # --- what every broker does ---

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        line: Line | None = None
        working = threading.Lock()
        with self._lock:
            self._peers[peer] = working
        with suppress(OSError), peer:
            held = b""
            while peer.recv(1, socket.MSG_PEEK):
                with working:
                    packets, held = split(held + peer.recv(65536))
                    for first, body in packets:
                        if line is None:
                            line = self._connected(peer, body)
                        elif first == 0xE0:
                            break
                        else:
                            self._packet(line, first, body)
        with self._lock:
            del self._peers[peer]
            if line is not None:
                if self._lines.get(line.client_id) is line:
                    del self._lines[line.client_id]
                    if line.client_id not in self._queues:
                        del self._filters[line.client_id]

    def _connected(self, peer: socket.socket, body: bytes) -> Line:
        size = int.from_bytes(body[10:12], "big")
        client_id, clean = body[12 : 12 + size].decode(), bool(body[7] & 2)
        if self.refuses(client_id):
            raise ConnectionError(f"{client_id} is turned away")
        with self._lock:
            # `sealmq up` asks every few seconds whether the broker is there: that is no mediator.
            if not client_id.startswith("sealmq/probe/"):
                self.calls.append(Call(client_id, clean))
            if (old := self._lines.get(client_id)) is not None:
                old.close()
            present = not clean and client_id in self._queues
            if not present:
                self._filters[client_id] = {}
            queue = [] if clean else self._queues.setdefault(client_id, [])
            if clean:
                self._queues.pop(client_id, None)
            line = self._lines[client_id] = Line(peer, client_id)
            line.send(bytes((0x20, 2, present, 0)))
            for message in queue:
                message.pid = line.deliver(message.topic, message.payload, message.qos)
        return line

    def _packet(self, line: Line, first: int, body: bytes) -> None:
        kind = first & 0xF0
        with self._lock:
            self.packets.append((line.client_id, first, body))
        if self.ends(first, body):
            line.close()
            return
        if kind in (_PUBACK, _PUBREC):
            self._taken(line, int.from_bytes(body[:2], "big"))
        if kind == _PUBLISH:
            self._published(line, first, body)
        elif kind == _PUBREC:
            line.send(packet(_PUBREL | 2, body))
        elif kind == _PUBREL:
            line.send(packet(_PUBCOMP, body))
        elif kind == 0x80:
            self._subscribed(line, body)
        elif kind == 0xA0:
            left = _filters(body[2:], 0)
            for filt in left:
                self._filters[line.client_id].pop(filt, None)
            if _SNAPSHOT_LINK in line.client_id:
                # The mediator has taken all retained messages of this filter.
                self.fetched += [filt for filt in left if not filt.encode().startswith(_END)]
            line.send(packet(0xB0, body[:2]))
        elif kind == 0xC0:
            line.send(b"\xd0\0")

    def _published(self, line: Line, first: int, body: bytes) -> None:
        size = int.from_bytes(body[:2], "big")
        topic, rest = body[2 : 2 + size], body[2 + size :]
        pid, payload = (rest[:2], rest[2:]) if first & 6 else (b"", rest)
        came = Published(line.client_id, first, topic, payload)
        with self._lock:
            if not (topic.startswith(b"@") and topic.endswith(_MARK)):
                self.published.append(came)
            if self.holds(came):
                return
            if first & 1:
                self.retained[topic] = payload
                self._retained_qos[topic] = first >> 1 & 3
            for name in self._filters:
                self._pass_on(name, topic, payload, first >> 1 & 3)
        if pid:
            line.send(packet(_PUBACK if first & 2 else _PUBREC, pid))

    def _pass_on(self, name: str, topic: bytes, payload: bytes, qos: int) -> None:
        filters = self._filters[name]
        granted = [q for f, q in filters.items() if _takes(f, topic)]
        if not granted:
            return
        qos = min(qos, max(granted))
        line = self._lines.get(name)
        pid = 0 if line is None else line.deliver(topic, payload, qos)
        if qos and name in self._queues:
            self._queues[name].append(Waiting(topic, payload, qos, pid))

    def _taken(self, line: Line, pid: int) -> None:
        with self._lock:
            queue = self._queues.get(line.client_id, [])
            queue[:] = [message for message in queue if message.pid != pid]

    def _subscribed(self, line: Line, body: bytes) -> None:
        filters = _filters(body[2:])
        with self._lock:
            self._filters[line.client_id].update(filters)
            line.send(packet(0x90, body[:2] + bytes(filters.values())))
            snapshot = _SNAPSHOT_LINK in line.client_id
            if snapshot and self.instead is not None:
                for topic, payload in self.instead:
                    line.send(publish(topic, payload, _PUBLISH | 1))
            endless = snapshot and not self.endless.isdisjoint(filters)
            for filt, granted in filters.items():
                for topic, payload in self.retained.items():
                    ends = topic.startswith(_END)
                    if not payload or not _takes(filt, topic) or (ends and endless):
                        continue
                    if ends or not snapshot or self.instead is None:
                        qos = min(granted, self._retained_qos.get(topic, 0))
                        line.deliver(topic, payload, qos, retain=True)


class Line:
    """One connection of a mediator."""

    def __init__(self, peer: socket.socket, client_id: str) -> None:
        self.client_id = client_id
        self._peer, self._lock = peer, threading.Lock()
        self._pid = 20_000

    def send(self, data: bytes) -> None:
        """Sends whole packets; nothing if the mediator is gone."""
        with self._lock, suppress(OSError):
            self._peer.sendall(data)

    def deliver(self, topic: bytes, payload: bytes, qos: int, retain: bool = False) -> int:
        """A message that this client has subscribed to; its packet id."""
        self._pid = self._pid % 30_000 + 1 if qos else self._pid
        self.send(publish(topic, payload, _PUBLISH | qos << 1 | retain, self._pid))
        return self._pid

    def close(self) -> None:
        """The connection ends."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)


def _busy(peer: socket.socket, working: threading.Lock) -> bool:
    """Whether a packet or the connection's end is being handled, or is still unread."""
    if not working.acquire(blocking=False):
        return True
    try:
        peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    finally:
        working.release()
    return True


def _is(upstream: str, client_id: str) -> bool:
    return upstream.rpartition("/")[2] == client_id


def _filters(body: bytes, qos: int = 1) -> dict[str, int]:
    """Filters and their QoS, which follows each in so many bytes."""
    found = {}
    while body:
        end = 2 + int.from_bytes(body[:2], "big")
        found[body[2:end].decode()] = body[end] if qos else 0
        body = body[end + qos :]
    return found


def _takes(filt: str, topic: bytes) -> bool:
    """Matches as brokers do (MQTT 3.1.1, 4.7), for which only $ is reserved."""
    levels, parts = filt.split("/"), topic.decode().split("/")
    if topic[:1] == b"$" and levels[0] in ("#", "+"):
        return False
    for at, level in enumerate(levels):
        if level == "#":
            return True
        if at >= len(parts) or level not in ("+", parts[at]):
            return False
    return len(levels) == len(parts)
