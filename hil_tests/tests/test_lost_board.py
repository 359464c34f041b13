"""A board is lost: the commands of firmware/README.md, run as they stand, against a running site.

The board is MicroPython with its files; the thief is MicroPython with a copy of them.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from devices import DeviceError, device
from running_site import ROOT, Site, sealmq, until

NAME = "m1-temp-sensor"
TOPIC = "machine/1/temperature"


def command(verb: str, site: Site, output: Path) -> list[str]:
    """The README's one command for it, with this site and file in place of the README's."""
    readme = (ROOT / "firmware" / "README.md").read_text(encoding="utf-8")
    section = readme.split("## If a board is lost")[1].split("\n### ")[0]
    lines = re.findall(rf"^\$ (sealmq client {verb} .+)$", section, re.MULTILINE)
    assert len(lines) == 1, lines
    words = shlex.split(lines[0])[1:]
    places = {"factory": str(site.path), f"{NAME}.json": str(output)}
    return [places.get(word, word) for word in words]


def flash_of(board: Path, folder: Path) -> Path:
    """A copy of all that is on the board; its enrolment file there."""
    shutil.copytree(board.parent, folder)
    return folder / board.name


def shut_out(file: Path) -> None:
    """Neither with the keys that it has nor by asking for new ones."""
    for forget in (False, True):
        if forget:
            file.with_suffix(".state").unlink()
        with device(file, connect=False) as thief, pytest.raises(DeviceError) as refused:
            thief.connect()
        assert refused.value.kind in ("Denied", "OSError"), refused.value


@pytest.mark.parametrize("verb", [pytest.param("disable", marks=pytest.mark.full), "rotate"])
def test_one_command_shuts_it_out(verb: str, site: Site, tmp_path: Path) -> None:
    site.up()
    lost = site.enrol(NAME, "m1-temp")
    other = site.enrol("another", "m1-temp")
    new = tmp_path / "new.json"
    with device(site.enrol("panel", "m1-ctrl")) as panel, device(other) as beside:
        panel.subscribe(TOPIC)
        with device(lost) as board:
            board.publish(TOPIC, "mine")
            assert [m["payload"] for m in panel.receive(1)] == ["mine"]
            stolen = flash_of(lost, tmp_path / "stolen")
            done = sealmq(*command(verb, site, new))
            assert done.returncode == 0, done.stderr
            until("its connection to end", lambda: site.audit("disconnect", client=NAME))
            with pytest.raises(DeviceError):
                board.publish(TOPIC, "not mine any more")
        shut_out(stolen)
        # Who is at the same label goes on, under the new epoch.
        beside.publish(TOPIC, "still here")
        assert [m["payload"] for m in panel.receive(1)] == ["still here"]
        if verb == "rotate":
            lost.write_bytes(new.read_bytes())
            with device(lost) as board:
                board.publish(TOPIC, "back")
                assert [m["payload"] for m in panel.receive(1)] == ["back"]
            with device(stolen, connect=False) as thief, pytest.raises(DeviceError):
                thief.connect()
