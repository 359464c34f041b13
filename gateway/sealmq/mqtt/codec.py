"""The incremental decoder: bytes in at any chunking, packets out; no socket, no clock.

It holds at most the one packet that is still incomplete, within the limit for its type, and copies
each byte a bounded number of times however the bytes arrive. A fault ends it for good.
"""

from __future__ import annotations

from typing import TypeAlias

from .errors import DecoderDead, MalformedPacket, ProtocolError, UsageError
from .packets import Packet, Unfit
from .parse import pubacks, publish_head, unfit
from .tables import (
    CONNECT,
    PUBACK,
    PUBLISH,
    Role,
    Stage,
    first_byte_fault,
    length_fault,
    name,
    table,
)

Buffer: TypeAlias = bytes | bytearray | memoryview

# Section 2.2.3: four bytes of seven bits.
MAX_REMAINING = 268_435_455


class Decoder:
    """Decodes what arrives at a `role`: "server" takes packets of clients, "client" of servers.

    `max_packet` and `max_connect` are the largest remaining lengths in bytes (section 2.2.3: what
    follows the fixed header), the second for CONNECT alone. With `connect_first` a server takes
    nothing before a CONNECT and no second one, so that a stranger can make it hold no more than
    `max_connect` bytes. With `lenient` a PUBLISH that is too large, or whose topic is no topic
    name, is given as Unfit, as long as where it ends is clear; its payload is held nowhere. With
    `together` PUBACKs are given as Pubacks, each for as many as follow one another, up to RUN.
    """

    __slots__ = (
        "_fault",
        "_held",
        "_lenient",
        "_max_connect",
        "_max_packet",
        "_most",
        "_need",
        "_parsers",
        "_role",
        "_skip",
        "_stage",
        "_together",
        "_unfit",
    )

    def __init__(
        self,
        max_packet: int,
        role: Role = "server",
        *,
        max_connect: int = 16384,
        connect_first: bool = False,
        lenient: bool = False,
        together: bool = False,
    ) -> None:
        if role not in ("server", "client"):
            raise UsageError(f"role {role!r}; it is 'server' or 'client'")
        for limit, of in ((max_packet, "max_packet"), (max_connect, "max_connect")):
            if not 0 < limit <= MAX_REMAINING:
                raise UsageError(f"{of} {limit}; it is 1 to {MAX_REMAINING}")
        self._role: Role = role
        self._stage: Stage = "opening" if connect_first and role == "server" else "any"
        self._max_packet = max_packet
        self._max_connect = max_connect
        self._parsers, self._most = table(role, self._stage, max_packet, max_connect)
        # The incomplete packet, and its whole size, or 0 while its fixed header is incomplete.
        self._held = bytearray()
        self._need = 0
        self._fault: str | None = None
        self._lenient, self._together = lenient, together
        # Of a packet that is too large: bytes that are still to come, and what is said of it then.
        self._skip = 0
        self._unfit: Unfit | None = None

    @property
    def buffered(self) -> int:
        """Bytes held of a packet that is not complete; not 0 at the end of a stream = cut off."""
        return len(self._held)

    def feed(self, data: Buffer) -> list[Packet]:
        """The packets that `data` completes, in their order.

        Raises a ProtocolError as soon as a fault is certain; its `packets` are those complete
        before it. After that every call raises DecoderDead.
        """
        if self._fault is not None:
            raise DecoderDead(f"bytes after a fault that ended the stream: {self._fault}")
        packets: list[Packet] = []
        chunk = data if type(data) is bytes else bytes(memoryview(data))
        try:
            if self._held:
                self._resume(chunk, packets)
            else:
                self._scan(chunk, 0, packets)
        except ProtocolError as error:
            self._fault = str(error)
            self._held = bytearray()
            error.packets = tuple(packets)
            raise
        return packets

    def _resume(self, chunk: bytes, packets: list[Packet]) -> None:
        """Complete the packet that is held, then go on after it."""
        held = self._held
        if not self._need:
            # At most four bytes of a fixed header: cheaper to start over than to remember.
            self._held = bytearray()
            self._scan(bytes(held) + chunk, 0, packets)
            return
        missing = self._need - len(held)
        if len(chunk) < missing:
            # A bytearray grows geometrically, so many small chunks stay linear.
            held += chunk
            return
        self._held = bytearray()
        whole = b"".join((held, memoryview(chunk)[:missing]))
        del held
        self._scan(whole, 0, packets)
        del whole
        if self._held and missing < len(chunk):
            # Of a packet that is too large: what is needed of it shows step by step.
            self._resume(chunk[missing:], packets)
        else:
            self._scan(chunk, missing, packets)

    def _scan(self, data: bytes, pos: int, packets: list[Packet]) -> None:
        """Take complete packets from data[pos:], hold what is left."""
        parsers, most = self._parsers, self._most
        end = len(data)
        need = 0
        if self._skip:
            pos = self._skipped(pos, end, packets)
        while pos < end:
            first = data[pos]
            parse = parsers[first]
            if parse is None:
                raise first_byte_fault(first, self._role, self._stage)
            if first == PUBACK and self._together and (run := pubacks(data, pos, end)):
                packets.append(run)
                pos += 4 * len(run.packet_ids)
                continue
            body = pos + 2
            if body > end:
                break
            remaining = data[pos + 1]
            if remaining > 127:
                if body < end and data[body] < 128:
                    # Two bytes, as most that need more than one.
                    remaining += (data[body] - 1) * 128
                    body += 1
                else:
                    remaining, body = _long_length(data, pos, end)
                    if not body:
                        break
            stop = body + remaining
            if remaining > most[first]:
                fault = length_fault(first, remaining, most[first])
                if not self._lenient or first >> 4 != PUBLISH:
                    raise fault
                head = publish_head(data, pos, body, stop)
                if head > end:
                    need = head - pos
                    break
                self._unfit = unfit(data, pos, body, stop, str(fault))
                self._skip = stop - head
                pos = self._skipped(head, end, packets)
                continue
            if stop > end:
                need = stop - pos
                break
            try:
                packets.append(parse(data, pos, body, stop))
            except MalformedPacket as error:
                if not self._lenient or first >> 4 != PUBLISH:
                    raise
                packets.append(unfit(data, pos, body, stop, str(error)))
            pos = stop
            if first == CONNECT and self._stage == "opening":
                self._stage = "open"
                parsers, most = table(self._role, "open", self._max_packet, self._max_connect)
                self._parsers, self._most = parsers, most
        if pos < end:
            self._held = bytearray(memoryview(data)[pos:])
            self._need = need

    def _skipped(self, pos: int, end: int, packets: list[Packet]) -> int:
        """Leaves out what is left of a packet that is too large, as far as it has come."""
        size = min(self._skip, end - pos)
        self._skip -= size
        if not self._skip and self._unfit is not None:
            packets.append(self._unfit)
            self._unfit = None
        return pos + size


def _long_length(data: bytes, start: int, end: int) -> tuple[int, int]:
    """A remaining length of two bytes or more, and where the body starts (0: incomplete).

    A longer encoding than needed is taken: MQTT 3.1.1 does not forbid it.
    """
    remaining = 0
    for index in range(4):
        pos = start + 1 + index
        if pos == end:
            return 0, 0
        byte = data[pos]
        remaining |= (byte & 127) << 7 * index
        if byte < 128:
            return remaining, pos + 1
    raise MalformedPacket(
        f"{name(data[start])}: remaining length {data[start + 1 : start + 5].hex(' ')} goes on "
        "after four bytes; the fourth is below 0x80 [section 2.2.3]"
    )
