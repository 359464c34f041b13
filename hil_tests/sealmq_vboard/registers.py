"""Registers as the loader reaches them; behind the SPI controller, the flash chip's own.

Only what a table in chips.py names exists. Everything else raises Missing, and the loader tells the
host that the read or write failed: no register here holds a value somebody made up.
"""

from __future__ import annotations

import struct

from .chips import CRYSTAL_HZ, MAGIC_REGISTER, Chip
from .flash import Flash

# SPI commands of the flash chip.
_READ_ID = 0x9F
_READ_PARAMETERS = 0x5A
_READ_STATUS = {0x05: 0, 0x35: 1, 0x15: 2}
_WRITE_STATUS = {0x01: 0, 0x31: 1, 0x11: 2}
_RESET_ENABLE, _RESET = 0x66, 0x99
_WRITE_ENABLE, _WRITE_DISABLE, _WRITE_ENABLE_VOLATILE = 0x06, 0x04, 0x50
_START = 1 << 18  # in the controller's command register: run what is set up
_ADDRESS = 0x04
# A Winbond W25Q of the image's size: manufacturer, type; then the capacity as a power of two.
_FLASH_ID = 0xEF | 0x40 << 8
# Its parameters (SFDP, JESD216): one table of 16 words at 0x80; between, erased.
_PARAMETERS = b"SFDP\x05\x01\x00\xff" + b"\x00\x05\x01\x10\x80\x00\x00\xff"
_TABLE_AT = 0x80
_4K_ERASE = 0xFFF920E5

USUAL_SPEED = 115200


class Missing(Exception):
    """A register, or a flash command, that this board does not have."""


class SpiFlash:
    """The SPI controller with the flash chip behind it, as esptool drives it by registers."""

    def __init__(self, chip: Chip, flash: Flash) -> None:
        self._layout = chip.spi
        self._capacity = flash.size.bit_length() - 1
        table = struct.pack("<II", _4K_ERASE, flash.size * 8 - 1)
        self._parameters = _PARAMETERS.ljust(_TABLE_AT, b"\xff") + table
        self._status = [0, 0, 0]
        self._enabled = False
        self._resetting = False
        end = chip.spi.w0 + 16 * 4
        self._words = dict.fromkeys(range(chip.spi.base, chip.spi.base + end, 4), 0)

    def has(self, address: int) -> bool:
        return address in self._words

    def read(self, address: int) -> int:
        return self._words[address]

    def write(self, address: int, value: int) -> None:
        if address == self._layout.base and value & _START:
            self._run(self._words[self._layout.base + self._layout.usr2] & 0xFF)
            value &= ~_START  # done at once
        self._words[address] = value

    def _run(self, command: int) -> None:
        w0 = self._layout.base + self._layout.w0
        bits = (self._words[self._layout.base + self._layout.miso_bits] & 0x3FF) + 1
        resetting, self._resetting = self._resetting, command == _RESET_ENABLE
        if command == _READ_ID:
            self._words[w0] = (_FLASH_ID | self._capacity << 16) & (1 << bits) - 1
        elif command == _READ_PARAMETERS:
            at = self._words[self._layout.base + _ADDRESS] >> self._layout.address_shift
            found = self._parameters[at : at + bits // 8]
            if len(found) != bits // 8 or len(found) > 4:
                raise Missing(f"flash parameters at {at:#x}")
            self._words[w0] = int.from_bytes(found, "little")
        elif command in _READ_STATUS:
            self._words[w0] = self._status[_READ_STATUS[command]]
        elif command in (_RESET_ENABLE, _RESET):
            if command == _RESET and resetting:
                self._enabled = False
        elif command in (_WRITE_ENABLE, _WRITE_ENABLE_VOLATILE, _WRITE_DISABLE):
            self._enabled = command != _WRITE_DISABLE
        elif command in _WRITE_STATUS:
            # The two lowest bits of the first say "busy" and "write enabled": not writable.
            if self._enabled:
                self._status[_WRITE_STATUS[command]] = self._words[w0] & 0xFC
            self._enabled = False
        else:
            raise Missing(f"flash command {command:#04x}")


class Registers:
    def __init__(self, chip: Chip, flash: Flash, mac: bytes) -> None:
        self._chip = chip
        self._spi = SpiFlash(chip, flash)
        self._efuses = chip.efuse_words(mac)
        self._plain = dict(chip.plain)
        self._force_download = 0
        self.download = True  # what the straps were sampled as
        self.speed = USUAL_SPEED

    def reset(self) -> None:
        """What a reset does to them; the force-download bit is in a part that only power clears."""
        self._plain = dict(self._chip.plain)
        self.speed = USUAL_SPEED

    def forced_download(self) -> bool:
        return bool(self._force_download & 1)

    def read(self, address: int) -> int:
        chip = self._chip
        offset = address - chip.efuse
        if 0 <= offset < chip.efuse_end and not offset % 4:
            return self._efuses.get(offset, 0)  # an eFuse nobody burnt is 0
        if address == MAGIC_REGISTER:
            return chip.magic
        if address == chip.strap:
            return chip.straps[self.download]
        if address == chip.uart_clkdiv:
            return CRYSTAL_HZ // self.speed
        if address == chip.force_download:
            return self._force_download
        if address in self._plain:
            return self._plain[address]
        if self._spi.has(address):
            return self._spi.read(address)
        raise Missing(f"register {address:#010x}")

    def write(self, address: int, value: int, mask: int) -> None:
        """Missing: no such register, or it is not one that can be written."""
        if address == self._chip.force_download:
            self._force_download = self._force_download & ~mask | value & mask
        elif address in self._plain:
            self._plain[address] = self._plain[address] & ~mask | value & mask
        elif self._spi.has(address):
            self._spi.write(address, self._spi.read(address) & ~mask | value & mask)
        else:
            raise Missing(f"register {address:#010x}")
