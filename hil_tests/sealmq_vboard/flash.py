"""A NOR flash chip over an image file: programming clears bits, only an erase sets them again.

A program that would set bits leaves them 0, as the real chip does, and is counted. Power can be cut
at the n-th program (of a page) or erase (of a sector), before it or with a part of it done; from
then on everything raises PowerLost until the power is back. A sector can be worn out.

The image is mapped shared: another process that reads the file sees each write at once, and what is
written stays when this process is killed.
"""

from __future__ import annotations

import mmap
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

SECTOR = 4096
PAGE = 256
SIZE = 4 * 1024 * 1024
_ERASED_SECTOR = b"\xff" * SECTOR
# What a worn sector does: refuse and say so, or take the command and keep what it holds.
FAULTS = ("fail", "stuck")


class FlashError(Exception):
    """The flash cannot do what it was told."""


class PowerLost(FlashError):
    """The board has no power: the write was cut, or came after the cut."""


class FlashFault(FlashError):
    """The chip reports that a program or an erase failed."""


class Misuse(FlashError):
    """A range outside the chip, or an erase that does not fall on sectors."""


@dataclass
class Counts:
    """What the chip has done since this process opened it."""

    programs: int = 0  # pages
    erases: int = 0  # sectors
    bytes_programmed: int = 0
    # Programs that wanted a bit from 0 to 1: a file system that does this is wrong.
    set_bits_refused: int = 0


@dataclass
class Cut:
    """Where the power goes: `after` more programs and erases are done whole."""

    after: int
    inside: bool
    seed: int


