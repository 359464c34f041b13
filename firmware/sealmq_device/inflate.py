# Only in what ships (firmware/host/build_mpy.py): the files beside the package's own are deflated,
# and this is the file system through which MicroPython imports them. Inflating takes 2 KiB while a
# file is read.
import os

import vfs  # type: ignore[import-not-found]
from deflate import RAW, DeflateIO  # type: ignore[import-not-found]

_TYPING = False
if _TYPING:
    from typing import Any

_BITS = 11
_AT = "/.sealmq"  # boards have client sets in /sealmq
_files: str = globals()["__path__"]


class Deflated:
    def mount(self, *_: "Any") -> None:
        pass

    def stat(self, path: str) -> "Any":
        return os.stat(_files + path + "z")

    def open(self, path: str, _: str) -> "Any":
        return DeflateIO(open(_files + path + "z", "rb"), RAW, _BITS, True)


vfs.mount(Deflated(), _AT)
globals()["__path__"] = _AT
