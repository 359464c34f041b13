"""The search: every state of a world within its bounds, breadth first, so that traces are short.

A world cannot be copied (tasks run in it), so a state is a list of steps, and a new world is
brought into it by doing them. From each state there must be a way, without further faults, to one
in which nothing is left to do and nothing is missing.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from .patches import patched
from .world import Bounds, World

# Worlds have reference cycles: so many are made between two collections, and so many kept ready.
_COLLECT, _READY = 200, 200
# A folder in memory, where there is one.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there


@dataclass
class Outcome:
    """What a search found: `bad` is empty when everything held."""

    states: int
    steps: int
    bad: str = ""
    trace: list[str] = field(default_factory=list)


@dataclass
class _State:
    before: int
    step: str
    # To which states its steps lead, those of faults aside.
    ways: list[int] = field(default_factory=list)
    well: bool = False


class _Search:
    def __init__(self, bounds: Bounds, folder: Path, most: int) -> None:
        self._bounds, self._folder, self._most = bounds, folder, most
        self._states: list[_State] = []
        self._numbers: dict[int, int] = {}
        self._steps = self._worlds = 0
        self._queue: deque[int] = deque()
        # Worlds in a state that was not looked at yet: these need not be made again.
        self._ready: dict[int, World] = {}

    def run(self) -> Outcome:
        first = self._made([])
        self._reach(-1, "", first)
        while self._queue:
            if len(self._states) > self._most:
                raise RuntimeError(f"more than {self._most} states: the bounds are too wide")
            if bad := self._expand(self._queue.popleft()):
                return bad
        return self._stuck() or Outcome(len(self._states), self._steps)

    def _made(self, steps: list[str]) -> World:
        self._worlds += 1
        if self._worlds % _COLLECT == 0:
            gc.collect()
        folder = self._folder / str(self._worlds)
        folder.mkdir()
        world = World(self._bounds, folder)
        for step in steps:
            world.do(step)
        return world

    def close(self) -> None:
        """No world is left."""
        for world in self._ready.values():
            self._over(world)

    def _over(self, world: World) -> None:
        world.close()
        shutil.rmtree(world.folder)

    def _expand(self, number: int) -> Outcome | None:
        steps = self.trace(number)
        world = self._ready.pop(number, None) or self._made(steps)
        progress, every = world.progress(), world.steps()
        if not progress:
            if missing := world.over():
                self._over(world)
                return self._found(missing, steps)
            self._states[number].well = True
        if not every:
            self._over(world)
        for n, step in enumerate(every):
            if n:
                world = self._made(steps)
            world.do(step)
            self._steps += 1
            if world.bad:
                self._over(world)
                return self._found(world.bad, [*steps, step])
            after = self._reach(number, step, world)
            if step in progress:
                self._states[number].ways.append(after)
        return None

    def _reach(self, before: int, step: str, world: World) -> int:
        key = world.state()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(_State(before, step))
            self._queue.append(number)
            if len(self._ready) < _READY:
                self._ready[number] = world
                return number
        self._over(world)
        return number

    def trace(self, number: int) -> list[str]:
        steps = []
        while number > 0:
            state = self._states[number]
            steps.append(state.step)
            number = state.before
        return steps[::-1]

    def _found(self, bad: str, steps: list[str]) -> Outcome:
        return Outcome(len(self._states), self._steps, bad, steps)

    # The first state from which no way leads to one with nothing missing.
    def _stuck(self) -> Outcome | None:
        into: list[list[int]] = [[] for _ in self._states]
        for number, state in enumerate(self._states):
            for way in state.ways:
                into[way].append(number)
        reached = {number for number, state in enumerate(self._states) if state.well}
        queue = deque(reached)
        while queue:
            for number in into[queue.popleft()]:
                if number not in reached:
                    reached.add(number)
                    queue.append(number)
        stuck = next((n for n in range(len(self._states)) if n not in reached), None)
        if stuck is None:
            return None
        return self._found("from here on nothing ever comes to its end", self.trace(stuck))


def search(bounds: Bounds, most: int = 1_000_000) -> Outcome:
    """Explores a world to its end, or to the first fault."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with patched(bounds), tempfile.TemporaryDirectory(prefix="sealmq-", dir=where) as folder:
        gc.disable()
        try:
            made = _Search(bounds, Path(folder), most)
            try:
                return made.run()
            finally:
                made.close()
        finally:
            gc.enable()
