"""mqtt_server.py's server over TLS 1.3, with a chain made for the occasion.

What MicroPython's own TLS costs is measured against it.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from mqtt_server import MqttServer

HOSTNAME = "mediator.test"
KINDS = {"ecdsa": "ECDSA P-256", "rsa": "RSA 2048"}

_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


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
