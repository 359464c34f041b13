"""Fixtures: a site of its own for a test that breaks things, one for a module that only looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evil_scene import EvilScene, evil_scene
from running_site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The factory, not started; stopped at the end if the test started it."""
    made = Site(tmp_path)
    yield made
    made.down()


@pytest.fixture
def closed_site(tmp_path: Path) -> Iterator[Site]:
    """The factory with purposes, as `sealmq init` has it by itself, running."""
    made = Site(tmp_path, policy="purposes")
    made.up()
    yield made
    made.down()


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The factory, running, for all tests of a module."""
    made = Site(tmp_path_factory.mktemp("factory"))
    made.up()
    yield made
    made.down()


@pytest.fixture(scope="module")
def shared_closed_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The factory with purposes, running, for all tests of a module."""
    made = Site(tmp_path_factory.mktemp("closed"), policy="purposes")
    made.up()
    yield made
    made.down()


@pytest.fixture(scope="session")
def evil_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvilScene]:
    """The factory, running, with an attacker's broker; for all modules that one worker gets."""
    with evil_scene(tmp_path_factory.mktemp("evil")) as made:
        yield made


@pytest.fixture
def evil(evil_site: EvilScene, request: pytest.FixtureRequest) -> EvilScene:
    """The same, and nothing left of the test before, to hear or retained. As a parameter: "own",
    that the broker reaches the reader above everything over a link of its own.
    """
    evil_site.evil.honest()
    evil_site.evil.forget()
    evil_site.reached_over(own=getattr(request, "param", "live") == "own")
    evil_site.heard()
    return evil_site
