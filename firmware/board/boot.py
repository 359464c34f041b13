# Runs first at every start. Nothing may stop it: without it a board far away has no client at all.
import sys

try:
    import sealmq_slots

    sealmq_slots.begin()
except Exception as error:
    # Whatever it was: the set that such a board was given first.
    sys.print_exception(error)  # type: ignore[attr-defined]
    sys.path.insert(0, "/sealmq/a")
