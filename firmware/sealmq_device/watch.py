# A watchdog (machine.WDT) that is fed behind each turn of the main loop and nowhere else: a wait
# that hangs, a callback that does not return, a task that died leave it hungry. Its timeout has to
# be longer than the longest turn, which is a connect: five rounds with a few waits of `timeout`
# seconds each.
_TYPING = False
if _TYPING:
    from typing import Any


# wdt: what has feed(). patience: ms without a session after which a reset is worth trying, since
# more than the network may be stuck; 0: never.
class Watch:
    def __init__(self, wdt: "Any", patience: int = 0) -> None:
        self._wdt = wdt
        self._patience = patience
        self._up_at = 0

    # A turn has come to its end. up: there is a session.
    def turned(self, now: int, up: bool) -> None:
        if up or not self._up_at:
            self._up_at = now
        if not self._patience or now - self._up_at < self._patience:
            self._wdt.feed()
