# Erases what a board knows: its NVS and its files, by erasing the partitions, since both leave old
# content in flash when something is removed or overwritten. It has to be reset behind this.
from .common import say

_TYPING = False
if _TYPING:
    from typing import Any


# Erased and read back: all bits are set.
def erase(part: "Any", name: str) -> None:
    blocks = part.ioctl(4, 0)
    size = part.ioctl(5, 0)
    buf = bytearray(size)
    blank = b"\xff" * size
    for n in range(blocks):
        part.readblocks(n, buf)
        if buf != blank:
            part.ioctl(6, n)
            part.readblocks(n, buf)
            if buf != blank:
                raise ValueError("block %d of %s is not empty" % (n, name))
        if n % 64 == 63:
            say(blocks=n + 1)  # it takes half a minute
    say(erased=name, bytes=blocks * size)


def find(name: str) -> "Any":
    from esp32 import Partition  # type: ignore[attr-defined]

    found = Partition.find(Partition.TYPE_DATA, label=name)
    if found:
        return found[0]
    if name == "vfs":
        from flashbdev import bdev  # type: ignore[import-not-found]

        return bdev
    raise ValueError("there is no partition " + name)


# What a board keeps lies in both, or on a Pico W all in one.
def places() -> "list[tuple[str, Any]]":
    try:
        import rp2  # type: ignore[import-not-found]
    except ImportError:
        return [(name, find(name)) for name in ("nvs", "vfs")]
    return [("vfs", rp2.Flash())]


def main(args: "dict[str, Any]") -> None:
    import machine
    import vfs  # type: ignore[import-not-found]

    parts = places()
    try:
        import network

        network.WLAN(network.STA_IF).active(False)  # it writes to NVS
    except (ImportError, OSError):
        pass
    try:
        machine.RTC().memory(b"")
    except (AttributeError, OSError):
        pass
    vfs.umount("/")
    for name, part in parts:
        erase(part, name)
    say(wiped=True)
