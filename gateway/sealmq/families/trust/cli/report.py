"""`sealmq trust report`: what the audit log says of other sites. Counted out of its records alone,
so a page or a table of another program may say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sealmq.feedback import NAME as FEEDBACK

EVENTS = frozenset(
    {
        "bridge-dropped", "command", "folded", "peer-blocked", "peer-unblocked", "rating-crossed",
        "token-refused",
    }
)  # fmt: skip
_UNNAMED = "beyond what is named in a minute"
_SHOWN = 20
_LAST = 100


@dataclass
class Report:
    """Of a site, from since_ms to until_ms."""

    since_ms: int
    until_ms: int
    refused: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Records by (neighbour, rule, reason)."""
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages by (peer, reason)."""
    crossed: list[dict[str, Any]] = field(default_factory=list)
    """Ratings on another side of θ or π, neighbours blocked and unblocked; the last ones."""
    votes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Of clients, by (site, client, good or bad)."""
    topics: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Bad votes by (site, topic): a token's messages that somebody complained of."""

    def feed(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Of one log, in its order."""
        for record in records:
            if self.since_ms <= record["at_ms"] < self.until_ms:
                self._one(record)

    def _one(self, record: Mapping[str, Any]) -> None:
        match record["event"]:
            case "token-refused":
                reason = str(record["reason"])[:200]
                self.refused[str(record["peer"]), str(record["rule"]), reason] += 1
            case "bridge-dropped":
                peer = str(record["peer"])
                self.dropped[peer, _why(peer, str(record["reason"]))] += 1
            case "folded" if record["of"] == "bridge-dropped":
                self.dropped[str(record.get("peer", "")), _UNNAMED] += record["count"]
            case "folded" if record["of"] == "token-refused":
                peer, rule = str(record.get("peer", "")), str(record.get("rule", ""))
                self.refused[peer, rule, _UNNAMED] += record["count"]
            case "command" if record["family"] == FEEDBACK:
                topic = str(record.get("topic", ""))
                site, said = topic[1:].partition("/")[0], str(record.get("detail", ""))
                self.votes[site, str(record["client"]), said] += 1
                if said == "bad":
                    self.topics[site, topic] += 1
            case "rating-crossed" | "peer-blocked" | "peer-unblocked":
                row = {"at_ms": record["at_ms"], "event": record["event"], "peer": record["peer"]}
                row["rating"] = record["rating"]
                row["reason"] = str(record.get("reason", ""))
                self.crossed = [*self.crossed, row][-_LAST:]

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "crossed": sorted(self.crossed, key=lambda row: row["at_ms"]),
            "refused": _rows(self.refused, "peer", "rule", "reason"),
            "dropped": _rows(self.dropped, "peer", "reason"),
            "votes": _rows(self.votes, "site", "client", "said"),
            "bad_messages": _rows(self.topics, "site", "topic"),
        }

    def lines(self) -> list[str]:
        """For people."""
        said = self.as_json()
        parts = {
            "neighbours": [
                f"{_time(row['at_ms'])}  {row['peer']}: {_crossed(row)}" for row in said["crossed"]
            ],
            "records that were not taken": [
                f"{row['count']:6}  {row['peer']}: {row['reason']} ({row['rule']})"
                for row in said["refused"]
            ],
            "messages that were given up": [
                f"{row['count']:6}  {row['peer']}: {row['reason']}" for row in said["dropped"]
            ],
            "votes": [
                f"{row['count']:6}  {row['client']} on {row['site']}: {row['said']}"
                for row in said["votes"]
            ],
            "messages that were called bad": [
                f"{row['count']:6}  {row['topic']}" for row in said["bad_messages"]
            ],
        }
        out = []
        for title, rows in parts.items():
            if rows:
                out += [f"{title}:", *(f"  {row}" for row in rows[-_SHOWN:])]
                if len(rows) > _SHOWN:
                    out.append(f"  and {len(rows) - _SHOWN} more: --json")
        return out or ["nothing: no neighbour has crossed a threshold, and nobody has voted"]


def _why(peer: str, reason: str) -> str:
    """Up to its first colon; a reason that the peer has given begins with its name."""
    own = reason.removeprefix(f"{peer}: ")
    there = "refused there: " if own != reason else ""
    return there + own.partition(":")[0][:200]


def _rows(counts: Counter[Any], *names: str) -> list[dict[str, Any]]:
    """The most last."""
    found = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    return [{**dict(zip(names, key, strict=True)), "count": count} for key, count in found]


def _crossed(row: Mapping[str, Any]) -> str:
    if row["event"] == "rating-crossed":
        return f"{row['reason']}, rated {row['rating'] / 10_000:g}"
    word = "blocked" if row["event"] == "peer-blocked" else "not blocked any more"
    return f"{word}, rated {row['rating'] / 10_000:g}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
