"""A board's console: what it prints, line by line, and how it is started again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import serial

from .errors import BoardError
from .mpremote_run import NoAnswer
from .ports import Port

_BAUD = 115200
_PROMPT_S = 5.0
# A chip's own USB goes and comes again with each reset.
_AWAY_S = 15.0
_PULSE_S = 0.1
_ECHO_S = 1.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class Console:
    """Opening it does not reset the board."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self._rest = b""
        self._serial: Any = None
        self._open()

    def _open(self) -> None:
        try:
            # rfc2217 knows no time limit for writing.
            limit = {} if "://" in self.port.url else {"write_timeout": 10}
            self._serial = serial.serial_for_url(
                self.port.url, _BAUD, timeout=0.1, exclusive=True, **limit
            )
        except (OSError, serial.SerialException) as error:
            if "exclusively lock" in str(error):
                why = "another program has the port"
                hint = "end what else reads it (logs, a terminal)"
            else:
                why = f"the port does not open: {_plain(error)}"
                hint = "end what else reads it; your user has to be in the group dialout"
            raise BoardError(f"{self.port.name}: {why}", hint=hint) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._serial.close()

    def lines(self, seconds: float | None = None) -> Iterator[str | None]:
        """What it prints, as text without control characters; None each time nothing came for a
        moment. Ends after so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            raw = self._read()
            if not raw:
                yield None
                continue
            *whole, self._rest = (self._rest + raw).split(b"\n")
            for line in whole:
                yield _CONTROL.sub("", line.decode("utf-8", "replace")).rstrip()

    def _read(self) -> bytes:
        try:
            # `read` waits for one byte, and takes no more than are there behind it.
            raw: bytes = self._serial.read(1)
            if raw:
                raw += self._serial.read(self._serial.in_waiting)
            return raw
        except (OSError, serial.SerialException):
            self._again()
            return b""

    # The port has gone; waits for it to come again.
    def _again(self) -> None:
        self._serial.close()
        end = time.monotonic() + _AWAY_S
        while True:
            try:
                self._open()
                return
            except BoardError:
                if time.monotonic() > end:
                    raise BoardError(
                        f"{self.port.name}: the port has gone", hint="check the cable"
                    ) from None
                time.sleep(0.2)

    def write(self, raw: bytes) -> None:
        """To the board."""
        try:
            self._serial.write(raw)
        except (OSError, serial.SerialException) as error:
            raise NoAnswer(f"{self.port.name}: {_plain(error)}", hint="check the cable") from None

    def prompt(self) -> bool:
        """Stops the program. False: no REPL answers."""
        for _ in range(2):
            self.write(b"\r\x03\x03\x02")
            end = time.monotonic() + _PROMPT_S / 2
            seen = b""
            while time.monotonic() < end:
                seen = (seen + self._read())[-200:]
                if seen.endswith(b">>> "):
                    return True
        return False

    def restart(self, soft: bool = False) -> None:
        """Starts the board again: MicroPython alone, or the chip. NoAnswer: it cannot be done."""
        self._rest = b""
        if self.prompt():
            self.write(b"\x04" if soft else b"import machine; machine.reset()\r\n")
            self._echo()
        elif soft or not self.port.has_lines:
            raise NoAnswer(
                f"{self.port.name}: no MicroPython answers",
                hint="press the board's reset button, or switch it off and on",
            )
        else:
            self.pulse()

    # The REPL's echo of what was typed is none of the board's lines.
    def _echo(self) -> None:
        end = time.monotonic() + _ECHO_S
        while b"\n" not in self._rest and time.monotonic() < end:
            self._rest += self._read()
        self._rest = self._rest.partition(b"\n")[2]

    def pulse(self) -> None:
        """Pulls the reset pin, where the board has the usual circuit behind RTS."""
        self._serial.dtr = False
        self._serial.rts = True
        time.sleep(_PULSE_S)
        self._serial.rts = False


def _plain(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
