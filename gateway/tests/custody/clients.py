"""The clients of a world, as models (their keys and packets are real).

- The publisher keeps what was not acknowledged, and sends it again with DUP when it has connected.
- A clean reader does not come back: what it is owed ends with its session.
- A kept reader comes back, and remembers packet ids of QoS 2 until their PUBREL.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from mediator_world import PANEL, SENSOR, SIBLING, as_read, hello
from mediator_world import World as Keys
from sealmq.mediator.core.session import Session
from sealmq.mqtt import (
    Connack,
    Decoder,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
)

KEYS = Keys()


class Socket:
    """A client's connection: events.Peer. `down`: what was written and is not read yet. `cut`: it
    has fallen, and the mediator has not heard of that.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.down: deque[Packet] = deque()
        self.over = self.cut = False
        self._decoder = Decoder(1 << 24, "client")
        self.wrote: Callable[[Packet], None] = lambda packet: None

    def write(self, data: bytes) -> None:
        if self.over:
            return
        for packet in self._decoder.feed(data):
            if isinstance(packet, Publish) and packet.topic == "!c1":
                continue
            self.wrote(packet)
            if not self.cut:
                self.down.append(packet)

    def throttle(self, why: str, on: bool) -> None:
        """Does nothing: whatever a client sends is read."""

    def settled(self) -> None:
        """Does nothing: nothing waits here."""

    def deadline(self, seconds: float) -> None:
        """Does nothing: no time passes."""

    def end(self, cut: bool) -> None:
        out, self.session.out = self.session.out, []
        if not self.over and not cut:
            self.write(b"".join(out))
        self.over = True


class Client:
    """What all clients have in common."""

    def __init__(self, world: Any, number: int, clean: bool) -> None:
        self.world, self.number, self.clean = world, number, clean
        self.keys = KEYS.session(number, salt=bytes(8))
        self.socket: Socket | None = None
        self.welcome = False

    @property
    def there(self) -> bool:
        """Whether it is connected, as far as it knows."""
        return self.socket is not None

    @property
    def unread(self) -> bool:
        """Whether it has something to read."""
        return self.socket is not None and bool(self.socket.down)

    def connect(self) -> None:
        """Makes a new connection, which the mediator accepts at once or later."""
        world = self.world
        events = world.mediator.events
        session = world.run(Session, world.mediator.site, events.agenda, "192.0.2.7")
        self.socket = events.peers[session] = Socket(session)
        self.welcome = False
        (packet,) = Decoder(1 << 16, "server").feed(hello(self.keys, "id", self.clean, low=1))
        self.send(packet)
        self.look()

    # It has read CONNACK.
    def _welcomed(self) -> None:
        self.welcome = True

    def send(self, packet: Packet) -> None:
        """To the mediator, at once."""
        world, socket = self.world, self.socket
        if socket is not None and not socket.over and not socket.cut:
            world.run(world.mediator.events.run, socket.session.receive, as_read(packet))

    def fall(self) -> None:
        """Its connection falls, and the mediator has not heard of it yet."""
        if self.socket is not None:
            self.socket.cut = True
            self.socket.down.clear()
            self.world.cut.append(self.socket)
            self.socket = None

    def look(self) -> None:
        """Reads CONNACK if it has come, and the end once everything else is read."""
        socket = self.socket
        if socket is not None and not self.welcome and socket.down:
            answer = socket.down.popleft()
            if isinstance(answer, Connack) and not answer.code:
                self._welcomed()
        if socket is not None and socket.over and not socket.down:
            self.socket = None

    def state(self) -> Any:
        """Equal for states that behave alike. Each kind of client has its own."""
        raise NotImplementedError


