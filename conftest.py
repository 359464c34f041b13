"""What holds for the tests of every folder: Ctrl-C counts, and garbage is looked for cheaply."""

from __future__ import annotations

import gc
import signal


def pytest_configure() -> None:
    """Programs that tests start heed SIGINT.

    Where a shell without job control has started the tests in the background, SIGINT is ignored,
    and every process from here on would inherit that.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What there is now stays to the end, so the collector leaves it out.

    Tests look for what they leave behind with the garbage collector, again and again; going
    through hundreds of imported modules each time took most of the time of many a test.
    """
    gc.collect()
    gc.freeze()
