"""A commit that has returned survives: the fsync comes first, seen in a trace and by kill -9."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from sealmq.store import Store

COMMITTER = Path(__file__).with_name("committer.py")


def trace(tmp_path: Path, what: str) -> list[str]:
    """What the committer wrote and synced, in order: "wal", "sync" and its own lines."""
    log = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-o", str(log)]
    command += ["-e", "trace=fsync,fdatasync,write,writev,pwrite64,pwritev"]
    command += [sys.executable, str(COMMITTER), str(tmp_path / "mediator.db"), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    out = []
    syncing: dict[str, bool] = {}
    for line in log.read_text().splitlines():
        pid, _, call = line.partition(" ")
        call = call.strip()
        if re.match(r"f(data)?sync\(", call):
            wal = "mediator.db-wal>" in call
            if "unfinished" in call:
                syncing[pid] = wal
            elif wal and call.endswith("= 0"):
                out.append("sync")
        elif re.match(r"<\.\.\. f(data)?sync resumed", call):
            if syncing.pop(pid) and call.endswith("= 0"):
                out.append("sync")
        elif re.match(r"p?writev?(64)?\(", call) and "mediator.db-wal>" in call:
            out.append("wal")
        elif call.startswith("write(1<") and (said := re.search(r'"(COMMITTED|CLOSING)', call)):
            out.append(said.group(1))
    return out


def test_the_fsync_of_the_log_precedes_each_completion(tmp_path: Path) -> None:
    events = trace(tmp_path, "one")
    assert events.count("COMMITTED") == 5
    dirty = synced = False
    for event in events:
        if event == "wal":
            dirty, synced = True, False
        elif event == "sync":
            dirty, synced = False, True
        elif event == "COMMITTED":
            assert synced, events
            assert not dirty, events
            synced = False  # the next one needs a sync of its own


def test_many_commits_share_a_few_fsyncs(tmp_path: Path) -> None:
    events = trace(tmp_path, "many")
    events = events[: events.index("CLOSING")]
    assert events.count("COMMITTED") == 300
    assert 1 <= events.count("sync") <= 30


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "mediator.db"
    child = subprocess.Popen(
        [sys.executable, str(COMMITTER), str(path), "forever"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(20)]
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    said += child.stdout.readlines()
    child.stdout.close()
    acknowledged = [line.split()[1] for line in said if line.startswith("COMMITTED")]
    assert len(acknowledged) >= 19
    store = Store.open(path)
    held = {row.topic for row in store.topics()}
    store.close()
    assert {f"topic/{i}" for i in acknowledged} <= held
