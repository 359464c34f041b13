"""Who is signalled as a site's supervisor: nobody whom a file names alone."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from run.sites import Site, gone, sealmq
from sealmq.cli.errors import report
from sealmq.run import lock, logfile, proc
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


def test_roots_own_site_in_another_users_folder_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is a file of whoever brought the site up first."""
    path = tmp_path / "up.lock"
    lock.SiteLock.take(path, "site").release()
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    monkeypatch.setattr(proc, "uid_of", lambda pid: 0)
    held = lock.SiteLock.take(path, "site")
    assert lock.supervisor(path) == os.getpid()
    held.release()


def test_a_command_that_has_the_lock_is_no_site_that_is_up(tmp_path: Path) -> None:
    """`sealmq down` would end a restore in the middle, and SIGHUP would as well."""
    path = tmp_path / "run" / "up.lock"
    with lock.stopped(tmp_path, tmp_path / "run", "site"):
        assert lock.held(path)
        assert lock.supervisor(path) is None
        assert lock.tell(path, signal.SIGTERM) is None
        said = f"process {os.getpid()}"
        with pytest.raises(RunError, match=f"a command changes its files: {said}"):
            lock.stop(path)
        with pytest.raises(RunError, match=f"a command changes the files of site: {said}"):
            lock.SiteLock.take(path, "site")
    lock.SiteLock.take(path, "site").release()


@pytest.mark.skipif(os.geteuid() != 0, reason="root's files alone are given to a site's owner")
def test_a_link_in_the_lock_s_place_gives_no_file_of_roots_away(tmp_path: Path) -> None:
    target, root = tmp_path / "shadow", tmp_path / "site"
    target.touch()
    root.mkdir()
    os.chown(root, 65534, 65534)
    path = root / "run" / "up.lock"
    with lock.stopped(root, root / "run", "site"):
        path.unlink()
        path.symlink_to(target)
    assert target.stat().st_uid == 0
    path.unlink()
    with lock.stopped(root, root / "run", "site"):
        pass
    assert path.stat().st_uid == 65534


def test_a_full_disk_is_said_with_the_file_that_it_keeps_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "up.lock"
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left") as caught:
        lock.SiteLock.take(path, "site")
    assert report(caught.value) == 1
    assert capsys.readouterr().err == (
        f"sealmq: {path}: No space left on device\nhint: free some space on that disk\n"
    )
    monkeypatch.undo()
    lock.SiteLock.take(path, "site").release()


def test_the_log_goes_on_in_a_new_file_where_its_own_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log" / "up.log"
    real = os.dup2

    def copied(old: int, new: int, inheritable: bool = True) -> int:
        return new if new <= 2 else real(old, new, inheritable)  # those are pytest's

    monkeypatch.setattr(os, "dup2", copied)
    log = LogFile(path)
    log.write("one")
    path.unlink()  # by somebody who cleans up
    log.write("two")
    assert path.read_text().endswith(" two\n")
    # A full disk at the moment of its rotation: there is no new one.
    monkeypatch.setattr(logfile, "LARGEST", 1)
    make = LogFile._open

    def full(self: LogFile) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LogFile, "_open", full)
    log.write("three")
    older = path.with_name("up.log.1")
    assert [line.split()[-1] for line in older.read_text().splitlines()] == ["two", "three"]
    monkeypatch.setattr(LogFile, "_open", make)
    log.write("four")
    assert path.read_text().endswith(" four\n")
    os.close(log.fd)


@pytest.mark.parametrize("serves", [True, False])
def test_a_site_that_another_user_has_brought_up_or_changes_is_said_to_be_that_users(
    serves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees which files another user's process has open, or ends it: no use to wait."""
    path = tmp_path / "up.lock"
    held = lock.SiteLock.take(path, "site", serves=serves)
    pid, user = os.getpid(), proc.user_of(os.getpid())
    runs = f"runs as process {pid}, of user {user}"
    says = runs if serves else f"a command changes its files: process {pid}"
    monkeypatch.setattr(proc, "has_open", lambda pid, file: False)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(RunError, match=says):
        lock.stop(path, 0.0)
    held.release()
