"""Names (SPEC.md 4.4, op 0x84) are told of whom the asker can read, and of nobody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mediator_world import HIGH, LOW, NOW_MS, PANEL, SENSOR, SIBLING, World
from sealmq.mediator.controlling import Controlling
from sealmq.mqtt import Publish
from sealmq_spec.const import OP_NAMES, OP_REPLY
from sealmq_spec.errors import SealError
from sealmq_spec.keys import u24


class Asker:
    """A client whose connection is open."""

    def __init__(self, world: World, number: int) -> None:
        self.session = world.session(number)
        self.told: list[bytes] = []
        self.refused: list[str] = []
        self.conn: Any = SimpleNamespace(
            link=world.link(self.session),
            low=0,
            hub=SimpleNamespace(now_ms=lambda: NOW_MS, ring=world.ring),
            client=world.ring.clients[number],
            refuse=self._refuse,
            down=self.told.append,
            state="open",
        )

    def _refuse(self, what: int, error: SealError, rule: str) -> None:
        self.refused.append(rule)

    def asks(self, body: bytes) -> None:
        packet = self.session.up(bytes((OP_NAMES,)) + body, 0)
        Controlling(self.conn).packet(Publish("!c1", b"!c1", packet, 0, False, False, 0))

    def names(self, label: int, client: int) -> list[str]:
        self.asks(u24(label) + u24(client))
        answer = self.told.pop()
        assert answer[:4] == bytes((OP_REPLY,)) + u24(self.session.ctr)
        texts, rest = [], answer[4:]
        while rest:
            texts.append(rest[1 : 1 + rest[0]].decode())
            rest = rest[1 + rest[0] :]
        return texts


def test_a_reader_is_told_the_names_of_labels_and_clients_at_or_below_its_own() -> None:
    world = World()
    clients, labels = world.ring.clients, world.ring.labels
    above, below = Asker(world, PANEL), Asker(world, SENSOR)
    assert above.names(LOW, SENSOR) == [labels[LOW].name, clients[SENSOR].name]
    assert below.names(LOW, SIBLING) == [labels[LOW].name, clients[SIBLING].name]
    # Nobody learns of whom it could not read, by whatever label it asks.
    assert below.names(HIGH, PANEL) == ["", ""]
    assert below.names(LOW, PANEL) == [labels[LOW].name, ""]
    assert above.names(9999, 9999) == ["", ""]


@pytest.mark.parametrize("size", [0, 3, 5, 7, 33 * 6])
def test_a_question_of_another_length_is_malformed(size: int) -> None:
    asker = Asker(World(), PANEL)
    asker.asks(bytes(size))
    assert (asker.told, asker.refused) == ([], ["mediator.control.malformed"])
