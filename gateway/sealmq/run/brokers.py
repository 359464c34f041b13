"""The broker of a running site, of each kind: embedded, a private Mosquitto, or somebody else's.

The first two are processes of ours. The embedded one has a loopback port that stays ours while it
is away: nobody else can take it, and with it the password that a mediator sends there. Mosquitto
has a Unix socket in a folder where nobody else can make one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence

from sealmq.broker.asking import ask
from sealmq.broker.errors import BrokerError, Refused, Untrusted
from sealmq.broker.external import admitted, lets_anybody_in
from sealmq.broker.mosquitto import SAVED, Program
from sealmq.broker.process import AMQTT
from sealmq.broker.promises import Promises
from sealmq.broker.target import Target
from sealmq.site.layout import Layout

from . import proc, ready
from .child import Start
from .errors import RunError
from .ready import Persistent, Ready
from .roles import Process, Say

# How long an external broker may stay away when the site starts, and how often it is asked then.
EXTERNAL_S = 10.0
WATCH_S = 5.0
# Mosquitto writes all that it keeps to disk when it ends.
SAVING_S = 30.0


class Port:
    """The embedded broker's loopback port, listening from the first start to the end.

    While there is no broker, connections are accepted and closed at once.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            self.sock = socket.create_server((host, port), backlog=512)
        except OSError as error:
            raise _taken(host, port, error) from None
        self.sock.setblocking(False)
        self.host, self.number = host, self.sock.getsockname()[1]

    def refuse(self) -> None:
        """There is no broker."""
        asyncio.get_running_loop().add_reader(self.sock, self._turn_away)

    def hand_over(self) -> None:
        """A broker starts; it inherits the socket."""
        asyncio.get_running_loop().remove_reader(self.sock)

    def close(self) -> None:
        """Give the port back."""
        self.sock.close()

    def _turn_away(self) -> None:
        try:
            sock, _ = self.sock.accept()
        except OSError:
            return
        with sock:
            # A reset: no half-closed connection lingers on.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _taken(host: str, port: int, error: OSError) -> RunError:
    who = proc.listener(port) if error.errno == errno.EADDRINUSE else None
    has_it = f"{who} listens there; " if who else ""
    return RunError(
        f"the site's broker cannot have {host}:{port}: {os.strerror(error.errno or 0)}",
        f"{has_it}choose another --broker-port, or none for a free one",
    )


def embedded_broker(start: Start, target: Target, port: Port, layout: Layout, say: Say) -> Process:
    """The embedded broker's process."""
    file = _file(say)

    def ended() -> None:
        port.refuse()
        file.drop()
        ready.forget(layout, "broker")

    serves = _lets_in(layout, target, "embedded", AMQTT, file)
    return Process(start, serves, ended, say, starting=port.hand_over)


def private_mosquitto(
    start: Start, program: Program, target: Target, layout: Layout, say: Say
) -> Process:
    """Mosquitto's process."""
    file = _file(say)

    def ended() -> None:
        file.drop()
        ready.forget(layout, "broker")

    def advice(lines: Sequence[str]) -> str | None:
        if not any("open database" in line for line in lines):
            return None
        return (
            f"move {layout.broker_state / SAVED} away: the disk has torn it. Sessions and "
            "retained messages that it held are lost, but for what the mediator's journal has"
        )

    serves = _lets_in(layout, target, "mosquitto", program.version, file)
    return Process(start, serves, ended, say, patience_s=SAVING_S, advice=advice)


def _file(say: Say) -> Persistent:
    return Persistent("run/broker/ready.json", say)


def _lets_in(
    layout: Layout, target: Target, kind: str, version: str, file: Persistent
) -> Callable[[int], Awaitable[str | None]]:
    """A broker's process serves once it lets the mediator's credentials in."""

    async def serves(pid: int) -> str | None:
        try:
            await admitted(target, 2.0)
        except BrokerError:
            return None
        told = Ready("broker", pid, target.address, True, kind, version)
        user = proc.user_of(pid)
        file.put(lambda: ready.write(layout, told, user=user))
        return target.address

    return serves


class ExternalBroker:
    """A broker that somebody else runs: never started or stopped, only asked whether it serves.

    `asked` hears, before a mediator starts, what it does and does not.
    """

    name = "broker"
    child = None

    def __init__(
        self, target: Target, layout: Layout, say: Say, asked: Callable[[Promises], None]
    ) -> None:
        self._target, self._layout, self._say, self._asked = target, layout, say, asked
        self._serving = False
        self._file = _file(say)
        self._queue: int | None = None

    async def start(self) -> None:
        end = asyncio.get_running_loop().time() + EXTERNAL_S
        while True:
            try:
                await admitted(self._target)
                break
            except (Refused, Untrusted):
                raise  # asking again makes wrong credentials no better
            except BrokerError:
                if asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(0.5)
        promises = await ask(self._target)
        self._asked(promises)
        if missing := promises.missing():
            self._say(
                f"warning: broker {self._target.address} has " + ", ".join(missing) + "; clients "
                "that ask for it are refused"
            )
        for fault in promises.faults:
            self._say(f"warning: broker {self._target.address}: {fault}")
        self._queue = promises.queue
        self._tell(True)
        if await lets_anybody_in(self._target):
            self._say(
                f"warning: broker {self._target.address} lets in anybody, not mediators only; "
                "whoever reaches it sees topics and ciphertext, and can publish"
            )

    async def tend(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await admitted(self._target)
                if not self._serving:
                    self._say(f"broker {self._target.address} is there again")
                    self._tell(True)
            except (BrokerError, OSError) as error:
                if self._serving:
                    self._say(str(error))
                    self._tell(False)

    async def stop(self) -> bool:
        self._serving = False
        self._file.drop()
        ready.forget(self._layout, "broker")
        return True

    def _tell(self, serving: bool) -> None:
        self._serving = serving
        tls = self._target.tls is not None
        told = Ready(
            "broker", None, self._target.address, serving, "external", tls=tls, queue=self._queue
        )
        self._file.put(lambda: ready.write(self._layout, told))
