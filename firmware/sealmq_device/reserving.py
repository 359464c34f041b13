# What data may be used for (PURPOSES.md): the commands that say so, which go up on the control
# topic and are answered, and the filters of subscriptions that say what they are for. Imported when
# first used.
from micropython import const

from sealmq_spec import purposes
from sealmq_spec.const import OP_COMMAND
from sealmq_spec.errors import TooLarge, from_notice

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
_AWAITED = const(3 << 24)  # what a notice is about, as link.py has it


# The filter as it goes after the token.
def access(topic: "Topic", purpose: str) -> str:
    return purposes.access(to_text(topic), purpose)


def reserve(topic: "Topic", aip: "Iterable[str]", pip: "Iterable[str]") -> str:
    return purposes.reserve(to_text(topic), aip, pip)


def release(topic: "Topic") -> str:
    return purposes.release(to_text(topic))


# purpose: None takes it back.
def presubscribe(client: str, topic: "Topic", purpose: "str | None") -> str:
    if purpose is not None:
        purposes.check_purpose(purpose)
    return purposes.presubscribe(client, to_text(topic), purpose or "")


# Sends a command and waits for what the mediator says. Gives the reply.
def commanding(self: "Any", command: str) -> "Steps":
    raw = command.encode()
    if len(raw) > self.limit:
        raise TooLarge("a command of %d bytes, the limit is %d" % (len(raw), self.limit))
    s = self.session
    body = bytes((OP_COMMAND, len(_FAMILY))) + _FAMILY + raw
    self._send_control(s.up(body, self.mono()))
    self._awaited = _AWAITED | s.ctr
    said = yield _AWAITS | s.ctr
    if said[2] >= 0:
        raise from_notice(said)
    return said[4]
