"""A TLS 1.3 server on 127.0.0.1 that speaks just enough MQTT, with a chain made for the occasion.

What MicroPython's own TLS costs is measured against it.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mqtt_frames import ConnectionClosed, frame, read_packet

HOSTNAME = "mediator.test"


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
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


class TlsServer:
    """`port`, and `ca`: the authority's certificate as DER. Accepts TLS 1.3 with ECDSA only."""

    def __init__(self, folder: Path) -> None:
        authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        root = _certificate("authority.test", authority, "authority.test", authority)
        leaf = _certificate(HOSTNAME, own, "authority.test", authority)
        self.ca = root.public_bytes(serialization.Encoding.DER)
        chain = folder / "chain.pem"
        private = own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain.touch(mode=0o600)
        chain.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.load_cert_chain(chain)
        chain.unlink()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.published = 0

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
            with self._context.wrap_socket(plain, server_side=True) as sock:
                while True:
                    _, first, body = read_packet(sock)
                    if first == 0x10:
                        sock.sendall(frame(0x20, b"\0\0"))
                    elif first & 0xF0 == 0x30:
                        self.published += 1
                        n = int.from_bytes(body[:2], "big")
                        if first & 2:
                            sock.sendall(frame(0x40, body[2 + n : 4 + n]))
        except (OSError, ConnectionClosed):
            plain.close()

    @contextmanager
    def serving(self) -> Iterator[TlsServer]:
        """Serves while the block runs."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


@contextmanager
def tls_server() -> Iterator[tuple[TlsServer, Path]]:
    """A running server and the file with its authority's certificate."""
    with tempfile.TemporaryDirectory(prefix="sealmq-tls-") as name:
        server = TlsServer(Path(name))
        ca = Path(name) / "ca.der"
        ca.write_bytes(server.ca)
        with server.serving():
            yield server, ca
