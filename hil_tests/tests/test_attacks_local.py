"""Attacks of local users, and of the user of one role, on revocation and on `sealmq status`: places
at the key generator, locks, and what stands where root or the operator reads.

The tests run as the site's owner, who may do all of that; whoever may less is refused sooner.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from attack_scene import Scene, scene
from running_site import PATIENCE_S, Site, sealmq, until

ESCAPES = "\x1b]0;taken over\x07\x1b[2J\n sealmq: all is well \u202e"


@pytest.fixture(scope="module")
def stage(shared_site: Site) -> Iterator[Scene]:
    with scene(shared_site) as made:
        yield made


def revoked(stage: Scene, name: str) -> None:
    """`client disable` ends a client that is connected."""
    raw = stage.client(name)
    raw.connect()
    done = sealmq("client", "disable", stage.site.path, name)
    assert done.returncode == 0, done.stderr
    assert raw.wire.closed()


def ready_file(site: Site, role: str) -> Path:
    """What a role says of itself."""
    return site.path / "run" / role / "ready.json"


def status(site: Site) -> dict[str, str]:
    """The note of each role; the command has to end, and to print nothing but text."""
    done = sealmq("status", site.path, "--json", timeout=30)
    shown = sealmq("status", site.path, timeout=30)
    assert "Traceback" not in done.stderr + shown.stderr
    for text in (shown.stdout, shown.stderr, done.stdout):
        assert all(c.isprintable() or c == "\n" for c in text), text
    rows = json.loads(done.stdout)["processes"]
    return {row["role"]: row["note"] or "" for row in rows}


def test_silent_connections_to_the_key_generator_block_no_revocation(stage: Scene) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.connect(str(stage.site.path / "run" / "kg" / "kg.sock"))
        revoked(stage, "m2-control-panel")
        status(stage.site)


def test_a_lock_on_the_site_s_folder_blocks_no_revocation(stage: Scene) -> None:
    with ExitStack() as stack:
        for path in (stage.site.path, stage.site.path / "run"):
            fd = os.open(path, os.O_RDONLY)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        revoked(stage, "m1-arm-operator")


@pytest.mark.parametrize("role", ["kg", "mediator", "broker"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "large", "nested"])
def test_what_stands_in_a_readiness_file_s_place_hangs_nobody(
    stage: Scene, role: str, kind: str
) -> None:
    path = ready_file(stage.site, role)
    # A role that has something new to say meanwhile puts its own file in the place: then once more.
    for _ in range(20):
        planted, said = _status_with(stage, role, kind, path)
        if planted:
            assert "not ready" in said
            return
    raise AssertionError(f"{role} replaced the file each time")


def _status_with(stage: Scene, role: str, kind: str, path: Path) -> tuple[bool, str]:
    """Whether that stood in the file's place until the end, and what status says of the role."""
    aside = path.with_name("aside")
    path.rename(aside)
    try:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/dev/zero")
        elif kind == "folder":
            path.mkdir()
        elif kind == "large":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        else:
            path.write_text("[" * 60_000)
        planted = path.lstat().st_ino
        said = status(stage.site)[role]
        return path.lstat().st_ino == planted, said
    finally:
        if kind == "folder":
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        aside.rename(path)


def test_what_a_mediator_says_of_itself_reaches_the_screen_as_text(stage: Scene) -> None:
    path = ready_file(stage.site, "mediator")
    told = json.loads(path.read_text())
    lies = [
        {"journal": {"failing": ESCAPES}},
        {"journal": {"bytes": "many"}, "handover": {"labels": {ESCAPES: 1}, "held": ESCAPES}},
        {"journal": {"failing": "x" * 60_000}},
        {"address": ESCAPES},
        {"address": "no-such-host.invalid:1883"},
        {"address": "127.0.0.1:99999999999999999999"},
        {"version": ESCAPES, "kind": ESCAPES, "journal": 7, "handover": 7},
    ]
    try:
        for lie in lies:
            path.unlink()
            path.write_text(json.dumps(told | lie))
            assert len(status(stage.site)["mediator"]) < 1000
    finally:
        path.unlink()
        path.write_text(json.dumps(told))


def test_a_pipe_instead_of_a_segment_hangs_no_report(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    raw.close()
    folder = stage.site.path / "audit" / "mediator"
    name = next(iter(folder.glob("mediator-*.open"))).name
    head, began, number = name.removesuffix(".jsonl.open").rsplit("-", 2)
    pipe = folder / f"{head}-{began}-{int(number) + 7:06d}.jsonl"
    os.mkfifo(pipe)
    try:
        done = sealmq(
            "purposes", "report", stage.site.path, "-t", "#", "--since", "2026-01-01", timeout=30
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    finally:
        pipe.unlink()


def test_a_role_s_own_folder_is_all_that_it_has_of_run(site: Site) -> None:
    site.up()
    for role in ("kg", "mediator"):
        path = ready_file(site, role)
        killed = site.pid(role)
        # As its user could: a folder where the next one, and the supervisor, look for a file.
        path.unlink()
        path.mkdir()
        os.kill(killed, signal.SIGKILL)
        until("the supervisor to see it", lambda: "was ended by SIGKILL" in site.log())
        assert sealmq("status", site.path, timeout=30).returncode == 1
        path.rmdir()
        # One that found the folder still there counts as not ready after 90 s, and is started anew.
        site.back(role, killed, 5 * PATIENCE_S)
