"""A rig without boards and without a site, for tests of the rig itself."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sealmq_hil.bench import Bench, Options
from sealmq_hil.board import POWER, Board
from sealmq_hil.nonces import Book
from sealmq_hil.results import Results
from sealmq_hil.site import Site
from sealmq_hil.strategy import Strategy
from sealmq_hil.tools import Tools


class FakeBoard(Board):
    """Does nothing, and remembers what it was told."""

    means = frozenset({POWER})

    def __init__(self, name: str) -> None:
        super().__init__(name, "virtual", "esp32")
        self.told: list[str] = []

    def power(self, on: bool) -> None:
        self.told.append(f"power {on}")

    def reset(self) -> None:
        self.told.append("reset")


class FakeSteps:
    """The steps of a strategy, as words."""

    def __init__(self) -> None:
        self.took: list[str] = []
        self.broken = ""

    def _take(self, name: str) -> None:
        self.took.append(name)
        if name == self.broken:
            raise OSError(f"{name} does not work")

    def off(self) -> None:
        self._take("off")

    def loader(self) -> None:
        self._take("loader")

    def flashed(self) -> None:
        self._take("flashed")

    def provisioned(self, fresh: bool) -> None:
        self._take("provisioned fresh" if fresh else "provisioned")

    def publishing(self, running: bool) -> None:
        self._take("publishing running" if running else "publishing")


def benches(results: Results, folder: Path, count: int = 1, seed: int = 7) -> list[Bench]:
    """So many boards; the strategy of each is made of words."""
    names = [f"fake-{n}" for n in range(1, count + 1)]
    clients = {name: n for n, name in enumerate(names, 1)}
    site: Any = SimpleNamespace(folder=folder, clients=clients, book=Book(), envelopes=None)
    tools = Tools(folder, {}, None)
    made = []
    for name in names:
        options = Options(cuts=4, seed=seed, patience_s=0.2)
        heavy = threading.Semaphore(1)
        bench = Bench(FakeBoard(name), cast(Site, site), results, tools, heavy, options)
        bench.strategy = Strategy(FakeSteps())
        made.append(bench)
    return made


def steps(bench: Bench) -> FakeSteps:
    """The words of its strategy."""
    return cast(FakeSteps, bench.strategy._steps)
