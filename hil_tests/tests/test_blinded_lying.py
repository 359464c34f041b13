"""Claim 47 in a started site whose mediator judges that everybody may read everything: what remains
are keys.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evil_scene import environment
from handover_cast import until as soon
from test_blinded_site import A_X, SEALED, Stream

LYING = Path(__file__).with_name("lying")
COLD = "stranger"
"""A customer like others, at a label that is not above the events'."""


class Lying(Stream):
    readers = ("Y", "miner", COLD)

    def _prepare(self) -> None:
        self.site.edit("heat = []\n", "heat = []\ncold = []\n")
        self.site.edit("[clients]\n", f'[clients]\n{COLD} = {{ label = "cold", kind = "app" }}\n')
        kept = self.site.path.parent / "kept.toml"
        kept.write_text(f'{kept.read_text()}[customers.{COLD}]\nhas = ["e = 1"]\n')


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lying]:
    path = os.environ.get("PYTHONPATH", "")
    with environment({"PYTHONPATH": f"{LYING}:{path}".rstrip(":")}):
        made = Lying(tmp_path_factory.mktemp("lying"))
    try:
        yield made
    finally:
        made.site.down()


@pytest.mark.full
def test_of_a_mediator_that_matches_everybody_keys_remain(lying: Lying) -> None:
    asyncio.run(_story(lying))


async def _story(lying: Lying) -> None:
    await lying.connect()
    try:
        # It lies: whoever has the label's keys gets what no policy lets him have.
        got, sealed = await lying.receivers(A_X, SEALED, still=("Y", "miner"))
        assert got == ["Y", "miner"]
        # Of a sealed grant the key generator gives the key to who matches, and to nobody else.
        assert sealed == ["miner"]
        # Who has not the label's keys opens nothing of all that he was sent.
        stranger = lying.clients[COLD]
        await soon(lambda: f"{stranger.refused}", lambda: stranger.refused.get("NoKey", 0) >= 2)
        assert lying.got[COLD] == []
    finally:
        await lying.leave()
