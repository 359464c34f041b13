"""One connection to the broker: an MQTT 3.1.1 client at packet level, asyncio around the codec.

It judges nothing. What is sent in one turn of the loop goes out in one write. It pings by itself,
and gives up on a broker that is silent, or for which `overdue` has a reason to.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sealmq.mqtt import (
    Connack,
    Decoder,
    Packet,
    Pingresp,
    ProtocolError,
    Puback,
    Publish,
    Pubrel,
    Unfit,
    build,
)
from sealmq.unix import connected

from ..core.effects import BrokerAway as BrokerAway
from ..core.limits import KEEPALIVE_UPSTREAM_S, LINGER_S, MAX_PACKET, OPENING_S


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is, as whom a mediator speaks to it, and what it promises.

    `shared`: it may know shared subscriptions ($share/GROUP/FILTER). `keeps_sessions`: it keeps
    sessions and their queues while a client is away, so it is worth a journal. `saved`: the file to
    which it saves all that it holds, and whose change shows that it has; None where that cannot be
    seen: then it is assumed to save every `autosave_s` seconds. `unix`: its socket, instead of host
    and port. `ca`, `cert`, `key`: files for mutual TLS; none: no TLS. `retained`, `qos`: whether it
    retains messages, and the highest QoS that it knows. `inflight`: how many messages of QoS 2 one
    connection may have under way; of more, brokers acknowledge and lose some. `queue`: how many
    messages it keeps for a connection that does not take them; it drops what exceeds that.
    `filters`: how many it takes in one SUBSCRIBE.
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
    inflight: int = 20
    queue: int = 1000
    filters: int = 100

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
            inflight=int(told.get("inflight", 20)),
            queue=int(told.get("queue", 1000)),
            filters=int(told.get("filters", 100)),
            **paths,
        )

    @property
    def name(self) -> str:
        """For logs: no credentials."""
        return str(self.unix) if self.unix else f"{self.host}:{self.port}"


# Raises OSError (ssl.SSLError is one), also if the files hold nothing usable. Made once: the files
# do not change while a mediator runs.
@functools.lru_cache(maxsize=2)
def _tls(address: BrokerAddress) -> ssl.SSLContext | None:
    if address.ca is None:
        return None
    context = ssl.create_default_context(cafile=str(address.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if address.cert is not None:
        context.load_cert_chain(address.cert, address.key)
    return context


OnUnfit = Callable[[Unfit], None]


def _nothing_overdue() -> str | None:
    return None


def nobody_hears(packet: Unfit) -> None:
    pass


AsEvent = Callable[..., None]
"""Calls a function with what comes after it (Events.run)."""


def directly(call: Callable[..., object], *words: Any) -> None:
    """An AsEvent for whoever has no events."""
    call(*words)


def _to_nobody(what: object) -> None:
    """Nobody hears of a connection that has ended."""


class BrokerLink(asyncio.Protocol):
    """One connection; `open` it, `send` packets, `close` it.

    `on_packet` gets every packet but CONNACK and PINGRESP. `on_lost` is called once, with the
    reason, unless `close` came first or `open` has raised. `on_pressure` is told whether the system
    takes no more for now; what is sent all the same waits in memory. `overdue` is asked at each
    ping: why to give up on this broker, or None. `on_unfit` gets each PUBLISH that nobody should
    take: it is acknowledged here, and goes no further. `as_event` calls what hands on all that
    one read has brought.
    """

    __slots__ = (
        "_as_event",
        "_closed",
        "_connack",
        "_decoder",
        "_heard",
        "_loop",
        "_on_lost",
        "_on_packet",
        "_on_pressure",
        "_on_unfit",
        "_out",
        "_overdue",
        "_paused",
        "_pongs",
        "_quiet",
        "_timer",
        "_transport",
        "_unfit",
    )

    def __init__(
        self,
        on_packet: Callable[[Packet], None],
        on_lost: Callable[[str], None],
        on_pressure: Callable[[bool], None] = lambda full: None,
        overdue: Callable[[], str | None] = _nothing_overdue,
        on_unfit: OnUnfit = nobody_hears,
        as_event: AsEvent = directly,
    ) -> None:
        self._on_packet, self._on_lost = on_packet, on_lost
        self._on_pressure, self._overdue = on_pressure, overdue
        self._on_unfit, self._as_event = on_unfit, as_event
        self._decoder = Decoder(MAX_PACKET, "client", lenient=True)
        # Packet ids of unfit PUBLISHes of QoS 2 whose PUBREL is to come.
        self._unfit: set[int] = set()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connack: asyncio.Future[Connack] = self._loop.create_future()
        # What the next write sends.
        self._out: list[bytes] = []
        # In order, who waits for each PINGRESP; None: nobody does.
        self._pongs: deque[asyncio.Future[None] | None] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = self._quiet = self._heard = self._paused = False

    @property
    def up(self) -> bool:
        """Whether packets can be sent."""
        return self._transport is not None and not self._closed

    async def open(self, address: BrokerAddress, client_id: str, clean: bool = True) -> bool:
        """Connects and gives the broker's session-present flag. Raises BrokerAway."""
        password = address.password.encode() if address.password is not None else None
        try:
            async with asyncio.timeout(OPENING_S):
                if address.unix is not None:
                    sock = await connected(address.unix)
                    await self._loop.create_unix_connection(lambda: self, sock=sock)
                else:
                    tls = _tls(address)
                    name = address.host if tls else None
                    await self._loop.create_connection(
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
            if connack.code:
                raise BrokerAway(
                    f"broker {address.name} refuses this mediator: CONNACK {connack.code}"
                )
        except TimeoutError:
            self.abort()
            raise BrokerAway(f"broker {address.name}: no answer") from None
        except OSError as error:
            self.abort()
            raise BrokerAway(f"broker {address.name}: {error}") from None
        except BaseException:
            self.abort()
            raise
        if not self._closed:
            self._timer = self._loop.call_later(KEEPALIVE_UPSTREAM_S, self._beat)
        return connack.session_present

    def send(self, data: bytes) -> None:
        """Writes a packet, together with all that is sent in this turn of the loop. Does nothing
        once the connection is lost, of which `on_lost` has told.
        """
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        out.append(data)

    def ping(self) -> asyncio.Future[None]:
        """Done when the broker has answered, and so has read what was sent before; BrokerAway when
        the connection is lost.
        """
        answer: asyncio.Future[None] = self._loop.create_future()
        if self._closed:
            answer.set_exception(BrokerAway("the connection to the broker is lost"))
            answer.exception()
        else:
            self._pongs.append(answer)
            self.send(build.pingreq())
        return answer

    async def answers(self) -> None:
        """Returns when the broker has answered a ping. Raises BrokerAway, after OPENING_S too."""
        try:
            async with asyncio.timeout(OPENING_S):
                await self.ping()
        except TimeoutError:
            raise BrokerAway(f"the broker did not answer for {OPENING_S} s") from None

    def pause(self, on: bool) -> None:
        """Stops reading, or goes on."""
        if self._transport is None or self._closed or on == self._paused:
            return
        self._paused = on
        (self._transport.pause_reading if on else self._transport.resume_reading)()

    def close(self) -> None:
        """Ends the connection with DISCONNECT, after all that was sent.

        The broker closes: if we did while it still writes, the system could throw away what it has
        not read of ours.
        """
        self._quiet = True
        if self._transport is None or self._closed:
            self._ended("the connection to the broker was closed")
            return
        self._out.append(build.disconnect())
        self._flush()
        self._ended("the connection to the broker was closed")
        if self._paused:
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(LINGER_S, self._transport.abort)

    def abort(self) -> None:
        """Ends it at once, without a word."""
        self._quiet = True
        self._lost("aborted")

    def give_up(self, reason: str) -> None:
        """Ends it at once; `on_lost` hears the reason."""
        self._lost(reason)

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._closed:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(str(exc) if exc else "the broker closed the connection")

    def data_received(self, data: bytes) -> None:
        if not self.up:
            return
        self._heard = True
        fault = None
        try:
            packets = self._decoder.feed(data)
        except ProtocolError as error:
            packets, fault = list(error.packets), error.with_traceback(None)
        self._as_event(self._hand_on, packets)
        if fault is not None:
            self._lost(f"the broker broke MQTT: {fault}")

    def pause_writing(self) -> None:
        if not self._closed:
            self._on_pressure(True)

    def resume_writing(self) -> None:
        if not self._closed:
            self._on_pressure(False)

    # --- how ---

    # Whether this packet is the link's own affair.
    def _takes(self, packet: Packet) -> bool:
        if isinstance(packet, Connack):
            if not self._connack.done():
                self._connack.set_result(packet)
        elif isinstance(packet, Pingresp):
            answer = self._pongs.popleft() if self._pongs else None
            if answer is not None and not answer.done():
                answer.set_result(None)
        elif isinstance(packet, Unfit):
            self._leave_out(packet)
        elif isinstance(packet, Pubrel) and packet.packet_id in self._unfit:
            self._unfit.discard(packet.packet_id)
            self.send(build.pubcomp(packet.packet_id))
        else:
            return False
        return True

    def _hand_on(self, packets: list[Packet]) -> None:
        on_packet = self._on_packet
        try:
            for packet in packets:
                kind = type(packet)
                if kind is Publish or kind is Puback or not self._takes(packet):
                    on_packet(packet)
                if self._closed:
                    return
        except Exception:
            # What came after it is lost, of which nobody else would hear.
            self._lost("internal error")
            raise

    # The other messages of this connection are not to blame, whoever published this one.
    def _leave_out(self, packet: Unfit) -> None:
        if packet.qos == 1:
            self.send(build.puback(packet.packet_id))
        elif packet.qos:
            self._unfit.add(packet.packet_id)
            self.send(build.pubrec(packet.packet_id))
        self._on_unfit(packet)

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None and not self._closed:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    def _beat(self) -> None:
        if self._closed:
            return
        if reason := self._overdue():
            self._lost(reason)
            return
        if not self._heard and not self._paused:
            self._lost(f"the broker was silent for {KEEPALIVE_UPSTREAM_S} s")
            return
        self._heard = False
        self._timer = self._loop.call_later(KEEPALIVE_UPSTREAM_S, self._beat)
        self._pongs.append(None)
        self.send(build.pingreq())

    def _ended(self, reason: str) -> None:
        self._closed = True
        for answer in self._pongs:
            if answer is not None and not answer.done():
                answer.set_exception(BrokerAway(reason))
                answer.exception()
        self._pongs.clear()
        if self._timer is not None:
            self._timer.cancel()
        # The callbacks are methods of the owner: this connection would keep it in memory.
        self._on_packet = self._on_lost = self._on_pressure = _to_nobody
        self._overdue = _nothing_overdue

    def _lost(self, reason: str) -> None:
        if self._closed:
            return
        on_lost = self._on_lost
        self._ended(reason)
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()
        if not self._connack.done():
            self._quiet = True
            self._connack.set_exception(BrokerAway(reason))
            self._connack.exception()
        if not self._quiet:
            on_lost(reason)
