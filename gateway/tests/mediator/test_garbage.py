"""The garbage collector of a mediator's process; in processes of their own, which it changes."""

from __future__ import annotations

import subprocess
import sys

AFTER = """
import gc
from sealmq.mediator import garbage
garbage.starting()
assert not gc.isenabled()
kept = [[n] for n in range(10_000)]
garbage.started()
looked_at = []
gc.callbacks.append(lambda phase, info: looked_at.append(info["generation"]))
assert gc.isenabled()
assert all(one is not kept for one in gc.get_objects()), "what was there is never looked at again"
later = [[n] for n in range(200_000)]
assert {0, 1} == set(looked_at), "many that come do not make it look at everything"
for _ in range(2_000_000):
    one = []
    one.append(one)
assert 2 in looked_at, "what has ended goes in the end"
"""


def test_what_was_there_at_the_start_is_not_looked_at_and_everything_seldom() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
