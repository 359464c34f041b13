"""esptool as a program of its own: its licence is not ours, and nothing of it is imported.

It is given paths, never a secret. What it prints becomes progress; what goes wrong becomes a line
and a hint.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .errors import BoardError
from .ports import Port
from .programs import Programs

# No esptool command is silent for that long, a digest over 16 MiB included.
_SILENT = 120.0
_KEPT = 200  # lines
_HOLD = "hold BOOT, press EN (reset) once, let go of BOOT, and run it again"
_PORT_LOST = "check the cable and run it again, perhaps with --baud 115200"

# What esptool's last words mean: text and hint, {1}, {2} from the expression's groups. The first
# that fits counts.
_ERRORS: tuple[tuple[str, str, str], ...] = (
    (r"\[Errno 13\]|Permission denied", "the port may not be opened by you",
     "sudo usermod -aG dialout $USER, then log in again"),
    (r"Connection refused|Name or service not known|No route to host",
     "nobody answers at that address", "start the virtual board or the serial server"),
    (r"exclusively lock|\[Errno 11\]|\[Errno 16\]|Resource busy",
     "the port is in use by another program", "close mpremote, a monitor or a second run"),
    (r"\[Errno 2\]|port is busy or doesn't exist", "there is no such port",
     "`sealmq board list` shows what is plugged in"),
    (r"Failed to set baud rate", "the port does not go that fast", "--baud 115200"),
    (r"This chip is (\S+?), not (\S+?)[.,]? +Wrong", "the board is an {1}, the bundle for {2}",
     "`sealmq board build --chip` makes one for it"),
    (r"Wrong boot mode|No serial data received|Failed to connect", "the board does not answer",
     _HOLD),
    (r"does not match data in flash|written flash region is empty|Verification failed|"
     r"digest mismatch", "what was written reads back otherwise",
     "run it again; if that repeats, the flash is worn out"),
    (r"Failed SPI operation|verify flash chip connection", "the flash does not take it",
     "run it again; if that repeats, the flash is worn out"),
    (r"will not fit in", "the images do not fit the board's flash",
     "MicroPython has other .bin files for boards with less flash"),
    (r"(?i)secure download|flash encryption|secure boot|security features",
     "the chip's protection is switched on, and forbids it",
     "who switched it on has to write it: firmware/README.md, what the chip's own protection does"),
    (r"(?i)timed out|stopped responding|No more data to read|returned no data|stub flasher|"
     r"Invalid head of packet|SLIP escape|Corrupt data|Digest mismatch|doesn't match request|"
     r"disconnected|\[Errno 5\]|SerialException|could not be read|Connection reset|Broken pipe",
     "the connection to the board was lost", _PORT_LOST),
)  # fmt: skip


class EsptoolError(BoardError):
    """esptool failed; `said` is what it printed."""

    def __init__(self, what: str, hint: str | None, said: str) -> None:
        super().__init__(what, hint=hint)
        self.said = said


class Ways(NamedTuple):
    """How a board is reached."""

    port: Port
    chip: str
    baud: int
    before: str
    after: str


class Runner:
    """Runs esptool for several boards, from several threads; stop() ends all of them."""

    def __init__(self) -> None:
        self._programs = Programs()

    def run(
        self, ways: Ways, words: Sequence[str], told: Callable[[str], None], last: bool = False
    ) -> str:
        """What it printed. `told` gets each line; `last`: the board may start behind it.

        EsptoolError.
        """
        command = [
            # -P: an esptool.py in the folder where somebody works is not it.
            *(sys.executable, "-P", "-m", "esptool"),
            *("--chip", ways.chip, "--port", ways.port.url),
            *("--baud", str(ways.baud), "--before", ways.before),
            *("--after", ways.after if last else "no-reset", *words),
        ]
        lines: list[str] = []
        with self._started(command) as process:
            try:
                silent = self._follow(process, lines, told)
                code = process.wait()
            except BaseException:
                process.kill()
                raise
            finally:
                self._programs.ended(process)
        said = "\n".join(lines)
        if self._programs.stopped:
            raise EsptoolError("stopped", "run it again", said)
        if silent:
            text = f"esptool said nothing for {_SILENT:.0f} seconds"
            raise EsptoolError(text, _PORT_LOST, said)
        if code:
            raise translated(said, code)
        return said

    def stop(self) -> None:
        """End what runs, and start nothing more."""
        self._programs.stop(signal.SIGTERM)

    def _started(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        # Ctrl-C comes to us alone, and we end it.
        process = self._programs.start(command, {"COLUMNS": "200", "NO_COLOR": "1"}, alone=True)
        if process is None:
            raise EsptoolError("stopped", None, "")
        return process

    # Reads until it ends; True when it was ended for its silence.
    def _follow(
        self, process: subprocess.Popen[bytes], lines: list[str], told: Callable[[str], None]
    ) -> bool:
        if process.stdout is None:
            return False
        fd = process.stdout.fileno()
        rest = b""
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while True:
                if not selector.select(1.0):
                    if time.monotonic() - heard > _SILENT:
                        process.send_signal(signal.SIGKILL)
                        return True
                    continue
                heard = time.monotonic()
                piece = os.read(fd, 1 << 16)
                *whole, rest = re.split(rb"[\r\n]+", rest + piece)
                for line in [*whole, b"" if piece else rest]:
                    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line.decode("utf-8", "replace"))
                    if text.strip():
                        lines.append(text.strip())
                        told(text.strip())
                del lines[:-_KEPT]
                if not piece:
                    return False


def translated(said: str, code: int) -> EsptoolError:
    """What esptool's last words mean."""
    if "No module named esptool" in said:
        hint = "in the checkout: make install EXTRAS=flash, or pip install '.[flash]'"
        return EsptoolError("esptool is not installed", hint, said)
    if code < 0:
        return EsptoolError(f"esptool was ended by signal {-code}", _PORT_LOST, said)
    # Behind it stands what it did before, which is no error.
    *_, last = re.split(r"(?m)^(?=ERROR|A fatal error|Traceback)", said)
    for pattern, text, hint in _ERRORS:
        if found := re.search(pattern, last):
            return EsptoolError(text.format("", *found.groups()), hint, said)
    fatal = re.findall(r"(?i)(?:error: *)?(?:a fatal error occurred|error): *(.+)", last)
    words = fatal[-1] if fatal else said.rpartition("\n")[2] or "nothing"
    return EsptoolError(f"esptool ended with {code}: {words}", _PORT_LOST, said)


def field(said: str, name: str) -> str:
    """What stands behind `name:` in what it printed."""
    found = re.search(rf"(?m)^{re.escape(name)}: *(.+)$", said)
    return found[1].strip() if found else ""


def flash_size(said: str) -> int:
    """The bytes of the chip's flash. BoardError: it was not detected."""
    found = re.search(r"(?im)^(?:auto-)?detected flash size: *(\d+)(KB|MB)$", said)
    if not found:
        raise BoardError("the size of the board's flash cannot be detected", hint=_PORT_LOST)
    return int(found[1]) << (20 if found[2] == "MB" else 10)


def written(line: str) -> tuple[int, float] | None:
    """(address, part done) of a line of progress."""
    found = re.search(r"Writing at (0x[0-9a-fA-F]+).*?(\d+(?:\.\d+)?) ?%", line)
    return (int(found[1], 16), float(found[2]) / 100) if found else None
