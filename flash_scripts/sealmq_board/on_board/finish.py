# The files of a slot are there: checks them, and makes it the active one or puts it on trial. args:
# slot, manifest, tries (0: it is active at once), wait.
from .common import say

_TYPING = False
if _TYPING:
    from typing import Any


def main(args: "dict[str, Any]") -> None:
    import sealmq_slots as slots

    name = args["slot"]
    slots.complete(name, args["manifest"])
    if args["tries"]:
        slots.offer(name, args["tries"], args["wait"])
    else:
        state = slots.read()
        state["active"] = name
        slots.write(state)
    say(finished=name, version=slots.version(name))
