"""`sealmq up --detach` and `--wait`, `down`, `reload` and `log`: what an operator does all day."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from running_site import SEALMQ, Site, sealmq, until

TOPIC = "machine/1/temperature"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    sealmq("down", made.path)
    made.down()


def supervisor(site: Site) -> int:
    told = json.loads((site.path / "run" / "up.json").read_text())
    return int(told["pid"])


def processes(site: Site) -> list[int]:
    """All that work for the site, by their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if str(site.path) in words and any(w.startswith("sealmq.") for w in words):
                found.append(int(entry.name))
    return found


def started(*words: object) -> subprocess.CompletedProcess[str]:
    """`sealmq …` from nothing, so that `processes` finds what it starts."""
    command = [str(SEALMQ), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_detached_site_serves_when_the_command_comes_back_and_is_gone_after_down(
    site: Site,
) -> None:
    done = started("up", site.path, "--detach")
    assert done.returncode == 0, done.stderr
    assert f"`sealmq down {site.path}` stops it." in done.stdout
    assert done.stdout.endswith(f"next: sealmq doctor {site.path}\n")
    assert sealmq("status", site.path).returncode == 0
    words = ("--client", "m1-temp-sensor", "-t", TOPIC, "-m", 1, "-q", 1)
    assert sealmq("pub", site.path, *words).returncode == 0
    log = site.path / "log" / "up.log"
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "site site is up" in log.read_text()

    assert len(processes(site)) == 3
    done = sealmq("down", site.path)
    assert (done.returncode, done.stdout) == (0, f"{site.path} is down\n")
    assert processes(site) == []
    assert sealmq("status", site.path).returncode == 1
    done = sealmq("down", site.path)
    assert (done.returncode, done.stdout) == (0, f"{site.path} was not up\n")


@pytest.mark.full
def test_a_detached_site_serves_also_when_nobody_reads_what_the_command_says(site: Site) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [str(SEALMQ), "up", str(site.path), "--detach"]
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, timeout=60)
    assert b"sealmq: " not in done.stderr
    assert sealmq("status", site.path).returncode == 0


@pytest.mark.parametrize("how", ["--detach", pytest.param("--wait", marks=pytest.mark.full)])
def test_a_port_in_use_ends_it_with_who_has_the_port(site: Site, how: str) -> None:
    with socket.create_server(("127.0.0.1", site.port)):
        done = started("up", site.path, how)
    assert done.returncode == 1
    [error] = [line for line in done.stderr.splitlines() if line.startswith("sealmq: ")]
    assert f"cannot listen on 127.0.0.1:{site.port}: Address already in use" in error
    [hint] = [line for line in done.stderr.splitlines() if line.startswith("hint: ")]
    assert f"(process {os.getpid()}) listens on port {site.port}" in hint
    assert "[mediator] listen" in hint
    assert processes(site) == []
    assert hint in (site.path / "log" / "up.log").read_text()


def test_a_mistake_in_the_policy_is_told_as_in_the_foreground(site: Site) -> None:
    site.edit("[policy]\n", "[polocy]\n")
    front, back = sealmq("up", site.path), sealmq("up", site.path, "--detach")
    assert front.returncode == back.returncode == 1
    assert front.stderr == back.stderr
    assert "polocy" in back.stderr


