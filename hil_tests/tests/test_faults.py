"""The fault harness itself: the same seed is the same schedule, and the verdict can be red."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from faults import health, power
from faults.ledger import Row
from faults.schedule import KINDS, draw
from faults.shim import Shim
from faults.verdict import Books, wrong_labels
from faults_run import faults

# --- the schedule ---------------------------------------------------------------------------------


def test_a_seed_gives_the_same_rounds_again() -> None:
    assert draw(7, 200) == draw(7, 200)
    assert draw(7, 50) == draw(7, 200)[:50]
    assert draw(7, 50) != draw(8, 50)


def test_every_kind_comes_and_only_those_asked_for() -> None:
    assert {each.kind for each in draw(1, 20)} == set(KINDS)
    assert Counter(each.kind for each in draw(1, 10, ["kill-kg", "disk-full"])) == {
        "kill-kg": 5,
        "disk-full": 5,
    }


def test_what_is_no_fault_is_refused_and_says_what_there_is(tmp_path: Path) -> None:
    code, said = faults(tmp_path, "--faults", "earthquake")
    assert code == 2
    assert "no such fault: earthquake; there are kill-kg" in said


@pytest.mark.parametrize("where", ["no-such-folder/results.jsonl", "."])
def test_results_that_cannot_be_written_are_refused_before_anything_starts(
    tmp_path: Path, where: str
) -> None:
    code, said = faults(tmp_path, "--results", str(tmp_path / where))
    assert code == 2
    assert "a file in a folder that there is" in said
    assert "Traceback" not in said


# --- the verdict ----------------------------------------------------------------------------------


def books(*rows: Row) -> Books:
    made = Books(("live", "sleeper"))
    made.take([{"e": "up", "r": "live", "at": 1.0}])
    made.take({"at": 2.0 + i, **row} for i, row in enumerate(rows))
    return made


def sent(n: int, q: int = 1) -> Row:
    return {"e": "sent", "n": n, "c": "first", "q": q, "t": "load/t", "r": False}


def got(n: int, reader: str, how: str = "live") -> Row:
    return {"e": "got", "n": n, "r": reader, "how": how, "t": "load/t"}


ACK: Row = {"e": "ack", "n": 1}
BOTH = got(1, "live"), got(1, "sleeper", "queued")
DOWN: Row = {"e": "down", "r": "live"}


@pytest.mark.parametrize(
    ("clock", "lost"),
    [
        ([], 2),
        # Sealed by a clock an hour ahead, which is then set back.
        ([(1.5, 3600.0), (5.0, 0.0)], 0),
        # It jumped between the publish and its acknowledgement: sealed on either side.
        ([(2.5, 3600.0), (5.0, 0.0)], 0),
        # Set back in between, when a journal may have been played again.
        ([(3.5, -3600.0), (5.0, 0.0)], 0),
        ([(3.5, 3600.0), (5.0, 0.0)], 2),
        ([(1.5, 3600.0)], 2),
    ],
)
def test_nothing_is_owed_of_what_lies_ahead_of_time(
    clock: list[tuple[float, float]], lost: int
) -> None:
    made = books(sent(1), ACK)
    for at, shift in clock:
        made.clock(at, shift)
    assert len(made.settle(calm=True)) == lost


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_acknowledged_and_came_is_fine(qos: int) -> None:
    assert books(sent(1, qos), ACK, *BOTH).settle(calm=True) == []


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([sent(1), ACK, got(1, "sleeper")], ["lost: message 1 (QoS 1, load/t) for live"]),
        ([sent(1), ACK, got(1, "live")], ["lost: message 1 (QoS 1, load/t) for sleeper"]),
        ([sent(1), ACK, *BOTH, BOTH[0]], ["doubled: message 1 came 2 times to live"]),
        ([sent(1, 0), BOTH[1], BOTH[1]], ["doubled: message 1 came 2 times to sleeper"]),
        ([sent(1), {"e": "refused", "n": 1}, BOTH[0]], ["refused, and yet delivered: message 1"]),
        ([sent(1), *BOTH], ["message 1 has no outcome"]),
        ([got(1, "live", "retained")], ["live got message 1, which nobody sent"]),
        ([{"e": "will", "w": 3, "what": "cut"}], ["will of round 3 (cut) for live"]),
        (
            [{"e": "will", "w": 3, "what": "bye"}, {"e": "got-will", "w": 3, "r": "live"}],
            ["will of round 3 fired in spite of DISCONNECT"],
        ),
        ([{"e": "error", "what": "KeyError: 'n'"}], ["error: KeyError: 'n'"]),
    ],
)
def test_what_was_promised_and_not_kept_is_told(rows: list[Row], told: list[str]) -> None:
    found = books(*rows).settle(calm=True)
    assert all(any(each in text for text in found) for each in told), found


def test_a_live_reader_whose_connection_broke_is_owed_nothing_of_that_time() -> None:
    made = books(sent(1), ACK, DOWN, got(1, "sleeper"))
    assert made.settle(calm=True) == []
    made = books(DOWN, sent(1), ACK, {"e": "up", "r": "live"}, got(1, "sleeper"))
    assert made.settle(calm=True) == []


@pytest.mark.parametrize("state", ["doubt", "refused"])
def test_what_was_not_acknowledged_is_owed_to_nobody(state: str) -> None:
    assert books(sent(1), {"e": state, "n": 1}).settle(calm=True) == []


def test_a_message_may_come_once_more_as_retained() -> None:
    assert books(sent(1), ACK, *BOTH, got(1, "live", "retained")).settle(calm=True) == []


def test_recovery_counts_what_was_published_behind_the_fault() -> None:
    made = books(sent(1), ACK, got(1, "live"), sent(2), got(2, "live"))
    assert made.recovered(4.5) == 6.0 - 4.5
    assert made.recovered(5.5) is None


def test_labels_and_retained_messages_are_compared() -> None:
    owners = {"first": "a", "second": "b"}
    assert wrong_labels({"t": "first"}, owners, {"t": "a", "u": "b"}) == []
    assert len(wrong_labels({"t": "first", "u": "second"}, owners, {"u": "a"})) == 2
    made = books({**sent(1), "r": True}, ACK, *BOTH)
    assert len(made.wrong_retained()) == 1
    made.take([{"e": "late", "topic": "load/t", "n": 1, "at": 9.0}])
    assert made.wrong_retained() == []


def test_leaks_tracebacks_and_secrets_are_seen(tmp_path: Path) -> None:
    leaks = health.Leaks()
    leaks.first[5] = ("mediator", health.Sample(10, 1 << 20))
    leaks.last[5] = health.Sample(10 + 2 * health.FDS, (1 << 20) + 2 * health.RSS_BYTES)
    assert len(leaks.grown()) == 2
    log = tmp_path / "up.log"
    log.write_bytes(b"mediator: ready\nmediator: client x failed: KeyError('y')\n")
    assert len(health.tracebacks([log])) == 1
    key = bytes(range(32))
    log.write_text(f"mediator: {key.hex()}")
    assert health.leaked([log], {"a key": key}) == ["secret: a key stands in up.log"]
    log.write_text("mediator: nothing")
    assert health.tracebacks([log]) == health.leaked([log], {"a key": key}) == []


# --- the shim -------------------------------------------------------------------------------------


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    (tmp_path / "disk").mkdir()
    return Shim(tmp_path, tmp_path / "disk")


def under(shim: Shim, script: str) -> str:
    """What a Python program prints that runs under the shim, in its root."""
    done = subprocess.run(
        [sys.executable, "-c", "import os, sqlite3, time\n" + script],
        env=shim.environment(),
        cwd=shim.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_full_disk_refuses_writes_below_the_root_only(shim: Shim, tmp_path: Path) -> None:
    script = (
        "for path in ('f', '../g'):\n"
        " try: print(open(os.path.abspath(path), 'w').write('x'))\n"
        " except OSError as e: print(e.errno)\n"
        "try: sqlite3.connect(os.path.abspath('db')).execute('create table t(x)')\n"
        "except sqlite3.Error as e: print(e)"
    )
    assert under(shim, script).split("\n") == ["1", "1"]
    for made in shim.root.iterdir():
        made.unlink()
    shim.full(True)
    assert under(shim, script).split("\n") == ["28", "1", "unable to open database file"]


def test_the_clock_is_off_by_what_was_said(shim: Shim) -> None:
    for seconds in (-7200, 7200):
        shim.clock(seconds)
        assert abs(float(under(shim, "print(time.time())")) - time.time() - seconds) < 600


def test_the_shim_goes_along_whatever_environment_a_process_is_given(shim: Shim) -> None:
    shim.full(True)
    script = "os.execve('/bin/sh', ['sh', '-c', 'echo x > f || echo refused'], {'PATH': '/bin'})"
    assert under(shim, script.replace(" f ", f" {shim.root}/f ")) == "refused"


def test_a_sync_takes_as_long_as_was_said(shim: Shim) -> None:
    shim.slow(300)
    script = "f = open('f', 'w'); t = time.monotonic(); os.fsync(f); print(time.monotonic() - t)"
    assert float(under(shim, script)) >= 0.3


_WRITES = """
def put(name, data, sync):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, data, 0)
    if sync: os.fsync(fd)
    os.close(fd)
