"""The asyncio client of a board on a real site: gateway, key generator and broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from running_site import Site, micropython

SCRIPT = Path(__file__).with_name("aio_device.py")


@pytest.mark.parametrize(("bits", "name"), [(64, "m1-temp-sensor"), (32, "m1-temp-lamp")])
def test_many_tasks_of_one_board(shared_site: Site, bits: int, name: str) -> None:
    enrolment = shared_site.enrol(name, "m1-temp")
    topic = "machine/1/temperature"
    board = micropython(SCRIPT, enrolment, topic, 30, bits=bits)
    try:
        said, _ = board.communicate(timeout=60)
    finally:
        board.kill()
    assert said.splitlines() == [
        "up True", "accepted 30", "heard True", "refused Denied",
        "accepted 30", "heard True", "end {} {}",
    ]  # fmt: skip
