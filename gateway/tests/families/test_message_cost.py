"""What a family adds to a message whose answers are kept: instructions of the mediator's core."""

from __future__ import annotations

from pathlib import Path

import pytest

from families.instructions import a_message

SCRIPT = Path(__file__).with_name("message_cost.py")


@pytest.mark.full
@pytest.mark.parametrize("family", ["owners", "purposes"])
def test_a_message_costs_hardly_more_than_under_labels_alone(family: str) -> None:
    alone, both = a_message(SCRIPT, "labels"), a_message(SCRIPT, f"labels,{family}")
    print(alone, both)
    assert both <= 1.02 * alone
