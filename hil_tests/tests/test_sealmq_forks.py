"""A forked `sealmq` is what one that was started from nothing is."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import sealmq_forks
from running_site import SEALMQ, program, sealmq, until

PATIENCE_S = 60


@pytest.mark.parametrize(
    "words", [["fly"], ["status", "."], ["pub", "--enrolment", "x", "-t", "a", "-l"]], ids=len
)
def test_it_ends_and_says_the_same(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = sealmq_forks.run(words, stdin=b"1\n", timeout=PATIENCE_S)
    real = subprocess.run([SEALMQ, *words], input=b"1\n", capture_output=True, check=False)
    assert done is not None
    assert done.returncode != 0
    assert done.stderr.startswith(b"sealmq: ")
    assert (done.returncode, done.stdout, done.stderr) == (
        real.returncode, real.stdout, real.stderr,
    )  # fmt: skip


def test_it_has_the_environment_that_it_is_given(tmp_path: Path) -> None:
    words = ["status", str(tmp_path)]
    done = sealmq_forks.run(words, env={**os.environ, "SEALMQ_DEBUG": "1"}, timeout=PATIENCE_S)
    assert done is not None
    assert b"Traceback" in done.stderr
    assert "Traceback" not in sealmq(*words).stderr


def test_what_an_interpreter_reads_at_its_start_is_left_to_a_start() -> None:
    env = {**os.environ, "LD_PRELOAD": "x.so"}
    assert sealmq_forks.run(["--version"], env=env, timeout=PATIENCE_S) is None


@pytest.mark.parametrize("words", [["fly"], ["status", "."]], ids=len)
def test_a_shell_has_the_same_as_a_program(words: list[str], tmp_path: Path) -> None:
    done, real = (
        subprocess.run([name, *words], cwd=tmp_path, capture_output=True, check=False)
        for name in (program(), SEALMQ)
    )
    assert done.returncode != 0
    assert done.stderr.startswith(b"sealmq: ")
    assert (done.returncode, done.stdout, done.stderr) == (
        real.returncode, real.stdout, real.stderr,
    )  # fmt: skip
    env = {**os.environ, "SEALMQ_DEBUG": "1"}
    done = subprocess.run([program(), *words], env=env, capture_output=True, check=False)
    assert done.returncode != 0
    assert b"Traceback" in done.stderr or words == ["fly"]


def test_a_signal_to_a_shell_s_program_is_the_command_s(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ["pub", "--enrolment", str(fifo), "-t", "a", "-m", "b"]
    with subprocess.Popen([program(), *words], stderr=subprocess.DEVNULL) as waits:
        with fifo.open("w"):  # it has come so far as to read
            waits.terminate()
            assert waits.wait(PATIENCE_S) == -signal.SIGTERM
        until("nobody to wait at the fifo", lambda: not reader(fifo))


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ["pub", "--enrolment", str(fifo), "-t", "a", "-m", "b"]
    with pytest.raises(subprocess.TimeoutExpired):
        sealmq_forks.run(words, timeout=1)
    until("nobody to wait at the fifo", lambda: not reader(fifo))


def test_one_that_was_started_is_asked_and_signalled_like_a_process(tmp_path: Path) -> None:
    fifo, said = tmp_path / "fifo", tmp_path / "said"
    os.mkfifo(fifo)
    words = ["pub", "--enrolment", str(fifo), "-t", "a", "-m", "b"]
    with said.open("w") as output:
        waits = sealmq_forks.start(words, output)
        wrong = sealmq_forks.start(["fly"], output)
    assert waits is not None
    assert wrong is not None
    assert wrong.wait(PATIENCE_S) == wrong.poll() == 2
    assert said.read_text().startswith("sealmq: ")
    with fifo.open("w"):  # it has come so far as to read
        assert waits.poll() is None
        os.kill(waits.pid, signal.SIGKILL)
        assert waits.wait(PATIENCE_S) == waits.poll() == -signal.SIGKILL


def reader(fifo: Path) -> bool:
    """Whether somebody has opened it for reading."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
