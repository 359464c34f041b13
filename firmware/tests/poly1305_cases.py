"""Messages of whole blocks that the device's Poly1305 sums up on real MicroPython."""

from __future__ import annotations

from pathlib import Path

from real_micropython import micropython


def run(bits: int, cases: list[tuple[bytes, bytes]], folder: Path) -> list[bytes]:
    """The tag of each key and message."""
    file = folder / "cases"
    file.write_text("".join(f"{key.hex()} {message.hex()}\n" for key, message in cases))
    return [bytes.fromhex(line) for line in micropython(bits, "poly1305_device.py", file).split()]
