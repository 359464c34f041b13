"""Who is signalled as a site's supervisor: nobody whom a file names alone."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from run.sites import Site, gone, sealmq
from sealmq.run import lock, proc
from sealmq.run.errors import RunError
from sealmq.run.logfile import LARGEST, LogFile


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process that has nothing to do with the site."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid


def test_a_process_that_is_only_named_in_the_lock_is_not_ended(
    tmp_path: Path, bystander: int
) -> None:
    path = tmp_path / "up.lock"
    path.write_text(json.dumps({"pid": bystander, "start": proc.start_of(bystander)}))
    with path.open("r+") as holder:  # as a part of the site that has been taken over does
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert lock.held(path)
        assert lock.supervisor(path) is None
        with pytest.raises(RunError, match="processes of it run still"):
            lock.stop(path, 0.3)
    assert not gone(bystander)
    assert lock.stop(path, 0.3) is False


def test_a_link_or_a_pipe_in_the_lock_s_place_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "up.lock"
    os.mkfifo(path)
    assert lock.stop(path) is False  # and does not wait for a writer
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        lock.held(path)


def test_the_lock_keeps_its_block_so_that_a_full_disk_keeps_no_site_down(tmp_path: Path) -> None:
    path = tmp_path / "up.lock"
    sizes = []
    for _ in range(2):
        held = lock.SiteLock.take(path, "site")
        assert lock.supervisor(path) == os.getpid()
        sizes.append(path.stat().st_size)
        held.release()
        sizes.append(path.stat().st_size)
        assert lock.supervisor(path) is None
        assert "pid" not in path.read_text()
    assert len(set(sizes)) == 1
    assert sizes[0] > 0


def test_the_log_is_bounded_and_escaped(tmp_path: Path) -> None:
    path = tmp_path / "log" / "up.log"
    code = f"""
import os
from pathlib import Path
from sealmq.run.logfile import LogFile
log = LogFile(Path({str(path)!r}))
for fd in (1, 2):
    os.dup2(log.fd, fd)
for n in range(3000):
    log.write("x" * 4000)
log.write("the last\\x1b[2J")
os.write(2, b"a traceback\\n")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    sizes = [file.stat().st_size for file in path.parent.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < LARGEST + 8192
    assert path.read_text().splitlines()[-1] == "a traceback"
    assert "the last\\x1b[2J\n" in path.read_text()


def test_the_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "log" / "up.log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        LogFile(tmp_path / "log" / "up.log")


@pytest.mark.parametrize("under_systemd", [True, False])
def test_the_log_of_a_site_says_where_up_writes_to(site: Site, under_systemd: bool) -> None:
    err = site.root.parent / "site-0.err"
    err.touch()
    found = err.stat()
    stream = f"{found.st_dev}:{found.st_ino}" if under_systemd else "1:1"
    site.up(env={"JOURNAL_STREAM": stream}).ready()
    done = sealmq("log", str(site.root))
    assert done.returncode == 0
    told = "journalctl -u sealmq@site" if under_systemd else "where it was started"
    assert told in done.stderr