class Publisher(Client):
    """`out`: by packet id, what it will send again, and whether it waits for PUBCOMP. `acked`,
    `refused`: the messages of which it was told that they were accepted, or refused.
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world, SENSOR, clean=True)
        self.out: dict[int, tuple[Publish, bool]] = {}
        self.next = 0
        self.acked: set[int] = set()
        self.refused: set[int] = set()

    def _welcomed(self) -> None:
        super()._welcomed()
        if self.socket is not None:
            self.socket.wrote = self._wrote
        for packet_id, (packet, released) in list(self.out.items()):
            self.send(Pubrel(packet_id) if released else packet._replace(dup=True))

    def publish(self) -> None:
        index, self.next = self.next, self.next + 1
        qos = self.world.bounds.messages[index]
        packet = self.world.sealed(self.keys, index, qos)
        if qos:
            self.out[index + 1] = packet, False
        self.send(packet)

    # The moment at which it is acknowledged.
    def _wrote(self, packet: Packet) -> None:
        if isinstance(packet, Puback | Pubrec):
            self.world.acknowledges(packet.packet_id - 1)

    def read(self) -> None:
        socket = self.socket
        if socket is None:
            return
        packet = socket.down.popleft()
        if isinstance(packet, Puback | Pubcomp):
            self.out.pop(packet.packet_id, None)
        elif isinstance(packet, Pubrec) and packet.packet_id in self.out:
            self.out[packet.packet_id] = self.out[packet.packet_id][0], True
            self.send(Pubrel(packet.packet_id))
        self.look()

    def state(self) -> Any:
        return (
            self.socket is not None,
            self.welcome,
            self.next,
            sorted(self.acked),
            sorted(self.refused),
            [(number, released) for number, (_, released) in self.out.items()],
            list(self.socket.down) if self.socket is not None else None,
        )


class Reader(Client):
    """`got`: how often each message came. `ids`: packet ids of QoS 2 that are not released. `owed`,
    `said`: acknowledgements that it has not sent yet, and has sent. `ended`: its session has ended.
    """

    def __init__(self, world: Any, clean: bool, qos: int) -> None:
        super().__init__(world, PANEL if clean else SIBLING, clean)
        self.qos = qos
        self.got: Counter[int] = Counter()
        self.ids: set[int] = set()
        self.owed: deque[Packet] = deque()
        self.said: set[tuple[str, int]] = set()
        self.ended = False

    def subscribe(self) -> None:
        text = self.keys.token(self.world.topic, self.qos)[0]
        self.send(Subscribe(1, ((text, self.qos),)))

    def read(self) -> None:
        socket = self.socket
        if socket is None:
            return
        packet = socket.down.popleft()
        if isinstance(packet, Publish):
            number = packet.packet_id
            if packet.qos < 2 or number not in self.ids:
                self._gets(self.world.index(packet.payload))
            if packet.qos == 1:
                self.owed.append(Puback(number))
                self.said.discard(("Puback", number))
            elif packet.qos == 2:
                self.ids.add(number)
                self.owed.append(Pubrec(number))
                self.said -= {("Pubrec", number), ("Pubcomp", number)}
        elif isinstance(packet, Pubrel):
            self.ids.discard(packet.packet_id)
            self.owed.append(Pubcomp(packet.packet_id))
        self.look()

    def _gets(self, index: int) -> None:
        world = self.world
        one = len(set(world.bounds.messages)) == 1 and not world.bounds.apart
        if one and not self.got[index]:
            later = [other for other in self.got if other > index and self.got[other]]
            if later:
                world.bad = f"m{later[0]} has overtaken m{index}"
        self.got[index] += 1

    def answer(self) -> None:
        packet: Any = self.owed.popleft()
        self.said.add((type(packet).__name__, packet.packet_id))
        self.send(packet)

    def fall(self) -> None:
        super().fall()
        self.owed.clear()
        self.ended = True

    def look(self) -> None:
        before = self.socket
        super().look()
        if before is not self.socket:
            self.owed.clear()
            self.ended = True

    def state(self) -> Any:
        named = self.world.named
        return (
            self.socket is not None,
            self.welcome,
            self.ended,
            sorted(self.got.items()),
            sorted(self.ids),
            [(type(p).__name__, p.packet_id) for p in self.owed],  # type: ignore[union-attr]
            sorted(self.said),
            [named(p) for p in self.socket.down] if self.socket is not None else None,
        )
