"""What the family adds to a message whose answers are kept: instructions of the mediator's core."""

from __future__ import annotations

from pathlib import Path

import pytest

from families.instructions import a_message

SCRIPT = Path(__file__).with_name("message_cost.py")


@pytest.mark.full
def test_a_matched_message_costs_hardly_more_than_one_that_nobody_matches() -> None:
    """What costs is that the id lies for mediators alone at the broker: opening, sealing anew."""
    each = {order: a_message(SCRIPT, order) for order in ("labels", "carried", "blinded")}
    print(each)
    assert each["blinded"] <= 1.02 * each["carried"]
    assert each["labels"] < each["carried"] <= 3.5 * each["labels"]
