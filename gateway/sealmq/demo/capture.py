"""What a tap recorded, read back from its folder: streams of bytes, and the packets in them.

The verdict looks at these files and at nothing that the demo remembers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sealmq.mqtt import Connect, Packet, Publish, Subscribe
from sealmq_spec.envelope import get_m3
from sealmq_spec.errors import SealError

from .frames import FrameError, Frames, decode


@dataclass(frozen=True, slots=True)
class Stream:
    """One connection: raw bytes and packets, towards the server and from it."""

    number: int
    raw_to: bytes
    raw_from: bytes
    to_server: tuple[Packet, ...]
    to_client: tuple[Packet, ...]

    @property
    def client_id(self) -> str:
        """The CONNECT's client identifier; empty without one."""
        return next((p.client_id for p in self.to_server if isinstance(p, Connect)), "")

    @property
    def clean(self) -> bool:
        """Whether its CONNECT asks for a clean session."""
        return any(p.clean_session for p in self.to_server if isinstance(p, Connect))

    @property
    def behind(self) -> int | None:
        """The number of the client that a mediator's connection to the broker serves."""
        parts = self.client_id.split("/")
        return int(parts[2]) if len(parts) > 3 and parts[2].isdecimal() else None

    def published(self, topic: str | None = None) -> list[Publish]:
        """PUBLISH packets towards the server, with a payload."""
        return [p for p in _publishes(self.to_server) if topic is None or p.topic == topic]

    def delivered(self, topic: str | None = None) -> list[Publish]:
        """PUBLISH packets from the server, with a payload."""
        return [p for p in _publishes(self.to_client) if topic is None or p.topic == topic]

    def filters(self) -> set[str]:
        """Filters that were subscribed to."""
        return {f for p in self.to_server if isinstance(p, Subscribe) for f, _ in p.filters}


def _publishes(packets: tuple[Packet, ...]) -> list[Publish]:
    return [p for p in packets if isinstance(p, Publish) and p.payload]


def load(folder: Path) -> list[Stream]:
    """All streams of a tap's folder, in the order of their connections."""
    out = []
    for path in sorted(folder.glob("*-to-server.bin")):
        raw_to = path.read_bytes()
        back = path.with_name(path.name.replace("-to-", "-from-"))
        raw_from = back.read_bytes() if back.exists() else b""
        number = int(path.name.partition("-")[0])
        out.append(Stream(number, raw_to, raw_from, _packets(raw_to, True), _packets(raw_from)))
    return out


def _packets(raw: bytes, to_server: bool = False) -> tuple[Packet, ...]:
    try:
        return tuple(decode(Frames().feed(raw), to_server))
    except FrameError:
        return ()


def label_number(payload: bytes) -> int | None:
    """The label number in the header of an m3 (SPEC.md 3.3); None for anything else."""
    try:
        return int(get_m3(payload)[3])
    except SealError:
        return None
