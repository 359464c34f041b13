"""The gateway's time: slewed with the wall clock, stepped only when told."""

from __future__ import annotations

from sealmq.mediator.clock import STEP_MS, Clock

_NS = 1_000_000


class Wall:
    """Two clocks that a test sets, ms."""

    def __init__(self) -> None:
        self.wall, self.mono = 1_800_000_000_000, 5_000

    def clock(self) -> Clock:
        return Clock(lambda: self.wall * _NS, lambda: self.mono * _NS)

    def passes(self, ms: int) -> None:
        self.wall += ms
        self.mono += ms


def test_it_goes_on_as_the_monotonic_clock_does() -> None:
    wall = Wall()
    clock = wall.clock()
    wall.passes(1_500)
    assert clock.now_ms() == wall.wall
    assert clock.look() == 0


def test_small_differences_are_followed() -> None:
    wall = Wall()
    clock = wall.clock()
    for _ in range(10):
        wall.passes(1_000)
        wall.wall += STEP_MS - 1
        assert clock.look() == 0
        assert clock.now_ms() == wall.wall


def test_a_step_is_told_and_not_taken_over_before_it_is_allowed() -> None:
    for step in (-3_600_000, -STEP_MS, STEP_MS, 90_000):
        wall = Wall()
        clock = wall.clock()
        wall.passes(1_000)
        wall.wall += step
        assert clock.look() == step
        assert clock.now_ms() == wall.wall - step
        clock.take()
        assert clock.look() == 0
        assert clock.now_ms() == wall.wall
