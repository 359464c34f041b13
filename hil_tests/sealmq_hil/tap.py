"""The tap at the broker: all that mediators publish, with the nonces outside and inside.

It is a client of the rig's own broker, beside the mediator. The outside of an m3 is there for every
broker to see; its inside opens with the keys of a client above all boards (SPEC.md 3.3, 8). Bodies
of m1 stay closed: the nonce stands in the header.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305
from sealmq_spec.const import M3_HEAD, MANIFEST, TAG
from sealmq_spec.envelope import get_m1, get_m3, nonce_m3, open_at, tail_m3
from sealmq_spec.errors import SealError
from sealmq_spec.identity import Identity
from sealmq_spec.keys import outer_key, topic_key
from sealmq_spec.records import Roots, derive, get_manifest, get_record
from sealmq_spec.tlv import span

from . import mqtt, nonces
from .errors import RigError
from .nonces import Book

_RECORDS = b"@sm1/"
# Where a mediator tries what the broker takes: no envelopes.
_TRIED = b"@sealmq/"


class Cipher:
    """The port of sealmq_spec.aead, opening only and checking tags."""

    def __init__(self, suite: int, key: bytes) -> None:
        self._cipher = AESCCM(key, 16) if suite == 1 else ChaCha20Poly1305(key)

    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        """Tags of records are checked by making them again."""
        sealed = self._cipher.encrypt(nonce, bytes(buf[start : start + n]), aad)
        buf[start : start + n + TAG] = sealed

    def open_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bool:
        """False: it does not verify."""
        try:
            plain = self._cipher.decrypt(nonce, bytes(buf[start : start + n + TAG]), aad)
        except InvalidTag:
            return False
        buf[start : start + n] = plain
        return True


def identity(enrolment: Path, state: Path) -> Identity:
    """Who the rig's reader is, with its keys. RigError."""
    made = Identity.from_enrolment(json.loads(enrolment.read_text()))
    try:
        held = made.load(bytes.fromhex(json.loads(state.read_text())["identity"]))
    except (OSError, ValueError, KeyError) as error:
        raise RigError(f"the rig's reader has no keys: {error}") from None
    if not held:
        raise RigError("the rig's reader has no keys: its state does not verify")
    return made


def outer(book: Book, topic: bytes, payload: bytes) -> None:
    """The outside of an m3, at the broker or on a path. SealError."""
    suite, _, _, label, epoch, inst, _, _ = get_m3(payload)
    nonce = nonce_m3(payload)
    key = (nonces.OUTER, str(label), str(epoch), str(inst), nonce.hex())
    site = book.site
    under = nonces.named("o1", site=site, suite=suite, label=label, epoch=epoch, inst=inst)
    book.add(key, mqtt.text(topic) + payload, under, nonce)


