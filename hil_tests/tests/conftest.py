"""Fixtures: a site of its own for a test that breaks things, one for a module that only looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from running_site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The factory, not started; stopped at the end if the test started it."""
    made = Site(tmp_path)
    yield made
    made.down()


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The factory, running, for all tests of a module."""
    made = Site(tmp_path_factory.mktemp("factory"))
    made.up()
    yield made
    made.down()
