"""An owner's signature of an assertion: Ed25519 over its canonical text, which names the site.

A document is what `list` and `assert` answer, with "site" and "public": whoever has the owner's
public key from the owner checks it without a gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .assertions import Assertion, BadAssertion, from_fields

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


def key_text(site: str, owner: str, public: bytes) -> bytes:
    """What an owner signs with the key that a new one is to replace."""
    return f"sealmq owners key 1\nsite: {site}\nowner: {owner}\npublic: {public.hex()}\n".encode()


def document(made: Assertion, site: str, public: bytes) -> dict[str, Any]:
    """All that a third party needs but trust in the key."""
    return {
        "site": site,
        **made.fields,
        "public": public.hex(),
        "signature": made.signature.hex(),
    }


def verify(found: Mapping[str, Any], public: bytes | None = None) -> Assertion:
    """The assertion of a document whose signature is right, under this key or the one that it
    names. BadAssertion.
    """
    fields = dict(found)
    try:
        site = str(fields.pop("site"))
        named = bytes.fromhex(fields.pop("public"))
        signature = bytes.fromhex(fields.pop("signature"))
    except (KeyError, TypeError, ValueError):
        raise BadAssertion("", "a document has site, public and signature, in hex") from None
    for more in ("id", "at_ms"):
        fields.pop(more, None)
    made = from_fields(fields, "", "")
    if public is not None and public != named:
        raise BadAssertion("public", "it is another key than the one that is trusted")
    if not is_signed(named, made.text(site), signature):
        raise BadAssertion("signature", "it is not this key's signature of this assertion")
    return made
