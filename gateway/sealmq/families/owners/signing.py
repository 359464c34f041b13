"""An owner's signature of an assertion: Ed25519 over its canonical text, which names the site.

A document is what `list` and `assert` answer, with "site" and "public": whoever has the owner's
public key from the owner checks it without a gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..signatures import KEY_BYTES, is_signed, public_of, sign
from .assertions import Assertion, BadAssertion, from_fields

__all__ = ["KEY_BYTES", "document", "is_signed", "key_text", "public_of", "sign", "verify"]


def key_text(site: str, owner: str, public: bytes) -> bytes:
    """What an owner signs with the key that a new one is to replace."""
    return f"sealmq owners key 1\nsite: {site}\nowner: {owner}\npublic: {public.hex()}\n".encode()


def document(made: Assertion, site: str, public: bytes) -> dict[str, Any]:
    """All that a third party needs, but for knowing whose key it is."""
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
    try:
        text = made.text(site)
    except UnicodeEncodeError:
        raise BadAssertion("", "it is no text of Unicode") from None
    if not is_signed(named, text, signature):
        raise BadAssertion("signature", "it is not this key's signature of this assertion")
    return made
