"""Another client's files: kept once they have had a session, given up again when they have none."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ..behaviour import Behaviour
from ..bench import Bench
from ..errors import Failed

# One start of so many seconds: what has no session by then is rolled back.
_TRIAL = ("--tries", "1", "--wait", "5")
_ROLLED_BACK = 3


def _run(bench: Bench) -> None:
    with bench.stage("keep") as stage:
        files = _another(bench, "kept")
        stage.bytes(_size(files))
        before, since = bench.salts(), time.monotonic()
        with bench.serial.away(), bench.heavy:
            bench.tools.update(bench.board, files)
        bench.fresh(since, not_in=before)
    path = bench.site.paths[bench.name]
    with bench.stage("roll-back"):
        files = _another(bench, "given-up")
        before, since = bench.salts(), time.monotonic()
        path.shut(True)
        try:
            with bench.serial.away():
                code = bench.tools.update(bench.board, files, *_TRIAL, expected=(_ROLLED_BACK,))
        finally:
            path.shut(False)
        if code != _ROLLED_BACK:
            raise Failed(f"an update without a session ended with exit code {code}")
        bench.fresh(time.monotonic(), not_in=before)
    with bench.stage("which"):
        with bench.serial.away(), bench.heavy:
            told = bench.tools.info(bench.board)
        _is_the_kept_one(told)
    before, since = bench.salts(), time.monotonic()
    bench.board.reset()
    bench.fresh(since, not_in=before)


# The same client under another version, by one more file; laid out as what `make firmware` leaves.
def _another(bench: Bench, word: str) -> Path:
    built, name = bench.tools.client_files(bench.board)
    folder = bench.folder / f"client-{word}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built / name, folder / name)
    (folder / name / "rig.txt").write_text(f"{word} {bench.dice.getrandbits(32):x}\n")
    return folder


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _is_the_kept_one(told: dict[str, object]) -> None:
    wanted = {"slot": "b", "trial": None}
    if any(told.get(key, 0) != value for key, value in wanted.items()):
        raise Failed(
            f"behind a roll-back: { {key: told.get(key) for key in wanted} }, not {wanted}"
        )
    if not str(told.get("rolled_back")).startswith("a: "):
        raise Failed(f"it does not say that it rolled a back, but {told.get('rolled_back')!r}")


BEHAVIOUR = Behaviour("update", "kept with a session, rolled back without one", _run)
