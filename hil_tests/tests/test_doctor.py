"""`sealmq doctor`: a healthy site passes without a trace; an open one fails on the right lines."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evil_path import EvilPath
from free_ports import free_port
from running_site import Site, sealmq

AT_BROKER = {
    "broker: without credentials",
    "broker: with guessed credentials",
    "broker: with a client's credentials",
}
AT_MEDIATOR = {
    "an honest message arrives",
    "connect without a proof",
    "connect with a replayed proof",
    "publish to another label's topic",
    "publish downwards",
    "publish what was published before",
    "publish on another topic than sealed for",
    "publish plaintext",
    "publish to reserved topics",
    "subscribe to another label's topic",
    "read beside one's label",
    "read above one's label",
    "clear a retained message with an empty one",
    "clients are sent to this mediator",
}

OF_PURPOSES = {
    "subscribe without a purpose",
    "subscribe for another purpose",
    "read for a purpose that was withdrawn",
    "reserve topics of others",
}


def visit(site: Site, code: int) -> dict[str, Any]:
    """A visit's tries by their names."""
    done = sealmq("doctor", site.path, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["healthy"] is {0: True, 1: False, 3: None}[code]
    return {row["name"]: row for row in told["tries"]}


def failed(tries: dict[str, Any]) -> set[str]:
    return {name for name, row in tries.items() if row["ok"] is False}


@pytest.fixture(
    scope="module", params=[pytest.param("embedded", marks=pytest.mark.full), "mosquitto"]
)
def healthy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The factory on each broker of its own."""
    made = Site(tmp_path_factory.mktemp("factory"))
    made.up("--broker", request.param)
    yield made
    made.down()


ON_MOSQUITTO = pytest.mark.parametrize("healthy", ["mosquitto"], indirect=True)


def test_a_healthy_site_passes_again_and_again_without_a_trace(healthy: Site) -> None:
    site = healthy
    toml = site.toml.read_bytes()
    for _ in range(2):
        tries = visit(site, 0)
        assert set(tries) == AT_BROKER | AT_MEDIATOR
        assert all(row["ok"] is True and row["reason"] for row in tries.values())
        assert site.toml.read_bytes() == toml
    for command in ("client", "topic"):
        assert "sealmq-doctor" not in sealmq(command, "list", site.path).stdout
    # Nobody has got new keys for it, and nothing of it is kept for who subscribes later.
    assert site.audit("client-left") == []
    assert {row["epoch"] for row in site.audit("epoch")} <= {1}
    who = ("--client", "monitor", "-t", "sealmq-doctor/#", "-W", 1)
    done = sealmq("sub", site.path, *who)
    assert (done.returncode, done.stdout) == (27, "")


@ON_MOSQUITTO
def test_what_it_prints_says_each_try(healthy: Site) -> None:
    done = sealmq("doctor", healthy.path)
    assert done.returncode == 0, done.stdout
    *rows, last = done.stdout.splitlines()
    assert {row.split("  ")[0] for row in rows} == AT_BROKER | AT_MEDIATOR
    assert all(" holds " in row for row in rows)
    assert last == f"{len(rows)} tries: what must fail does"


@ON_MOSQUITTO
def test_what_a_visit_that_was_cut_off_has_left_is_taken_out(healthy: Site) -> None:
    site = healthy
    toml = site.toml.read_text()
    site.toml.write_text(toml.replace("[labels]\n", "[labels]\nsealmq-doctor-side = []\n"))
    visit(site, 0)
    assert site.toml.read_text() == toml


@ON_MOSQUITTO
def test_there_is_one_doctor_at_a_time(healthy: Site) -> None:
    folder = os.open(healthy.path / ".doctor.lock", os.O_RDWR)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        done = sealmq("doctor", healthy.path)
    finally:
        os.close(folder)
    assert done.returncode == 2
    assert "another `sealmq doctor`" in done.stderr


@ON_MOSQUITTO
def test_its_names_are_its_own(healthy: Site, tmp_path: Path) -> None:
    site = healthy
    words = ("--label", "m1-temp", "-o", tmp_path / "x.json")
    done = sealmq("client", "add", site.path, "sealmq-doctor-writer", *words)
    assert done.returncode == 1
    assert "are those of `sealmq doctor`" in done.stderr
    assert not (tmp_path / "x.json").exists()


def test_a_site_that_is_not_up_is_no_finding(tmp_path: Path) -> None:
    site = Site(tmp_path)
    done = sealmq("doctor", site.path)
    assert done.returncode == 2
    assert "is not up" in done.stderr
    assert "hint: sealmq up" in done.stderr
    assert sealmq("doctor", tmp_path / "nowhere").returncode == 2


def test_without_enforcement_it_fails(site: Site) -> None:
    site.edit("[policy]\n", "[policy]\nenforce = false\n")
    site.up()
    tries = visit(site, 1)
    assert failed(tries) == {
        "publish to another label's topic",
        "publish downwards",
        "subscribe to another label's topic",
        "read beside one's label",
        "read above one's label",
    }
    assert "[policy] enforce" in tries["publish downwards"]["reason"]
    done = sealmq("doctor", site.path)
    assert done.returncode == 1
    assert "5 of 17 FAILED: this site is open" in done.stdout


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """As `sealmq init --example factory` makes it: what nobody has reserved is for nobody."""
    made = Site(tmp_path_factory.mktemp("closed"), policy="purposes")
    made.up("--broker", "mosquitto")
    yield made
    made.down()


@pytest.mark.parametrize(
    ("mode", "strict"),
    [
        ("hybrid", "true"),
        ("fos", "true"),
        pytest.param("fop", "true", marks=pytest.mark.full),
        pytest.param("hybrid", "false", marks=pytest.mark.full),
    ],
)
def test_a_site_with_purposes_passes_in_each_mode_without_a_trace(
    closed: Site, mode: str, strict: str
) -> None:
    before = closed.toml.read_text()
    asked = before.replace('mode = "hybrid"', f'mode = "{mode}"')
    asked = asked.replace("strict = true", f"strict = {strict}")
    closed.toml.write_text(asked)
    try:
        tries = visit(closed, 0)
        assert set(tries) == AT_BROKER | AT_MEDIATOR | OF_PURPOSES
        assert all(row["ok"] is True and row["reason"] for row in tries.values())
        assert closed.toml.read_text() == asked
        shown = sealmq("purposes", "show", closed.path)
        assert shown.returncode == 0, shown.stderr
        assert "sealmq-doctor" not in shown.stdout
    finally:
        closed.toml.write_text(before)


def test_purposes_that_are_not_enforced_fail_on_their_lines(closed: Site) -> None:
    before = closed.toml.read_text()
    closed.toml.write_text(before.replace("[policy]\n", "[policy]\nenforce = false\n", 1))
    try:
        found = failed(visit(closed, 1))
    finally:
        closed.toml.write_text(before)
    # Who may reserve is no question that `enforce` switches off.
    assert found & OF_PURPOSES == OF_PURPOSES - {"reserve topics of others"}


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[int]:
    """Debian's, with these lines in its configuration; its port."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    assert program, "mosquitto is missing: make setup"
    port = free_port()
    config = folder / "mosquitto.conf"
    head = [f"listener {port} 127.0.0.1", *(["user root"] if os.geteuid() == 0 else [])]
    config.write_text("\n".join([*head, *lines]) + "\n")
    with subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.send_signal(signal.SIGTERM)


def test_an_open_broker_fails_on_its_lines_and_nowhere_else(site: Site, tmp_path: Path) -> None:
    with mosquitto(tmp_path, "allow_anonymous true") as port:
        site.up("--broker", f"mqtt://127.0.0.1:{port}")
        tries = visit(site, 1)
        assert failed(tries) == AT_BROKER
        assert f"127.0.0.1:{port}" in tries["broker: without credentials"]["reason"]
        site.down()


def test_clients_that_are_sent_past_the_mediator_are_noticed(site: Site, tmp_path: Path) -> None:
    with mosquitto(tmp_path, "allow_anonymous true") as port:
        site.edit("[mediator]\n", f'[mediator]\nadvertise = "127.0.0.1:{port}"\n')
        site.up()
        tries = visit(site, 1)
        assert failed(tries) == {"clients are sent to this mediator"}
        reason = tries["clients are sent to this mediator"]["reason"]
        assert f"what listens at 127.0.0.1:{port} is not this mediator" in reason


@pytest.mark.parametrize("policy", [pytest.param("labels", marks=pytest.mark.full), "purposes"])
def test_a_healthy_site_that_is_reached_by_another_address_passes(
    tmp_path: Path, policy: str
) -> None:
    """The address in enrolment files is a forwarder's, as behind a router or in a container."""
    site = Site(tmp_path, policy=policy)
    forwarder = EvilPath(site.port)
    try:
        site.edit("[mediator]\n", f'[mediator]\nadvertise = "127.0.0.1:{forwarder.port}"\n')
        site.up("--broker", "mosquitto")
        visit(site, 0)
        tries = visit(site, 0)
        assert all(row["ok"] is True for row in tries.values())
        came = "clients are sent to this mediator"
        assert tries[came]["reason"] == f"127.0.0.1:{forwarder.port}"
        assert forwarder.lines
        assert set(tries) >= (OF_PURPOSES if policy == "purposes" else set())
    finally:
        site.down()
        forwarder.close()


def test_an_address_that_cannot_be_reached_from_here_is_no_finding(site: Site) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    site.edit("[mediator]\n", f'[mediator]\nadvertise = "{nobody}"\n')
    site.up("--broker", "mosquitto")
    tries = visit(site, 3)
    came = tries.pop("clients are sent to this mediator")
    assert came["ok"] is None
    assert f"{nobody} takes no connection" in came["reason"]
    assert all(row["ok"] is True for row in tries.values())
    done = sealmq("doctor", site.path)
    assert done.returncode == 3
    assert "1 of 17 could not be tried" in done.stdout
    assert "FAILED" not in done.stdout
    assert "this site is open" not in done.stdout
