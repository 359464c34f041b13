# What data may be used for (SPEC.md 12): the commands that say so, which go up on the control topic
# and are answered, and the filters of subscriptions that say what they are for. Imported when first
# used.
from micropython import const

from sealmq_spec.const import OP_COMMAND
from sealmq_spec.errors import TooLarge, from_notice
from sealmq_spec.purposes import Grammar, check_purpose

from .subscribing import to_text

_TYPING = False
if _TYPING:
    from collections.abc import Iterable
    from typing import Any

    from .link import Steps

    Topic = str | bytes

_FAMILY = b"purposes"
# No packet begins like that: only what comes about this ctr ends the wait.
_AWAITS = const(0x1000000)


# How the site writes purposes; made once a client. client.words: {name: word}, where the site has
# others than SPEC.md 12. Names in the class would cost each start, of who has no purposes, too.
def _grammar(self: "Any") -> Grammar:
    try:
        made: Grammar = self._grammar
    except AttributeError:
        made = self._grammar = Grammar(getattr(self, "words", None))
    return made


# The filter as it goes behind the token.
def access(self: "Any", topic: "Topic", purpose: str) -> str:
    return _grammar(self).access(to_text(topic), purpose)


def reserve(self: "Any", topic: "Topic", aip: "Iterable[str]", pip: "Iterable[str]") -> str:
    return _grammar(self).reserve(to_text(topic), aip, pip)


def release(self: "Any", topic: "Topic") -> str:
    return _grammar(self).release(to_text(topic))


# purpose: None takes it back.
def presubscribe(self: "Any", client: str, topic: "Topic", purpose: "str | None") -> str:
    if purpose is not None:
        check_purpose(purpose)
    return _grammar(self).presubscribe(client, to_text(topic), purpose or "")


# Sends a command and waits for what the mediator says. Gives the reply.
def commanding(self: "Any", command: str) -> "Steps":
    raw = command.encode()
    if len(raw) > self.limit:
        raise TooLarge("a command of %d bytes, the limit is %d" % (len(raw), self.limit))
    s = self.session
    body = bytes((OP_COMMAND, len(_FAMILY))) + _FAMILY + raw
    self._send_control(s.up(body, self.mono()))
    self._awaited = s.ctr
    said = yield _AWAITS | s.ctr
    if said[2] >= 0:
        raise from_notice(said)
    return said[4]
