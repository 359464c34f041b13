"""A plain MQTT 3.1.1 client for a few questions to a broker: does it let me in, what does it do?

Every wait is bounded by `timeout_s`. Not for a mediator's traffic; that has `mediator.links`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from sealmq.mqtt import (
    Connack,
    Decoder,
    MqttError,
    Packet,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Will,
    build,
)
from sealmq.unix import connected

from .errors import Closed, Silent, Unreachable, Untrusted
from .target import Target

_MOST = 1 << 20
_CURE = "do ca, cert and key belong together, and does the broker's certificate name this host?"

P = TypeVar("P")


class Peer:
    """One connection, to be used as `async with Peer(target, "sealmq/probe/x") as peer`.

    Entering gives a peer whatever the broker's CONNACK says: `code`, and `present` for "session
    present". Raises Unreachable when there is none. name: of whom the certificate has to be, where
    target.host is the address that the name was resolved to. most_unread: bytes that may come and
    not be asked for, say while a SUBACK is waited for; None: any number.
    """

    def __init__(
        self,
        target: Target,
        client_id: str,
        *,
        clean: bool = True,
        timeout_s: float = 5.0,
        context: ssl.SSLContext | None = None,
        name: str | None = None,
        will: Will | None = None,
        most_unread: int | None = None,
    ) -> None:
        self.code, self.present = 0, False
        self._target, self._client_id, self._clean = target, client_id, clean
        self._timeout_s, self._name, self._will = timeout_s, name or target.host, will
        self._context = context if context is not None else target.context()
        self._who = f"broker {target.address}"
        self._decoder = Decoder(_MOST, "client")
        self._inbox: list[Packet] = []
        self._ids = self._unread = 0
        self._most_unread = most_unread
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None and not self.code:
            self._writer.write(build.disconnect())
        self._close()

    async def _open(self) -> None:
        target = self._target
        try:
            async with asyncio.timeout(self._timeout_s):
                if target.unix is not None:
                    sock = await connected(target.unix)
                    self._reader, self._writer = await asyncio.open_unix_connection(sock=sock)
                else:
                    self._reader, self._writer = await asyncio.open_connection(
                        target.host,
                        target.port,
                        ssl=self._context,
                        server_hostname=self._name if self._context is not None else None,
                    )
        except TimeoutError:
            raise Silent(f"{self._who} does not answer within {self._timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise Untrusted(f"{self._who}: TLS: {_words(error)}", _CURE) from None
        except OSError as error:
            # asyncio puts words of its own in place of the system's.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            hint = "is it running, and is the address right?"
            raise Unreachable(f"{self._who}: {reason}", hint) from None
        self._send(
            build.connect(
                self._client_id,
                clean_session=self._clean,
                will=self._will,
                username=target.user,
                password=None if target.password is None else target.password.encode(),
            )
        )
        try:
            answer = await self.wait(Connack)
        except Closed as error:
            raise Closed(f"{error} without a CONNACK") from None
        self.code, self.present = answer.code, answer.session_present

    async def subscribe(self, *filters: str, qos: int = 1) -> list[int]:
        """The granted QoS of each, or 0x80."""
        self._ids += 1
        self._send(build.subscribe(self._ids, [(filt, qos) for filt in filters]))
        return list((await self.wait(Suback)).codes)

    async def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False
    ) -> None:
        """Returns when the broker has acknowledged it; Unreachable when it does not."""
        self._ids += 1
        raw = topic.encode()
        self._send(build.publish(raw, payload, qos, retain, packet_id=self._ids if qos else 0))
        if qos == 1:
            await self.wait(Puback)
        elif qos == 2:
            await self.wait(Pubrec)
            self._send(build.pubrel(self._ids))
            await self.wait(Pubcomp)

    async def publish_all(self, topic: str, payloads: Sequence[bytes], qos: int) -> None:
        """All at once, at QoS 1 or 2; QoS 2 is released when the broker has answered each. Returns
        when it has acknowledged them.
        """
        ids = range(self._ids + 1, self._ids + 1 + len(payloads))
        self._ids += len(payloads)
        raw = topic.encode()
        for number, payload in zip(ids, payloads, strict=True):
            self._send(build.publish(raw, payload, qos, packet_id=number))
        for _ in ids:
            await self.wait(Puback if qos == 1 else Pubrec)
        if qos == 2:
            for number in ids:
                self._send(build.pubrel(number))
            for _ in ids:
                await self.wait(Pubcomp)

    async def offer(self, topic: str, payload: bytes) -> bool:
        """Publish at QoS 1 and wait until it has been dealt with: whether it was acknowledged. A
        broker that refuses may hang up (Closed), or drop the message without a word.
        """
        self._ids += 1
        self._send(build.publish(topic, payload, 1, packet_id=self._ids) + build.pingreq())
        await self.wait(Pingresp)
        return self._found(Puback) is not None

    async def held(self) -> None:
        """Reads what has come by now, without acknowledging any of it."""
        self._send(build.pingreq())
        await self.wait(Pingresp)

    async def message(self, within_s: float | None = None) -> Publish:
        """The next message, which is acknowledged."""
        got = await self.wait(Publish, within_s)
        if got.qos == 1:
            self._send(build.puback(got.packet_id))
        elif got.qos == 2:
            self._send(build.pubrec(got.packet_id))
            await self.wait(Pubrel)
            self._send(build.pubcomp(got.packet_id))
        return got

    async def wait(self, kind: type[P], within_s: float | None = None) -> P:
        """The next packet of a kind; others stay. Unreachable: the connection or the time ended."""
        within_s = self._timeout_s if within_s is None else within_s
        try:
            async with asyncio.timeout(within_s):
                while (found := self._found(kind)) is None:
                    await self._more()
        except TimeoutError:
            raise Silent(f"{self._who} does not answer within {within_s:g} s") from None
        except ssl.SSLError as error:
            raise Untrusted(f"{self._who}: TLS: {_words(error)}", _CURE) from None
        except OSError:
            raise Closed(f"{self._who} closed the connection") from None
        except MqttError as error:
            raise Unreachable(f"{self._who} does not speak MQTT: {error}") from None
        return found

    def _found(self, kind: type[P]) -> P | None:
        for at, packet in enumerate(self._inbox):
            if isinstance(packet, kind):
                del self._inbox[at]
                self._unread = self._unread if self._inbox else 0
                return packet
        return None

    async def _more(self) -> None:
        reader = self._reader
        chunk = b"" if reader is None else await reader.read(4096)
        if not chunk:
            raise ConnectionResetError
        self._unread += len(chunk)
        if self._most_unread is not None and self._unread > self._most_unread:
            raise Unreachable(f"{self._who} sends more than {self._most_unread} bytes unasked")
        self._inbox += self._decoder.feed(chunk)

    def _send(self, data: bytes) -> None:
        if self._writer is not None:
            self._writer.write(data)

    def cut(self) -> None:
        """Go away without a DISCONNECT, as one that has lost its network: its will is sent."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()


# OpenSSL's own words are in capitals after its library's name; a certificate's fault has a text.
def _words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
