"""Messages of a label whose roots the reader does not have any more (SPEC.md 4.4, op 0x83).

A reader's table of roots is bounded. A message that it lacks the roots for waits here, without an
acknowledgement, while the label's records are asked for. Sans-IO; what waits is bounded too.
"""

from __future__ import annotations

from sealmq.mqtt import Publish

_PACKETS = 64
_BYTES = 1024 * 1024
# A label that could not be opened is not asked for again so soon, ms.
_AGAIN_MS = 10_000
_REMEMBERED = 1024


class Missing:
    """Of one connection."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[Publish]] = {}
        # ctr of the fetch -> label; labels of which a record has come.
        self._asked: dict[int, int] = {}
        self._answered: set[int] = set()
        self._hopeless: dict[int, int] = {}
        self._count = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting or self._answered)

    def keeps(self, packet: Publish, label: int, mono: int) -> bool:
        """Whether the message waits for a record of this label; else it is refused at once."""
        crowded = self._count >= _PACKETS or self._bytes + len(packet.payload) > _BYTES
        if crowded or mono < self._hopeless.get(label, 0):
            return False
        self._waiting.setdefault(label, []).append(packet)
        self._count += 1
        self._bytes += len(packet.payload)
        return True

    def asks(self, label: int) -> bool:
        """Whether the label has to be asked for."""
        return label not in self._asked.values()

    def asked(self, label: int, ctr: int) -> None:
        """It was, with this ctr."""
        self._asked[ctr] = label

    def came(self, label: int) -> list[Publish]:
        """A record of a label has come: what may be read now. Give back what still cannot."""
        if label not in self._waiting:
            return []
        self._answered.add(label)
        return self._take(label)

    def over(self, mono: int) -> list[Publish]:
        """Something else has come behind the records: what they did not open is refused."""
        out = []
        for label in self._answered:
            out += self._end(label, mono)
        self._answered.clear()
        return out

    def denied(self, ctr: int, mono: int) -> list[Publish]:
        """A notice for ctr: no record leads there."""
        label = self._asked.get(ctr)
        return [] if label is None else self._end(label, mono)

    def everything(self) -> list[Publish]:
        """The connection is over."""
        return [packet for label in list(self._waiting) for packet in self._take(label)]

    def _end(self, label: int, mono: int) -> list[Publish]:
        self._asked = {ctr: of for ctr, of in self._asked.items() if of != label}
        left = self._take(label)
        if left:
            if len(self._hopeless) >= _REMEMBERED:
                self._hopeless.clear()
            self._hopeless[label] = mono + _AGAIN_MS
        return left

    def _take(self, label: int) -> list[Publish]:
        packets = self._waiting.pop(label, [])
        self._count -= len(packets)
        self._bytes -= sum(len(packet.payload) for packet in packets)
        return packets
