# What a board says by itself of a message of another site whose inner tag fails (GATEWAY.md G11):
# that a site on its way has made or changed it. Imported when first needed.
from micropython import const

from sealmq_spec.const import OP_COMMAND

_TYPING = False
if _TYPING:
    from typing import Any

_EVERY_MS = const(60_000)
_WHAT_CONTROL = const(4)


# Once a minute, and no more until the next start once the site has refused one. Nobody waits for
# its answer.
def complain(self: "Any", topic: bytes) -> None:
    reader, s, now = self.reader, self.session, self.mono()
    message, reader.bad = reader.bad, b""
    if self._complain_at < 0 or now < self._complain_at or self.now_ms() is None:
        return
    for what, ctr, _, _, _ in self.notices:
        if what == _WHAT_CONTROL and (s.salt, ctr) == self._complained:
            self._complain_at = -1
            return
    self._complain_at = now + _EVERY_MS
    said = bytes((OP_COMMAND, 8)) + b"feedback\0" + message + topic
    self._send_control(s.up(said, now))
    self._complained = s.salt, s.ctr
