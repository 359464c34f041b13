"""What holds for the tests of every folder: Ctrl-C counts, garbage is looked for cheaply, no test
finds log or umask as an earlier one has set them, and what needs Spark shares one process of it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import warnings
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# Files below it share a SparkSession, which takes seconds to start and hundreds of megabytes; those
# below its folders, and commands, which start processes of their own, need none.
_SPARK = "spark/tests"
_WITHOUT = frozenset({"test_cli.py", "test_scale.py", "test_standalone.py"})
_UMASK = os.umask(0o022)
os.umask(_UMASK)


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A command that ran in this process may have silenced its log, as is right for a command."""
    quiet = [
        log
        for name, log in logging.root.manager.loggerDict.items()
        if name.startswith("sealmq") and isinstance(log, logging.Logger) and _is_quiet(log)
    ]
    if not (quiet or logging.root.manager.disable):
        return
    told = f"all up to {logging.root.manager.disable}, {[log.name for log in quiet]}"
    warnings.warn(f"the log was silenced before {item.nodeid}: {told}", stacklevel=1)
    logging.disable(logging.NOTSET)
    for log in quiet:
        log.disabled, log.propagate = False, True
        log.setLevel(logging.NOTSET)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What ran in this process as a site's process has set its umask, and has its log written to
    what was stderr then, as is right for one.
    """
    os.umask(_UMASK)
    root = logging.getLogger()
    ours = [one for one in root.handlers if type(one).__module__.startswith("sealmq")]
    for one in ours:
        root.removeHandler(one)
    if ours:
        root.setLevel(logging.WARNING)


def _is_quiet(log: logging.Logger) -> bool:
    return log.disabled or not log.propagate or log.level > logging.ERROR
