# Makes a slot ready for files. args: slot ("": the one that is not active), keep (paths below it).
import os
import sys

from .common import say

_TYPING = False
if _TYPING:
    from typing import Any


def folder(path: str) -> None:
    try:
        os.mkdir(path)
    except OSError:
        os.stat(path)  # it is there, or there is no room


# Removes what is not kept: what was there before, another kind of file of the same module.
def clear(top: str, inside: str, keep: "Any") -> None:
    for entry in list(os.ilistdir(top + inside)):  # type: ignore[attr-defined]
        path = inside + "/" + entry[0]
        if entry[1] != 0x4000:
            if path[1:] not in keep:
                os.remove(top + path)
            continue
        clear(top, path, keep)
        try:
            os.rmdir(top + path)
        except OSError:
            pass  # something in it is kept


def main(args: "dict[str, Any]") -> None:
    # What is loaded may be a file of before, or none at all.
    sys.modules.pop("sealmq_slots", None)
    import sealmq_slots as slots

    name = args["slot"] or slots.withdraw()
    top = slots.ROOT + "/" + name
    folder(slots.ROOT)
    folder(top)
    clear(top, "", args["keep"])
    for path in args["keep"]:
        parts = path.split("/")
        for n in range(1, len(parts)):
            folder(top + "/" + "/".join(parts[:n]))
    say(place=name)
