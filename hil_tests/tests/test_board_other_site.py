"""A board that reads what another site's client has published: two real sites joined by their
bridges, as gateway/BRIDGE.md has it, and a virtual board that `sealmq board` has provisioned."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from free_ports import free_port
from running_site import sealmq, until
from test_board_life import WIFI, Board, virtual

SENT = "machine/1/temperature"

pytestmark = pytest.mark.full


def ran(*words: object) -> str:
    done = sealmq(*words, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """North exports m1-temp to south."""
    north, south = tmp_path / "north", tmp_path / "south"
    for site in (north, south):
        listen = "--listen", f"127.0.0.1:{free_port()}"
        key = "--key-file", tmp_path / f"{site.name}.key"
        ran("init", site, "--policy", "labels", "--example", "factory", *listen, *key)
    at = f"127.0.0.1:{free_port()}"
    print_of = {site: ran("peer", "fingerprint", site).strip() for site in (north, south)}
    ran("peer", "add", north, "south", "--fingerprint", print_of[south], "--listen", at,
        "--export", "m1-temp")  # fmt: skip
    ran("peer", "add", south, "north", "--fingerprint", print_of[north], "--address", at,
        "--import", "m1-temp")  # fmt: skip
    try:
        for site in (north, south):
            ran("up", site, "--detach")
        until("the line", lambda: _line(north) == _line(south) == "up", 60)
        yield north, south
    finally:
        for site in (north, south):
            sealmq("down", site)


def _line(site: Path) -> str:
    [row] = json.loads(ran("peer", "list", site, "--json"))["peers"]
    return str(row["line"])


@pytest.mark.parametrize("bits", [64, 32])
def test_a_board_hears_a_sensor_of_another_site(
    bits: int, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    north, south = pair
    file, wifi = tmp_path / "panel.json", tmp_path / "wifi.json"
    ran("client", "add", south, "panel", "--label", "m1-temp@north", "-o", file)
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    secret = json.loads(file.read_bytes())["ps"]
    with virtual(tmp_path / "board", bits) as made:
        board = Board(made, secret)
        board.run("provision", "--enrolment", file, "--wifi", wifi, "--topic", "panel/alive",
                  "--subscribe", "@north/#", "--every", 5)  # fmt: skip
        # What is retained comes with the subscription, each time that the board starts; a live one
        # comes while somebody looks.
        pub = "pub", north, "--client", "m1-temp-sensor", "-t", SENT, "-q", 1
        ran(*pub, "-m", "21.5", "-r", "--life", 255)
        board.run("logs", "--reset", "--until", f"sealmq: got @north/{SENT} bytes=4",
                  "--timeout", 90)  # fmt: skip
        seen = threading.Event()

        def publishes() -> None:
            while not seen.wait(2):
                ran(*pub, "-m", "a longer reading")

        with ThreadPoolExecutor(1) as beside:
            publishing = beside.submit(publishes)
            try:
                wanted = f"sealmq: got @north/{SENT} bytes=16"
                board.run("logs", "--until", wanted, "--timeout", 90)
            finally:
                seen.set()
            publishing.result()
