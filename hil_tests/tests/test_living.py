"""A board that lives, on a real site: the mediator is killed, its secret is rotated."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devices import device
from running_site import Site, micropython, sealmq


@contextmanager
def living(enrolment: Path, topic: str, bits: int = 64) -> Iterator[subprocess.Popen[str]]:
    """A board that is connected."""
    script = Path(__file__).with_name("living_device.py")
    board = micropython(script, enrolment, topic, bits=bits)
    try:
        assert board.stdout is not None
        first = board.stdout.readline()
        assert first.startswith("up"), first + board.stdout.read()
        yield board
    finally:
        board.kill()
        board.wait()


def test_a_mediator_is_killed(shared_site: Site) -> None:
    """All is accepted, in order; a reader hears nothing twice, and all while it listens."""
    site = shared_site
    topic = "machine/1/temperature"
    words = [str(n) for n in range(60)]
    enrolment = site.enrol("m1-temp-sensor", "m1-temp")
    with (
        living(enrolment, topic, bits=32) as board,
        device(site.enrol("m1-temp-lamp", "m1-temp")) as reader,
    ):
        assert board.stdin is not None
        assert board.stdout is not None

        def say(some: list[str]) -> None:
            assert board.stdin is not None
            board.stdin.write("".join(f"{word}\n" for word in some))
            board.stdin.flush()

        reader.subscribe(topic)
        say(words[:20])
        heard = [m["payload"] for m in reader.receive(20)]
        assert heard == words[:20]
        killed = site.kill("mediator")
        say(words[20:40])
        site.back("mediator", killed)
        reader.connect()
        reader.subscribe(topic)
        say(words[40:])
        while heard[-1] != words[-1]:
            more = [m["payload"] for m in reader.receive(1)]
            assert more, heard
            heard += more
        assert heard == sorted(set(heard), key=int)
        assert heard[-20:] == words[40:]
        said, _ = board.communicate("\n", timeout=60)
    told = said.splitlines()
    assert [line.split()[0] for line in told if line.endswith(" accepted")] == words, said
    assert any(line.startswith("down") for line in told)
    assert "'accepted': 60" in told[-1]


def test_a_board_that_was_rotated_out_says_so(shared_site: Site) -> None:
    site = shared_site
    topic = "machine/2/temperature"
    enrolment = site.enrol("m2-temp-sensor", "m2-temp")
    fresh = enrolment.with_name("new.json")
    with living(enrolment, topic) as board:
        assert board.stdout is not None
        done = sealmq("client", "rotate", site.path, "m2-temp-sensor", "-o", fresh)
        assert done.returncode == 0, done.stderr
        said = board.stdout.readline()
        while "Denied" not in said:
            assert said.startswith("down"), said + board.stdout.read()
            said = board.stdout.readline()
    # The same board with its new file; what it stored under the old secret counts as nothing.
    enrolment.write_bytes(fresh.read_bytes())
    with living(enrolment, topic) as board:
        said, _ = board.communicate("21.5\n\n", timeout=60)
    assert "21.5 accepted" in said.splitlines(), said
