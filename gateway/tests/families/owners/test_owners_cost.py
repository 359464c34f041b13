"""What the family adds to a message whose answers are kept: instructions of the mediator's core."""

from __future__ import annotations

from pathlib import Path

import pytest

from families.instructions import a_message

SCRIPT = Path(__file__).with_name("message_cost.py")


@pytest.mark.full
def test_a_message_costs_hardly_more_than_under_labels_alone() -> None:
    each = {order: a_message(SCRIPT, order) for order in ("labels", "labels,owners")}
    print(each)
    assert each["labels,owners"] <= 1.02 * each["labels"]
