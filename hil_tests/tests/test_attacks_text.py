"""Attacks with text: what clients and strangers say reaches no terminal and no log unescaped or
without bound, and they learn no more than is theirs; what others could write is no policy.
"""

from __future__ import annotations

import os
import pty
import resource
import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from attack_scene import Scene, scene
from running_site import SEALMQ, Site, sealmq, until
from wire import CONTROL, RawClient, Wire, connect, publish

EVIL = "evil/\u202e\u200b/x"
LOGGED = 20


@pytest.fixture(scope="module")
def stage(shared_site: Site) -> Iterator[Scene]:
    with scene(shared_site) as made:
        yield made


def clean(text: str) -> bool:
    """Nothing that a terminal would obey, or that nobody sees."""
    return all(c.isprintable() or c in "\r\n" for c in text)


def test_a_terminal_gets_topics_and_payloads_as_text(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    payload = b"\x1b]0;taken over\x07\x1b[2Jdone"
    ours, theirs = pty.openpty()
    words = ("sub", stage.site.path, "--client", "monitor", "-t", "evil/#", "-v", "-C", "1", "-d")
    with subprocess.Popen(
        [str(SEALMQ), *map(str, words)], stdout=theirs, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        for line in process.stderr:
            if "subscribed" in line:
                break
        raw.publish(EVIL.encode(), payload)
        shown = b""
        while b"done" not in shown:
            shown += os.read(ours, 4096)
        process.wait(30)
    os.close(ours)
    assert clean(shown.decode())
    assert clean(sealmq("topic", "list", stage.site.path).stdout)
    assert "evil/\\u202e\\u200b/x \\x1b]0;taken over\\x07" in shown.decode()


def test_a_pipe_gets_the_bytes_as_they_came(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    words = ("sub", stage.site.path, "--client", "monitor", "-t", "evil/#", "-v", "-C", "1", "-d")
    with subprocess.Popen(
        [str(SEALMQ), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            if b"subscribed" in line:
                break
        raw.publish(EVIL.encode(), b"\x1b[2J")
        assert process.stdout.read() == EVIL.encode() + b" \x1b[2J\n"


def test_forged_provisioning_requests_fill_no_log(stage: Scene) -> None:
    raw = RawClient(stage.site.port, stage.enrolment("m1-device"))
    i = raw.ident
    before = len(stage.site.log().splitlines())
    sent = 20 * LOGGED
    head = b"\x1a" + bytes((16 * i.suite,)) + i.client.to_bytes(3, "big")
    for _ in range(sent):
        with closing(Wire(stage.site.port)) as wire:
            wire.send(connect(raw.client_id, raw.session.begin_connect(False)))
            assert wire.read() == (0x20, b"\0\0")
            wire.send(publish(CONTROL, head + os.urandom(43 - len(head))))
            assert wire.closed()
    # Each is in the audit log, and counted there beyond so many in a minute.
    until("the records", lambda: stage.site.audit(rule="mediator.control.unauthentic"))
    assert len(stage.site.log().splitlines()) - before <= 4 * LOGGED
    new = RawClient(stage.site.port, stage.enrolment("m1-device"))
    new.provision()


def test_a_policy_that_others_may_write_is_not_taken_over(site: Site) -> None:
    for path, mode, who in (
        (site.toml, 0o666, "everybody may write it (mode 0666)"),
        (site.path, 0o777, "everybody may write its folder (mode 0777)"),
    ):
        before = path.stat().st_mode & 0o7777
        path.chmod(mode)
        for words in (("up", site.path), ("policy", "check", site.path)):
            done = sealmq(*words)
            assert done.returncode == 1
            assert who in done.stderr, done.stderr
            assert "chmod go-w" in done.stderr
        path.chmod(before)
    site.up()
    site.edit('order = ["labels"]\n', 'order = ["labels"]\nenforce = false\n')
    site.toml.chmod(0o666)
    done = sealmq("reload", site.path)
    assert done.returncode != 0
    assert "everybody may write it" in done.stderr
    assert site.status()["enforce"] is not False
    site.toml.chmod(0o640)
    assert sealmq("reload", site.path).returncode == 0


def test_a_client_learns_no_path_of_the_gateway_s(site: Site) -> None:
    site.up()
    with scene(site) as stage:
        raw = stage.client("m1-temp-sensor")
        raw.connect()
        mediator = site.pid("mediator")
        limits = resource.prlimit(mediator, resource.RLIMIT_FSIZE)
        resource.prlimit(mediator, resource.RLIMIT_FSIZE, (0, limits[1]))
        raw.wire.send(publish(b"new/topic", raw.seal(b"new/topic", b"x", flags=0)))
        until("the notice", lambda: raw.barrier() == [] and raw.notices)
        resource.prlimit(mediator, resource.RLIMIT_FSIZE, limits)
        [(_, _, _, rule, text)] = raw.notices
        assert rule == "mediator.publish.unavailable"
        assert "mediator.db" not in text
        assert "/" not in text
        [row] = until("the record", lambda: site.audit("store-unavailable", topic="new/topic"))
        assert "mediator.db" in row["reason"]
