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
    "the interpreter is the Unix port's: errno numbers are Linux's, floats double; ffi and termios "
    "can be imported, a socket that is not closed is not collected, frozen modules are its own",
    "Ctrl-C is taken at the next jump, as on a board; in another interpreter than Debian's "
    "MicroPython 1.25 perhaps wherever it is, which may cost the program's variables; one that "
    "comes between boot.py and main.py may be lost: send it again",
    "the host's kernel acknowledges what peers send to a board that is gone; sockets have its "
    "addresses, whatever network was joined; no access point, no scan",
    "os.urandom without Wi-Fi gives the same bytes after each start, the worst that is documented",
    "heap: 160 kB free for programs with 32 bits, 320 kB with 64, one area; Wi-Fi takes none of it",
    "ticks start at 0 at each boot and follow the clock's rate, waits and asyncio do not",
)
