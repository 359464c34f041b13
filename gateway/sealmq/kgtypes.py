"""What passes between the key generator and its callers: refusals and answers as types.

Imported through sealmq.kglink. Key material is hidden from every repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


class KgError(Exception):
    """The key generator refused. `kind` is the `code` of its answer."""

    kind: ClassVar[str] = "error"

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


class KgUnavailable(KgError):
    """No key generator there, or it went away, or it did not answer in time."""

    kind = "unavailable"


class KgDenied(KgError):
    """This peer, or this client, may not."""

    kind = "denied"


class KgUnknown(KgError):
    """No such client, label or generation."""

    kind = "unknown"


class KgBad(KgError):
    """The request, or sealmq.toml, is malformed."""

    kind = "bad"


class KgUnauthentic(KgError):
    """A provisioning request whose tag does not verify."""

    kind = "unauthentic"


class KgChanged(KgError):
    """Keys changed while a snapshot was fetched in pieces; fetch it anew."""

    kind = "changed"


KINDS: dict[str, type[KgError]] = {
    c.kind: c for c in (KgDenied, KgUnknown, KgBad, KgUnauthentic, KgChanged, KgUnavailable)
}


@dataclass(frozen=True, slots=True)
class Hello:
    """site: 4 bytes. inst: a new instance number, durable and never issued again (SPEC.md 5)."""

    site: bytes
    inst: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A provisioning answer for the client, and that client's link slots as they are from now on.

    `links` is as in a snapshot: [{"gen", "km", "pending"}]; so the mediator can verify the first
    proof under the new generation before it has fetched a new snapshot.
    """

    packet: bytes
    client: int
    kseq: int
    links: list[dict[str, Any]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Change:
    """Something changed. `client` is set when it was that client's link slots and nothing else."""

    kseq: int
    client: int | None = None


@dataclass(frozen=True, slots=True)
class Reload:
    """What re-reading sealmq.toml has led to. `notes` are for the operator."""

    kseq: int
    changed: bool
    notes: list[str]