def test_a_second_detach_is_refused_and_wait_is_content(site: Site) -> None:
    assert sealmq("up", site.path, "--detach").returncode == 0
    first = supervisor(site)
    done = sealmq("up", site.path, "--detach")
    assert done.returncode == 1
    assert f"is up already: `sealmq up` runs as process {first}" in done.stderr
    assert f"`sealmq down {site.path}` stops it" in done.stderr
    done = sealmq("up", site.path, "--wait", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads(sealmq("status", site.path, "--json").stdout)
    assert supervisor(site) == first
    done = sealmq("down", site.path, "--json")
    assert json.loads(done.stdout) == {"site": str(site.path), "stopped": True}
    done = started("up", site.path, "--detach", "--json")
    assert [row["ready"] for row in json.loads(done.stdout)["processes"]] == [True] * 3


@pytest.mark.full
def test_of_two_that_wait_at_once_one_starts_it_and_both_come_back(site: Site) -> None:
    command = [str(SEALMQ), "up", str(site.path), "--wait"]
    both = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for one in both:
        said = one.communicate(timeout=60)[1]
        assert one.returncode == 0, said
    assert len(processes(site)) == 3


def test_down_ends_a_site_in_the_foreground_and_what_a_killed_one_has_left(site: Site) -> None:
    site.up(forked=False)
    assert sealmq("down", site.path).returncode == 0
    assert processes(site) == []
    assert site.down() == 0
    assert started("up", site.path, "--detach").returncode == 0
    os.kill(supervisor(site), signal.SIGKILL)
    assert sealmq("down", site.path).returncode == 0
    assert processes(site) == []


def test_reload_says_what_has_changed_and_a_mistake_changes_nothing(site: Site) -> None:
    done = sealmq("reload", site.path)
    assert done.returncode == 1
    assert "is not up" in done.stderr
    assert sealmq("up", site.path, "--detach").returncode == 0
    assert sealmq("reload", site.path).stdout.startswith("nothing has changed")

    before = site.toml.read_text()
    limits = "[limits]\nqueue_kib = 512\ntopics = 7\n\n"
    site.edit("[labels]\n", f"{limits}[labels]\nannex = []\n")
    site.edit('on_denied = "notice"', 'on_denied = "disconnect"')
    site.edit("number = 1", "number = 2")
    done = sealmq("reload", site.path)
    assert done.returncode == 0, done.stderr
    assert 'mediator.on_denied: "notice" -> "disconnect"\n' in done.stdout
    assert "mediator.number: 1 -> 2 (from the next start on)\n" in done.stdout
    assert "limits.queue_kib: 8192 -> 512 (from the next start on)\n" in done.stdout
    assert "limits.topics: 1000 -> 7\n" in done.stdout
    assert "labels.annex: new, " in done.stdout
    # It counts at once: a client of the new label can be made, and is let in.
    site.enrol("newcomer", "annex")

    right = site.toml.read_text()
    site.toml.write_text(right.replace("[policy]\n", "[policy]\nenforced = true\n"))
    done = sealmq("reload", site.path)
    assert done.returncode == 1
    line = site.toml.read_text().splitlines().index("enforced = true") + 1
    assert f"sealmq.toml, line {line}: " in done.stderr
    assert "what was in force stays" in done.stderr
    assert "hint: " in done.stderr
    assert site.audit("config-refused") == []

    site.toml.write_text(before)
    told = json.loads(sealmq("reload", site.path, "--json").stdout)
    keys = {row["key"]: row for row in told["differences"]}
    assert keys["labels.annex"]["now"] is None
    assert keys["clients.newcomer"]["now"] is None
    assert keys["mediator.number"]["at_next_start"] is True
    assert [row["client"] for row in told["left"]] == ["newcomer"]


def test_sighup_does_the_same_and_says_it_in_the_log(site: Site) -> None:
    assert sealmq("up", site.path, "--detach").returncode == 0
    site.edit("[labels]\n", "[labels]\nannex = []\n")
    os.kill(supervisor(site), signal.SIGHUP)
    until("the log to say so", lambda: "labels.annex: new" in sealmq("log", site.path).stdout)


def test_the_log_has_refusals_with_their_reasons_and_follows(site: Site) -> None:
    assert sealmq("up", site.path, "--detach").returncode == 0
    for client in ("m1-temp-sensor", "m2-temp-sensor"):
        sealmq("pub", site.path, "--client", client, "-t", TOPIC, "-m", 1, "-q", 1)

    def refusal() -> str | None:
        lines = sealmq("log", site.path).stdout.splitlines()
        return next((line for line in lines if "publish-refused" in line), None)

    line = until("the refusal", refusal)
    assert "mediator publish-refused client=m2-temp-sensor" in line
    assert f"topic={TOPIC} " in line
    assert " labels.publish.other-label: the topic has m1-temp" in line
    lines = sealmq("log", site.path, "-n", "all").stdout.splitlines()
    assert lines == sorted(lines, key=lambda text: text.split()[0])
    assert any(" up       site site is up" in text for text in lines)
    assert len(sealmq("log", site.path, "-n", 3).stdout.splitlines()) == 3
    rows = [json.loads(text) for text in sealmq("log", site.path, "--json").stdout.splitlines()]
    assert "labels.publish.other-label" in {row.get("rule") for row in rows}

    command = [str(SEALMQ), "log", str(site.path), "-f", "-n", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            follower.stdout.readline()  # from here on it follows
            os.kill(site.pid("mediator"), signal.SIGKILL)  # restarted: a new segment of the audit
            found: set[str] = set()
            for text in follower.stdout:
                found |= {word for word in ("starting it again", "mediator start") if word in text}
                if len(found) == 2:
                    break
        finally:
            follower.send_signal(signal.SIGINT)
    assert follower.returncode == 130


def test_what_others_put_into_the_log_cannot_steer_a_terminal(site: Site) -> None:
    site.up()
    words = ("--client", "m1-temp-sensor", "-t", "$x/\x1b]0;owned\x07\n", "-m", 1, "-q", 1)
    sealmq("pub", site.path, *words)
    site.path.joinpath("log").mkdir(mode=0o700)
    forged = "2026-01-01T00:00:00.000Z mediator: \x1b[2Jgone\n"
    site.path.joinpath("log", "up.log").write_text(forged)
    done = sealmq("log", site.path)
    assert done.returncode == 0
    assert "\\x1b[2Jgone" in done.stdout
    assert all(c == "\n" or c.isprintable() for c in done.stdout)
    assert "what `sealmq up` itself writes goes to where it was started" in done.stderr