class Envelopes:
    """m3 and records, as they come. Sans-IO."""

    def __init__(self, book: Book, ident: Identity) -> None:
        self._book, self._ident = book, ident
        own: Any = ident.own
        self._roots: dict[tuple[int, int], Roots] = {(own.label, own.epoch): own}
        self._waiting: list[tuple[bytes, bytes]] = []
        self.opened = 0

    def came(self, topic: bytes, payload: bytes) -> None:
        """One PUBLISH from the broker."""
        if topic.startswith(_RECORDS):
            self._record(payload)
        elif payload and not topic.startswith(_TRIED) and not self._envelope(topic, payload):
            # Its record may be on its way still.
            self._waiting.append((topic, payload))

    def waiting(self) -> int:
        """Envelopes whose record has not come."""
        return len(self._waiting)

    def end(self) -> None:
        """What no record ever opened is told."""
        for topic, payload in self._waiting:
            _, _, _, label, epoch, *_ = get_m3(payload)
            self._book.missed(f"{topic.decode()}: no key for label {label}, epoch {epoch}")
        self._waiting.clear()

    def _record(self, payload: bytes) -> None:
        try:
            if payload[:1] == bytes((MANIFEST,)):
                suite, label, epoch, _, _ = get_manifest(payload)
                self._ordered(suite, label, epoch, payload[16:28], payload)
                return
            suite, _, n, e_n, label, epoch, _, _ = get_record(payload)
            self._ordered(suite, label, epoch, payload[102:114], payload)
            top = self._roots.get((label, epoch))
            if top is None or (n, e_n) in self._roots:
                return
            self._roots[n, e_n] = derive(Cipher, self._ident.site, top, payload)
        except SealError:
            return  # of a label that is not below ours, or cleared
        waiting, self._waiting = self._waiting, []
        for topic, envelope in waiting:
            self.came(topic, envelope)

    def _ordered(self, suite: int, label: int, epoch: int, order: bytes, whole: bytes) -> None:
        under = nonces.named("r1", site=self._book.site, suite=suite, label=label, epoch=epoch)
        self._book.add((nonces.RECORD, str(label), str(epoch), order.hex()), whole, under, order)

    def _envelope(self, topic: bytes, payload: bytes) -> bool:
        try:
            suite, _, _, label, epoch, inst, _, _ = get_m3(payload)
            outer(self._book, topic, payload)
        except SealError as error:
            self._book.missed(f"{topic.decode()} at the broker: {error}")
            return True
        roots = self._roots.get((label, epoch))
        if roots is None:
            return False
        site = self._ident.site
        ek = topic_key(site, suite, label, epoch, roots.r)
        cipher = Cipher(suite, outer_key(site, suite, label, epoch, inst, ek))
        buf = bytearray(payload)
        end = len(buf)
        if not open_at(cipher, nonce_m3(buf), buf, 0, M3_HEAD, end, tail_m3(site, topic)):
            self._book.missed(f"{topic.decode()} at the broker: an m3 that does not verify")
            return True
        at = M3_HEAD + 1 if not buf[M3_HEAD] else span(buf, M3_HEAD, end - TAG)[1]
        self._inside(label, topic, bytes(buf[at : end - TAG]))
        return True

    def _inside(self, label: int, topic: bytes, m1: bytes) -> None:
        try:
            suite, _, _, epoch, sender, boot, salt, ctr, _, _ = get_m1(m1, 0, len(m1))
        except SealError as error:
            self._book.missed(f"{topic.decode()} at the broker: {error}")
            return
        self.opened += 1
        content = mqtt.text(topic) + m1
        under = nonces.named(
            "i1",
            site=self._book.site,
            suite=suite,
            label=label,
            epoch=epoch,
            sender=sender,
            boot=boot,
            salt=salt.hex(),
        )
        whose = (nonces.INNER, sender, 0, boot, salt, ctr)
        self._book.sealed(*whose, content, under=under, epoch=epoch)


class Tap:
    """Subscribed to everything at the rig's broker; again whenever that was away."""

    def __init__(self, port: int, came: Callable[[bytes, bytes], None]) -> None:
        self._port, self._came = port, came
        self._closed = threading.Event()
        self._listening = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="tap", daemon=True)
        self._thread.start()

    def listening(self) -> bool:
        """Whether the broker has granted it everything, in the connection that there is."""
        return self._listening.is_set()

    def close(self) -> None:
        """The end."""
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def _run(self) -> None:
        while not self._closed.is_set():
            with suppress(OSError, mqtt.NotMqtt):
                self._listen()
            self._listening.clear()
            self._closed.wait(0.05)

    def _listen(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), 5) as line:
            self._socket = line
            # A session that the broker keeps: nothing of QoS 1 gets past while it is away.
            body = mqtt.text(b"MQTT") + b"\x04\x00\0\0" + mqtt.text(b"rig-tap")
            line.sendall(mqtt.packet(mqtt.CONNECT, body))
            filters = b"\0\x01" + mqtt.text(b"#") + b"\x01"
            line.sendall(mqtt.packet(mqtt.SUBSCRIBE | 2, filters))
            line.settimeout(None)
            stream = mqtt.Stream()
            while data := line.recv(65536):
                for first, payload, _ in stream.feed(data):
                    self._packet(line, first, payload)

    def _packet(self, line: socket.socket, first: int, body: bytes) -> None:
        if first & 0xF0 == mqtt.SUBACK:
            self._listening.set()
        elif first & 0xF0 == mqtt.PUBLISH:
            topic, pid, payload = mqtt.published(first, body)
            self._came(topic, payload)
            if pid:
                line.sendall(mqtt.packet(mqtt.PUBACK, pid.to_bytes(2, "big")))
