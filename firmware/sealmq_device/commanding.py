# A policy family's command (SPEC.md 4.4), which goes up on the control topic and is answered.
# Imported when first used.
from micropython import const

from sealmq_spec.const import OP_COMMAND
from sealmq_spec.errors import Malformed, TooLarge, from_notice

_TYPING = False
if _TYPING:
    from typing import Any

    from .link import Steps

# No packet begins like that: only what comes about this ctr ends the wait.
_AWAITS = const(0x1000000)
_AWAITED = const(0x3000000)  # what a notice is about, as link.py has it


# Sends a command and waits for what the mediator says. Gives the reply.
def commanding(self: "Any", family: str, body: "bytes | str") -> "Steps":
    name = family.encode()
    if not 0 < len(name) < 256:
        raise Malformed("a family's name has 1 to 255 bytes")
    raw = body.encode() if isinstance(body, str) else bytes(body)
    if len(raw) > self.limit:
        raise TooLarge("a command of %d bytes" % len(raw))
    s = self.session
    self._send_control(s.up(bytes((OP_COMMAND, len(name))) + name + raw, self.mono()))
    self._awaited = _AWAITED | s.ctr
    said = yield _AWAITS | s.ctr
    if said[2] >= 0:
        raise from_notice(said)
    return said[4]
