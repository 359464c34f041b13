"""What a site promises on each kind of broker, and that it keeps it: through the command line."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from free_ports import free_port
from running_site import Site, program, sealmq, until

TOPIC = "machine/1/temperature"
PUB = ("--client", "m1-temp-sensor", "-t", TOPIC)


@pytest.fixture(scope="module")
def on_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The factory on a private Mosquitto."""
    made = Site(tmp_path_factory.mktemp("factory"))
    made.up("--broker", "mosquitto")
    yield made
    made.down()


def waits(site: Site, name: str) -> subprocess.CompletedProcess[str]:
    """What the persistent session gets, up to one message."""
    who = ("--client", "monitor", "-i", name)
    return sealmq("sub", site.path, *who, "-c", "-q", 1, "-t", TOPIC, "-C", 1, "-W", 30)


def begin(site: Site, name: str) -> None:
    """A session at QoS 1, whose client goes away at once."""
    who = ["--client", "monitor", "-i", name, "-c", "-q", "1", "-t", TOPIC, "-d"]
    process = subprocess.Popen(
        [program(), "sub", str(site.path), *who], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "subscribed" in process.stderr.readline()
    process.terminate()
    assert process.wait(30) == 0
    process.stderr.close()


def test_the_embedded_broker_promises_no_sessions(shared_site: Site) -> None:
    """Refused with a reason, not lost without a word."""
    done = waits(shared_site, "night-shift")
    assert done.returncode == 5
    *_, error, hint = done.stderr.splitlines()
    assert "CONNACK 5" in error
    assert "its embedded broker keeps no sessions" in hint
    assert "mosquitto" in hint
    [row] = shared_site.audit("connect-refused", rule="broker.promise.persistent-session")[:1]
    assert row["client_id"] == "night-shift"
    assert sealmq("sub", shared_site.path, *PUB[:2], "-c", "-t", TOPIC).returncode == 1


def test_a_shared_subscription_says_why_it_is_refused(shared_site: Site) -> None:
    who = ("--client", "monitor", "-t", f"$share/g/{TOPIC}", "-W", 30)
    done = sealmq("sub", shared_site.path, *who)
    assert done.returncode == 12
    assert "broker.promise.shared-subscription" in done.stderr


def test_on_mosquitto_sessions_and_what_is_retained_outlive_a_restart(on_mosquitto: Site) -> None:
    site = on_mosquitto
    begin(site, "night-shift")
    assert sealmq("pub", site.path, *PUB, "-m", "waited", "-q", 1, "--life", 255).returncode == 0
    kept = ("-t", "machine/1/kept")
    words = ("-m", "kept", "-q", 1, "-r", "--life", 255)
    who = ("--client", "m1-control-panel", *kept)
    assert sealmq("pub", site.path, *who, *words).returncode == 0
    pid = site.pid("broker")
    site.down()
    site.up("--broker", "mosquitto")
    assert site.pid("broker") != pid
    done = waits(site, "night-shift")
    assert (done.returncode, done.stdout) == (0, "waited\n"), done.stderr
    done = sealmq("sub", site.path, "--client", "monitor", *kept, "-C", 1, "-W", 30)
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr


def test_on_mosquitto_a_group_shares(on_mosquitto: Site, tmp_path: Path) -> None:
    """Each message to one member, none to two, none to nobody."""
    site = on_mosquitto
    members = []
    for name in ("one", "two"):
        who = ["--client", "monitor", "-t", f"$share/g/{TOPIC}", "-q", "1", "-d", "-i", name]
        out = (tmp_path / name).open("w")
        err = (tmp_path / f"{name}.err").open("w")
        command = [program(), "sub", str(site.path), *who]
        members.append(subprocess.Popen(command, stdout=out, stderr=err, text=True))
    try:
        for name in ("one", "two"):
            said = tmp_path / f"{name}.err"
            until("the member to subscribe", lambda: "subscribed" in said.read_text())  # noqa: B023
        for at in range(6):
            assert sealmq("pub", site.path, *PUB, "-m", at, "-q", 1).returncode == 0

        def got() -> list[str]:
            return sorted(x for n in ("one", "two") for x in (tmp_path / n).read_text().split())

        until("all of it", lambda: len(got()) >= 6)
        assert got() == list("012345")
    finally:
        for member in members:
            member.terminate()
            member.wait(30)


def test_what_an_external_broker_does_not_do_is_refused(site: Site, tmp_path: Path) -> None:
    """Found out by asking it: this one would hang up on the first who tries."""
    mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    assert mosquitto, "mosquitto is missing: make setup"
    port = free_port()
    lines = (f"listener {port} 127.0.0.1", "allow_anonymous true", "retain_available false")
    config = tmp_path / "mosquitto.conf"
    config.write_text("\n".join([*lines, "max_qos 1"]) + "\n")
    with subprocess.Popen([mosquitto, "-c", str(config)], stderr=subprocess.DEVNULL) as broker:
        try:
            site.up("--broker", f"mqtt://127.0.0.1:{port}")
            assert "has no retained messages, no QoS above 1; clients that ask" in site.log()
            pub = ("pub", site.path, *PUB, "-m", "21.5")
            assert sealmq(*pub, "-q", 1).returncode == 0
            for more, rule in ((("-r",), "retained"), (("-q", 2), "qos")):
                done = sealmq(*pub, *more)
                assert done.returncode == 12
                assert f"refused by rule broker.promise.{rule}" in done.stderr
            done = sealmq("sub", site.path, "--client", "monitor", "-t", "@sm1/#", "-W", 30)
            assert done.returncode == 12
            assert "broker.promise.retained" in done.stderr
        finally:
            site.down()
            broker.terminate()
