"""The mediator's connections to the broker: one for each client, and its own (SPEC.md 4.3).

An MQTT 3.1.1 client at packet level, asyncio around the sans-IO codec. It judges nothing; packets
go to `on_packet`.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sealmq.mqtt import Connack, Decoder, Packet, Pingresp, ProtocolError, build
from sealmq.unix import connected

from .limits import KEEPALIVE_UPSTREAM_S, LINGER_S, MAX_PACKET, OPENING_S


class BrokerAway(Exception):
    """The broker cannot be reached, or does not let this mediator in."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is, as whom a mediator speaks to it, and what it promises.

    `shared`: it may know shared subscriptions ($share/GROUP/FILTER). `keeps_sessions`: it keeps
    sessions and their queues while a client is away, so it is worth a journal. `saved`: the file
    that it writes all it holds to, whose change tells that it has; None where nobody can see it:
    then it is believed to save every `autosave_s` seconds. `unix`: its socket, instead of host and
    port. `ca`, `cert`, `key`: files for mutual TLS; none: no TLS. `retained`, `qos`: whether it
    retains messages, and the highest QoS that it knows.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    shared: bool = False
    keeps_sessions: bool = True
    saved: Path | None = None
    autosave_s: float = 60.0
    unix: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    retained: bool = True
    qos: int = 2

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """What the supervisor hands over; members that are missing have their defaults."""
        paths = {
            name: Path(told[name])
            for name in ("saved", "unix", "ca", "cert", "key")
            if told.get(name)
        }
        return cls(
            told["host"],
            int(told["port"]),
            told.get("user"),
            told.get("password"),
            bool(told.get("shared")),
            bool(told.get("keeps_sessions", True)),
            autosave_s=float(told.get("autosave_s", 60.0)),
            retained=bool(told.get("retained", True)),
            qos=int(told.get("qos", 2)),
            **paths,
        )

    @property
    def name(self) -> str:
        """For logs: no credentials."""
        return str(self.unix) if self.unix else f"{self.host}:{self.port}"


# Raises OSError (ssl.SSLError is one), also for what the files hold. Made once: they do not change
# under a mediator, and each client's connection needs it.
@functools.lru_cache(maxsize=2)
def _tls(address: BrokerAddress) -> ssl.SSLContext | None:
    if address.ca is None:
        return None
    context = ssl.create_default_context(cafile=str(address.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if address.cert is not None:
        context.load_cert_chain(address.cert, address.key)
    return context


class Upstream(asyncio.Protocol):
    """One connection.

    `on_packet` gets every packet but CONNACK and PINGRESP, and may be replaced; `on_lost` is called
    once, with the reason; `on_pong` at each PINGRESP.
    """

    def __init__(
        self,
        on_packet: Callable[[Packet], None],
        on_lost: Callable[[str], None],
        on_pressure: Callable[[bool], None] = lambda full: None,
        on_pong: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_packet, self._on_lost, self._on_pressure = on_packet, on_lost, on_pressure
        self._on_pong = on_pong
        self._decoder = Decoder(MAX_PACKET, "client")
        self._transport: asyncio.Transport | None = None
        self._connack: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        self._closed = False
        self._quiet = False
        self._heard = False
        # Why nothing is read for now.
        self._paused: set[str] = set()

    @property
    def up(self) -> bool:
        """Whether packets can be sent."""
        return self._transport is not None and not self._closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(str(exc) if exc else "the broker closed the connection")

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._closed:
            return
        try:
            packets = self._decoder.feed(data)
        except ProtocolError as error:
            for packet in error.packets:
                self._take(packet)
            self._lost(f"the broker broke MQTT: {error}")
            return
        for packet in packets:
            self._take(packet)

    def _take(self, packet: Packet) -> None:
        if self._closed:
            return
        if isinstance(packet, Connack):
            if not self._connack.done():
                self._connack.set_result(packet)
        elif isinstance(packet, Pingresp):
            self._on_pong()
        else:
            self.on_packet(packet)

    def pause_writing(self) -> None:
        self._on_pressure(True)

    def resume_writing(self) -> None:
        self._on_pressure(False)

    def _lost(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        if self._transport is not None:
            self._transport.abort()
        if not self._connack.done():
            self._connack.set_exception(BrokerAway(reason))
            self._connack.exception()
        if not self._quiet:
            self._on_lost(reason)

    def send(self, data: bytes) -> None:
        """Writes a packet;
        silently nothing once the connection is lost, which `on_lost` has told.
        """
        if self._transport is not None and not self._closed:
            self._transport.write(data)

    def pause(self, full: bool, why: str = "slow") -> None:
        """Stops or goes on reading, for a reason of its own: it goes on when none is left."""
        if self._transport is None or self._closed or full == (why in self._paused):
            return
        before = bool(self._paused)
        (self._paused.add if full else self._paused.discard)(why)
        if before != bool(self._paused):
            (self._transport.pause_reading if full else self._transport.resume_reading)()

    def beat(self) -> None:
        """Called every KEEPALIVE_UPSTREAM_S:
        pings, and gives up on a broker that said nothing since the last.
        """
        if not self.up:
            return
        if not self._heard and not self._paused:
            self._lost(f"the broker was silent for {KEEPALIVE_UPSTREAM_S} s")
            return
        self._heard = False
        self.send(build.pingreq())

    def close(self) -> None:
        """Ends the connection with DISCONNECT; `on_lost` is not called.

        The broker closes: if we did while it still writes, the system could throw away what it has
        not read of ours.
        """
        self._quiet = True
        if self._transport is not None and not self._closed:
            self._closed = True
            if self._paused:
                self._transport.resume_reading()
            self._transport.write(build.disconnect())
            if self._transport.can_write_eof():
                self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    async def open(self, address: BrokerAddress, client_id: str, clean: bool) -> bool:
        """Connects and gives the broker's session-present flag. Raises BrokerAway."""
        loop = asyncio.get_running_loop()
        password = address.password.encode() if address.password is not None else None
        try:
            async with asyncio.timeout(OPENING_S):
                tls = _tls(address)
                name = address.host if tls else None
                if address.unix is not None:
                    sock = await connected(address.unix)
                    await loop.create_unix_connection(lambda: self, sock=sock)
                else:
                    await loop.create_connection(
                        lambda: self, address.host, address.port, ssl=tls, server_hostname=name
                    )
                self.send(
                    build.connect(
                        client_id,
                        clean_session=clean,
                        keepalive=KEEPALIVE_UPSTREAM_S * 2,
                        username=address.user,
                        password=password,
                    )
                )
                connack = await self._connack
        except TimeoutError:
            self._quiet = True
            self._lost("no answer")
            raise BrokerAway(f"broker {address.name}: no answer") from None
        except OSError as error:
            raise BrokerAway(f"broker {address.name}: {error}") from None
        if connack.code:
            self._quiet = True
            self._lost("refused")
            raise BrokerAway(f"broker {address.name} refuses this mediator: CONNACK {connack.code}")
        return connack.session_present
