"""The address that enrolment files carry: taken from this host, told, and watched for changes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from running_site import SEALMQ, Site, sealmq

# No host has it: TEST-NET-3.
GONE = "203.0.113.7"
_NETWORK = "ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v0 up"


def in_network(script: str) -> subprocess.CompletedProcess[str]:
    """A shell script in an empty network of its own; skips where this host allows none."""
    probe = ["unshare", "--net", "--map-root-user", "sh", "-c", _NETWORK]
    if os.geteuid() == 0:
        probe.remove("--map-root-user")
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no unshare: {error}")
    if done.returncode:
        pytest.skip(f"no network of its own: {done.stderr.strip()}")
    probe[-1] = f"{_NETWORK} && ip link set v1 up && {script}"
    return subprocess.run(probe, capture_output=True, text=True, check=False)


def test_a_site_on_all_addresses_is_given_the_one_of_the_default_route(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = shlex.join(
        [str(SEALMQ), "init", str(site), "--key-file", str(tmp_path / "key"), "--listen",
         "0.0.0.0:1883"]
    )  # fmt: skip
    done = in_network(
        "ip addr add 10.7.0.1/24 dev v0 && ip addr add 10.8.0.1/24 dev v1 && "
        f"ip route add default via 10.8.0.2 && {words}"
    )
    assert done.returncode == 0, done.stderr
    assert "connect to 10.8.0.1:1883" in done.stdout
    assert "(the default route's, not 10.7.0.1)" in done.stderr
    assert 'advertise = "10.8.0.1:1883"' in (site / "sealmq.toml").read_text()


def test_an_address_that_this_host_no_longer_has_is_told(site: Site, tmp_path: Path) -> None:
    """By `up`, `status` and `doctor`, with what to do; a new one counts from `reload` on."""
    listens = f'listen = "127.0.0.1:{site.port}"\n'
    site.edit(listens, f'{listens}advertise = "{GONE}:{site.port}"\n')
    site.up()
    wrong = f"this host does not have the address {GONE}"
    assert f"clients connect to  {GONE}:{site.port} (it listens on 127.0.0.1" in site.log()
    assert f"warning: enrolment files name {GONE}:{site.port}, and {wrong}" in site.log()
    status = site.status()
    assert status["clients"] == f"{GONE}:{site.port}"
    assert wrong in status["astray"]
    assert "set advertise" in status["astray"]
    shown = sealmq("status", site.path)
    assert wrong in shown.stdout.replace("\n", " ")
    assert shown.returncode == 0
    doctor = json.loads(sealmq("doctor", site.path, "--json").stdout)
    sent = next(t for t in doctor["tries"] if t["name"] == "clients are sent to this mediator")
    assert sent["ok"] is None
    assert wrong in sent["reason"]

    site.edit(f'advertise = "{GONE}:{site.port}"', f'advertise = "127.0.0.1:{site.port}"')
    done = sealmq("reload", site.path)
    assert done.returncode == 0, done.stderr
    assert "next start" not in done.stdout
    told = json.loads(site.enrol("m1-temp-sensor", "m1-temp").read_text())["mediator"]
    assert (told["host"], told["port"]) == ("127.0.0.1", site.port)
    assert site.status()["astray"] is None


def test_a_bare_host_name_is_told_to_be_nothing_that_boards_resolve(site: Site) -> None:
    listens = f'listen = "127.0.0.1:{site.port}"\n'
    site.edit(listens, f'{listens}advertise = "gateway:{site.port}"\n')
    said = json.loads(sealmq("status", site.path, "--json").stdout)["astray"]
    assert "boards cannot resolve the bare host name gateway" in said
