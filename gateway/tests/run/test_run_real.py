"""`sealmq up` with the real key generator, mediator and broker, from `sealmq init` on."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from free_ports import free_port
from run.sites import Site, Up, gone, sealmq, until

ROLES = ("kg", "broker", "mediator")


class RealSite(Site):
    """A site that `sealmq init` has made."""

    def up(self, *options: str, env: dict[str, str] | None = None) -> Up:
        words = ["-m", "sealmq.cli", "up", str(self.root), *options]
        made = Up.start(self, words, env or {})
        self.ups.append(made)
        return made


@pytest.fixture
def real(folder: Path) -> Iterator[RealSite]:
    port = free_port()
    root, key = folder / "factory", folder / "factory.key"
    words = ("--example", "factory", "--key-file", str(key), "--listen", f"127.0.0.1:{port}")
    done = sealmq("init", str(root), "--policy", "labels", *words)
    assert done.returncode == 0, done.stderr
    site = RealSite(root, key)
    yield site
    for up in site.ups:
        assert up.end() in (0, 1)


def pids(site: Site) -> list[int]:
    return [row["pid"] for row in site.status()["processes"]]


def test_the_real_site_comes_up_survives_kills_and_goes(real: RealSite) -> None:
    up = real.up().ready()
    status = real.status()
    assert status["code"] == 0
    for role in ROLES:
        os.kill(real.row(role)["pid"], signal.SIGKILL)
        until(lambda: f"{role} is ready again" in up.err.read_text(), f"{role}'s restart")  # noqa: B023
    until(lambda: real.status()["code"] == 0, "all three to be ready")
    left = pids(real)
    assert up.end() == 0
    assert all(gone(pid) for pid in left)
    assert real.left() == []
    assert "Traceback" not in up.err.read_text()


def mistaken(site: Site) -> str:
    """A mistake in sealmq.toml; its text before."""
    toml = site.root / "sealmq.toml"
    right = toml.read_text()
    toml.write_text(right.replace("[policy]\n", "[polocy]\n"))
    return right


def test_a_mistake_in_sealmq_toml_keeps_no_process_from_starting_again(real: RealSite) -> None:
    up = real.up().ready()
    right = mistaken(real)
    for role in ("kg", "mediator"):
        os.kill(real.row(role)["pid"], signal.SIGKILL)
        until(lambda: f"{role} is ready again" in up.err.read_text(), f"{role}'s restart")  # noqa: B023
    until(lambda: real.status()["code"] == 0, "all three to be ready")
    status = real.status()
    assert "polocy: unknown key; did you mean policy?; the site goes by" in status["note"]
    assert status["enforce"] is True
    assert "kg: sealmq.toml is not taken over" in up.err.read_text()
    done = sealmq("doctor", str(real.root))
    assert done.returncode != 0
    assert "the site goes by the policy that was taken over last" in done.stderr
    (real.root / "sealmq.toml").write_text(right)
    assert sealmq("reload", str(real.root)).returncode == 0
    assert real.status()["note"] is None
    assert "Traceback" not in up.err.read_text()


@pytest.mark.full
def test_a_start_that_nobody_watches_goes_by_the_policy_that_was_in_force(real: RealSite) -> None:
    assert real.up().ready().end() == 0
    right = mistaken(real)
    # Who starts it by hand hears of the mistake instead.
    up = real.up()
    assert up.process.wait(60) == 1
    assert "polocy" in up.err.read_text()
    up = real.up("--last-good").ready()
    assert "WARNING: " in up.err.read_text()
    assert "polocy: unknown key; did you mean policy?; the site goes by" in up.err.read_text()
    assert real.status()["code"] == 0
    (real.root / "sealmq.toml").write_text(right)
    assert sealmq("reload", str(real.root)).returncode == 0
    assert real.status()["note"] is None


def test_another_key_is_one_clear_line(real: RealSite) -> None:
    real.key.write_text("ab" * 32)
    up = real.up()
    assert up.process.wait(60) == 1
    error = up.err.read_text().splitlines()[-1]
    assert error.startswith("sealmq: kg ended with exit code 1 before it was ready; ")
    assert "key" in error
    assert real.left() == []


def test_a_taken_port_is_one_clear_line(real: RealSite) -> None:
    [listen] = [
        line for line in (real.root / "sealmq.toml").read_text().splitlines() if "listen =" in line
    ]
    port = int(listen.split('"')[1].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        up = real.up()
        assert up.process.wait(60) == 1
    error = next(s for s in up.err.read_text().splitlines() if s.startswith("sealmq: "))
    assert "mediator" in error
    assert str(port) in error
    assert real.left() == []


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this host has no IPv6")
def test_a_site_that_listens_on_ipv6_alone_is_examined_and_says_where_it_is(real: RealSite) -> None:
    config = real.root / "sealmq.toml"
    text = config.read_text()
    config.write_text(text.replace('listen = "127.0.0.1:', 'listen = "[::1]:'))
    assert config.read_text() != text
    up = real.up().ready()
    at = real.row("mediator")["address"]
    assert at.startswith("[::1]:")
    assert f"clients connect to  {at}\n" in up.out.read_text()
    done = sealmq("doctor", str(real.root))
    assert done.returncode == 0, done.stderr
    assert f"clients are sent to this mediator           holds   {at}\n" in done.stdout
