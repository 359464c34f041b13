"""A board's console: what it prints, line by line, and how it is started again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import serial

from .errors import BoardError, NoAnswer
from .ports import Port

_BAUD = 115200
# A board that is awake answers sooner.
_PROMPT_S = 5.0
# Ctrl-C so often while a board is waited for: it is awake for a second or two.
_OFTEN_S = 0.05
# Out of the raw REPL, should something have left it there.
_ASK = b"\r\x03\x03\x02"
_PROMPT = b">>> "
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
                hint = self.port.hint
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

    # until: when a port that went is given up, other than soon.
    def _read(self, until: float = 0) -> bytes:
        try:
            # `read` waits for one byte, and takes no more than are there behind it.
            raw: bytes = self._serial.read(1)
            if raw:
                raw += self._serial.read(self._serial.in_waiting)
            return raw
        except (OSError, serial.SerialException):
            self._again(until)
            return b""

    # The port has gone; waits for it to come again.
    def _again(self, until: float) -> None:
        self._serial.close()
        end = max(until, time.monotonic() + _AWAY_S)
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

    def catch(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Stops the board's program, at once or at its next wake, and so holds it awake. NoAnswer:
        it did not come to its REPL within the port's patience; BoardError: `stopped` said so."""
        most = self.port.patience or _PROMPT_S
        if self._asked(min(most, _PROMPT_S), stopped):
            return
        if most > _PROMPT_S:
            from .showing import waiting  # takes its time, and mostly nobody waits

            with waiting(self.port.name) as shown:
                shown.step(
                    f"no answer; waits up to {most:.0f} s for its next wake or start "
                    "(its reset button is one; Ctrl-C ends this)"
                )
                if self._asked(most - _PROMPT_S, stopped, lambda s: shown.part(s / most)):
                    shown.step("caught")
                    return
        raise NoAnswer(
            f"{self.port.name}: no MicroPython answers (waited {most:.0f} s)",
            hint="does it sleep for longer? --patience SECONDS; else press its reset button while "
            "this waits. A new board wants `sealmq board flash` first",
        )

    # Ctrl-C again and again, for so long, until there is a prompt.
    def _asked(
        self,
        seconds: float,
        stopped: Callable[[], bool],
        told: Callable[[float], None] = lambda passed: None,
    ) -> bool:
        began = last = time.monotonic()
        seen = b""
        number = 0
        while (now := time.monotonic()) - began < seconds:
            if stopped():
                raise BoardError("stopped")
            if not number or now - last >= _OFTEN_S:
                self._try(b"\x03" if number % 20 else _ASK)
                told(now - began)
                last = now
                number += 1
            seen = (seen + self._read(seconds + began))[-200:]
            if seen.endswith(_PROMPT):
                return True
        return False

    # A port that goes with each sleep may be away just now.
    def _try(self, raw: bytes) -> None:
        try:
            self._serial.write(raw)
        except (OSError, serial.SerialException):
            pass

    def restart(self, soft: bool = False) -> None:
        """Starts the board again: MicroPython alone, or the chip. NoAnswer: it cannot be done."""
        self._rest = b""
        if not soft and self.port.has_lines and not self._asked(_PROMPT_S, lambda: False):
            self._pulsed()
            return
        self.catch()
        self.write(b"\x04" if soft else b"import machine; machine.reset()\r\n")
        self._echo()

    # By its pin; believed when it says something.
    def _pulsed(self) -> None:
        self.pulse()
        end = time.monotonic() + _PROMPT_S
        while not self._rest and time.monotonic() < end:
            self._rest += self._read()
        if not self._rest:
            raise NoAnswer(
                f"{self.port.name}: its reset pin was pulled, and it says nothing",
                hint="not every adapter has that wire: press the board's reset button, or switch "
                "it off and on",
            )

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
