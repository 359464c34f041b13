"""One board: what is on it, and what is brought onto it, by esptool.

The first thing written makes the board unable to start, the last able again: in between it stays in
the chip's ROM loader, whatever cuts the run off. So no half of one version ever runs with half of
another, and the same command again is all that a cut asks for.
"""

from __future__ import annotations

import time
from pathlib import Path

from . import bundle, enrolment, littlefs, nvs_image, private
from .bundle import Bundle
from .chips import SECTOR
from .errors import BoardError
from .esptool_run import Runner, Ways, field, flash_size, written
from .firmware import Firmware, Part, layout, nvs_place
from .showing import Shown


class Board:
    """A board, its bundle, and how far they are."""

    def __init__(self, name: str, ways: Ways, taken: Bundle, made: Firmware, shown: Shown) -> None:
        self.name = name
        self.bundle = taken
        self.mac = ""
        self.holds: enrolment.Enrolment | None = None
        self.error: Exception | None = None
        self.done = False
        self.seconds = 0.0
        self.flash_size = 0
        self._ways = ways
        self._made = made
        self._shown = shown

    def look(self, runner: Runner) -> None:
        """Chip, MAC, flash size, and whose enrolment it holds. BoardError."""
        begun = time.monotonic()
        self._shown.step("connecting")
        nvs = nvs_place(self._made)
        with private.folder() as folder:
            copy = folder / "read.bin"
            words = ["read-flash", "--flash-size", "detect", hex(nvs.offset), hex(nvs.size)]
            said = runner.run(self._ways, [*words, str(copy)], _nothing)
            self.holds = _held(copy.read_bytes())
        self.mac = field(said, "MAC").lower()
        if not self.mac:
            raise BoardError("the board does not tell its MAC", hint="run it again")
        self.flash_size = flash_size(said)
        layout(self._made, self.flash_size)
        self.seconds += time.monotonic() - begun

    def bring(self, runner: Runner, keep: bool) -> None:
        """Write all, read all back, start it; then the secret here is removed. BoardError."""
        begun = time.monotonic()
        self._shown.part(0.0)
        bundle.note_given(self.bundle.path, self.mac)
        parts = self.parts()
        with private.folder(sum(len(part.content) for part in parts)) as folder:
            pairs = []
            for number, part in enumerate(parts):
                path = folder / f"{number}.bin"
                private.write(path, part.content)
                pairs += [hex(part.offset), str(path)]
            self._shown.step("writing")
            boot = parts[-1].offset
            runner.run(self._ways, ["erase-region", hex(boot), hex(SECTOR)], _nothing)
            runner.run(self._ways, ["write-flash", *pairs], _Meter(parts, self._shown))
            self._shown.step("reading back")
            runner.run(self._ways, ["verify-flash", *pairs], _nothing, last=True)
        if not keep:
            bundle.use_up(self.bundle.path)
        self.done = True
        self.seconds += time.monotonic() - begun
        self._shown.part(1.0)
        self._shown.step("done")

    def parts(self) -> list[Part]:
        """All that is written, in its order. BoardError: no room.

        NVS is written whole: what an earlier life of the board left in it, its boot counter and its
        keys, goes with the enrolment that they belong to.
        """
        places = layout(self._made, self.flash_size)
        nvs = nvs_image.fitted(self.bundle.nvs, places.nvs_size)
        vfs = littlefs.resized(self.bundle.vfs, places.vfs_size)
        *rest, boot = self._made.parts
        return [*rest, Part("vfs", places.vfs, vfs), Part("nvs", places.nvs, nvs), boot]


class _Meter:
    """Lines of write-flash become a part done of all parts."""

    def __init__(self, parts: list[Part], shown: Shown) -> None:
        self._before: dict[int, int] = {}
        self._all = 0
        for part in parts:
            self._before[part.offset] = self._all
            self._all += len(part.content)
        self._sizes = {part.offset: len(part.content) for part in parts}
        self._shown = shown

    def __call__(self, line: str) -> None:
        found = written(line)
        if found is None:
            return
        address, done = found
        starts = [at for at, size in self._sizes.items() if at <= address <= at + size]
        if starts:
            at = max(starts)
            self._shown.part((self._before[at] + done * self._sizes[at]) / self._all)


def _nothing(line: str) -> None:
    pass


# Whose enrolment an NVS partition has; None for none, and for what no longer is an NVS.
def _held(raw: bytes) -> enrolment.Enrolment | None:
    try:
        values = nvs_image.read(raw, torn=True)
    except nvs_image.NvsError:
        return None
    found = values.get((nvs_image.NAMESPACE, nvs_image.ENROLMENT))
    try:
        return enrolment.parsed(found) if isinstance(found, bytes) else None
    except ValueError:
        return None


def same(board: Board) -> bool:
    """Whether it holds nothing, or what its own client was given."""
    client = board.bundle.about["client"]
    held = board.holds
    return held is None or (held.site, held.client) == (client["site"], client["number"])


def is_new(path: Path, mac: str) -> bool:
    """Whether no other board has, or may have, this bundle's secret."""
    return bundle.given_to(path) in ("", mac)
