"""Messages of QoS 1 and 2 that are underway, across the connections of one boot session. Sans-IO.

What is sent again is the stored bytes, never sealed again (SPEC.md 5, point 3), and no ctr may
leave while one that might be resent lies 64 or more below: the mediator's window would refuse the
latter (6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sealmq.mqtt import PacketIds, build
from sealmq_spec.window import WIDTH

from .speech import V311, Speech

_DUP = 8


@dataclass(slots=True)
class Flight:
    """One message. `released`: PUBREC has come; only PUBREL may be sent now. `again`: it was sent
    in an earlier connection too."""

    packet_id: int
    ctr: int
    qos: int
    packet: bytes = field(repr=False)
    released: bool = False
    refused: bool = False
    again: bool = False


class Outbox:
    """The flights, by packet id; in the order of their ctr."""

    def __init__(self, speech: Speech = V311) -> None:
        self._speech = speech
        self.ids = PacketIds()
        self._flights: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def add(self, packet_id: int, ctr: int, qos: int, packet: bytes) -> None:
        """Keep a message until it is acknowledged. The id was taken from `ids`."""
        self._flights[packet_id] = Flight(packet_id, ctr, qos, packet)

    def low(self) -> int:
        """The lowest ctr that may be sent again, 0 if none (`low` of SPEC.md 4.1)."""
        for flight in self._flights.values():
            if not flight.released and not flight.refused:
                return flight.ctr
        return 0

    def admits(self, ctr: int, most: int = 0) -> bool:
        """Whether a packet with this ctr leaves what is underway inside the mediator's window, and
        fewer than `most` are, unless that is 0."""
        if most and len(self._flights) >= most:
            return False
        for flight in self._flights.values():
            if not flight.released and not flight.refused:
                return ctr - flight.ctr < WIDTH
        return True

    def pubacks(self, packet_ids: Sequence[int]) -> list[int | None]:
        """ctr of each message that these end; None where there is none of QoS 1."""
        ctrs: list[int | None] = []
        done: list[int] = []
        flights = self._flights
        for packet_id in packet_ids:
            flight = flights.get(packet_id)
            if flight is None or flight.qos != 1:
                ctrs.append(None)
                continue
            del flights[packet_id]
            ctrs.append(flight.ctr)
            done.append(packet_id)
        self.ids.release_all(done)
        return ctrs

    def pubrec(self, packet_id: int) -> bool:
        """The message needs no resending any more; False when there is none of QoS 2."""
        flight = self._flights.get(packet_id)
        if flight is None or flight.qos != 2:
            return False
        flight.released, flight.packet = True, b""
        return True

    def pubcomp(self, packet_id: int) -> int | None:
        """ctr of the message that this ends; None when there is none of QoS 2 or too early."""
        flight = self._flights.get(packet_id)
        if flight is None or flight.qos != 2 or not flight.released:
            return None
        self._drop(flight)
        return flight.ctr

    def refused(self, packet_id: int) -> tuple[int, bool] | None:
        """(ctr, whether a notice has refused it) of a message; None: there is none."""
        flight = self._flights.get(packet_id)
        return None if flight is None else (flight.ctr, flight.refused)

    def refuse(self, ctr: int) -> bool:
        """A notice came for ctr: it is not sent again; its id is free when the answer comes.

        True when it was sent in an earlier connection too.
        """
        for flight in self._flights.values():
            if flight.ctr == ctr:
                flight.refused, flight.packet = True, b""
                return flight.again
        return False

    def relink(self, seal: Callable[[bytes, int, bytes], bytes]) -> None:
        """Seal what may be sent again for another link. seal: topic, flags, m2 -> m2."""
        for flight in self._flights.values():
            if not flight.packet:
                continue
            topic, payload, qos, retain = self._speech.parts(flight.packet)
            sealed = seal(topic, qos << 1 | retain, payload)
            flight.packet = self._speech.publish(
                topic, sealed, qos, retain, packet_id=flight.packet_id
            )

    def resume(self, present: bool) -> tuple[bytes, list[int]]:
        """(what to send first in a new connection, ctrs whose exchange the other side forgot).

        `present`: the MQTT session outlived the connection (MQTT 3.1.1, 3.2.2.2 and 4.4).
        """
        out: list[bytes] = []
        lost: list[int] = []
        for flight in list(self._flights.values()):
            if flight.released and present:
                out.append(build.pubrel(flight.packet_id))
            elif flight.released or flight.refused:
                if not flight.refused:
                    lost.append(flight.ctr)
                self._drop(flight)
            else:
                flight.again = True
                out.append(bytes((flight.packet[0] | _DUP,)) + flight.packet[1:])
        return b"".join(out), lost

    def _drop(self, flight: Flight) -> None:
        del self._flights[flight.packet_id]
        self.ids.release(flight.packet_id)
