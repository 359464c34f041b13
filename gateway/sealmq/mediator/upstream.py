"""The mediator's connections to the broker: one for each client, and its own (SPEC.md 4.3).

An MQTT 3.1.1 client at packet level, asyncio around the sans-IO codec. It judges nothing; packets
go to `on_packet`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sealmq.mqtt import Connack, Decoder, Packet, Pingresp, ProtocolError, build

from .core.limits import KEEPALIVE_UPSTREAM_S, LINGER_S, MAX_PACKET, OPENING_S
from .links.broker import BrokerAddress, BrokerAway, _tls


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
                    await loop.create_unix_connection(lambda: self, str(address.unix))
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


__all__ = ["BrokerAddress", "BrokerAway", "Upstream"]