def folder():
    fd = os.open('.', os.O_RDONLY); os.fsync(fd); os.close(fd)
"""


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("put('old', b'new', True)", {"old": "new"}),
        ("put('old', b'new', False)", {"old": "old"}),
        ("put('old', b'new', True); put('old', b'gnu', False)", {"old": "new"}),
        ("put('f', b'f', True)", {"old": "old"}),
        ("put('f', b'f', True); folder()", {"old": "old", "f": "f"}),
        ("put('f', b'f', False); folder()", {"old": "old", "f": ""}),
        ("put('f', b'f', True); os.rename('f', 'old')", {"old": "old"}),
        ("put('f', b'f', True); os.rename('f', 'old'); folder()", {"old": "f"}),
        ("os.unlink('old')", {"old": "old"}),
        ("os.unlink('old'); folder()", {}),
    ],
)
def test_a_power_cut_leaves_what_was_synced(shim: Shim, script: str, left: dict[str, str]) -> None:
    (shim.root / "old").write_text("old")
    power.base(shim)
    shim.record(True)
    under(shim, _WRITES + script)
    power.roll_back(shim)
    found = {path.name: path.read_text() for path in shim.root.iterdir()}
    # A file whose name came to disk without its content may be empty or not there.
    assert {name: text for name, text in found.items() if text} == {
        name: text for name, text in left.items() if text
    }


@pytest.mark.parametrize(("mode", "rows"), [("FULL", 3), ("OFF", 0)])
def test_sqlite_keeps_its_commits_over_a_power_cut_unless_told_not_to_sync(
    shim: Shim, mode: str, rows: int
) -> None:
    under(
        shim,
        "db = sqlite3.connect('db', isolation_level=None); db.execute('pragma journal_mode=wal')\n"
        "db.execute('create table t(x)'); db.close()",
    )
    power.base(shim)
    shim.record(True)
    write = (
        "db = sqlite3.connect('db', isolation_level=None); db.execute('pragma synchronous=MODE')\n"
        "for i in range(3): db.execute('insert into t values (?)', (i,))\n"
        "os._exit(0)"
    )
    under(shim, write.replace("MODE", mode))
    power.roll_back(shim)
    shim.record(False)
    script = "print(sqlite3.connect('db').execute('select count(*) from t').fetchone()[0])"
    assert int(under(shim, script)) == rows


# --- red, with the defence taken out --------------------------------------------------------------


def test_a_puback_before_the_broker_s_is_found_out(tmp_path: Path) -> None:
    code, said = faults(
        tmp_path, "--rounds", 3, "--seed", 5, "--faults", "disk-full", "--rate", 30,
        "--patience", 5, "--ack-first",
    )  # fmt: skip
    assert code == 1
    assert re.search(r"disk-full: lost: message \d+ \(QoS 1, load/first/once", said), said
    assert "seed 5; kept: " in said


@pytest.mark.full
def test_a_store_that_does_not_sync_is_found_out(tmp_path: Path) -> None:
    code, said = faults(
        tmp_path, "--rounds", 1, "--seed", 5, "--faults", "power-cut", "--rate", 30,
        "--patience", 20, "--lie", "mediator.db",
    )  # fmt: skip
    assert code == 1
    assert re.search(r"label: load/\w+/once-\d+ has none", said), said


@pytest.mark.full
def test_a_journal_that_does_not_sync_is_found_out(tmp_path: Path) -> None:
    code, said = faults(
        tmp_path, "--rounds", 1, "--seed", 41, "--faults", "power-cut", "--rate", 30,
        "--patience", 5, "--broker", "mosquitto", "--lie", "journal",
    )  # fmt: skip
    assert code == 1
    assert re.search(r"power-cut: lost: message \d+ \(QoS 2, .*\) for sleeper", said), said
