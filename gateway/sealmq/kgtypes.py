"""What passes between the key generator and its callers: refusals and answers as types.

Imported through sealmq.kglink. Key material is hidden from every repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sealmq.site.differences import Difference

_SHOWN = 12
# Enrolments in one answer.
MAX_ENROL = 1000


class KgError(Exception):
    """The key generator refused. `kind` is the `code` of its answer."""

    kind: ClassVar[str] = "error"

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


class KgUnavailable(KgError):
    """No key generator there, or it went away, or it did not answer in time."""

    kind = "unavailable"


class KgForbidden(KgUnavailable):
    """The system does not let this user reach it, whether it runs or not."""


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

    `gen` is the one that the packet brings; 0 when it brings none ("disabled", "try later").
    `links` is as in a snapshot: [{"gen", "epoch", "km", "pending"}]; so the mediator can verify the
    first proof under the new generation before it has fetched a new snapshot.
    """

    packet: bytes
    client: int
    kseq: int
    gen: int
    links: list[dict[str, Any]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Change:
    """Something changed: keys, or with the same kseq only the policy.

    `client` is set when it was that client's link slots and nothing else.
    """

    kseq: int
    client: int | None = None


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """A label's new epoch. `until`: Unix time at which live messages of the one before end."""

    label: str
    epoch: int
    until: int


@dataclass(frozen=True, slots=True)
class Applied:
    """What a change of keys has led to. `notes`: what the operator should know.

    left: (client, label, why) of those who may not read any more what that label reads. epochs: the
    labels that got a new one. differences: of sealmq.toml, against what was in force before.
    """

    kseq: int
    changed: bool
    notes: list[str]
    left: list[tuple[str, str, str]]
    epochs: list[NewEpoch]
    differences: list[Difference] = field(default_factory=list)

    def words(self) -> list[str]:
        """What happened, a line each."""
        lines = [row.words() for row in self.differences[:_SHOWN]]
        if len(self.differences) > _SHOWN:
            lines.append(f"and {len(self.differences) - _SHOWN} more keys of sealmq.toml")
        lines += [f"{client} has left label {label}: {why}" for client, label, why in self.left]
        if self.epochs:
            names = [f"{new.label} {new.epoch}" for new in self.epochs[:_SHOWN]]
            more = len(self.epochs) - len(names)
            listed = ", ".join(names) + (f" and {more} more" if more else "")
            lines.append(f"new epochs: {listed}")
        return lines + self.notes
