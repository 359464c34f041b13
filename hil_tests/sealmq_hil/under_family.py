"""What a board does under a policy family, and who reads it then: by the family's `rig.toml`."""

from __future__ import annotations

import time
from functools import partial

from .behaviour import Behaviour
from .bench import Bench
from .errors import Failed
from .families import Family
from .processes import until
from .reader import Reader


def behaviour(family: Family) -> Behaviour:
    """Of that family."""
    return Behaviour(family.name, family.text, partial(_run, family))


def _run(family: Family, bench: Bench) -> None:
    site = bench.site
    readers = {reader.name: reader for reader in (site.above, *site.others.values())}
    token = f"{bench.dice.getrandbits(32):x}"
    words = {step.name: f"{step.name} {token}" for step in family.steps}
    for step in family.steps:
        with bench.stage(step.name):
            text = step.program.format(board=bench.name, word=words[step.name])
            with bench.serial.away(), bench.heavy:
                printed = bench.tools.program(bench.board, text)
            if "said all" not in printed:
                raise Failed(f"the board did not say all of it: {printed[-300:]}")
            # A message is judged when it is delivered, so each is awaited before the next command.
            for name in step.read_by:
                _await(readers[name], words[step.name])
    with bench.stage("refuse"):
        before, since = bench.salts(), time.monotonic()
        bench.board.reset()
        # The rig's reader gets this one after all that came before.
        bench.fresh(since, not_in=before)
        for name, reader in readers.items():
            due = [words[step.name] for step in family.steps if name in step.read_by]
            heard = [text for text in _heard(reader) if text in words.values()]
            if heard != due:
                raise Failed(f"{name} has read {heard}, and {due} was for it")


def _heard(reader: Reader) -> list[str]:
    return [message.payload for message in reader.all()]


def _await(reader: Reader, text: str) -> None:
    until(f"{reader.name} to read {text}", lambda: text in _heard(reader))
