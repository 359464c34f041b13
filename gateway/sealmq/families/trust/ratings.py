"""What a site holds of its neighbours: evidence r and s, an opinion, and the rating τ = α + δγ
(Chen, Vidalis and Yang, II-B and III-C; Jøsang's subjective logic).

Ratings and thresholds are whole numbers of 1/10,000, rounded down. Each good message adds 1 to r,
each bad one μ to s. Evidence has a half-life, and r + s a cap: without them somebody who was good a
thousand times is bad 134 times before it falls below .6.

What a neighbour hands over of another issuer is also held by itself, as a channel. A bad message
costs the neighbour once a half-life for each issuer, and its channel every time; where more speaks
against a channel than for it, by more than one bad message, it is closed, until that has aged away.
So a neighbour that cannot know yet does not stand for what an issuer does, one wrong complaint
closes nothing, and whoever puts bad messages under another's name closes no way but his own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

SCALE = 10_000
"""One."""
HOUR_MS = 3_600_000


def part(value: object) -> int | None:
    """1/10,000 of a number from 0 to 1 of at most four digits; None: it is no such number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        found = round(value * SCALE)
        if abs(value * SCALE - found) < 1e-6:
            return found
    return None


class Opinion(NamedTuple):
    """⟨α, β, γ, δ⟩: belief, disbelief, uncertainty, and what is believed before any evidence."""

    belief: float
    disbelief: float
    uncertainty: float
    base: float


