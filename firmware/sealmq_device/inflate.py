# Only in what ships (firmware/host/build_mpy.py): the files beside the package's own are deflated,
# and this is the file system through which MicroPython imports them. It is mounted when the first
# of them is imported. Inflating takes 1 KiB in one piece, and a little more, while a file is read;
# a larger window finds no room in a small heap that has holes.
import gc
import os
import sys

import vfs  # type: ignore[import-not-found]
from deflate import RAW, DeflateIO  # type: ignore[import-not-found]

_TYPING = False
if _TYPING:
    from typing import Any

_BITS = 10
_AT = "/.sealmq"  # boards have client sets in /sealmq
_package: "Any" = sys.modules["sealmq_device"]
_files: str = _package.__path__


class Deflated:
    def mount(self, *_: "Any") -> None:
        pass

    def stat(self, path: str) -> "Any":
        return os.stat(_files + path + "z")

    def open(self, path: str, _: str) -> "Any":
        gc.collect()  # so that what stays comes to lie low
        return DeflateIO(open(_files + path + "z", "rb"), RAW, _BITS, True)


vfs.mount(Deflated(), _AT)
_package.__path__ = _AT
