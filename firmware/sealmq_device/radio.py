# When Wi-Fi is begun, awaited and given up: decisions only. Whoever builds on this (wlan.py) has
# start() and stop(), which may raise OSError; up(); and failure(), which says why an attempt is
# over, and nothing while it may still come to something. None of these waits.
from micropython import const

from sealmq_spec.errors import Unavailable

from .backoff import FIRST_MS, Backoff

_TYPING = False
if _TYPING:
    from typing import Any

_LOOK_MS = const(100)


class Radio:
    # patience: ms for one association, its address included.
    def __init__(self, patience: int = 20000) -> None:
        self.backoff = Backoff()
        self.error: "Unavailable | None" = None  # why the last attempt failed
        self._patience = patience
        self._began = -1  # when the attempt under way began; -1: there is none
        self._at = 0  # when the next one may begin
        self._up = False

    # 0: it is up. Otherwise milliseconds after which to look again.
    def next(self, now: int) -> int:
        port: "Any" = self
        if port.up():
            self._up = True
            return 0
        why = ""
        if self._up:
            why = "lost"
            self.backoff.limit = FIRST_MS
        elif self._began >= 0:
            why = port.failure()
            if not why and now - self._began >= self._patience:
                why = "no address in time"
        elif now < self._at:
            return self._at - now
        else:
            self._began = now
            try:
                port.start()
            except OSError as error:
                why = str(error)
        if why:
            self.error = Unavailable("Wi-Fi: " + why)
            self._at = now + self.backoff.next()
            self.off()
        return _LOOK_MS

    # Also between two attempts: what hung in the interface does not stay.
    def off(self) -> None:
        self._up = False
        self._began = -1
        port: "Any" = self
        try:
            port.stop()
        except OSError:
            pass  # it was off already
