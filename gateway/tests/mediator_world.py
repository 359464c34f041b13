"""A small world for the mediator's sans-IO parts: two labels, three clients, their keys."""

from __future__ import annotations

import os
from typing import Any

from sealmq.aead import make
from sealmq.mediator.core.boots import BootSession
from sealmq.mediator.core.keyring import Keyring
from sealmq.mqtt import Packet, Puback, Pubacks, Will, build
from sealmq_spec.identity import Identity
from sealmq_spec.keys import topic_key
from sealmq_spec.records import Roots, make_manifest, make_record
from sealmq_spec.session import Session

NOW_MS = 1_800_000_000_000
LOW, HIGH = 16, 17
SENSOR, PANEL, SIBLING = 1, 2, 3
MEDIATOR = 1


def as_read(packet: Packet) -> Packet:
    """A client's packet as the channel's decoder gives it to the session."""
    return Pubacks((packet.packet_id,)) if isinstance(packet, Puback) else packet


class World:
    """`suite_low`, `suite_high`: the labels' suites; `link_suite`: of every link."""

    def __init__(self, suite_low: int = 1, suite_high: int = 1, link_suite: int = 1) -> None:
        self.site = os.urandom(4)
        self.link_suite = link_suite
        # Rows of a snapshot.
        self.grants: list[dict[str, Any]] = []
        self.holders: list[list[int]] = []
        self.low = Roots(LOW, 3, suite_low, os.urandom(32), os.urandom(32))
        self.high = Roots(HIGH, 1, suite_high, os.urandom(32), os.urandom(32))
        self.identities = {
            SENSOR: self._identity(SENSOR, "sensor", self.low),
            PANEL: self._identity(PANEL, "panel", self.high),
            SIBLING: self._identity(SIBLING, "sibling", self.low),
        }
        order = (7).to_bytes(3, "big")
        self.record = make_record(
            make,
            self.site,
            self.high,
            self.low,
            os.urandom(8),
            os.urandom(8),
            5,
            0,
            order + bytes(9),
        )
        self.manifest = make_manifest(make, self.site, self.low, 5, 0, order + bytes(8) + b"\x01")
        self.ring = Keyring(self.site, 9, self.snapshot())

    def _identity(self, number: int, name: str, roots: Roots) -> Identity:
        ident = Identity(self.site, number, MEDIATOR, os.urandom(32), name, self.link_suite)
        ident.gen, ident.km, ident.own = 1, os.urandom(32), roots
        return ident

    def snapshot(self) -> dict[str, Any]:
        """What a key generator would answer."""
        labels = []
        for name, roots in (("low", self.low), ("high", self.high)):
            ek = topic_key(self.site, roots.suite, roots.label, roots.epoch, roots.r)
            row = {"number": roots.label, "name": name, "suite": roots.suite}
            labels.append({**row, "epoch": roots.epoch, "ek": ek.hex(), "previous": None})
        clients = [
            {
                "number": ident.client,
                "name": ident.name,
                "label": ident.own.label,
                "kind": "device",
                "suite": ident.suite,
                "disabled": False,
                "links": [{"gen": 1, "km": ident.km.hex(), "pending": False}],
            }
            for ident in self.identities.values()
        ]
        return {
            "kseq": 5,
            "labels": labels,
            "clients": clients,
            "records": [self.record.hex()],
            "manifests": [self.manifest.hex()],
            "grants": self.grants,
            "holders": self.holders,
        }

    def grant(self, name: str, *holders: int, epoch: int = 1, suite: int = 1) -> None:
        """A grant of the family `sealing`, from the next snapshot on; of the same name: another
        epoch of it, with another key.
        """
        had = next((row["number"] for row in self.grants if row["name"] == name), 0)
        number = had or 1 + max((row["number"] for row in self.grants), default=4)
        self.grants = [row for row in self.grants if row["number"] != number]
        self.holders = [row for row in self.holders if row[0] != number]
        row = {"number": number, "family": "sealing", "name": name, "epoch": epoch}
        self.grants.append({**row, "suite": suite, "g": os.urandom(32).hex()})
        self.holders += [[number, client] for client in holders]

    def session(self, number: int, boot: int = 1, salt: bytes | None = None) -> Session:
        """A client's session that has its time."""
        session = Session(self.identities[number], make, boot, salt or os.urandom(8))
        session._offset = NOW_MS
        return session

    def link(self, session: Session) -> BootSession:
        """The mediator's side of it."""
        client = self.ring.clients[session.ident.client]
        return BootSession(self.site, MEDIATOR, client, 1, session.boot, session.salt)


def hello(
    session: Session,
    client_id: str,
    clean: bool = True,
    will: Will | None = None,
    low: int = 0,
    kg_time: bool = False,
) -> bytes:
    """A CONNECT with a proof."""
    raw = bytearray(
        build.connect(
            client_id,
            clean_session=clean,
            keepalive=60,
            will=will,
            username="sealmq1",
            password=bytes(session.begin_connect(kg_time, low)) + bytes(22),
        )
    )
    session.sign(raw, 0)
    return bytes(raw)


def sealed(
    session: Session,
    topic: str,
    payload: bytes,
    flags: int = 2,
    kind: int = 0,
    life: int = 0,
    mono: int = 0,
    tlv: bytes = b"\x00",
) -> bytes:
    """An m2. mono: milliseconds after NOW_MS."""
    at = 9 + len(tlv) + 27
    buf = bytearray(at + len(payload) + 32)
    buf[at : at + len(payload)] = payload
    n = session.seal_publish(buf, 0, len(payload), topic.encode(), flags, kind, life, mono, tlv)
    return bytes(buf[:n])
