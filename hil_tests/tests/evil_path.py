"""A network in the attacker's hands between a client and its mediator: it reads, drops, delays,
repeats, changes and injects whole packets. With a client's keys it is a dishonest mediator.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sealmq_spec.b64 import unb64u
from sealmq_spec.const import CONTROL, DOWN_HEAD, TAG, USE_DOWN
from sealmq_spec.control import open_down, seal_down
from sealmq_spec.identity import Identity
from sealmq_spec.keys import link_key

from free_ports import free_port
from wire import Cipher, packet, publish, split

# What a hook gets and gives: packets as (first byte, body).
Packets = list[tuple[int, bytes]]
Hook = Callable[["Between", int, bytes], Packets]

_CONTROL_HEAD = 2 + len(CONTROL)


def as_it_is(line: Between, first: int, body: bytes) -> Packets:
    """Passes everything."""
    return [(first, body)]


class EvilPath:
    """Clients connect to `port`; each packet up or down goes through a hook."""

    def __init__(self, mediator: int) -> None:
        self.port = free_port()
        self.up: Hook = as_it_is
        self.down: Hook = as_it_is
        # Everything that came, connection by connection.
        self.lines: list[Between] = []
        self._mediator = mediator
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, name="evil path", daemon=True).start()

    def enrolment(self, real: Path, folder: Path) -> Path:
        """The same client, which takes this path for its gateway. Its state is its own."""
        told = json.loads(real.read_text())
        told["mediator"]["host"], told["mediator"]["port"] = "127.0.0.1", self.port
        folder.mkdir(parents=True)
        file = folder / "sealmq.json"
        file.write_text(json.dumps(told))
        file.chmod(0o600)  # the CLI takes no other
        return file

    def honest(self) -> None:
        """From now on a network like others."""
        self.up = self.down = as_it_is

    def close(self) -> None:
        """No more connections; those that are there end."""
        self._server.close()
        for line in self.lines:
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                mediator = socket.create_connection(("127.0.0.1", self._mediator), 10)
            except OSError:
                client.close()
                continue
            self.lines.append(Between(self, client, mediator))


class Between:
    """One connection, cut in the middle."""

    def __init__(self, path: EvilPath, client: socket.socket, mediator: socket.socket) -> None:
        self._path, self._client, self._mediator = path, client, mediator
        self.sent_up: Packets = []
        self.sent_down: Packets = []
        mediator.settimeout(None)
        for here, there, going_up in ((client, mediator, True), (mediator, client, False)):
            args = here, there, going_up
            threading.Thread(target=self._pump, args=args, daemon=True).start()

    def to_client(self, data: bytes) -> None:
        """Injects towards the client."""
        with suppress(OSError):
            self._client.sendall(data)

    def to_mediator(self, data: bytes) -> None:
        """Injects towards the mediator."""
        with suppress(OSError):
            self._mediator.sendall(data)

    def close(self) -> None:
        """Both sides see the end."""
        for side in (self._client, self._mediator):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _pump(self, here: socket.socket, there: socket.socket, going_up: bool) -> None:
        held = b""
        with suppress(OSError):
            while more := here.recv(65536):
                packets, held = split(held + more)
                for first, body in packets:
                    (self.sent_up if going_up else self.sent_down).append((first, body))
                    hook = self._path.up if going_up else self._path.down
                    for each in hook(self, first, body):
                        there.sendall(packet(*each))
        self.close()

    # --- with the client's keys ---

    def proof(self) -> tuple[int, bytes, int]:
        """(boot, salt, conn) of the CONNECT that came this way."""
        body = self.sent_up[0][1]
        size = struct.unpack(">H", body[-56:-54])[0]
        assert size == 54, "a CONNECT of quarantine"
        p = unb64u(body[-54:-22])
        return int.from_bytes(p[7:10], "big"), p[10:18], int.from_bytes(p[18:21], "big")

    def _down(self, ident: Identity) -> tuple[Cipher, tuple[bytes, int, int, int]]:
        boot, salt, conn = self.proof()
        key = link_key(ident.site, USE_DOWN, ident.suite, ident.mediator, boot, salt, ident.km)
        return Cipher(ident.suite, key), (ident.site, ident.client, ident.mediator, conn)

    def opened(self, ident: Identity, body: bytes) -> tuple[bytes, bytes]:
        """(order, body) of a control packet down."""
        cipher, who = self._down(ident)
        return open_down(cipher, ident.suite, *who, body[_CONTROL_HEAD:])

    def sealed(self, ident: Identity, order: bytes, inner: bytes) -> tuple[int, bytes]:
        """A control packet down that verifies, whatever it says."""
        cipher, who = self._down(ident)
        made = seal_down(cipher, ident.suite, order, *who, inner)
        return split(publish(CONTROL, made))[0][0]


def is_control(first: int, body: bytes) -> bool:
    """Whether this is a control packet, up or down."""
    return first & 0xF0 == 0x30 and body[2:_CONTROL_HEAD] == CONTROL


def is_down(first: int, body: bytes) -> bool:
    """Whether this is a sealed control packet down."""
    sealed = len(body) > _CONTROL_HEAD + DOWN_HEAD + TAG and body[_CONTROL_HEAD] == 0x15
    return is_control(first, body) and sealed
