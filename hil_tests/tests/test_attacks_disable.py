"""Claim 32: a lost board is put out whatever state sealmq.toml and the mediator are in, and the
command that does it says 0 only when it counts.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attack_scene import TOPIC, Scene, scene
from running_site import Site, sealmq, until
from wire import RawClient

LOST = "m1-temp-sensor"
NOT_KNOWN = 27
TYPOS = {"syntax": ("[labels]\n", "[labels\n"), "label": ('label = "m2-temp"', 'label = "m2-tmp"')}


@pytest.fixture
def running(site: Site) -> Iterator[Scene]:
    """A site that is up, with honest clients."""
    site.up()
    with scene(site) as made:
        yield made


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that lives and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def connected(made: Scene, name: str = LOST) -> RawClient:
    raw = made.client(name)
    assert raw.connect(keepalive=0)[1] == 0
    return raw


def disable(site: Site, *more: object) -> tuple[int, dict[str, object], str]:
    """Exit code, what it says as JSON, and stderr."""
    done = sealmq("client", "disable", site.path, LOST, "--json", *more)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def is_out(raw: RawClient) -> bool:
    """Its connection has ended, and no new one is let in with the keys that it holds."""
    assert raw.wire.closed()
    raw.begin()
    return raw.connect(keepalive=0)[1] == 5


def test_a_mediator_that_was_stopped_is_not_said_to_have_put_the_client_out(
    running: Scene,
) -> None:
    site, raw = running.site, connected(running)
    pid = site.pid("mediator")
    with stopped(pid):
        code, told, error = disable(site, "-W", 1)
        assert code == NOT_KNOWN, error
        assert told["known"] is False
        assert [row["pid"] for row in told["unconfirmed"]] == [pid]  # type: ignore[attr-defined]
        assert f"mediator 1 (process {pid}) has not confirmed it" in error
        assert "hint: ask again: sealmq client disable" in error
    code, told, error = disable(site)
    assert (code, told["known"]) == (0, True), error
    assert is_out(raw)


def test_nor_one_that_the_key_generator_knows_nothing_of_any_more(running: Scene) -> None:
    """Stopped for so long that its connection is gone: it lives, and would serve when woken."""
    site, raw = running.site, connected(running)
    pid, kg = site.pid("mediator"), site.pid("kg")
    with stopped(pid):
        site.kill("kg")
        until("another key generator", lambda: site.pid_or_none("kg") not in (None, kg))
        code, told, error = disable(site, "-W", 1)
        assert code == NOT_KNOWN, error
        assert told["unconfirmed"] == [{"mediator": 0, "pid": pid}]
    code, _, error = disable(site)
    assert code == 0, error
    assert is_out(raw)


def test_a_site_that_is_down_delivers_nothing(running: Scene) -> None:
    site, raw = running.site, connected(running)
    assert site.down() == 0
    code, told, error = disable(site)
    assert (code, told["known"]) == (0, True), error
    site.up()
    assert is_out(raw)


@pytest.mark.parametrize("verb", [pytest.param("disable", marks=pytest.mark.full), "rotate"])
def test_a_mediator_that_starts_from_an_old_copy_of_the_keys_lets_nobody_back_in(
    verb: str, running: Scene, tmp_path: Path
) -> None:
    """The key generator hangs, and the mediator's copy is older than the command."""
    site, raw = running.site, connected(running)
    kept = connected(running, "m2-control-panel")
    pid, kg = site.pid("mediator"), site.pid("kg")
    with stopped(pid):
        more = ("-o", tmp_path / "new.json") if verb == "rotate" else ()
        done = sealmq("client", verb, site.path, LOST, "-W", 0, *more)
        assert done.returncode == NOT_KNOWN, done.stderr
        with stopped(kg):
            site.kill("mediator")
            until("the mediator", lambda: site.pid_or_none("mediator") not in (None, pid))
            assert is_out(raw)
            kept.begin()
            assert kept.connect(keepalive=0)[1] == 0, "others are served from the copy"


@pytest.mark.parametrize("typo", list(TYPOS))
def test_one_typo_in_the_policy_keeps_no_lost_board_in(typo: str, running: Scene) -> None:
    """Nor does it come back when the file is put right, which does not name it."""
    site, raw = running.site, connected(running)
    right = site.toml.read_text()
    site.toml.write_text(right.replace(*TYPOS[typo], 1))
    assert site.toml.read_text() != right
    code, told, error = disable(site)
    assert (code, told["known"]) == (0, True), error
    assert "this goes by the policy in force" in error
    assert is_out(raw)
    site.toml.write_text(right)
    running.reload()
    until("the note", lambda: f"{LOST} stays disabled" in site.log())
    raw.begin()
    assert raw.connect(keepalive=0)[1] == 5
    # Only this lets it in.
    assert sealmq("client", "enable", site.path, LOST).returncode == 0
    raw.ident.gen, raw.ident.own = 0, None
    raw.begin()
    assert raw.connect(keepalive=0)[1] == 0


def test_what_waits_for_a_client_that_does_not_read_is_not_delivered_once_it_is_out(
    running: Scene,
) -> None:
    """Neither what the mediator holds nor what the system has taken from it."""
    site = running.site
    reader = connected(running, "monitor")
    reader.subscribe("#")
    reader.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    sender = connected(running)
    for n in range(120):
        sender.publish(TOPIC, b"%4d" % n + bytes(60_000))
    done = sealmq("client", "disable", site.path, "monitor", "--json")
    assert done.returncode == 0, done.stderr
    got = 0
    while got < 10 and (packet := reader.wire.read()) is not None:
        got += packet[0] & 0xF0 == 0x30
    assert got < 5, "no more than what its own system had taken"
