"""What the pages tell people to type is typed as it stands there, and what they show is printed.

A block that nobody types fails the first test here: it belongs into a table below, with what may
differ on the machine of a test (a folder's name, a port), or with the test that types it elsewhere.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path

import pyrage
import pytest

import sealmq_forks
from free_ports import free_port
from pages import samples
from running_site import ROOT, SEALMQ, Site, sealmq
from test_board_life import WIFI, virtual

CONSOLE = samples("console")
HERE = "hil_tests/tests/"

# By whom the others are typed. Where a line of them needs root, hardware or a cluster, the test
# does what it does beside that line.
ELSEWHERE = {
    "README.md: SealMQ": HERE + "test_readme.py::test_its_commands_show_what_it_shows",
    "README.md: Install on a gateway": HERE
    + "test_install.py::test_an_installed_gateway_works_and_says_what_is_missing",
    # What only a Raspberry Pi can do is done by nobody here: the card, its clock.
    "gateway/INSTALL.md: The machine": HERE
    + "test_package.py::test_from_the_package_to_doctor_upgraded_cut_off_and_removed",
    "gateway/INSTALL.md: From the Debian package": HERE
    + "test_package.py::test_from_the_package_to_doctor_upgraded_cut_off_and_removed",
    "gateway/INSTALL.md: With pipx, or from a checkout": HERE
    + "test_install.py::test_an_installed_gateway_works_and_says_what_is_missing",
    "firmware/README.md: What ships": HERE + "test_samples.py::by_hand",
    "firmware/README.md: If a board is lost": HERE
    + "test_lost_board.py::test_one_command_shuts_it_out",
    "firmware/README.md: If a board is lost 2": HERE
    + "test_lost_board.py::test_one_command_shuts_it_out",
    "firmware/README.md: Unmeasured until a board runs it": "firmware/tests/"
    "test_board_times.py::test_every_row_on_a_host",
    "flash_scripts/README.md: From the box to the first sealed reading": "flash_scripts/tests/"
    "test_flash_readme.py::test_a_virtual_board_publishes",
    "flash_scripts/README.md: From the box to the first sealed reading 2": "flash_scripts/tests/"
    "test_flash_readme.py::test_a_virtual_board_publishes",
    "flash_scripts/README.md: flash: onto the board": "flash_scripts/tests/"
    "test_series.py::test_real_boards_of_an_archive_one_cut_off",
    **{
        f"gateway/PURPOSES.md: Ten minutes{n}": HERE
        + "test_readme.py::test_the_walk_through_purposes"
        for n in ("", " 2", " 3", " 4", " 5")
    },
    **{
        f"gateway/OWNERS.md: {heading}": HERE + "test_owners_page.py::test_the_page_as_it_stands"
        for heading in (
            *(f"Ten minutes{n}" for n in ("", " 2", " 3", " 4", " 5")),
            "What readers say",
            "Signed assertions",
            "Emergencies",
            "After a restore",
        )
    },
    **{
        f"gateway/TRUST.md: {heading}": HERE + "test_trust_page.py::test_the_page_as_it_stands"
        for heading in (
            "At home",
            "The paper's example",
            "The paper's example 2",
            "Ratings",
            "After a wrong word",
            "Which rules find what",
            "Which rules find what 2",
            "Which rules find what 3",
        )
    },
    **{
        f"gateway/BRIDGE.md: The first joined pair{n}": "gateway/tests/bridge/"
        "test_bridge_page.py::test_the_page_as_it_stands"
        for n in ("", " 2", " 3")
    },
    **{
        f"gateway/BRIDGE.md: Borders{n}": "gateway/tests/bridge/"
        "test_bridge_page.py::test_the_page_as_it_stands"
        for n in ("", " 2")
    },
    "gateway/README.md: Watched": "gateway/tests/run/"
    "test_run_audit.py::test_a_killed_mediator_leaves_a_sound_log_and_each_change_is_named",
    **{
        f"gateway/AGENT.md: Ten minutes{n}": "gateway/tests/agent/"
        "test_agent_page.py::test_the_page_as_it_stands"
        for n in ("", " 2", " 3", " 4", " 5")
    },
    **{
        f"gateway/DOCTOR.md: Ten minutes, with a broker for trying{n}": "gateway/tests/doctor/"
        "test_doctor_page.py::test_the_page_as_it_stands"
        for n in ("", " 2", " 3")
    },
    **{
        f"gateway/BLINDED.md: Ten minutes{n}": HERE
        + "test_blinded_page.py::test_the_page_as_it_stands"
        for n in ("", " 2", " 3", " 4")
    },
    "gateway/README.md: A broker on another machine": HERE + "test_brokers_external.py::outside",
    "gateway/README.md: What the logs say": "spark/tests/"
    "test_cli.py::test_a_report_over_everything_then_over_what_is_new",
    "spark/README.md: spark": "spark/tests/"
    "test_cli.py::test_a_report_over_everything_then_over_what_is_new",
    "spark/README.md: A screen on the wall": "spark/tests/"
    "test_watch.py::test_watched_killed_rotated_and_cut_it_has_what_one_report_has",
    "spark/README.md: On a cluster": "spark/tests/"
    "test_cli.py::test_a_master_that_nobody_is_is_told_within_seconds",
    "hil_tests/README.md: The rig": HERE
    + "test_hil_boards.py::test_three_boards_and_twenty_power_cuts",
    "hil_tests/README.md: Faults": HERE
    + "test_faults.py::test_a_puback_before_the_broker_s_is_found_out",
    "hil_tests/sealmq_vboard/README.md: sealmq_vboard": HERE
    + "test_vboard_cli.py::test_the_readme_s_first_lines",
}

# By the tests of this file, in this order.
BOARD = [
    "flash_scripts/README.md: provision: a board that runs MicroPython",
    "flash_scripts/README.md: info, logs, reset",
    "flash_scripts/README.md: update: another client, and back if it does not connect",
    "flash_scripts/README.md: wipe: a board leaves the site",
]
VBOARD = ["hil_tests/sealmq_vboard/README.md: What a test does to it"]
OWN_SITE = ["gateway/PURPOSES.md: Your own site", "gateway/PURPOSES.md: Your own site 2"]
HISTORY = [
    "gateway/PURPOSES.md: Consent withdrawn",
    "gateway/PURPOSES.md: The officer's report",
]
DAILY = [
    "gateway/README.md: Day by day",
    "gateway/README.md: What data is for",
    "gateway/README.md: Somebody leaves",
    "gateway/README.md: Somebody leaves 2",
]
MOSQUITTO = ["README.md: Beyond a first look"]


def test_each_block_of_each_page_is_typed() -> None:
    here = [*BOARD, *VBOARD, *OWN_SITE, *HISTORY, *DAILY, *MOSQUITTO]
    assert sorted([*ELSEWHERE, *here]) == sorted(CONSOLE)


@pytest.mark.parametrize("where", sorted(set(ELSEWHERE.values())))
def test_the_test_that_types_a_block_elsewhere_is_there(where: str) -> None:
    file, _, name = where.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def typed(keys: list[str], folder: Path, **replaced: str) -> str:
    """All their lines in one shell, which ends at the first that fails. What stands there and is
    no command has to be printed. Gives what was printed."""
    lines = [line for key in keys for line in CONSOLE[key].text.replace("\\\n", " ").splitlines()]
    commands = "\n".join(line[2:] for line in lines if line.startswith("$ "))
    for old, new in replaced.items():
        assert old in commands, old
        commands = commands.replace(old, new)
    path = f"{sealmq_forks.on_path(os.environ)}:{SEALMQ.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{commands}\n"],
        cwd=folder, env={**os.environ, "PATH": path, "HOME": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.full
def test_a_board_s_commands(closed_site: Site, tmp_path: Path) -> None:
    closed_site.enrol("m1-temp-sensor", "m1-temp").rename(tmp_path / "m1-temp-sensor.sealmq.json")
    wifi = tmp_path / "wifi.json"
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    with virtual(tmp_path / "board", 64) as made:
        port = {"--board 0001": f"--port {made.pty}"}
        done = typed(BOARD[:1], tmp_path, **port, **{"--wifi ask": "--wifi wifi.json"})
        assert "m1-temp-sensor" in done
        done = typed(BOARD[1:2], tmp_path, **port, **{"--time": "--time --lines 3"})
        assert "client:      m1-temp-sensor" in done
        # The same files as it has; the two outcomes that the page shows: test_board_life.py.
        one = {"make firmware && ": "", "--board 0001 --board 0002": f"--port {made.pty}"}
        assert "has version" in typed(BOARD[2:3], tmp_path, **one)
        site = {"--site factory": f"--site {closed_site.path} --yes"}
        assert "m1-temp-sensor is disabled" in typed(BOARD[3:], tmp_path, **port, **site)


@pytest.mark.full
def test_a_virtual_board_s_commands(tmp_path: Path) -> None:
    with virtual(tmp_path / "board1", 64):
        assert '"wifi_on": false' in typed(VBOARD, tmp_path)


def test_a_site_of_one_s_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = ("--key-file", tmp_path / "home.key", "--listen", f"127.0.0.1:{free_port()}")
    assert sealmq("init", home, *words).returncode == 0
    page = (ROOT / "gateway" / "PURPOSES.md").read_text(encoding="utf-8")
    toml = re.search(r"## Your own site.*?```toml\n(.*?)```", page, re.DOTALL)
    assert toml
    text = (home / "sealmq.toml").read_text()
    for table in toml[1].split("\n\n"):
        heading, _, body = table.partition("\n")
        assert text.count(f"\n{heading}\n") == 1
        text = text.replace(f"\n{heading}\n", f"\n{heading}\n{body}\n")
    (home / "sealmq.toml").write_text(text)
    denied = "denied: analyst may not read house/temperature for research "
    explain = "sealmq explain"
    try:
        # What is denied is told by the exit code, too.
        done = typed(OWN_SITE, tmp_path, **{explain: f"sleep 2; kill %1 %2; ! {explain}"})
        assert denied in done
        assert "house/temperature 21" in (tmp_path / "dashboard.log").read_text()
        assert (tmp_path / "analyst.log").read_text() == ""
    finally:
        sealmq("down", home)


def test_consent_and_report(closed_site: Site, tmp_path: Path) -> None:
    typed(HISTORY, tmp_path, factory=str(closed_site.path))
    assert (tmp_path / "machine-1.csv").read_text().count(",") > 3


DAILY_SITE = """
[labels]
sensors = []
control = ["sensors"]

