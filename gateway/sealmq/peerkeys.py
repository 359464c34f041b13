"""Who a site is to its neighbours: two keys, one certificate, one fingerprint.

The certificate is of the line key (Ed25519), which the bridge has and TLS goes by. It names the key
generator's own key (X25519), which no bridge has: keys of exported labels pass from key generator
to key generator under it. Both come from the site's key file, so nothing more lies anywhere; the
certificate is the same each time, byte for byte, and its SHA-256 is the fingerprint.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

_SALT = 32
_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_UNTIL = datetime(9999, 12, 31, tzinfo=UTC)


class BadPeer(Exception):
    """What a peer has shown, or sent, is not what it has to be."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a certificate says: the site (4 bytes), its name, its key generator's key and its own,
    the line's (32 bytes each)."""

    site: bytes
    name: str
    kg: bytes
    public: bytes
    der: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """64 hex digits."""
        return hashlib.sha256(self.der).hexdigest()


def kg_key(role_key: bytes) -> X25519PrivateKey:
    """The key generator's key for its peers. role_key: its own, 32 bytes."""
    info = b"sealmq kg to peers"
    raw = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(role_key)
    return X25519PrivateKey.from_private_bytes(raw)


def certificate(line: bytes, role_key: bytes, site: bytes, name: str) -> bytes:
    """The site's certificate, DER. line, role_key: 32 bytes each, of the line and of the key
    generator.
    """
    own = Ed25519PrivateKey.from_private_bytes(line)
    kg = kg_key(role_key).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    who = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, site.hex()),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, kg.hex()),
        ]
    )
    builder = x509.CertificateBuilder().subject_name(who).issuer_name(who)
    builder = builder.public_key(own.public_key()).serial_number(1)
    made = builder.not_valid_before(_FROM).not_valid_after(_UNTIL).sign(own, None)
    return made.public_bytes(Encoding.DER)


def private_pem(line: bytes) -> bytes:
    """The line key as TLS wants it."""
    own = Ed25519PrivateKey.from_private_bytes(line)
    return own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def pem(der: bytes) -> bytes:
    """A certificate as TLS wants it."""
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


def read(der: bytes) -> Shown:
    """What a certificate says. BadPeer: none of ours. Whose it is, only its fingerprint says."""
    try:
        found = x509.load_der_x509_certificate(der)
        key = found.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise BadPeer("a certificate whose key is not Ed25519")
        key.verify(found.signature, found.tbs_certificate_bytes)
        said = [found.subject.get_attributes_for_oid(oid) for oid in _OIDS]
        name, site, kg = (str(one[0].value) for one in said)
        public = key.public_bytes_raw()
        shown = Shown(bytes.fromhex(site), name, bytes.fromhex(kg), public, der)
    except (
        ValueError, IndexError, InvalidSignature, UnsupportedAlgorithm,
        x509.ExtensionNotFound, x509.InvalidVersion,
    ):  # fmt: skip
        raise BadPeer("a certificate that is none of a SealMQ site") from None
    if len(shown.site) != 4 or len(shown.kg) != 32:
        raise BadPeer("a certificate that is none of a SealMQ site")
    return shown


_OIDS = (NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER, NameOID.ORGANIZATIONAL_UNIT_NAME)


class Between:
    """What passes between two key generators, whoever carries it.

    A key for each packet: HKDF over the X25519 of both, with a fresh salt, both sites and the
    direction; so no nonce is used twice, and a packet that is turned around does not open.
    """

    def __init__(self, own: X25519PrivateKey, site: bytes, peer: Shown) -> None:
        self._mine = own.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw), site
        self._theirs = peer.kg, peer.site
        try:
            self._shared = own.exchange(X25519PublicKey.from_public_bytes(peer.kg))
        except ValueError:
            raise BadPeer("the peer's key is of no use") from None

    def seal(self, said: bytes) -> bytes:
        """For the peer."""
        salt = secrets.token_bytes(_SALT)
        return salt + self._cipher(salt, out=True).encrypt(bytes(12), said, None)

    def open(self, packet: bytes) -> bytes:
        """From the peer; BadPeer."""
        salt, sealed = packet[:_SALT], packet[_SALT:]
        try:
            return self._cipher(salt, out=False).decrypt(bytes(12), sealed, None)
        except (InvalidTag, ValueError):
            raise BadPeer("keys that do not come from the peer's key generator") from None

    def _cipher(self, salt: bytes, *, out: bool) -> ChaCha20Poly1305:
        ends = (self._mine, self._theirs) if out else (self._theirs, self._mine)
        info = b"sealmq keys to a peer" + b"".join(key + site for key, site in ends)
        key = HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(self._shared)
        return ChaCha20Poly1305(key)
