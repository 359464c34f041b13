# What the tasks of an asyncio client wait for: the blocking client's core, which ends their waits
# as packets come in.
import asyncio

from micropython import const

from . import client
from .incoming import LAST_CTR

_TYPING = False
if _TYPING:
    from typing import Any

    from sealmq_spec.reader import Message

    from .incoming import Notice

_WRONG_EPOCH = const(6)


# What one task waits for: an acknowledgement, or the notice about ctr.
class Wait:
    def __init__(self, key: int, ctr: int, until: int, pid: int, raw: bytes) -> None:
        self.key = key
        self.ctr = ctr
        self.until = until
        self.pid = pid
        self.raw = raw  # of a PUBLISH
        self.got: "Any" = None
        self.error: "Exception | None" = None
        self.epoch = 0
        self.event = asyncio.Event()

    def end(self, got: "Any") -> None:
        self.got = got
        self.event.set()


# The core, and what it tells.
class Core(client.Client):
    over: "Any" = None  # called when a connection is closed
    mail: "Any" = None  # an event: a message came
    _heard = -0x3FFFFFFF  # what receive_fast.py makes reads by itself

    def _attributes(self) -> None:
        client.Client._attributes(self)
        self.waits: "dict[int, Wait]" = {}
        # Refused for their epoch: told when there are new roots, or none to be had.
        self.outdated: "list[Wait]" = []

    def _close(self) -> None:
        held = self.sock
        client.Client._close(self)
        if held is not None and self.over is not None:
            self.over(None)

    # The link does that.
    def _upkeep(self) -> None:
        pass

    # A task waits for the PUBACK.
    def _settle(self, ctr: int, *_: "Any") -> int:
        return ctr

    # What receive_fast.py prepares is for the blocking client's reads.
    def _learn(self, topic: bytes, payload: bytearray) -> None:
        pass

    def _acked(self, first: int, body: bytearray) -> None:
        client.Client._acked(self, first, body)
        if len(body) > 1:
            wait = self.waits.pop(first << 16 | body[0] << 8 | body[1], None)
            if wait is None:
                return
            if wait.got is None or self.receipted(wait.ctr):
                wait.got = body
            elif wait.got[2] == _WRONG_EPOCH:
                self.outdated.append(wait)
                return
            wait.event.set()

    def _noticed(self, said: "Notice") -> None:
        if said[1]:
            about = (said[0] - 1) << 24 | said[1]  # as link.py has it
            for wait in list(self.waits.values()):
                if wait.ctr == about:
                    wait.got = said
                    # A receipt may still say more; the PUBACK comes last (SPEC.md 4.5).
                    if not wait.raw:
                        del self.waits[wait.key]
                        wait.event.set()
        client.Client._noticed(self, said)

    def _deliver(self, message: "Message") -> None:
        client.Client._deliver(self, message)
        pulse(self.mail)

    # Ends all waits. What they sent is kept for resend().
    def fail(self, error: Exception) -> None:
        for wait in list(self.waits.values()):
            del self.waits[wait.key]
            if wait.got is None:
                if wait.raw:
                    self._keep(wait.ctr, wait.pid, wait.raw)
                wait.error = error
            wait.event.set()

    # Under way again, or not to be.
    def told(self) -> None:
        for wait in self.outdated:
            wait.event.set()
        self.outdated = []

    def must(self) -> bool:
        s = self.session
        return bool(s.due) or s.ctr > LAST_CTR or self._astray


# Wakes all who wait for something to change.
def pulse(event: "asyncio.Event") -> None:
    event.set()
    event.clear()
