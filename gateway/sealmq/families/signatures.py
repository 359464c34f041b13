"""Ed25519 for what families have signed: keys of 32 bytes, signatures of 64."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES, SIGNATURE_BYTES = 32, 64


def public_of(private: bytes) -> bytes:
    """The public key, 32 bytes, of a private one (32 bytes)."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, text: bytes) -> bytes:
    """64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(text)


def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether the holder of the key has signed the text."""
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
