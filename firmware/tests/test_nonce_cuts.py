"""Claim 8 on real MicroPython, continued: the power goes at each operation of the flash, or of NVS.
What a board seals before and behind it is collected.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nonce_plan import Boards, boards
from peer_connection import Connection
from real_micropython import BITS, ROOT


def make_image(b: Boards, kind: str) -> bytes:
    """A file system of that kind that holds the enrolment and nothing else."""
    image = b.folder / "blank.img"
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from flash_device import Flash, blank, mount
data = blank({kind!r})
mount({kind!r}, Flash({kind!r}, data))
with open("/flash/sealmq.json", "wb") as f:
    f.write(open({str(b.enrolment)!r}, "rb").read())
open({str(image)!r}, "wb").write(data)
"""
    program = ROOT / "build" / "micropython" / "bin" / f"micropython{b.bits}"
    subprocess.run([program, "-X", "heapsize=2M", "-c", script], check=True, timeout=30)
    return image.read_bytes()


# A life in which everything is stored that ever is: provisioning, a boot session, a new epoch's
# roots, another boot session.
STORING = (
    "connect",
    "publish",
    "last ctr",
    "publish",
    "publish",
    "disconnect",
    "connect",
    "retain",
)


def epoch_behind_reconnect(c: Connection, want: bool) -> bool:
    """The second connection of a boot session brings a new epoch."""
    if c.conn == 2:
        c.site.new_epoch()
    return False


@pytest.mark.parametrize(
    ("bits", "kind", "how"),
    [
        (64, "lfs2", "half"),
        (32, "lfs2", "whole"),
        (32, "fat", "half"),
        *(
            pytest.param(bits, kind, how, marks=pytest.mark.full)
            for bits in BITS
            for kind in ("lfs2", "fat")
            for how in ("whole", "eighth", "half", "unsynced")
        ),
    ],
)
def test_a_power_cut_at_every_operation_of_the_flash(
    bits: int, kind: str, how: str, tmp_path: Path
) -> None:
    with boards(tmp_path, bits) as b:
        image = tmp_path / "image"
        enrolled = make_image(b, kind)
        image.write_bytes(enrolled)
        b.peer.on_welcome = epoch_behind_reconnect
        cut = 0
        ended: dict[str, Any] = {}
        while not ended:
            cut += 1
            image.write_bytes(enrolled)
            ended = b.live(*STORING, flash=[kind, str(image), cut, how])
            # Power is back: it works, whatever the flash holds.
            assert b.live("connect", "publish", flash=[kind, str(image), 0, how])["failed"] == []
        print(f"{cut - 1} cuts on {kind}, {how}")
        assert ended["failed"] == []
        assert ended["ops"] == cut - 1 > 12
        b.judge(f"power cuts, {kind}, {how}", 200)


@pytest.mark.parametrize(("bits", "uncommitted"), [(64, "kept"), (32, "lost")])
def test_a_power_cut_at_every_operation_of_nvs(bits: int, uncommitted: str, tmp_path: Path) -> None:
    with boards(tmp_path, bits) as b:
        partition = tmp_path / "nvs"
        entry = ["blob", b.enrolment.read_bytes().hex()]
        enrolled = json.dumps({"sealmq/enrolment": entry})
        b.peer.on_welcome = epoch_behind_reconnect
        cut = 0
        ended: dict[str, Any] = {}
        while not ended:
            cut += 1
            partition.write_text(enrolled)
            ended = b.live(*STORING, nvs=[str(partition), cut, uncommitted])
            assert b.live("connect", "publish", nvs=[str(partition), 0, "lost"])["failed"] == []
        print(f"{cut - 1} cuts in NVS, {uncommitted}")
        assert ended["failed"] == []
        # State twice, boot counter twice, each set and committed.
        assert ended["ops"] == cut - 1 == 8
        b.judge(f"power cuts in NVS, {uncommitted}", 100)
