"""What holds for the tests of every folder: Ctrl-C counts, garbage is looked for cheaply, and what
needs Spark shares one process of it."""

from __future__ import annotations

import gc
import signal
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# Files below it share a SparkSession, which takes seconds to start and hundreds of megabytes; those
# below its folders, and commands, which start processes of their own, need none.
_SPARK = "spark/tests"
_WITHOUT = frozenset({"test_cli.py", "test_scale.py", "test_standalone.py"})


class _OneSpark(LoadFileScheduling):
    """A file's tests stay together; all files that need Spark as well."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        folder, _, name = file.rpartition("/")
        return _SPARK if folder == _SPARK and name not in _WITHOUT else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    return _OneSpark(config, log)


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
