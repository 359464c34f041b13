"""The fixture: a site whose processes are ended with the test, by their pids."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from run.sites import Site, gone, until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can pass through, with a short name (unix sockets)."""
    path = Path(tempfile.mkdtemp(prefix="sealmq-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    made = Site.make(folder)
    yield made
    end(made)


def end(site: Site) -> None:
    """End what runs of the site; whatever `up` has started has to go with it."""
    for up in site.ups:
        if up.process.poll() is None:
            up.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(Exception):
                up.process.wait(30)
        if up.process.poll() is None:
            up.process.kill()
            up.process.wait()
    pids = [
        row["pid"]
        for role in ("kg", "mediator")
        if (site.root / "state" / role / "told.jsonl").exists()
        for row in site.told(role)
    ]
    try:
        until(lambda: all(gone(pid) for pid in pids), "the processes to end with `sealmq up`")
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
