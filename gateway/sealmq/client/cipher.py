"""The host's ciphers for the portable package: an unknown suite is a refusal, not a crash."""

from __future__ import annotations

from sealmq.aead import Aead
from sealmq.aead import make as make_aead
from sealmq_spec.errors import Unsupported


def make(suite: int, key: bytes) -> Aead:
    """The cipher of `suite` under a 32-byte key; Unsupported for another suite."""
    try:
        return make_aead(suite, key)
    except ValueError as error:
        raise Unsupported(str(error)) from None
