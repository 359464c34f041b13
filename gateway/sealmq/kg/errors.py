"""Refusals of the key generator. `kind` crosses the socket as `code`; no text holds a secret."""

from __future__ import annotations


class KgRefusal(Exception):
    """Base. `hint` is for the operator."""

    kind = "error"

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


class Bad(KgRefusal):
    """The request or sealmq.toml is malformed."""

    kind = "bad"


class Denied(KgRefusal):
    """This peer, or this client, may not."""

    kind = "denied"


class Unknown(KgRefusal):
    """No such client, label, generation or operation."""

    kind = "unknown"


class Unauthentic(KgRefusal):
    """A provisioning request whose tag does not verify."""

    kind = "unauthentic"


class Changed(KgRefusal):
    """Keys changed between two pieces of a snapshot."""

    kind = "changed"


class StoreBroken(KgRefusal):
    """kg.db is missing, damaged, of another site, or the key does not open it."""

    kind = "store"


class StoreBusy(KgRefusal):
    """Another process has kg.db open."""

    kind = "busy"
