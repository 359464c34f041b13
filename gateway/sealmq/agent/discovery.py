"""What a Home Assistant discovery message may name. Pure.

Home Assistant does what a discovery message says: it publishes, with its own rights, to the topics
that stand there. So a message below `PREFIX/…/config` may name its sender's topics only, and what
is not understood is refused. Which topics are a sender's, the user's table says; a sender that has
no entry owns the topics of which one level is its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sealmq.families.filters import covers

from .wire import Refusal

RULE = "agent.discovery"
_DEEPEST = 12


class _Unclear(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class Discovery:
    """prefix: where discovery messages lie. senders: a sender's name -> filters of its topics."""

    prefix: str = "homeassistant"
    senders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def judge(self, sender: str, topic: str, payload: bytes) -> Refusal | None:
        """Why a message may not pass; None: it may."""
        levels = topic.split("/")
        # Home Assistant's own: PREFIX/COMPONENT/[NODE/]OBJECT/config. Longer ones are judged, too.
        if levels[0] != self.prefix or levels[-1] != "config" or len(levels) < 3:
            return None
        if not payload:
            if self._owns(sender, topic):
                return None
            return _no(f"{topic} is not {sender}'s to remove; one level of it has to be its name")
        try:
            said = json.loads(payload.decode(), object_pairs_hook=_once)
            names = list(_topics(said))
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, _Unclear) else "it is no JSON"
            return _no(f"{topic} is no discovery message: {why}")
        if not isinstance(said, dict):
            return _no(f"{topic} is no discovery message: it is no JSON object")
        for name in names:
            if not self._owns(sender, name):
                return _no(f"{topic} of {sender} names {name[:200]!r}, which is not {sender}'s")
        return None

    def _owns(self, sender: str, topic: str) -> bool:
        filters = self.senders.get(sender)
        if filters is None:
            return bool(sender) and sender in topic.split("/") and not set("+#") & set(topic)
        return any(covers(one, topic) for one in filters)


def _no(reason: str) -> Refusal:
    return Refusal("denied", RULE, reason)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Unclear("a key stands there twice")
    return found


def _topics(said: Any) -> Iterator[str]:
    """Every topic that is named, with each base that `~` may stand for."""
    texts = list(_walk(said, "", 0))
    bases = [text for key, text in texts if key == "~"]
    for key, text in texts:
        if not _is_topic(key):
            continue
        if "~" not in (text[:1], text[-1:]):
            yield text
            continue
        if not bases:
            raise _Unclear(f"{key!r} begins or ends with ~, and nothing says what that is")
        for base in bases:
            full = base + text[1:] if text[:1] == "~" else text
            yield full[:-1] + base if full[-1:] == "~" else full


def _is_topic(key: str) -> bool:
    return key in ("t", "topic") or key.endswith(("_t", "_topic"))


def _walk(said: Any, key: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        raise _Unclear("it is nested too deeply")
    if isinstance(said, str):
        yield key, said
    elif isinstance(said, dict):
        for name, value in said.items():
            yield from _walk(value, name, depth + 1)
    elif isinstance(said, list):
        for value in said:
            yield from _walk(value, key, depth + 1)
    elif _is_topic(key) and said is not None:
        raise _Unclear(f"{key!r} is no text")