[clients]
monitor = { label = "control", kind = "app" }
officer = { label = "bottom", kind = "app" }
old-panel = { label = "control", kind = "app" }

[families.purposes]
strict = true
stewards = ["officer"]

[families.purposes.tree]
service = []
ads = []
"""


# A topic has to be there before it is relabelled, and what follows, follows for ever.
AROUND = {
    "sealmq topic list": "sealmq up SITE --detach; sealmq pub SITE --client thermometer "
    "-t hall/temperature -m 20; sealmq topic list",
    "sealmq topic relabel SITE hall/temperature control": "sealmq topic relabel SITE "
    "hall/temperature control; sealmq topic relabel SITE hall/temperature sensors",
    "sealmq explain SITE deliver": "! sealmq explain SITE deliver",  # nobody has reserved it yet
    "sealmq sub": "timeout 3 sealmq sub",
    " -v\n": " -v || [ $? = 124 ]\n",
    "sealmq up SITE --detach  ": "sealmq down SITE; sealmq up SITE --detach  ",
    "sealmq log": "timeout 3 sealmq log",
    " -f  ": " -f || [ $? = 124 ]  ",
}


def test_day_by_day(tmp_path: Path) -> None:
    site = tmp_path / "SITE"
    words = ("--key-file", tmp_path / "site.key", "--listen", f"127.0.0.1:{free_port()}")
    assert sealmq("init", site, *words).returncode == 0
    text = (site / "sealmq.toml").read_text()
    for table in DAILY_SITE.strip().split("\n\n"):
        heading, _, body = table.partition("\n")
        text = re.sub(rf"(?m)^{re.escape(heading)}\n((?:[^\[\n][^\n]*\n|\n)*)", "", text)
        text += f"\n{heading}\n{body}\n"
    (site / "sealmq.toml").write_text(text)
    (tmp_path / "DIR").mkdir()
    (tmp_path / "clients.csv").write_text("name,label\nt2,sensors\nt3,sensors\n")
    (tmp_path / "factory.pub").write_text(f"{pyrage.x25519.Identity.generate().to_public()}\n")
    try:
        typed(DAILY[:1], tmp_path, **AROUND)
        # One leaves for good, another comes back.
        typed(DAILY[1:3], tmp_path, **{"remove SITE thermometer": "remove SITE t2"})
        down = "sealmq down SITE; sealmq restore"
        typed(DAILY[3:], tmp_path, **{"/media/stick/": "", "sealmq restore": down})
    finally:
        sealmq("down", site)


@pytest.mark.full
def test_with_mosquitto(tmp_path: Path) -> None:
    words = ("--example", "factory", "--key-file", tmp_path / "f.key")
    factory = tmp_path / "factory"
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    assert sealmq("init", factory, *words, *listen).returncode == 0
    first = "sudo apt-get install mosquitto && sudo systemctl disable --now mosquitto"
    try:
        done = typed(
            MOSQUITTO, tmp_path,
            **{first: "mosquitto -h || true", "sealmq log": "timeout 3 sealmq log",
               '"mosquitto"': '"mosquitto"', "-f ": "-f || [ $? = 124 ] "},
        )  # fmt: skip
    finally:
        sealmq("down", factory)
    assert "FAILED" not in done
