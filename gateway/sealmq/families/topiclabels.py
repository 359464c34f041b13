"""σ(t): what sealmq.toml fixes, else what the first publisher made it (learned, in the store).

For families that need to know a topic's label; each has its own, fed by `configure` and `apply`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .api import Policy, Record, TopicLabel, TopicReset

NONE = "none"


class TopicLabels:
    """The labels of topics, and which of them a change reached."""

    def __init__(self) -> None:
        self.fixed: dict[str, str] = {}
        self.learned: dict[str, TopicLabel] = {}

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
                self.learned[record.topic] = record
                topics.append(record.topic)
            elif isinstance(record, TopicReset):
                if not record.done and self.learned.pop(record.topic, None) is not None:
                    topics.append(record.topic)
        return topics

    def of(self, topic: str) -> str | None:
        """σ(t), or None when nobody has published there."""
        fixed = self.fixed.get(topic)
        if fixed is not None:
            return fixed
        learned = self.learned.get(topic)
        return None if learned is None else learned.label
