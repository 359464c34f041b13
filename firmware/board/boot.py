# Runs first at every start. Nothing may stop it: without it a board far away has no client at all.
import sys

# After a reset, Ctrl-C is waited for before any program runs: so a board whose program takes none,
# or starts it again at once, can be reached. A wake from sleep and a soft reset are not held up.
try:
    import time

    import machine

    _GO_ON = [getattr(machine, name, None) for name in ("DEEPSLEEP_RESET", "SOFT_RESET")]
    if machine.reset_cause() not in _GO_ON:
        print("sealmq: Ctrl-C within 2 s leads to the REPL")
        time.sleep(2)
except Exception as error:
    sys.print_exception(error)  # type: ignore[attr-defined]

try:
    import sealmq_slots

    sealmq_slots.begin()
except Exception as error:
    # Whatever it was: the set that such a board was given first.
    sys.print_exception(error)  # type: ignore[attr-defined]
    sys.path.insert(0, "/sealmq/a")
