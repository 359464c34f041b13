"""What others cause to be logged: one line each, as text, of each kind so many a minute."""

from __future__ import annotations

import subprocess
import sys

from sealmq.logs import MINUTE_S, Budget

SPEAK = """
import logging
from sealmq import logs
logs.begin("kg: ")
log = logging.getLogger("x")
for n in range(500):
    log.info("refused to pid %d: %s", n, "a\\nkg: all is well \\x1b[2J")
log.warning("another kind")
try:
    raise ValueError("secret bytes")
except ValueError:
    log.exception("it failed")
"""


def test_a_flood_of_one_kind_leaves_room_for_the_others() -> None:
    done = subprocess.run([sys.executable, "-c", SPEAK], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 22
    assert all(line.startswith("kg: ") and line.isprintable() for line in lines)
    assert lines[0] == "kg: refused to pid 0: a\\nkg: all is well \\x1b[2J"
    assert lines[-2] == "kg: another kind"
    assert lines[-1].startswith("kg: it failed (ValueError at <string>:")
    assert "secret" not in done.stderr


def test_what_was_kept_back_is_counted_when_the_minute_is_over() -> None:
    now = [0.0]
    budget = Budget(3, clock=lambda: now[0])
    assert [budget.pass_on("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert budget.pass_on("b")
    assert budget.over() == 0
    now[0] = MINUTE_S
    assert budget.over() == 2
    assert budget.over() == 0
    assert budget.pass_on("a")


def test_kinds_without_end_use_up_one_budget_and_no_memory() -> None:
    budget = Budget(2, clock=lambda: 0.0)
    passed = sum(budget.pass_on(f"kind {n}") for n in range(5000))
    assert passed <= 1002


NOWHERE = """
import logging, os
from sealmq import logs
logs.begin("agent: ")
log = logging.getLogger("x")
for n in range(50):
    log.info("refused to pid %d", n)
full = os.open("/dev/full", os.O_WRONLY)
os.dup2(full, 2)
logging.getLogger().handlers[0]._budget._end = 0.0
log.info("another kind")
print("went on")
"""


def test_a_log_that_cannot_be_written_is_no_error_of_what_is_logged() -> None:
    """Nor is the line that counts what was left out: a full disk, a terminal that is gone."""
    done = subprocess.run(
        [sys.executable, "-c", NOWHERE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "went on\n")
