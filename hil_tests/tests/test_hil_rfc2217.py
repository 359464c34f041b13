"""The rig on a board behind a network port (RFC 2217), which it did not start itself.

The board is a virtual one, `sealmq vboard run` in another process; the rig knows its port and what
rig.toml says, as of silicon. esptool takes most of a minute to flash through such a port.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "shared_spec" / "hil.schema.json").read_text())
VBOARD = [sys.executable, "-m", "sealmq_vboard"]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[str]:
    """The address of a board that runs, erased."""
    wifi = tmp_path / "wifi.json"
    wifi.touch(mode=0o600)
    wifi.write_text('{"ssid": "virtual", "key": "not-a-secret"}')
    for words in (["new", "board", "--wifi", "wifi.json"], ["firmware", "stand-in.bin"]):
        subprocess.run([*VBOARD, *words], cwd=tmp_path, check=True, timeout=60)
    with subprocess.Popen(
        [*VBOARD, "run", "board", "--rfc2217", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            kind, where = running.stdout.readline().split()
            assert kind == "rfc2217"
            assert running.stdout.readline() == "ready\n"
            yield where
        finally:
            running.terminate()
            running.wait(20)


def run(folder: Path, port: str, more: str, *behaviours: str) -> tuple[str, list[dict[str, Any]]]:
    """Passes; what it said, and the verdicts. more: of the board's table in rig.toml."""
    (folder / "rig.toml").write_text(
        f'[rig]\nwifi = "wifi.json"\nfirmware = {{ esp32 = "stand-in.bin" }}\n'
        f'[[board]]\nname = "elsewhere"\nport = "{port}"\narch = "x64"\n{more}'
    )
    words = [word for name in behaviours for word in ("--behaviour", name)]
    rig = ["--rig", str(folder / "rig.toml"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "sealmq_hil", "run", *rig, *words],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    validator = Draft202012Validator(SCHEMA)
    for row in rows:
        validator.validate(row)
    assert {(row["board"], row["kind"]) for row in rows} == {("elsewhere", "rfc2217")}
    return done.stderr, [row for row in rows if row["stage"] == "verdict"]


@pytest.mark.full
def test_what_needs_a_power_switch_is_skipped_counted_and_shown(tmp_path: Path, port: str) -> None:
    names = ("flash", "publish", "mediator-loss", "wifi-loss", "power-loss", "nonces")
    said, verdicts = run(tmp_path, port, "", *names)
    outcomes = {row["behaviour"]: row["outcome"] for row in verdicts}
    assert outcomes == dict.fromkeys(names, "pass") | {"wifi-loss": "skip", "power-loss": "skip"}
    assert "power-loss: elsewhere has not a power switch" in said
    assert "boards: 1 virtual, 0 real" in said
    assert said.rstrip().endswith("4 pass, 0 fail, 2 skip")


@pytest.mark.full
def test_commands_of_rig_toml_switch_its_power(tmp_path: Path, port: str) -> None:
    switch = [*VBOARD, "ctl", str(tmp_path / "board"), "power"]
    more = f"power_off = {json.dumps([*switch, 'off'])}\npower_on = {json.dumps([*switch, 'on'])}\n"
    names = ("flash", "power-loss", "rekey-asleep", "nonces")
    said, verdicts = run(tmp_path, port, more, *names)
    assert {row["behaviour"]: row["outcome"] for row in verdicts} == dict.fromkeys(names, "pass")
    assert "0 twice with other content" in said
