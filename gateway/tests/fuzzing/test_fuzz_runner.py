"""The coverage-guided runner: real targets for a thousand inputs, and each kind of defect."""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.__main__ import main
from fuzz.target import NAMES

HERE = Path(__file__).parent
# These tests say whether something has broken, not whether there is something new to find: that is
# for `make fuzz` and `make test-full`.
SEED = 1

# There is no atheris for other machines; its absence on this one is a failure of setup.
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="atheris is for x86_64 alone"
)


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faulty targets lie beside this file, for the child as well."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(HERE)


def test_atheris_is_there() -> None:
    assert importlib.util.find_spec("atheris") is not None


def _fuzz(out: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `python -m fuzz`, in a process of its own.

    libFuzzer's limit is on the peak of resident memory, and Linux hands that of the process that
    starts another on to it: a worker of these tests alone can be above the limit.
    """
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seed", str(SEED), "--out", str(out), *arguments],
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


# With one seed each run tries what the last one tried. In `make test` the runner goes over one;
# test_fuzz_targets.py tries all of them, in this process.
_IN_MAKE_TEST = ("mqtt_codec",)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in _IN_MAKE_TEST else [pytest.mark.full]) for n in NAMES],
)
def test_a_thousand_inputs_break_nothing(name: str, tmp_path: Path) -> None:
    code, text = _fuzz(tmp_path, name, "--inputs", "1000", "--timeout", "120")
    assert code == 0, text
    found = re.search(rf"fuzz: {name}: ([0-9,]+) inputs, ([0-9,]+) edges, nothing found", text)
    assert found, text
    inputs, edges = (int(group.replace(",", "")) for group in found.groups())
    assert inputs >= 1000
    # Coverage was measured, and the seeds led somewhere.
    assert edges > 100
    assert any((tmp_path / name / "corpus").iterdir())


@pytest.mark.full
def test_a_seed_gives_the_same_inputs_again(tmp_path: Path) -> None:
    kept: list[set[str]] = []
    for seed in (SEED, SEED, SEED + 1):
        folder = tmp_path / str(len(kept))
        code, text = _fuzz(folder, "packets", "--inputs", "1500", "--seed", str(seed))
        assert code == 0, text
        kept.append({path.name for path in (folder / "packets/corpus").iterdir()})
    assert kept[0] == kept[1] != kept[2]


@pytest.mark.parametrize(
    ("kind", "word"), [("Crash", "ValueError"), ("Hang", "timeout"), ("Growth", "out-of-memory")]
)
def test_a_defect_is_found_and_its_input_saved(kind: str, word: str, tmp_path: Path) -> None:
    name = f"fuzz_faulty:{kind}"
    # A machine under load makes sound inputs slow: only what hangs has little time.
    patience = "4" if kind == "Hang" else "120"
    limits = ["--inputs", "100000", "--timeout", patience, "--rss", "300"]
    code, text = _fuzz(tmp_path, name, *limits)
    assert code == 1, text
    assert "BROKEN" in text
    assert word in text
    (saved,) = (tmp_path / name / "found").iterdir()
    assert str(saved) in text
    assert kind == "Growth" or saved.read_bytes()[:1] == b"!"


def test_a_sound_target_ends_with_0_and_a_saved_input_can_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["toml", "--inputs", "300", "--seed", str(SEED), "--out", str(tmp_path)]) == 0
    assert "nothing found" in capsys.readouterr().out
    saved = tmp_path / "input"
    saved.write_bytes(b"x = ")
    assert main(["toml", "--replay", str(saved)]) == 0
    saved.write_bytes(b"!")
    with pytest.raises(ValueError, match="nobody promised"):
        main(["fuzz_faulty:Crash", "--replay", str(saved)])