class Flash:
    def __init__(self, path: Path, size: int = SIZE) -> None:
        """Open the image. Misuse: the file is not `size` bytes, or that is no number of sectors."""
        if size <= 0 or size % SECTOR:
            raise Misuse(f"a flash of {size} bytes; a multiple of {SECTOR} is needed")
        self.path = path
        self.size = size
        with path.open("r+b") as file:
            found = file.seek(0, 2)
            if found != size:
                raise Misuse(f"{path} has {found} bytes; the chip has {size}")
            self._cells = mmap.mmap(file.fileno(), size)
        self.counts = Counts()
        self.wear = [0] * (size // SECTOR)
        # Called once, before PowerLost is raised: whoever holds the board's other parts stops them.
        self.on_cut: Callable[[], None] | None = None
        # What the last cut hit, for the log: operation, offset, and how much of it was done.
        self.last_cut: dict[str, int | str | bool] | None = None
        self._faults: dict[int, str] = {}
        self._cut: Cut | None = None
        self._power = True
        self._lock = threading.RLock()

    @staticmethod
    def create(path: Path, size: int = SIZE) -> None:
        """A new chip, as it comes from the factory: erased. FileExistsError: it is there."""
        with path.open("xb") as file:
            path.chmod(0o600)
            file.write(b"\xff" * size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._power = False
            if not self._cells.closed:
                self._cells.close()

    # -- what a program on the board can do

    def read(self, at: int, length: int) -> bytes:
        with self._lock:
            self._check(at, length)
            return self._cells[at : at + length]

    def program(self, at: int, data: bytes | bytearray | memoryview) -> None:
        """Clear the bits that are 0 in `data`. PowerLost, FlashFault, Misuse."""
        data = bytes(data)
        with self._lock:
            self._check(at, len(data))
            if not data:
                return
            if self._cut is None and not self._faults:
                pages = (at + len(data) - 1) // PAGE - at // PAGE + 1
                self.counts.programs += pages
                self._and(at, data)
                return
            # One page at a time, as the chip does it: the cut or the fault hits one of them.
            done = 0
            while done < len(data):
                here = at + done
                part = data[done : done + PAGE - here % PAGE]
                if self._comes_up("program", here, len(part)):
                    self._and(here, self._torn_page(part), torn=True)
                    self._lose_power()
                self.counts.programs += 1
                if self._works(here):
                    self._and(here, part)
                done += len(part)

    def erase(self, at: int, length: int = SECTOR) -> None:
        """Set all bits of these sectors. PowerLost, FlashFault, Misuse."""
        with self._lock:
            self._check(at, length)
            if at % SECTOR or length % SECTOR:
                raise Misuse(f"an erase of {length} bytes at {at:#x}; sectors have {SECTOR}")
            for here in range(at, at + length, SECTOR):
                if self._cut is not None and self._comes_up("erase", here, SECTOR):
                    self._tear_erase(here)
                    self._lose_power()
                self.counts.erases += 1
                self.wear[here // SECTOR] += 1
                if self._faults and not self._works(here):
                    continue
                self._cells[here : here + SECTOR] = _ERASED_SECTOR

    # -- what a test does to it

    def arm_cut(self, after: int, *, inside: bool = False, seed: int = 0) -> None:
        """Cut the power when `after` more programs and erases have been done.

        Inside: the next one is begun, and a part of it, drawn from `seed`, is done.
        """
        if after < 0:
            raise Misuse(f"a cut after {after} writes; 0 or more")
        with self._lock:
            self._cut = Cut(after, inside, seed)

    def disarm_cut(self) -> None:
        with self._lock:
            self._cut = None

    @property
    def armed(self) -> Cut | None:
        return self._cut

    def fault(self, sector: int, how: str | None) -> None:
        """Wear a sector out: one of FAULTS, or None to make it good again."""
        if not 0 <= sector < len(self.wear):
            raise Misuse(f"sector {sector}; the chip has {len(self.wear)}")
        if how is not None and how not in FAULTS:
            raise Misuse(f"fault {how!r}; one of {', '.join(FAULTS)}")
        with self._lock:
            if how is None:
                self._faults.pop(sector, None)
            else:
                self._faults[sector] = how

    @property
    def faults(self) -> dict[int, str]:
        return dict(self._faults)

    @property
    def powered(self) -> bool:
        return self._power

    def power_off(self) -> None:
        with self._lock:
            self._power = False

    def power_on(self) -> None:
        with self._lock:
            self._power = True

    # -- inside

    def _check(self, at: int, length: int) -> None:
        if not self._power:
            raise PowerLost("the flash has no power")
        if at < 0 or length < 0 or at + length > self.size:
            raise Misuse(f"{length} bytes at {at:#x}; the chip ends at {self.size:#x}")

    def _and(self, at: int, data: bytes, torn: bool = False) -> None:
        end = at + len(data)
        old = self._cells[at:end]
        self.counts.bytes_programmed += len(data)
        if old.count(0xFF) != len(old):
            # One big number each: an AND over all bytes at once.
            wanted = int.from_bytes(data, "big")
            kept = wanted & int.from_bytes(old, "big")
            if kept != wanted:
                self.counts.set_bits_refused += not torn  # bits that were not reached are 1 there
                data = kept.to_bytes(len(data), "big")
        self._cells[at:end] = data

    def _comes_up(self, what: str, at: int, length: int) -> bool:
        """Whether the cut hits this operation, and a part of it is done; else count it."""
        cut = self._cut
        if cut is None:
            return False
        if cut.after > 0:
            cut.after -= 1
            return False
        self.last_cut = {"what": what, "at": at, "length": length, "inside": cut.inside}
        if not cut.inside:
            self._lose_power()
        return True

    def _lose_power(self) -> NoReturn:
        self._cut = None
        self._power = False
        if self.on_cut is not None:
            self.on_cut()
        raise PowerLost("the power was cut")

    def _torn_page(self, data: bytes) -> bytes:
        """The first bytes done, in the one after them some bits, the rest not begun."""
        draw = self._draw()
        done = draw.randrange(len(data))
        self._note(done)
        torn = data[done] | draw.getrandbits(8)
        return data[:done] + bytes([torn]) + b"\xff" * (len(data) - done - 1)

    def _tear_erase(self, at: int) -> None:
        """The sector's beginning is erased, a few bytes are half so, the rest is as it was."""
        draw = self._draw()
        done = draw.randrange(SECTOR)
        self._note(done)
        old = self._cells[at : at + SECTOR]
        half = bytes(byte | draw.getrandbits(8) for byte in old[done : done + 16])
        torn = b"\xff" * done + half + old[done + len(half) :]
        self._cells[at : at + SECTOR] = torn

    def _draw(self) -> random.Random:
        return random.Random(self._cut.seed if self._cut else 0)  # noqa: S311 - a place, no secret

    def _note(self, done: int) -> None:
        if self.last_cut is not None:
            self.last_cut["done"] = done

    def _works(self, at: int) -> bool:
        how = self._faults.get(at // SECTOR)
        if how == "fail":
            raise FlashFault(f"the chip failed in sector {at // SECTOR}")
        return how is None
