"""The board on a TCP port that speaks RFC 2217, where DTR and RTS are seen: the usual reset works.

pyserial's PortManager speaks the protocol; what it takes for the serial port is `_Lines`. Data pass
by it in whole pieces, since it goes byte by byte.
"""

from __future__ import annotations

import struct

import serial
from serial import rfc2217

from .fronts import Line
from .tcp import Connection, TcpFront

_IAC = b"\xff"


class _Lines:
    """What PortManager sets on a port: speed and format, which change nothing here; the lines."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._dtr = False
        self._rts = False
        self.baudrate = 115200
        self.bytesize = serial.EIGHTBITS
        self.parity = serial.PARITY_NONE
        self.stopbits = serial.STOPBITS_ONE
        self.rtscts = self.xonxoff = self.dsrdtr = False
        self.break_condition = False
        # Nothing drives these on a usual board.
        self.cts = self.dsr = self.ri = self.cd = False

    @property
    def dtr(self) -> bool:
        return self._dtr

    @dtr.setter
    def dtr(self, on: bool) -> None:
        self._dtr = bool(on)
        self._line.lines(self._dtr, self._rts)

    @property
    def rts(self) -> bool:
        return self._rts

    @rts.setter
    def rts(self, on: bool) -> None:
        self._rts = bool(on)
        self._line.lines(self._dtr, self._rts)

    def reset_input_buffer(self) -> None:
        """Nothing waits here."""

    def reset_output_buffer(self) -> None:
        """Nothing waits here."""

    def drop(self) -> None:
        """The host is gone: both lines at once, which resets nothing."""
        self._dtr = self._rts = False
        self._line.lines(False, False)


class _Rfc2217Connection(Connection):
    _manager: rfc2217.PortManager
    _lines: _Lines

    def ready(self) -> None:
        self._lines = _Lines(self.server.line)
        self._manager = rfc2217.PortManager(self._lines, self)

    def arrived(self, data: bytes) -> None:
        manager = self._manager
        found: list[bytes] = []
        at = 0
        while at < len(data):
            if manager.mode == rfc2217.M_NORMAL and manager.suboption is None:
                escape = data.find(_IAC, at)
                end = len(data) if escape < 0 else escape
                if end > at:
                    found.append(data[at:end])
                    at = end
                    continue
                if data[at + 1 : at + 2] == _IAC:
                    found.append(_IAC)
                    at += 2
                    continue
            # What came before a command has to reach the board before it.
            if data[at : at + 1] == _IAC and found:
                self._flush(found)
            try:
                found.extend(manager.filter(data[at : at + 1]))
            except (ValueError, KeyError, TypeError, struct.error, serial.SerialException):
                # Nonsense in a negotiation (pyserial checks little): hang up.
                if self.transport is not None:
                    self.transport.abort()
                return
            at += 1
        self._flush(found)

    def _flush(self, found: list[bytes]) -> None:
        if found:
            self.server.line.received(b"".join(found))
            found.clear()

    def put(self, data: bytes) -> None:
        self.write(data.replace(_IAC, _IAC + _IAC))

    def gone(self) -> None:
        self._lines.drop()


class Rfc2217Front(TcpFront):
    scheme = "rfc2217"
    connection = _Rfc2217Connection
