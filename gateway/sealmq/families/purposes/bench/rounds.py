"""What the bench of purposes measures in a round beside messages: round trips, commands; and its
rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench_print import Row
from load_generator import WHERE
from load_rounds import GENERATOR, UNITS, Rounds, Sizes, Taken, add_cpu, row_of
from load_sites import Scene
from load_stats import Found, found, ratios

from sealmq_spec.purposes import release, reserve

from .site import FORBIDDEN, PURPOSE

_UNITS = {
    **UNITS,
    "round_trip_calm": "ms",
    "subscribe_rate": "commands/s",
    "reserve_rate": "commands/s",
    "cpu_subscribe": "us of CPU",
    "cpu_reserve": "us of CPU",
}

# A reservation, and the end of it.
_RESERVE = {
    "made": reserve(f"own/{WHERE}", (PURPOSE,), (FORBIDDEN,)),
    "gone": release(f"own/{WHERE}"),
}


@dataclass(frozen=True)
class CommandSizes(Sizes):
    """calm: round trips on an idle site. few, commands: at least so many in all, at most so many a
    client. command_s: how long they shall take."""

    calm: int = 100
    commands: int = 8
    few: int = 16
    command_s: float = 0.4


class CommandRounds(Rounds):
    """Rounds with commands."""

    def __init__(
        self, scenes: Sequence[Scene], sizes: CommandSizes, progress: Callable[[str], None]
    ) -> None:
        super().__init__(scenes, sizes, progress)
        self._commands = sizes
        self._counts: dict[tuple[int, str], int] = {}
        self.memory: list[float] = []

    def run(self, pairs: int, until: float) -> None:
        super().run(pairs, until)
        self.memory = [scene.memory_mib().get("mediator", 0.0) for scene in self.scenes]

    def more(self, at: int, into: Taken) -> None:
        scene, sizes = self.scenes[at], self._commands
        into.add("round_trip_calm", scene.do("calm", count=sizes.calm)["trip_ms"])
        for what in ("subscribe", "reserve"):
            if what == "reserve" and not scene.variant.family:
                continue
            count = self._counts.get((at, what), sizes.few)
            if what == "reserve":
                span = scene.do("commands", count=count, **_RESERVE)
            else:
                span = scene.do("subscribe", count=count)
            wanted = int(count * sizes.command_s / span["wall_s"])
            most = sizes.commands * sizes.clients
            self._counts.setdefault((at, what), max(sizes.few, min(most, wanted)))
            into.add(f"{what}_rate", span["done"] / span["wall_s"])
            add_cpu(into, f"cpu_{what}", span["cpu_us"], span["done"], 0)

    def rows(self, stage: str, load: float) -> list[Row]:
        """Those of the messages, and the mediators' memory."""
        made = rows(self.taken, stage, load)
        for one, held in zip(self.taken, self.memory, strict=True):
            if held:
                of = Found(held, held, held, 0.0, 1)
                made.append(
                    row_of(one, "memory", "MiB", of, ("memory", 0, "mediator"), stage, load)
                )
        return made


def rows(taken: Sequence[Taken], stage: str, load: float) -> list[Row]:
    """One row a measure: medians; what each variant is to `labels`, and to itself with the fewest
    reservations, in the same rounds."""
    made: list[Row] = []
    base = next((t for t in taken if t.variant == "labels"), None)
    for one in taken:
        same = [t for t in taken if t.variant == one.variant]
        least = min(same, key=lambda t: t.held)
        for key, values in one.values.items():
            measure, _, process = key
            if measure == "share":
                continue
            made.append(row_of(one, measure, _UNITS[measure], found(values), key, stage, load))
            if process == GENERATOR:
                continue
            to = base.values.get(key, []) if base is not None and base is not one else []
            if len(to) == len(values) and min(to) > 0:
                got = ratios(values, to)
                made.append(row_of(one, f"{measure}_to_labels", "times", got, key, stage, load))
            if len(same) > 1 and measure == "cpu_message" and process == "mediator":
                of = ratios(values, least.values[key])
                row = row_of(one, f"{measure}_to_fewest", "times", of, key, stage, load)
                row["params"]["fewest"] = least.held
                made.append(row)
    return made
