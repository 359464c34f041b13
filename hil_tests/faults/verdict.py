"""What was promised and what was kept, from the ledger's rows. Pure: rows in, judgements out.

Owed to the persistent reader: every acknowledged message of QoS 1 and 2. Owed to the live reader:
those for which its connection stood from before the publish until now; a round ends only when
nothing is owed any more, so that a later break excuses nothing of an earlier round. To neither may
any message come twice, whatever its QoS. Nothing is owed of what was sealed under a clock that was
then set back by more than W: it lies ahead of time, and everybody refuses it (SPEC.md 6.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from .ledger import Row

LIVE, SLEEPER = "live", "sleeper"
# W of SPEC.md 6 in seconds, less what passes between a look at the clock and the next.
_AHEAD_S = 55.0


@dataclass(slots=True)
class Sent:
    """One message. state: open, ack, doubt, refused. until: when it got there; a message may be
    sealed anywhere between, since a client that begins a new session seals anew.
    """

    n: int
    client: str
    qos: int
    topic: str
    retain: bool
    at: float
    state: str = "open"
    until: float = 0.0


@dataclass(slots=True)
class Books:
    """All of a run so far. readers: those that take part."""

    readers: tuple[str, ...]
    sent: dict[int, Sent] = field(default_factory=dict)
    got: dict[str, Counter[int]] = field(default_factory=dict)
    wills: dict[int, str] = field(default_factory=dict)
    got_wills: dict[str, Counter[int]] = field(default_factory=dict)
    up_since: dict[str, float | None] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    # n -> when the live reader got it, of messages that are not retained copies.
    _heard: dict[int, float] = field(default_factory=dict)
    _pending: dict[int, Sent] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _will_since: dict[int, float] = field(default_factory=dict)
    # (since when, how far the gateway's clock is off)
    _clock: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])

    def clock(self, at: float, shift: float) -> None:
        """From `at` on the gateway's clock is off by so many seconds."""
        self._clock.append((at, shift))

    def _ahead(self, at: float, until: float = 0.0) -> bool:
        then = next(shift for since, shift in reversed(self._clock) if since <= at)
        between = [shift for since, shift in self._clock if at < since <= until]
        later = [shift for since, shift in self._clock if since > at]
        # Even if it went on again: a journal that was played again meanwhile left it out.
        return max([then, *between]) - min([then, *later]) > _AHEAD_S

    def take(self, rows: Iterable[Row]) -> None:
        """Rows in their order."""
        for row in rows:
            self._one(row)

    def _one(self, row: Row) -> None:
        match row["e"]:
            case "sent":
                made = Sent(row["n"], row["c"], row["q"], row["t"], row["r"], row["at"])
                self.sent[made.n] = self._pending[made.n] = made
            case "ack" | "doubt" | "refused" as state:
                self.sent[row["n"]].state = state
                self.sent[row["n"]].until = row["at"]
                self._acked(self.sent[row["n"]])
            case "got":
                self._got(row)
            case "up":
                # A second SUBACK within a connection does not begin anything.
                if self.up_since.get(row["r"]) is None:
                    self.up_since[row["r"]] = row["at"]
            case "down":
                self.up_since[row["r"]] = None
            case "will":
                self.wills[row["w"]] = row["what"]
                self._will_since.setdefault(row["w"], row["at"])
            case "got-will":
                self.got_wills.setdefault(row["r"], Counter())[row["w"]] += 1
            case "late":
                self.late[row["topic"]] = max(row["n"], self.late.get(row["topic"], 0))
            case "late-end" | "error":
                self._fault(f"{row['e']}: {row.get('what') or row.get('why')}")
            case "quiet":
                self.marks.add(f"quiet {row['k']}")
            case "begun" | "late-done" as mark:
                self.marks.add(mark)

    def _acked(self, made: Sent) -> None:
        if made.state == "ack" and made.retain:
            self.kept[made.topic] = max(made.n, self.kept.get(made.topic, 0))

    def _got(self, row: Row) -> None:
        n, reader = row["n"], row["r"]
        if n not in self.sent:
            self._fault(f"{reader} got message {n}, which nobody sent")
        if row["how"] == "retained":
            return
        count = self.got.setdefault(reader, Counter())
        count[n] += 1
        if reader == LIVE:
            self._heard.setdefault(n, row["at"])

    def _fault(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.faults.append(text)

    # --- judgements ------------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """What is owed and has not come yet, of messages since the last `settle`, and of wills."""
        found = []
        for made in self._pending.values():
            for reader in self.readers:
                if self._owed(made, reader) and not self._count(reader, made.n):
                    found.append(f"message {made.n} (QoS {made.qos}, {made.topic}) for {reader}")
        return found + self._missing_wills()

    def _count(self, reader: str, n: int) -> int:
        return self.got.get(reader, Counter())[n]

    def _owed(self, made: Sent, reader: str) -> bool:
        if made.state != "ack" or not made.qos or self._ahead(made.at, made.until):
            return False
        return reader == SLEEPER or self._stood(reader, made.at)

    def _stood(self, reader: str, at: float) -> bool:
        since = self.up_since.get(reader)
        return since is not None and since <= at

    def _missing_wills(self) -> list[str]:
        found = []
        for k, what in self.wills.items():
            if what not in ("cut", "lost") or self._ahead(self._will_since[k]):
                continue
            for reader in self.readers:
                owed = reader == SLEEPER or self._stood(reader, self._will_since[k])
                if owed and not self.got_wills.get(reader, Counter())[k]:
                    found.append(f"will of round {k} ({what}) for {reader}")
        return found

    def settle(self, *, calm: bool) -> list[str]:
        """The end of a round: what is lost, doubled or wrong in it. calm: no process ended.

        What is told here is not told again.
        """
        told = [f"lost: {what}" for what in self.missing()]
        told += self.doubled()
        for made in self._pending.values():
            if made.state == "open":
                told.append(f"message {made.n} has no outcome")
            if made.state == "refused" and any(c[made.n] for c in self.got.values()):
                told.append(f"refused, and yet delivered: message {made.n}")
        for k, what in self.wills.items():
            if what == "bye" and calm and any(c[k] for c in self.got_wills.values()):
                told.append(f"will of round {k} fired in spite of DISCONNECT")
        self._pending.clear()
        self.wills.clear()
        told += self.faults
        self.faults = []
        return told

    def doubled(self) -> list[str]:
        """What came more than once, told once."""
        found = []
        for what, books in (("message", self.got), ("will of round", self.got_wills)):
            for reader, counts in books.items():
                for n, count in counts.items():
                    text = f"doubled: {what} {n} came {count} times to {reader}"
                    if count > 1 and text not in self._told:
                        self._told.add(text)
                        found.append(text)
        return found

    def recovered(self, since: float) -> float | None:
        """Seconds from `since` until the live reader had something published after it."""
        times = [at for n, at in self._heard.items() if self.sent[n].at >= since]
        return min(times) - since if times else None

    def tally(self) -> Counter[str]:
        """Messages of this round by state."""
        return Counter(made.state for made in self._pending.values())

    def learned(self) -> dict[str, str]:
        """topic -> client, of topics on which something was acknowledged."""
        rows = (made for made in self.sent.values() if made.state == "ack" and made.qos)
        return {made.topic: made.client for made in rows}

    def wrong_retained(self) -> list[str]:
        """Retained messages that are gone or older than what was acknowledged last."""
        return [
            f"retained: {topic} has message {self.late.get(topic, 'none')}, acknowledged was {n}"
            for topic, n in self.expected().items()
            if self.late.get(topic, 0) < n
        ]

    def expected(self) -> dict[str, int]:
        """topic -> the message that stands there retained, or a newer one."""
        kept = ((topic, self.sent[n]) for topic, n in self.kept.items())
        return {topic: s.n for topic, s in kept if not self._ahead(s.at, s.until)}


def wrong_labels(learned: dict[str, str], labels: dict[str, str], now: dict[str, str]) -> list[str]:
    """Topics whose label is lost or another than its first publisher's. now: topic -> label."""
    return [
        f"label: {topic} has {now.get(topic, 'none')}, its publisher {client} is {labels[client]}"
        for topic, client in learned.items()
        if now.get(topic) != labels[client]
    ]
