"""What a virtual board is not: printed with every report."""

NOT_MODELLED = (
    "no code of the chip runs: what esptool uploads to RAM is taken for its flasher stub",
    "the program is a MicroPython of this host, with 64- or 32-bit objects, not the chip's",
    "flash encryption, secure boot, eFuse writing, octal and NAND flash",
    "line speed, parity and noise: bytes arrive whatever the speed",
    "flash timing and write protection; a torn erase leaves its beginning erased and what follows "
    "as it was, not cells of any charge",
    "eFuses nobody burnt are 0, the ROM's version is told as 0",
    "Wi-Fi radio, Bluetooth, brown-out, deep-sleep current, pins",
)
