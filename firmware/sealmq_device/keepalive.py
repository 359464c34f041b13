# The keep alive, kept for the application: when a PINGREQ is due, and when a peer counts as gone. A
# silent one is found out within one and a half keep alives: PINGREQ after 3/4 of one, given up 1/2
# later. Times are milliseconds of a clock that only rises.
_NEVER = 1 << 29


class Keepalive:
    # seconds: as in CONNECT; 0: no pings, and half-open connections stay.
    def __init__(self, seconds: int) -> None:
        self._idle = 750 * seconds if seconds else _NEVER
        self._grace = 500 * seconds
        self.start(0)

    # A connection begins.
    def start(self, now: int) -> None:
        self._sent = self._heard = now
        self._pinged = -1

    def sent(self, now: int) -> None:
        self._sent = now

    def heard(self, now: int) -> None:
        self._heard = now
        self._pinged = -1

    def pinged(self, now: int) -> None:
        self._sent = now
        if self._pinged < 0:
            self._pinged = now

    # Milliseconds until something has to be done: a ping, or giving up if one is out. <= 0: now.
    def wait(self, now: int) -> int:
        if self._pinged >= 0 and self._grace:
            return self._pinged + self._grace - now
        return min(self._sent, self._heard) + self._idle - now

    def dead(self, now: int) -> bool:
        return self._pinged >= 0 and 0 < self._grace <= now - self._pinged
