"""What a virtual board is not: printed with every report."""

NOT_MODELLED = (
    "no code of the chip runs: what esptool uploads to RAM is taken for its flasher stub",
    "the program is a MicroPython of this host, with 64- or 32-bit objects, not the chip's",
    "flash encryption, secure boot, eFuse writing, octal and NAND flash",
    "line speed, parity and noise: bytes arrive whatever the speed",
    "flash timing; a torn erase leaves its beginning erased, not cells of any charge",
    "Wi-Fi radio, Bluetooth, brown-out, deep-sleep current, pins",
)
