"""Random histories of a site with backups, losses and restores: nothing is issued a second time,
who is in gets in, and who left reaches nothing of what came later. A seed makes a history again.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kg.helpers import MadeSite, copy_of, make_site
from kg.history import World
from sealmq.kg import lift
from sealmq.site import masterkey


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> MadeSite:
    """A site without labels and clients; its key is made with less work than a real one's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masterkey, "_N", 2)
        return make_site(tmp_path_factory.mktemp("plain"), None)


def live(plain: MadeSite, folder: Path, seed: int, steps: int) -> World:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masterkey, "_N", 2)
        patch.setattr(lift, "randbelow", random.Random(seed).randrange)
        world = World(copy_of(plain, folder), folder, seed)
        try:
            for _ in range(steps):
                world.step()
            if not world.restores:
                world.backup()
                world.rotate()
                world.restore()
            world.issued.store(world.store)
            world.check_keys()
        except BaseException as error:
            error.add_note(f"seed {seed}: {' '.join(world.steps)}")
            raise
        finally:
            world.store.close()
    return world


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.full] if n else []) for n in range(8)]
)
def test_nothing_is_issued_twice(seed: int, plain: MadeSite, tmp_path: Path) -> None:
    world = live(plain, tmp_path, seed, 40)
    assert world.restores
    assert world.thieves


@pytest.mark.full
@pytest.mark.parametrize("block", range(30))
def test_nothing_is_issued_twice_in_300_histories(
    block: int, plain: MadeSite, tmp_path: Path
) -> None:
    restores = 0
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        folder = tmp_path / str(seed)
        folder.mkdir()
        restores += live(plain, folder, seed, 80).restores
    assert restores >= 10
