"""Whether a site is well, and what is wrong with it, within a few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sealmq.run import proc, ready
from sealmq.run.status import Status, look
from sealmq.site.config import Config, load
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout
from sealmq.site.reserve import LEAVE, room

from .totals import Told, read

FRESH_S = 4.0
"""So long an answer of all parts is believed; each is asked by a connection."""
SILENT_S = 8.0
"""A process that has said nothing for so long hangs, or cannot write."""
SAID_S = 600.0
"""So long it is said that the clock was set."""
# Further back no clock is that is right: the site's own files are younger.
_AHEAD_S = 60
_JUMP_S = 60
# Less is what passes between two looks at two clocks.
_STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class Health:
    """Of one moment. problems: each in words; none: it is well. boot_s: the boot of the machine,
    Unix seconds.
    """

    problems: tuple[str, ...]
    status: Status | None
    told: tuple[Told, ...]
    boot_s: float = 0.0


class Watch:
    """Looks at a site. supervisor: pid and start of the process that has to live. clock: Unix s."""

    def __init__(
        self, layout: Layout, supervisor: tuple[int, int | None], clock: Callable[[], float]
    ) -> None:
        self._layout, self._supervisor, self._clock = layout, supervisor, clock
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._looked = -FRESH_S
        self._config: tuple[tuple[int, int, int], Config] | None = None
        self._began = clock() - time.monotonic()
        self._boot_s = clock() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._was_wrong = False
        # By how much the clock was set; when, by the monotonic one; whether it was wrong before.
        self._set: tuple[float, float, bool] | None = None

    def supervised(self) -> bool:
        """Whether `sealmq up` lives."""
        pid, start = self._supervisor
        return proc.start_of(pid) == start

    def succeeded(self) -> bool:
        """Whether another `sealmq up` has the site."""
        up = ready.read_json(self._layout.run / "up.json") or {}
        pid = up.get("pid")
        if type(pid) is not int or pid == self._supervisor[0]:
            return False
        return proc.start_of(pid) == up.get("start")

    def look(self) -> Health:
        """Now. What each part answers is at most FRESH_S old."""
        with self._lock:
            if time.monotonic() - self._looked >= FRESH_S:
                self._status = self._ask()
                self._looked = time.monotonic()
            status = self._status
        told = tuple(read(self._layout))
        return Health(tuple(self._problems(status, told)), status, told, self._boot())

    # By the clock as it is now. Without a step of it the same to the last digit: a start time that
    # changes is how a restart is found.
    def _boot(self) -> float:
        now = self._clock() - time.clock_gettime(time.CLOCK_BOOTTIME)
        if abs(now - self._boot_s) > _STEP_S:
            self._boot_s = now
        return self._boot_s

    def _ask(self) -> Status | None:
        try:
            seen = self._layout.config.stat()
            now = seen.st_mtime_ns, seen.st_size, seen.st_ino
            # With many clients to read it costs more than all the rest.
            if self._config is None or self._config[0] != now:
                self._config = now, load(self._layout.config)
            return look(self._layout, self._config[1])
        except (SiteError, OSError, ValueError) as error:
            self._config = None
            return look(self._layout, None, str(error))

    def _problems(self, status: Status | None, told: tuple[Told, ...]) -> Iterator[str]:
        if not self.supervised():
            yield "`sealmq up` has ended: nobody starts again what ends"
        try:
            yield from self._of_clock(told)
            if room(self._layout.root) < LEAVE:
                yield "the disk is full"
        except OSError as error:
            yield f"the site's folder cannot be read: {error.strerror}"
        for one in status.processes if status is not None else ():
            if not one.ready:
                yield f"{one.role} is not ready: {one.note or 'it does not say why'}"
            elif one.closed:
                yield f"the site is closed: {one.closed}"
        if status is not None and status.enforce is False:
            yield "the policy is not enforced"
        for each in told:
            if each.error:
                yield f"{each.role} cannot write its audit log: {each.error}"
            if each.silent_s() > SILENT_S:
                yield f"{each.role} {each.name} has said nothing for {SILENT_S:g} s"

    # A board without a clock begins at some time in the past, and is set once it has a network:
    # that is no problem but the end of one.
    def _of_clock(self, told: tuple[Told, ...]) -> Iterator[str]:
        wrong = list(self._wrong_clock(told))
        yield from wrong
        moved = self._clock() - time.monotonic() - self._began
        if abs(moved) > _JUMP_S:
            self._began += moved
            self._set = moved, time.monotonic(), self._was_wrong
        self._was_wrong = bool(wrong)
        if self._set is not None:
            by, at, cures = self._set
            # What processes say of the clock may be from before.
            if (cures and not wrong) or time.monotonic() - at > SAID_S:
                self._set = None
            else:
                yield f"the clock was set by {by:+.0f} s while the site ran: clients connected anew"

    def _wrong_clock(self, told: tuple[Told, ...]) -> Iterator[str]:
        now = self._clock()
        made = self._layout.config.stat().st_mtime
        if now + _AHEAD_S < made:
            yield f"the clock is wrong: it is {made - now:.0f} s before sealmq.toml was written"
        for one in told:
            if one.gauges.get("log_ahead_seconds", 0) > _AHEAD_S:
                ahead = one.gauges["log_ahead_seconds"]
                yield f"the clock is wrong: it is {ahead:.0f} s before the newest audit record"
