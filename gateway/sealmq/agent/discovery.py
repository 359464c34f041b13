"""What a Home Assistant discovery message may name. Pure.

Home Assistant does what a discovery message says: it publishes, with its own rights, to the topics
that stand there. So a message below `PREFIX/…/config` may name its sender's topics only, be where
its sender's entities are, and what is not understood is refused. Which topics are a sender's, the
user's table says; one that has no entry owns the topics of which one level is its name.
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
# A device with a hundred components has some 50,000 bytes. All are read at once, for all users.
_LARGEST = 128 * 1024


class _Unclear(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class Discovery:
    """prefix: where discovery messages lie. senders: a sender's name -> filters of its topics."""

    prefix: str = "homeassistant"
    senders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def judge(self, sender: str, topic: str, payload: bytes) -> Refusal | None:
        """Why a message may not pass; None: it may."""
        start = f"{self.prefix}/"
        # Home Assistant's own: PREFIX/COMPONENT/[NODE/]OBJECT/config. Longer ones are judged, too.
        if not topic.startswith(start) or not topic.endswith("/config"):
            return None
        ids = topic.removeprefix(start).split("/")[1:-1]
        # Whoever writes there replaces the entity or removes it, with `{}` or nothing at all.
        if not (sender and sender in ids) and not self._listed(sender, topic):
            return _no(
                f"{topic[:200]} is not {sender}'s: one level after the component has to be its "
                f"name, as in {start}COMPONENT/{sender}/OBJECT/config, or its line in `senders` "
                "has to list the topic"
            )
        if not payload:
            return None
        try:
            for name in _topics(payload):
                if not self._owns(sender, name):
                    shown = f"{name[:200]!r}, which is not {sender}'s"
                    if sender in self.senders:
                        shown += "; its line in `senders` does not list it"
                    return _no(f"{topic[:200]} of {sender} names {shown}")
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, _Unclear) else "it is no JSON"
            return _no(f"{topic[:200]} is no discovery message: {why}")
        return None

    def _owns(self, sender: str, topic: str) -> bool:
        if sender not in self.senders:
            return bool(sender) and sender in topic.split("/") and not set("+#") & set(topic)
        return self._listed(sender, topic)

    def _listed(self, sender: str, topic: str) -> bool:
        return any(covers(one, topic) for one in self.senders.get(sender, ()))


def _no(reason: str) -> Refusal:
    return Refusal("denied", RULE, reason)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Unclear("a key stands there twice")
    return found


def _topics(payload: bytes) -> Iterator[str]:
    """Every topic that is named. ValueError, RecursionError: it cannot be told which."""
    if len(payload) > _LARGEST:
        raise _Unclear(f"it has more than {_LARGEST:,} bytes")
    said = json.loads(payload.decode(), object_pairs_hook=_once)
    if not isinstance(said, dict):
        raise _Unclear("it is no JSON object")
    base = said.pop("~", None)
    if base is not None and not isinstance(base, str):
        raise _Unclear("'~' is no text")
    for key, text in _walk(said, 0):
        if "~" not in (text[:1], text[-1:]):
            yield text
            continue
        if base is None:
            raise _Unclear(f"{key[:200]!r} begins or ends with ~, and nothing says what that is")
        full = base + text[1:] if text[:1] == "~" else text
        yield full[:-1] + base if full[-1:] == "~" else full


def _is_topic(key: str) -> bool:
    return key in ("t", "topic") or key.endswith(("_t", "_topic"))


def _walk(said: Any, depth: int) -> Iterator[tuple[str, str]]:
    """(key, text) of each topic."""
    if depth > _DEEPEST:
        raise _Unclear("it is nested too deeply")
    if isinstance(said, dict):
        for name, value in said.items():
            # Readers differ in what a base within counts for.
            if name == "~":
                raise _Unclear("'~' stands within, and not at the top alone")
            if not _is_topic(name):
                yield from _walk(value, depth + 1)
            elif isinstance(value, str):
                yield name, value
            elif value is not None:
                raise _Unclear(f"{name[:200]!r} is no text")
    elif isinstance(said, list):
        for value in said:
            yield from _walk(value, depth + 1)
