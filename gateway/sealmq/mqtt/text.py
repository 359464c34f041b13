"""Rules for topic names, topic filters and other text (MQTT 3.1.1 sections 1.5.3 and 4.7).

Each returns what is wrong and what would be right, or None; whether that is the peer's fault or
our caller's is for the parser or the encoder to say. Matching topics is not done here.
"""

from __future__ import annotations

import re

_SHOWN = 64


def clip(text: str) -> str:
    """`text` as a literal, cut to what fits a log line."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text)} characters)"


def string_fault(text: str) -> str | None:
    """U+0000 is the one character that well-formed UTF-8 may hold and MQTT may not."""
    if "\0" in text:
        return f"U+0000 at character {text.index(chr(0))}; strings hold none [MQTT-1.5.3-2]"
    return None


def topic_fault(topic: str) -> str | None:
    """What is wrong with a topic name: empty, a wildcard or U+0000 in it."""
    if not topic:
        return "is empty; a topic name has at least one character [MQTT-4.7.3-1]"
    for wildcard in "+#":
        if wildcard in topic:
            return (
                f"{clip(topic)} holds the wildcard {wildcard!r}; "
                "a topic name holds neither '+' nor '#' [MQTT-4.7.1-1]"
            )
    return string_fault(topic)


def filter_fault(topic_filter: str) -> str | None:
    """What is wrong with a topic filter: empty, a wildcard in a wrong place or U+0000 in it."""
    if not topic_filter:
        return "is empty; a topic filter has at least one character [MQTT-4.7.3-1]"
    if "#" in topic_filter:
        head, _, tail = topic_filter.partition("#")
        if tail or (head and not head.endswith("/")):
            return (
                f"{clip(topic_filter)} holds a misplaced '#'; "
                "'#' is the last level and alone in it [MQTT-4.7.1-2]"
            )
    if "+" in topic_filter:
        for level in topic_filter.split("/"):
            if "+" in level and level != "+":
                return (
                    f"{clip(topic_filter)} holds a misplaced '+'; "
                    "'+' is alone in its level [MQTT-4.7.1-3]"
                )
    return string_fault(topic_filter)


# Controls and noncharacters: "SHOULD NOT include", and who receives one MAY close the connection.
_DISCOURAGED = re.compile(
    "[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)


def discouraged_fault(text: str) -> str | None:
    """A character for which a receiver may hang up, as Mosquitto does (MQTT section 1.5.3)."""
    # None of them is printable, and nearly all texts are: a tenth of the time.
    found = None if text.isprintable() else _DISCOURAGED.search(text)
    if found is None:
        return None
    return (
        f"U+{ord(found[0]):04X} at character {found.start()}; controls and noncharacters, at which "
        "a broker may hang up, are not taken [MQTT section 1.5.3]"
    )
