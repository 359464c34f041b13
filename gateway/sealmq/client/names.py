"""Names of labels and senders, which messages carry as numbers (SPEC.md 4.4, op 0x84). Sans-IO.

They are the mediator's word: what a message proves is the numbers. Numbers are never given again to
others, so a name that was told stays right.
"""

from __future__ import annotations

from collections.abc import Iterable

from sealmq_spec.const import OP_NAMES
from sealmq_spec.errors import Malformed

from .values import Message

MOST = 32
# How long a pair that got no answer goes by its numbers, ms; how many pairs are remembered.
_AGAIN_MS = 60_000
_KEPT = 4096

Pair = tuple[int, int]


class Names:
    """By pairs of label and client."""

    def __init__(self) -> None:
        self.told: dict[Pair, tuple[str, str]] = {}
        self._failed: dict[Pair, int] = {}

    def missing(self, messages: Iterable[Message], mono: int) -> list[Pair]:
        """The pairs to ask for, at most MOST."""
        pairs = dict.fromkeys((m.label_number, m.sender_number) for m in messages)
        lacking = (p for p in pairs if p not in self.told and self._failed.get(p, 0) <= mono)
        return [pair for _, pair in zip(range(MOST), lacking, strict=False)]

    def lacks(self, message: Message, mono: int) -> bool:
        """Whether it has to be asked for."""
        pair = message.label_number, message.sender_number
        return pair not in self.told and self._failed.get(pair, 0) <= mono

    @staticmethod
    def question(pairs: Iterable[Pair]) -> bytes:
        """The body of the control packet."""
        numbers = b"".join(n.to_bytes(3, "big") for pair in pairs for n in pair)
        return bytes((OP_NAMES,)) + numbers

    def answer(self, pairs: list[Pair], data: bytes) -> None:
        """Take the answer in. Malformed."""
        texts, at = [], 0
        while at < len(data):
            end = at + 1 + data[at]
            texts.append(data[at + 1 : end])
            at = end
        if at != len(data) or len(texts) != 2 * len(pairs):
            raise Malformed("an answer with other names than were asked for")
        try:
            names = [text.decode() for text in texts]
        except UnicodeDecodeError:
            raise Malformed("a name that is no UTF-8") from None
        if len(self.told) > _KEPT:
            self.told.clear()
        for (label, sender), *named in zip(pairs, names[::2], names[1::2], strict=True):
            self.told[(label, sender)] = named[0] or f"#{label}", named[1] or f"#{sender}"

    def failed(self, pairs: Iterable[Pair], mono: int) -> None:
        """No answer came: they are not asked for again so soon."""
        if len(self._failed) > _KEPT:
            self._failed.clear()
        self._failed.update(dict.fromkeys(pairs, mono + _AGAIN_MS))

    def named(self, message: Message) -> Message:
        """With names, as far as they are known."""
        told = self.told.get((message.label_number, message.sender_number))
        return message if told is None else message._replace(label=told[0], sender=told[1])