def opinion(r: float, s: float, base: int = SCALE // 2) -> Opinion:
    """Of so much evidence for and against."""
    of = r + s + 2
    return Opinion(r / of, s / of, 2 / of, base / SCALE)


def rate(r: float, s: float, base: int = SCALE // 2) -> int:
    """τ, in 1/10,000."""
    return int((SCALE * r + 2 * base) // (r + s + 2))


@dataclass(frozen=True, slots=True)
class Weights:
    """How evidence counts. `bad` is μ, `base` δ; a neighbour below `block` is blocked until it is
    at `free` again."""

    bad: int = 5
    base: int = SCALE // 2
    half_life_ms: int = 24 * HOUR_MS
    cap: int = 50
    block: int = 2500
    free: int = 4000
    by_issuer: bool = True
    """Whether channels are held; else a neighbour stands for all that it hands over."""


WEIGHTS = Weights()


@dataclass(slots=True)
class _Evidence:
    good: float = 0.0
    bad: float = 0.0
    at_ms: int = 0
    charged_ms: int = 0
    """Of a channel: when it last cost its neighbour something; 0: never."""


Channel = tuple[str, str]
"""A neighbour, and the issuer of what it hands over."""
MOST_CHANNELS = 4096
_AGED_AWAY = 1.0
"""Evidence of a channel of which nothing more is held."""


class Ratings:
    """Of one site, about its neighbours."""

    def __init__(self, weights: Weights = WEIGHTS) -> None:
        self.weights = weights
        self._of: dict[str, _Evidence] = {}
        self._channels: dict[Channel, _Evidence] = {}
        self.blocked: frozenset[str] = frozenset()
        self.closed: frozenset[Channel] = frozenset()
        self.changed: set[Channel] = set()
        """Those of which there is new evidence, or none any more; (neighbour, ""): it itself."""
        # What is left of evidence after so many ms: most is aged by as many as what came before it.
        self._left = 0, 1.0

    def add(self, neighbour: str, now_ms: int) -> None:
        """A neighbour of which nothing is known yet, or what is known stays."""
        self._of.setdefault(neighbour, _Evidence(at_ms=now_ms))

    def restore(self, neighbour: str, good: float, bad: float, at_ms: int) -> None:
        """What was known of a neighbour before a restart."""
        if neighbour in self._of and good + bad <= self.weights.cap + 1:
            self._of[neighbour] = _Evidence(good, bad, at_ms)

    def restore_channel(
        self, channel: Channel, good: float, bad: float, at_ms: int, charged_ms: int
    ) -> None:
        """The same of a channel."""
        there = channel[0] in self._of and len(self._channels) < MOST_CHANNELS
        if there and good + bad <= self.weights.cap + 1:
            self._channels[channel] = _Evidence(good, bad, at_ms, charged_ms)

    def remove(self, neighbour: str) -> None:
        self._of.pop(neighbour, None)
        self.changed.update({(neighbour, ""), *(c for c in self._channels if c[0] == neighbour)})
        self.blocked -= {neighbour}
        self._channels = {c: held for c, held in self._channels.items() if c[0] != neighbour}
        self.closed = frozenset(c for c in self.closed if c[0] != neighbour)

    def saw(self, neighbour: str, good: bool, now_ms: int, issuer: str = "") -> None:
        """A message that it handed over was good, or something that it did was bad. issuer: whose
        message it was; "": its own doing."""
        self.saw_all([((neighbour, issuer), good)], now_ms)

    def saw_all(self, some: Iterable[tuple[Channel, bool]], now_ms: int) -> None:
        """The same of each: a neighbour, an issuer or "", and whether it was good."""
        by_issuer, half_life_ms = self.weights.by_issuer, self.weights.half_life_ms
        channels, changed, add = self._channels, self.changed, self._add
        for name, good in some:
            neighbour, issuer = name
            held = self._of.get(neighbour)
            if held is None:
                continue
            if issuer and issuer != neighbour and by_issuer:
                channel = channels.get(name) or self._new_channel(name, now_ms)
                add(channel, good, now_ms)
                changed.add(name)
                if not good:
                    again_ms = channel.charged_ms + half_life_ms
                    if channel.charged_ms and now_ms < again_ms:
                        continue
                    channel.charged_ms = now_ms
            add(held, good, now_ms)
            changed.add((neighbour, ""))

    def _new_channel(self, channel: Channel, now_ms: int) -> _Evidence:
        if len(self._channels) >= MOST_CHANNELS:
            # Who makes up issuers loses his own channels first.
            mine = [c for c in self._channels if c[0] == channel[0]] or list(self._channels)
            least = min(mine, key=lambda c: self._channels[c].bad)
            self._channels.pop(least)
            self.changed.add(least)
        found = self._channels[channel] = _Evidence(at_ms=now_ms)
        return found

    def _add(self, held: _Evidence, good: bool, now_ms: int) -> None:
        if now_ms > held.at_ms:
            self._age(held, now_ms)
        r, s, weights = held.good, held.bad, self.weights
        if good:
            r += 1
        else:
            s += weights.bad
        much = r + s
        if much > weights.cap:
            # All of it gives way, the newest least: it has just been added in full.
            r *= weights.cap / much
            s *= weights.cap / much
        held.good, held.bad = r, s

    def _age(self, held: _Evidence, now_ms: int) -> None:
        passed = now_ms - held.at_ms
        if passed > 0:
            known, left = self._left
            if known != passed:
                left = 0.5 ** (passed / self.weights.half_life_ms)
                self._left = passed, left
            held.good, held.bad, held.at_ms = held.good * left, held.bad * left, now_ms

    def evidence(self, neighbour: str, now_ms: int) -> tuple[float, float]:
        """r and s."""
        held = self._of.get(neighbour, _Evidence(at_ms=now_ms))
        self._age(held, now_ms)
        return held.good, held.bad

    def falls(self, neighbour: str, now_ms: int) -> bool:
        """Whether it will be blocked, and is not yet."""
        good, bad = self.evidence(neighbour, now_ms)
        low = rate(good, bad, self.weights.base) < self.weights.block
        return low and neighbour in self._of and neighbour not in self.blocked

    def held(self, channel: Channel) -> tuple[float, float, int, int] | None:
        """r, s, of when they are, and when it last cost its neighbour something."""
        neighbour, issuer = channel
        held = self._channels.get(channel) if issuer else self._of.get(neighbour)
        return None if held is None else (held.good, held.bad, held.at_ms, held.charged_ms)

    def ratings(self, now_ms: int) -> Mapping[str, int]:
        """Of all neighbours; who is blocked by them, and what is closed, is settled again."""
        w = self.weights
        found = {n: rate(*self.evidence(n, now_ms), w.base) for n in self._of}
        self.blocked = frozenset(
            n for n, rating in found.items()
            if rating < (w.free if n in self.blocked else w.block)
        )  # fmt: skip
        gone, closed = [], []
        for channel, held in self._channels.items():
            if held.at_ms < now_ms:
                self._age(held, now_ms)
            r, s = held.good, held.bad
            if r + s < _AGED_AWAY:
                gone.append(channel)
            elif s > r and s > r + (0 if channel in self.closed else w.bad):
                closed.append(channel)
        for channel in gone:
            del self._channels[channel]
        self.changed.update(gone)
        self.closed = frozenset(closed)
        return found
