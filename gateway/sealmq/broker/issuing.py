"""A small certificate authority for one site: it certifies one broker and the site's mediator.

Nobody else holds a certificate of it, so "of this CA" already means "one of the two"; the broker's
access list names the mediator besides. There is no revocation list: who must be kept out from now
on is kept out by a new CA, in a folder of its own.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .errors import BadAddress
from .tls import WARN

CA_YEARS = 10
LEAF_DAYS = 730
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
# Clocks differ.
_EARLIER = timedelta(days=1)
_NEW = "take another --out: a new CA, and new certificates for the broker and the mediator"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.cert.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """Not encrypted: the file's mode protects it."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_ca(name: str, now: datetime | None = None) -> Pair:
    """A new CA, for ten years."""
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(subject, subject, key, now, now + timedelta(days=365 * CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(identifier, critical=False)
    )
    return Pair(builder.sign(key, hashes.SHA256()), key)


def load_ca(cert: bytes, key: bytes, where: str, now: datetime | None = None) -> Pair:
    """A CA to be used again; BadAddress when it has ended, or is no such thing."""
    now = now or datetime.now(UTC)
    try:
        found, secret = x509.load_pem_x509_certificate(cert), load_pem_private_key(key, None)
    except (ValueError, TypeError):
        raise BadAddress(f"{where} holds no CA of ours", _NEW) from None
    if not isinstance(secret, ec.EllipticCurvePrivateKey) or (
        secret.public_key() != found.public_key()
    ):
        raise BadAddress(f"{where} holds a key that is not its certificate's", _NEW)
    end = found.not_valid_after_utc
    if end <= now:
        raise BadAddress(f"the CA in {where} has ended on {end:%Y-%m-%d}", _NEW)
    return Pair(found, secret)


def ends_soon(ca: Pair, now: datetime | None = None) -> str | None:
    """In words, when the CA has 30 days or less."""
    end = ca.cert.not_valid_after_utc
    if end - (now or datetime.now(UTC)) > WARN:
        return None
    return f"the CA ends on {end:%Y-%m-%d}; {_NEW}"


def check_hosts(hosts: Sequence[str]) -> None:
    """BadAddress for what is neither a name nor an address."""
    for host in hosts:
        _general(host)


def server(ca: Pair, hosts: Sequence[str], now: datetime | None = None) -> Pair:
    """The broker's, for these names and addresses."""
    names = x509.SubjectAlternativeName([_general(host) for host in hosts])
    return _leaf(ca, hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, names, now)


def client(ca: Pair, name: str, now: datetime | None = None) -> Pair:
    """A mediator's; its common name is its user name at the broker."""
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    return _leaf(ca, name, ExtendedKeyUsageOID.CLIENT_AUTH, names, now)


def _leaf(
    ca: Pair,
    name: str,
    use: x509.ObjectIdentifier,
    names: x509.SubjectAlternativeName,
    now: datetime | None,
) -> Pair:
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    end = min(now + timedelta(days=LEAF_DAYS), ca.cert.not_valid_after_utc)
    above = ca.cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(subject, ca.cert.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above), critical=False
        )
    )
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(end)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Of a leaf, which signs handshakes, or of a CA, which signs certificates."""
    return x509.KeyUsage(
        digital_signature=signs,
        key_cert_sign=not signs,
        crl_sign=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST.fullmatch(host) is None:
            raise BadAddress(f"{host!r} is no host's name", "--host NAME-OR-ADDRESS") from None
    return x509.DNSName(host)
