"""The truth about generated logs, counted while they are written and never by reading them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

CONTRACTS = ("audit", "hil", "nonce", "bench")


@dataclass
class Tally:
    """What the lines of some files are; tallies add up.

    kept: good lines by contract, each once. decided: (event, rule) -> sum of counts, 1 for a record
    without a count; records that were folded stand with the event that they are `of`. bad: what
    belongs into quarantine, by its kind. topics: numbers of the topics that were delivered.
    """

    lines: int = 0
    repeated: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    decided: Counter[tuple[str, str]] = field(default_factory=Counter)
    topics: set[int] = field(default_factory=set)
    bytes: int = 0
    files: int = 0

    def add(self, other: Tally) -> None:
        """Counts the lines of others as well."""
        self.lines += other.lines
        self.repeated += other.repeated
        self.bytes += other.bytes
        self.files += other.files
        self.kept.update(other.kept)
        self.bad.update(other.bad)
        self.events.update(other.events)
        self.decided.update(other.decided)
        self.topics |= other.topics

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "lines": self.lines,
            "kept": {name: self.kept[name] for name in CONTRACTS},
            "quarantined": self.bad.total(),
            "bad": dict(sorted(self.bad.items())),
            "repeated": self.repeated,
            "events": dict(sorted(self.events.items())),
            "decided": {
                f"{event} {rule}".rstrip(): count
                for (event, rule), count in sorted(self.decided.items())
            },
            "topics": len(self.topics),
            "bytes": self.bytes,
            "files": self.files,
        }
