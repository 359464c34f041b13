"""Messages that neighbours have forwarded, and what is said of them: the events ⟨b, m, f⟩ of
H and their evaluation E (Chen, Vidalis and Yang, III-C).

An event charges the neighbour that forwarded the message, as `Ratings.saw` says. Nobody here sees
plaintext: readers say, with the proof of who they are, that the inner tag failed, an assessor that
a value is out of its range. A client has one vote a message. One reader alone costs a neighbour
little, however much it complains; two that agree, or an assessor, count in full. A good vote is
worth no more than none: that nobody has complained is what makes a message good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .ratings import Ratings

MOST_EVENTS = 10_000
MOST_VOTERS = 64
SETTLE_MS = 60_000
"""How long votes are waited for."""
AGREE = 2
"""Readers that have to say the same for it to count in full."""
ALONE = 2
"""How often within a half-life one reader alone is believed about one neighbour."""


@dataclass(slots=True)
class _Event:
    neighbour: str
    topic: str
    label: str
    at_ms: int
    voted: frozenset[str] = frozenset()
    against: tuple[str, ...] = ()
    assessed_bad: bool = False


class Words:
    """What readers' words weigh: those of two are enough, of one alone a few."""

    def __init__(self, half_life_ms: int) -> None:
        self._half_life_ms = half_life_ms
        self._alone: dict[tuple[str, str], list[int]] = {}

    def are_enough(self, against: Sequence[str], neighbour: str, now_ms: int) -> bool:
        """Whether what the neighbour has forwarded counts as bad, as these have said, if any."""
        if len(against) >= AGREE:
            return True
        return bool(against) and self._believed(against[0], neighbour, now_ms)

    def _believed(self, reader: str, neighbour: str, now_ms: int) -> bool:
        ends = now_ms - self._half_life_ms
        times = [at for at in self._alone.get((reader, neighbour), ()) if at > ends]
        if believed := len(times) < ALONE:
            times.append(now_ms)
        self._alone[(reader, neighbour)] = times
        return believed

    def age(self, now_ms: int) -> None:
        """Forget what is over."""
        ends = now_ms - self._half_life_ms
        for whose, times in list(self._alone.items()):
            if times[-1] <= ends:
                del self._alone[whose]


class Events:
    """The last messages, until they are settled."""

    def __init__(self, ratings: Ratings, settle_ms: int = SETTLE_MS) -> None:
        self._ratings, self._settle_ms = ratings, settle_ms
        self._open: dict[bytes, _Event] = {}
        self._words = Words(ratings.weights.half_life_ms)

    def __len__(self) -> int:
        return len(self._open)

    def forwarded(
        self, neighbour: str, message: bytes, topic: str, now_ms: int, label: str = ""
    ) -> None:
        """⟨neighbour, message, topic⟩; the neighbour that handed it over first counts. topic,
        label: as they are here, @SITE/TOPIC and LABEL@SITE."""
        if len(self._open) >= MOST_EVENTS:
            self._settle_one(next(iter(self._open)), now_ms)
        self._open.setdefault(message, _Event(neighbour, topic, label, now_ms))

    def vote(
        self,
        client: str,
        message: bytes,
        good: bool,
        now_ms: int,
        assessor: bool = False,
        topic: str | None = None,
        label: str | None = None,
    ) -> bool:
        """Whether it counts: of a message that is open, and once. topic, label: what the client may
        read; another message's is not its."""
        event = self._open.get(message)
        if event is None or client in event.voted or len(event.voted) >= MOST_VOTERS:
            return False
        if topic not in (None, event.topic) or label not in (None, event.label):
            return False
        # Nobody says a word of most messages: what is replaced costs those nothing.
        event.voted |= {client}
        if not good:
            event.against += (client,)
            event.assessed_bad |= assessor
        return True

    def settle(self, now_ms: int) -> None:
        """Evaluate what has waited long enough."""
        for message, event in list(self._open.items()):
            if now_ms - event.at_ms < self._settle_ms:
                break
            self._settle_one(message, now_ms)
        self._words.age(now_ms)

    def _settle_one(self, message: bytes, now_ms: int) -> None:
        event = self._open.pop(message)
        words, neighbour = self._words, event.neighbour
        bad = event.assessed_bad or words.are_enough(event.against, neighbour, now_ms)
        self._ratings.saw(neighbour, not bad, now_ms, _issuer(event.topic))


def _issuer(topic: str) -> str:
    """Whose message it is, of a topic as this site has it."""
    return topic[1:].partition("/")[0] if topic.startswith("@") else ""
