# When Wi-Fi is begun, awaited and given up: decisions only. port: as Wlan of wlan.py has it,
# start(), stop(), up(), failure(); none of these waits.
from micropython import const

from sealmq_spec.errors import Unavailable

_TYPING = False
if _TYPING:
    from typing import Any

    from .backoff import Backoff

_LOOK_MS = const(100)


class Radio:
    # patience: ms for one association, its address included.
    def __init__(self, port: "Any", backoff: "Backoff", patience: int = 20000) -> None:
        self._port = port
        self._backoff = backoff
        self._patience = patience
        self._began = -1  # when the attempt under way began; -1: there is none
        self._at = 0  # when the next one may begin
        self._was_up = False
        self.error: "Unavailable | None" = None  # why the last attempt failed

    # 0: it is up. Otherwise milliseconds after which to look again.
    def next(self, now: int) -> int:
        port = self._port
        if port.up():
            if not self._was_up:
                self._was_up = True
                self._began = -1
                self._backoff.up(now)
            return 0
        if self._was_up:
            self._was_up = False
            self._backoff.down(now)
            self._fail(now, "the network is gone")
        if self._began < 0:
            if now < self._at:
                return self._at - now
            self._began = now
            try:
                port.start()
            except OSError as error:
                self._fail(now, str(error))
            return _LOOK_MS
        why = port.failure()
        if not why and now - self._began >= self._patience:
            why = "no address within %d ms" % self._patience
        if why:
            self._fail(now, why)
        return _LOOK_MS

    # The interface is turned off between two attempts: what hung in it does not stay.
    def _fail(self, now: int, why: str) -> None:
        self.error = Unavailable("Wi-Fi: " + why)
        self._began = -1
        self._at = now + self._backoff.next()
        self.off()

    def off(self) -> None:
        self._was_up = False
        try:
            self._port.stop()
        except OSError:
            pass  # it was off already
