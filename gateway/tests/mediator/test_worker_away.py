"""What a caller is answered while its worker does not serve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.mediator.core import reasons
from sealmq.mediator.workers import WorkerProcess
from sealmq.mqtt import build, five_client
from sealmq.mqtt import five as v5


@pytest.mark.parametrize(
    ("connect", "answer"),
    [
        (build.connect("id"), build.connack(False, 3)),
        (five_client.connect("id"), v5.connack(False, reasons.SERVER_AWAY, {})),
    ],
)
def test_a_caller_is_refused_in_its_own_version(connect: bytes, answer: bytes) -> None:
    said: list[bytes] = []
    refused: list[bool] = []
    caller: Any = SimpleNamespace(
        transport=SimpleNamespace(write=said.append), refused=lambda: refused.append(True)
    )
    away: Any = SimpleNamespace(serving=False)
    WorkerProcess.give(away, caller, connect)
    assert said == [answer]
    assert refused
