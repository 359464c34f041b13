# When Wi-Fi is begun, awaited and given up: decisions only. Whoever builds on this (wlan.py) has
# start(), stop(), up() and failure(), and none of these waits.
from micropython import const

from sealmq_spec.errors import Unavailable

from .backoff import FIRST_MS, Backoff

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

    # OSError when the driver does not want to now.
    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def up(self) -> bool:
        raise NotImplementedError

    # Why the attempt is over; empty while it may still come to something.
    def failure(self) -> str:
        raise NotImplementedError

    # 0: it is up. Otherwise milliseconds after which to look again.
    def next(self, now: int) -> int:
        if self.up():
            self._up = True
            return 0
        why = ""
        if self._up:
            why = "lost"
            self.backoff.limit = FIRST_MS
        elif self._began >= 0:
            why = self.failure()
            if not why and now - self._began >= self._patience:
                why = "no address in time"
        elif now < self._at:
            return self._at - now
        else:
            self._began = now
            try:
                self.start()
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
        try:
            self.stop()
        except OSError:
            pass  # it was off already
