"""/metrics and /healthz of a site of real processes: what went wrong is said within ten seconds."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port
from run.sites import gone, until
from run.test_run_real import RealSite, real
from sealmq.metrics import exposition, health, process
from sealmq.metrics.health import Watch
from sealmq.run import proc
from sealmq.site.layout import Layout
from sealmq.site.model import Metrics

__all__ = ["real"]
WITHIN_S = 10.0


@pytest.fixture
def watched(real: RealSite) -> tuple[RealSite, str]:
    port = free_port()
    config = real.root / "sealmq.toml"
    config.write_text(config.read_text() + f'\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
    return real, f"http://127.0.0.1:{port}"


def get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def problems(url: str) -> list[str]:
    code, body = get(f"{url}/healthz")
    told: dict[str, Any] = json.loads(body)
    assert (code == 200) == told["healthy"] == (told["problems"] == [])
    return list(told["problems"])


def test_a_site_that_is_well_and_what_is_said_once_its_supervisor_is_killed(
    watched: tuple[RealSite, str],
) -> None:
    site, url = watched
    up = site.up().ready()
    assert f"{url}/metrics and /healthz" in up.out.read_text()
    until(lambda: problems(url) == [], "a site that is well")
    code, body = get(f"{url}/metrics")
    assert code == 200
    assert re.search(r'^sealmq_ready\{role="mediator"\} 1\.0$', body, re.M)
    until(lambda: 'event="start"' in get(f"{url}/metrics")[1], "the mediator's first totals")
    names = re.findall(r'^name = "(.*)"', (site.root / "sealmq.toml").read_text(), re.M)
    assert not any(name in body for name in ("machine/1", "m1-temp-sensor", *names))

    # By a page in a browser whose name was made to lead here.
    assert get(f"{url}/metrics", Host="evil.example:80")[0] == 403
    assert get(f"{url}/metrics", Host="localhost:80")[0] == 200
    assert get(f"{url}/nothing")[0] == 404

    metrics = site.row("metrics")
    os.kill(metrics["pid"], signal.SIGKILL)
    until(lambda: "metrics is ready again" in up.err.read_text(), "its restart")
    left = [row["pid"] for row in site.status()["processes"]]
    pid = site.row("metrics")["pid"]
    up.process.kill()
    up.process.wait()
    site.ups.remove(up)
    until(lambda: any("has ended" in text for text in problems(url)), "word of the supervisor")
    until(lambda: all(gone(one) for one in left if one != pid), "the end of the others")
    up = site.up().ready()
    until(lambda: gone(pid), "the old one's end")
    until(lambda: problems(url) == [], "a site that is well again")
    assert up.end() == 0
    assert site.left() == []


class Moved:
    def __init__(self) -> None:
        self.by = 0.0

    def __call__(self) -> float:
        return time.time() + self.by


def test_a_full_disk_and_a_wrong_clock_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.of(tmp_path)
    layout.config.write_text("[site]\n")
    monkeypatch.setattr(health, "look", lambda *_: None)
    clock = Moved()
    watch = Watch(layout, (os.getpid(), proc.start_of(os.getpid())), clock)
    assert watch.look().problems == ()
    monkeypatch.setattr(health, "room", lambda _: 1000)
    assert watch.look().problems == ("the disk is full",)
    monkeypatch.undo()
    monkeypatch.setattr(health, "look", lambda *_: None)

    # Set while it runs: said for some time.
    clock.by = 3600
    for _ in range(2):
        [said] = watch.look().problems
        assert said == "the clock was set by +3600 s while the site ran: clients connected anew"
    monkeypatch.setattr(health, "SAID_S", -1.0)
    assert watch.look().problems == ()
    monkeypatch.setattr(health, "SAID_S", 600.0)

    # Wrong from the start, and then right: a board without a clock.
    clock.by = -86400
    watch = Watch(layout, (os.getpid(), proc.start_of(os.getpid())), clock)
    [said] = watch.look().problems
    assert said.startswith("the clock is wrong: it is 86")
    assert "before sealmq.toml was written" in said
    clock.by = 0
    assert watch.look().problems == ()
    # Set to what is wrong: both are said.
    clock.by = -86400
    assert [text.split(":")[0] for text in watch.look().problems] == [
        "the clock is wrong",
        "the clock was set by -86400 s while the site ran",
    ]


def test_a_folder_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.of(tmp_path / "gone")
    monkeypatch.setattr(health, "look", lambda *_: None)
    watch = Watch(layout, (os.getpid(), proc.start_of(os.getpid())), time.time)
    assert watch.look().problems == ("the site's folder cannot be read: No such file or directory",)


def test_those_that_say_nothing_neither_keep_others_out_nor_the_process_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PATIENCE_S", 0.5)
    layout = Layout.of(tmp_path)
    layout.config.write_text("[site]\n")
    monkeypatch.setattr(health, "look", lambda *_: None)
    watch = Watch(layout, (os.getpid(), proc.start_of(os.getpid())), time.time)
    stop = threading.Event()
    server = process.Server(Metrics("127.0.0.1", 0), watch, stop)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    address = ("127.0.0.1", server.server_address[1])
    slow: list[socket.socket] = []
    dripping = threading.Event()

    def drip() -> None:
        while not dripping.wait(0.05):
            for one in slow:
                with contextlib.suppress(OSError):
                    one.send(b"G")  # each read is in time

    thread = threading.Thread(target=drip)
    try:
        slow += [socket.create_connection(address) for _ in range(8)]
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/healthz"
        assert get(url)[0] == 200
        monkeypatch.setattr(process, "_PATIENCE_S", 600.0)
        slow += [socket.create_connection(address) for _ in range(9)]
    finally:
        stop.set()
        ending = threading.Thread(target=server.shutdown, daemon=True)
        ending.start()
        ending.join(20)
        dripping.set()
        thread.join()
        for one in slow:
            one.close()
    assert not ending.is_alive()
    serving.join()
    server.server_close()


def age_s() -> float:
    """Of this process, by ps(1), who is not us."""
    command = ["ps", "-o", "etimes=", "-p", str(os.getpid())]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def test_what_a_process_says_of_itself_is_believed_while_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.of(tmp_path)
    layout.config.write_text("[site]\n")
    monkeypatch.setattr(health, "look", lambda *_: None)
    file = layout.totals("mediator")
    file.parent.mkdir(parents=True)
    watch = Watch(layout, (os.getpid(), proc.start_of(os.getpid())), time.time)
    told: dict[str, Any] = {
        "pid": os.getpid(),
        "start": proc.start_of(os.getpid()),
        "alive_ms": time.monotonic_ns() // 1_000_000,
        "events": [["connect", "", 3]],
        "clients": 1,
        "connections": 2,
        "gauges": {"log_ahead_seconds": 0.0},
        "error": None,
    }
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, ""),
        ({"error": "No space left on device"}, "mediator cannot write its audit log: No space"),
        ({"alive_ms": told["alive_ms"] - 20_000}, "mediator 0 has said nothing for 8 s"),
        ({"gauges": {"log_ahead_seconds": 7200}}, "it is 7200 s before the newest audit record"),
    ]
    for change, said in bad:
        file.write_text(json.dumps(told | change))
        found = watch.look()
        assert len(found.told) == 1
        # The usual name, by which a restart is told from a loss.
        line = rb'^process_start_time_seconds\{.*role="mediator".*\} (.*)$'
        [began] = re.findall(line, exposition.text(found), re.M)
        ours = time.time() - age_s()
        assert abs(float(began) - ours) < 60
        # Its changes say that the process was started anew.
        assert re.findall(line, exposition.text(watch.look()), re.M) == [began]
        assert [said in text for text in found.problems] == ([True] if said else [])
    # By a process that was taken over: nobody's scrape fails for it.
    file.write_text(json.dumps(told | {"events": [["\ud800", "a\n\x1b", 1]]}))
    assert b'event="\\\\ud800",process="0"' in exposition.text(watch.look())
    more: list[dict[str, Any]] = [{"alive_ms": 10**400}, {"events": [["a", "", 10**400]]}]
    large = [json.dumps(told | one) for one in more]
    for text in ("", "[]", "{}", json.dumps(told | {"events": [["a"]]}), "[" * 100_000, *large):
        file.write_text(text)
        assert watch.look().told == ()
    # Nor one that has ended, though another process may have its number since.
    for other in ({"pid": 1 << 22}, {"start": told["start"] - 1}, {"start": None}):
        file.write_text(json.dumps(told | other))
        assert watch.look().told == ()


def test_a_start_time_moves_with_the_clock_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.of(tmp_path)
    layout.config.write_text("[site]\n")
    monkeypatch.setattr(health, "look", lambda *_: None)
    ahead = 0.0
    watch = Watch(layout, (os.getpid(), None), lambda: time.time() + ahead)
    before = watch.look().boot_s
    ahead = 0.5
    assert watch.look().boot_s == before
    ahead = 3600.0
    assert 3599 < watch.look().boot_s - before < 3601


def test_on_a_full_disk_it_serves_and_says_so_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, seen = Layout.of(tmp_path), list[bool]()
    layout.config.write_text("[site]\n")
    path = layout.ready("metrics")
    path.mkdir(parents=True)  # nothing can be put there

    def succeeded(self: Watch) -> bool:
        seen.append(path.is_file())
        if len(seen) == 2:
            path.rmdir()
        return seen[-1]

    monkeypatch.setattr(Watch, "succeeded", succeeded)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(process, "_POLL_S", 0.0)
    process.serve(layout, Metrics("127.0.0.1", free_port()), os.getpid())
    assert seen == [False, False, True]
