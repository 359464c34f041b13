"""The plan, behaviour by behaviour, with all boards at once.

A behaviour that raises is a fail with its cause and never the end of the run. What one board has
not, it skips. Each line is on disk before the next stage begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .behaviour import Behaviour
from .bench import Bench
from .board import MEANS
from .errors import Skipped, words
from .results import FAIL, PASS, SKIP, VERDICT, Results, now_ms
from .together import Together

# What is told while it runs: (board, behaviour, a stage's name or VERDICT, outcome or "").
Told = Callable[[str, str, str, str], None]


def go(
    plan: Sequence[Behaviour], benches: Sequence[Bench], results: Results, told: Told
) -> dict[str, int]:
    """Runs it; the counts of verdicts."""
    for behaviour in plan:
        together = Together(bench.name for bench in benches)
        threads = []
        for bench in benches:
            bench.together = together
            # A daemon: Ctrl-C does not wait for what waits.
            thread = threading.Thread(
                target=one, args=(behaviour, bench, told), name=bench.name, daemon=True
            )
            thread.start()
            threads.append(thread)
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
    return results.counts()


def one(behaviour: Behaviour, bench: Bench, told: Told) -> dict[str, Any]:
    """One behaviour of one board, to its verdict."""
    began, at = now_ms(), time.monotonic()
    bench.begin(behaviour.name, lambda stage, how: told(bench.name, behaviour.name, stage, how))
    told(bench.name, behaviour.name, "", "")
    outcome, cause = PASS, ""
    try:
        _run(behaviour, bench)
    except Skipped as error:
        outcome, cause = SKIP, words(error)
    except Exception as error:
        outcome, cause = FAIL, words(error)
    finally:
        if bench.together is not None:
            bench.together.leave(bench.name)
    if outcome != FAIL and (repeated := bench.repeated()):
        outcome, cause = FAIL, f"sealed twice with other content: {repeated}"
    if outcome == PASS and behaviour.leaves is not None:
        bench.strategy.is_now(behaviour.leaves)
    elif outcome == FAIL:
        bench.strategy.lost()
    ms = round((time.monotonic() - at) * 1000)
    row = bench.record(VERDICT, outcome, began, ms, cause)
    told(bench.name, behaviour.name, VERDICT, outcome)
    return row


def _run(behaviour: Behaviour, bench: Bench) -> None:
    missing = sorted(behaviour.needs - bench.board.means)
    if missing:
        raise Skipped(f"{bench.name} has not {' nor '.join(MEANS[name] for name in missing)}")
    if behaviour.begins is not None and bench.strategy.state is not behaviour.begins:
        with bench.stage(f"to-{behaviour.begins.value}"):
            bench.strategy.transition(behaviour.begins)
    behaviour.run(bench)
