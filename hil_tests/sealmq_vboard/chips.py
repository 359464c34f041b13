"""The chips a board can have: what tells them apart, where their registers lie, their eFuses.

Numbers are the chips' own (technical reference manuals; the revision is a common one). A register
that stands in none of these tables does not exist here: registers.py refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

CRYSTAL_HZ = 40_000_000


@dataclass(frozen=True)
class SpiLayout:
    """Offsets in the SPI controller that reaches the flash."""

    base: int
    usr: int = 0x18
    usr2: int = 0x20
    miso_bits: int = 0x28
    w0: int = 0x58
    address_shift: int = 0  # of a 24-bit flash address in the address register


@dataclass(frozen=True)
class Chip:
    name: str
    title: str
    chip_id: int  # in image headers, and in the security info
    magic: int  # what the ROM holds at MAGIC_REGISTER
    bootloader: int  # offset of the bootloader's image in flash
    security_info: int  # length of the answer to GET_SECURITY_INFO; 0: the ROM knows no such thing
    spi: SpiLayout
    efuse: int  # first eFuse register of the block below
    efuse_words: Callable[[bytes], dict[int, int]]  # MAC: offset from `efuse` -> what is not 0
    efuse_end: int  # offset behind the last eFuse register
    strap: int
    straps: tuple[int, int]  # the strapping register after a boot, and in download mode
    uart_clkdiv: int
    drom: int  # where constant data of an image is mapped
    dram: int  # where a bootloader's data are loaded to
    boot_lines: tuple[str, str]  # what follows "rst:…": booting from flash, download mode
    # Registers that hold what is written, and what they hold after a reset.
    plain: dict[int, int] = field(default_factory=dict)
    force_download: int | None = None  # its bit 0: the next reset enters download mode


MAGIC_REGISTER = 0x40001000


def _mac_crc(mac: bytes) -> int:
    """CRC-8 of Maxim's 1-Wire parts, over the MAC: the ESP32 checks it before it uses the MAC."""
    crc = 0
    for byte in mac:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x8C if crc & 1 else 0)
    return crc


def _esp32_efuses(mac: bytes) -> dict[int, int]:
    return {
        0x04: int.from_bytes(mac[2:], "big"),
        0x08: _mac_crc(mac) << 16 | int.from_bytes(mac[:2], "big"),
        # Package 1 (D0WD), first bit of the revision.
        0x0C: 1 << 9 | 1 << 15,
        # What the 8 MHz clock was measured as; with the calibration register below: 40 MHz.
        0x10: 32,
        # Revision v3.1.
        0x14: 1 << 20 | 1 << 24,
    }


def _later_efuses(words: dict[int, int], high: int = 0) -> Callable[[bytes], dict[int, int]]:
    """Block 1 of the later chips: MAC, then the words that say which one it is."""

    def burnt(mac: bytes) -> dict[int, int]:
        return {
            0x44: int.from_bytes(mac[2:], "big"),
            0x48: int.from_bytes(mac[:2], "big") | high,
            **{0x44 + 4 * word: value for word, value in words.items()},
        }

    return burnt


_UART_BOOT = ("boot:0x8 (SPI_FAST_FLASH_BOOT)", "boot:0x0 (DOWNLOAD(USB/UART0))")

ESP32 = Chip(
    name="esp32",
    title="ESP32",
    chip_id=0,
    magic=0x00F01D83,
    bootloader=0x1000,
    security_info=0,
    spi=SpiLayout(0x3FF42000, 0x1C, 0x24, 0x2C, 0x80, 8),
    efuse=0x3FF5A000,
    efuse_words=_esp32_efuses,
    efuse_end=0x98,
    strap=0x3FF44038,
    straps=(0x13, 0x03),
    uart_clkdiv=0x3FF40014,
    drom=0x3F400000,
    dram=0x3FFF0000,
    boot_lines=(
        "boot:0x13 (SPI_FAST_FLASH_BOOT)",
        "boot:0x3 (DOWNLOAD_BOOT(UART0/UART1/SDIO_REI_REO_V2))",
    ),
    plain={
        0x3FF6607C: 1 << 31,  # date of the clock controller: last bit of revision 3
        0x3FF5F06C: 3200 << 7,  # 8 MHz clock against the crystal, as the ROM measured it
        0x3FF48074: 0,  # supply of the flash: not overridden
    },
)
ESP32S2 = Chip(
    name="esp32s2",
    title="ESP32-S2",
    chip_id=2,
    magic=0x000007C6,
    bootloader=0x1000,
    security_info=12,
    spi=SpiLayout(0x3F402000),
    efuse=0x3F41A000,
    efuse_words=_later_efuses({}),
    efuse_end=0x15C,
    strap=0x3F404038,
    straps=(0x08, 0x00),
    uart_clkdiv=0x3F400014,
    drom=0x3F000000,
    dram=0x3FFE0000,
    boot_lines=_UART_BOOT,
    force_download=0x3F408128,
)
ESP32S3 = Chip(
    name="esp32s3",
    title="ESP32-S3",
    chip_id=9,
    magic=0x00000009,
    bootloader=0x0,
    security_info=20,
    spi=SpiLayout(0x60002000),
    efuse=0x60007000,
    efuse_words=_later_efuses({3: 2 << 18}),  # revision v0.2
    efuse_end=0x15C,
    strap=0x60004038,
    straps=(0x08, 0x00),
    uart_clkdiv=0x60000014,
    drom=0x3C000000,
    dram=0x3FCD0000,
    boot_lines=_UART_BOOT,
    force_download=0x6000812C,
)
ESP32C3 = Chip(
    name="esp32c3",
    title="ESP32-C3",
    chip_id=5,
    magic=0x1B31506F,
    bootloader=0x0,
    security_info=20,
    spi=SpiLayout(0x60002000),
    efuse=0x60008800,
    efuse_words=_later_efuses({3: 4 << 18}),  # revision v0.4
    efuse_end=0x15C,
    strap=0x60004038,
    straps=(0x08, 0x00),
    uart_clkdiv=0x60000014,
    drom=0x3C000000,
    dram=0x3FCD0000,
    boot_lines=_UART_BOOT,
)
ESP32C6 = Chip(
    name="esp32c6",
    title="ESP32-C6",
    chip_id=13,
    magic=0x2CE0806F,
    bootloader=0x0,
    security_info=20,
    spi=SpiLayout(0x60003000),
    efuse=0x600B0800,
    # Revision v0.1; the two bytes that make the MAC an EUI-64.
    efuse_words=_later_efuses({3: 1 << 18}, high=0xFFFE0000),
    efuse_end=0x15C,
    strap=0x60091038,
    straps=(0x08, 0x00),
    uart_clkdiv=0x60000014,
    drom=0x42800000,
    dram=0x40870000,
    boot_lines=_UART_BOOT,
)

CHIPS = {chip.name: chip for chip in (ESP32, ESP32S2, ESP32S3, ESP32C3, ESP32C6)}
