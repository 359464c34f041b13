"""Boards that find their site by what it announces, with somebody beside it who lies; and a virtual
board whose site moves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from free_ports import free_port
from running_site import ROOT, Site, micropython, until
from test_board_life import ARCH, NAME, TOPIC, WIFI, Board, reading, virtual
from test_mdns import HERE, MESSAGE, found, liar

SCRIPT = Path(__file__).with_name("finding_device.py")

pytestmark = pytest.mark.full
both = pytest.mark.parametrize("bits", [64, 32])


@pytest.fixture
def announced(site: Site) -> Site:
    """The factory, running, and announced on the loopback."""
    site.toml.write_text(site.toml.read_text() + "\n[mdns]\nannounce = true\n")
    site.up()
    return site


def astray(file: Path) -> str:
    """Its enrolment says to look, and leads nowhere. The site's id."""
    told = json.loads(file.read_text())
    told["mediator"] |= {"port": free_port(), "mdns": True}
    file.write_text(json.dumps(told))
    return str(told["site"])


def ports(file: Path) -> set[object]:
    rows = found("find", "--interface", HERE, "--enrolment", file, "--json")
    return {row["port"] for row in rows}


def attempts(file: Path, times: int, bits: int) -> list[str]:
    board = micropython(SCRIPT, file, times, MESSAGE, bits=bits)
    try:
        said, _ = board.communicate(timeout=120)
    finally:
        board.kill()
        board.wait()
    assert "Traceback" not in said, said
    return said.splitlines()


@both
def test_a_board_gets_to_its_site_past_a_liar(bits: int, announced: Site) -> None:
    file = announced.enrol(NAME, "m1-temp")
    secret = json.loads(file.read_text())["ps"]
    site = astray(file)
    with liar(site) as (port, heard):
        until("both to be found", lambda: ports(file) == {announced.port, port})
        # Whichever comes first of the two; then it stays.
        lines = attempts(file, 4, bits)
        assert lines[-2:] == [f"up {announced.port}"] * 2, lines
        for each in (MESSAGE, TOPIC, secret):
            assert each.encode() not in heard
        assert bytes.fromhex(secret) not in heard
    assert file.with_suffix(".found").read_text() == f"{HERE}:{announced.port}"


@both
def test_a_board_whose_relay_ends_finds_the_site_itself(bits: int, announced: Site) -> None:
    """Who hands on all that is said is a network like others. His address was kept."""
    file = announced.enrol(NAME, "m1-temp")
    site = astray(file)
    with liar(site, announced.port) as (relay, heard):
        file.with_suffix(".found").write_text(f"{HERE}:{relay}")
        assert attempts(file, 1, bits) == [f"up {relay}"]
        assert heard
        assert MESSAGE.encode() not in heard
    until("the relay to be gone", lambda: ports(file) == {announced.port})
    # In between perhaps where its enrolment leads, which is nowhere.
    lines = attempts(file, 4, bits)
    assert lines[0] == f"OSError {relay}"
    assert lines[-2:] == [f"up {announced.port}"] * 2, lines


@both
def test_a_virtual_board_follows_its_site(bits: int, announced: Site, tmp_path: Path) -> None:
    file = announced.enrol(NAME, "m1-temp")
    secret = json.loads(file.read_text())["ps"]
    told = json.loads(file.read_text())
    told["mediator"]["port"] = free_port()
    file.write_text(json.dumps(told))
    file.chmod(0o600)
    wifi = tmp_path / "wifi.json"
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    with liar(told["site"]), virtual(tmp_path / "board", bits) as made:
        board = Board(made, secret)
        words = ("--enrolment", file, "--wifi", wifi, "--topic", TOPIC, "--every", 1)
        board.run("provision", *words, "--mediator", "mdns")
        assert reading(announced).isdecimal()
        assert board.info()["mediator"] == "mdns"
        # It has another address now, and nobody tells the board.
        announced.down()
        port = free_port()
        announced.edit(f'"{HERE}:{announced.port}"', f'"{HERE}:{port}"')
        announced.port = port
        announced.up()
        assert reading(announced).isdecimal()
        # A set without it would be lost.
        told_off = board.run("update", "--files", without(tmp_path / "sets", bits), code=1)
        assert "has no mDNS" in told_off.stdout
        # From here on where it is told to go.
        board.run("provision", "--mediator", f"{HERE}:{port}")
        assert reading(announced).isdecimal()


def without(folder: Path, bits: int) -> Path:
    """Sets as built, but for what looks."""
    target = folder / ARCH[bits]
    shutil.copytree(ROOT / "build" / "firmware" / ARCH[bits], target)
    (target / "sealmq_device" / "finding.mpyz").unlink()
    return folder
