"""An MQTT server on 127.0.0.1 that does what measurements of a client need and nothing else.

It accepts everybody and acknowledges. A subscription to a topic "N/SIZE" (see `wanted`) gets N
messages of SIZE bytes on TOPIC, each as soon as the client has read the one before: a client must
not seem cheaper because messages came in one piece. TlsServer is the same over TLS 1.3, with a
chain made for the occasion: what MicroPython's own TLS costs is measured against it.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from mqtt_frames import ConnectionClosed, frame, read_packet, text

TOPIC = b"machine/1/temperature"
HOSTNAME = "mediator.test"
KINDS = {"ecdsa": "ECDSA P-256", "rsa": "RSA 2048"}
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_STUCK = 60.0  # seconds in which a client must have read a message
_SOCK_DIAG = 4  # the netlink family, and what follows from linux/inet_diag.h
_BY_FAMILY = 20
_ANY = 0xFFFFFFFF
_RECEIVE_QUEUE = 16 + 4 + 48 + 4


def wanted(filt: str) -> tuple[int, int, str] | None:
    """What a subscription asks for: (messages, bytes of each, rest), None for any other filter."""
    count, _, rest = filt.partition("/")
    size, _, rest = rest.partition("/")
    return (int(count), int(size), rest) if count.isdigit() and size.isdigit() else None


def payload(number: int, size: int) -> bytes:
    """The message of that number, of at least two bytes."""
    return number.to_bytes(2, "big") + bytes(size - 2)


class Reading:
    """Whether the other end of a connection on this host has read what it was sent.

    Asked of the kernel through sock_diag(7): /proc/net/tcp tells the same a thousand times slower.
    """

    def __init__(self, sock: socket.socket) -> None:
        (there, its_port), (here, port) = sock.getpeername(), sock.getsockname()
        addresses = (socket.inet_aton(there), socket.inet_aton(here))
        sides = struct.pack(">HH4s12x4s12x", its_port, port, *addresses)
        asked = struct.pack("=BBxxI", socket.AF_INET, socket.IPPROTO_TCP, _ANY) + sides
        asked += struct.pack("=III", 0, _ANY, _ANY)
        self._question = struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, 1, 1, 0) + asked
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)

    def close(self) -> None:
        self._kernel.close()

    def wait(self) -> None:
        """Until nothing lies in its receive queue. ConnectionClosed when it is gone or stuck."""
        end = time.monotonic() + _STUCK
        pause = 0.0001
        while self._waiting():
            if time.monotonic() > end:
                raise ConnectionClosed("the client does not read")
            time.sleep(pause)
            pause = min(2 * pause, 0.002)

    def _waiting(self) -> int:
        self._kernel.send(self._question)
        answer = self._kernel.recv(4096)
        if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
            raise ConnectionClosed("gone")
        return int(struct.unpack_from("=I", answer, _RECEIVE_QUEUE)[0])


class MqttServer:
    """`port`; `published`, the messages that came. What runs below MQTT is `wrap`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.published = 0

    def wrap(self, plain: socket.socket) -> socket.socket:
        """The socket that speaks MQTT, over an accepted one."""
        return plain

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with closing(Reading(plain)) as reading, self.wrap(plain) as sock:
                while True:
                    # umqtt writes a packet in pieces, and each waits for the last one's.
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                    _, first, body = read_packet(sock)
                    self._answer(sock, reading, first, body)
        except (OSError, ConnectionClosed):
            plain.close()

    def _answer(self, sock: socket.socket, reading: Reading, first: int, body: bytes) -> None:
        if first == 0x10:
            sock.sendall(frame(0x20, b"\0\0"))
        elif first & 0xF0 == 0x30:
            self.published += 1
            n = int.from_bytes(body[:2], "big")
            if first & 2:
                sock.sendall(frame(0x40, body[2 + n : 4 + n]))
        elif first == 0x82:
            sock.sendall(frame(0x90, body[:2] + b"\0"))
            n = int.from_bytes(body[2:4], "big")
            asked = wanted(body[4 : 4 + n].decode())
            count, size, _ = asked or (0, 0, "")
            for i in range(1, count + 1):
                reading.wait()
                sock.sendall(frame(0x30, text(TOPIC) + payload(i, size)))

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Serves while the block runs."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


def _key(kind: str) -> _Key:
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1())


def _certificate(name: str, key: _Key, issuer: str, issuer_key: _Key) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    authority = name == issuer
    subject, by = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, issuer)
    )
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(by)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - dt.timedelta(days=1))
    made = made.not_valid_after(now + dt.timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(authority, None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return made.sign(issuer_key, hashes.SHA256())


class TlsServer(MqttServer):
    """`ca`: the authority's certificate as DER, `strange`: another's. TLS 1.3 unless told."""

    def __init__(
        self, folder: Path, kind: str = "ecdsa", version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> None:
        super().__init__()
        authority, own, other = (_key(kind) for _ in range(3))
        root = _certificate("authority.test", authority, "authority.test", authority)
        leaf = _certificate(HOSTNAME, own, "authority.test", authority)
        # Of the same name, so that nothing but the signature tells them apart.
        false = _certificate("authority.test", other, "authority.test", other)
        self.ca = root.public_bytes(serialization.Encoding.DER)
        self.strange = false.public_bytes(serialization.Encoding.DER)
        chain = folder / "chain.pem"
        private = own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain.touch(mode=0o600)
        chain.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = self._context.maximum_version = version
        # The interpreter's `tls` has no session resumption: tickets would only be read and dropped.
        self._context.num_tickets = 0
        self._context.load_cert_chain(chain)
        chain.unlink()

    def wrap(self, plain: socket.socket) -> socket.socket:
        return self._context.wrap_socket(plain, server_side=True)


@contextmanager
def tls_server(
    kind: str = "ecdsa", version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> Iterator[tuple[TlsServer, Path, Path]]:
    """A running server, the file with its authority's certificate, that of another one's."""
    with tempfile.TemporaryDirectory(prefix="sealmq-tls-") as name:
        server = TlsServer(Path(name), kind, version)
        ca, strange = Path(name) / "ca.der", Path(name) / "strange.der"
        ca.write_bytes(server.ca)
        strange.write_bytes(server.strange)
        with server.serving():
            yield server, ca, strange
