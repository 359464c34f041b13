"""σ(t): what sealmq.toml fixes, else what the first publisher made it (learned, in the store).

For families that need to know a topic's label; each has its own, fed by `configure` and `apply`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .api import Policy, Record, TopicLabel, TopicReset

NONE = "none"
TOPIC_BYTES = 128


def weight(topic: str) -> int:
    """As how many topics this one counts: once for each TOPIC_BYTES that it has begun."""
    return -(-len(topic.encode()) // TOPIC_BYTES)


class TopicLabels:
    """The labels of topics, and which of them a change reached.

    `of_client`, `of_label`: how much the learned topics of each weigh, those that are there now; of
    a client that was removed they weigh for its label alone.
    """

    def __init__(self) -> None:
        self.fixed: dict[str, str] = {}
        self.learned: dict[str, TopicLabel] = {}
        self.of_client: Counter[str] = Counter()
        self.of_label: Counter[str] = Counter()
        self._since: Mapping[str, int] = {}

    def configure(self, config: Policy) -> list[str]:
        """Topics whose fixed label is another one now. `none` fixes nothing (section 3.2)."""
        fixed = {topic: label for topic, label in config.topics.items() if label != NONE}
        before, self.fixed = self.fixed, fixed
        return [t for t in fixed.keys() | before.keys() if fixed.get(t) != before.get(t)]

    def apply(self, records: Sequence[Record]) -> list[str]:
        """Topics that have learned a label, or lost the one they had learned."""
        topics = []
        for record in records:
            if isinstance(record, TopicLabel):
                self._forget(record.topic)
                self.learned[record.topic] = record
                self._weigh(record, 1)
                topics.append(record.topic)
            elif isinstance(record, TopicReset):
                if not record.done and self._forget(record.topic):
                    topics.append(record.topic)
        return topics

    def _forget(self, topic: str) -> bool:
        record = self.learned.pop(topic, None)
        if record is not None:
            self._weigh(record, -1)
        return record is not None

    def bearers(self, since: Mapping[str, int]) -> None:
        """Since when (Unix ms) the clients bear their names: one before that was another client."""
        names = [n for n in self.of_client if since.get(n, 0) != self._since.get(n, 0)]
        self._since = dict(since)
        for name in names:
            del self.of_client[name]
        for record in self.learned.values() if names else ():
            if record.client in names:
                self._weigh_client(record, 1)

    def _weigh(self, record: TopicLabel, sign: int) -> None:
        _add(self.of_label, record.label, sign * weight(record.topic))
        self._weigh_client(record, sign)

    def _weigh_client(self, record: TopicLabel, sign: int) -> None:
        if record.at_ms >= self._since.get(record.client, 0):
            _add(self.of_client, record.client, sign * weight(record.topic))

    def of(self, topic: str) -> str | None:
        """σ(t), or None when nobody has published there."""
        fixed = self.fixed.get(topic)
        if fixed is not None:
            return fixed
        learned = self.learned.get(topic)
        return None if learned is None else learned.label


def _add(table: Counter[str], key: str, much: int) -> None:
    table[key] += much
    if not table[key]:
        del table[key]
