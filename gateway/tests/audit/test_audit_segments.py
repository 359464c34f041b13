"""Segments: closed once, under a name never reused, after a crash too; a full disk loses none."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from audit.audit_lines import Clock, read, short
from sealmq.audit import Audit, AuditError
from sealmq.audit.segment import Segment

SITE = "00c0ffee"


def opened(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.open"))


def test_a_segment_is_open_while_it_is_written_and_renamed_at_the_end(tmp_path: Path) -> None:
    audit = Audit(tmp_path, "mediator", 7, SITE, strict=True)
    assert list(tmp_path.iterdir()) == []
    audit.write("start")
    asyncio.run(audit.synced())
    [name] = opened(tmp_path)
    assert re.fullmatch(r"mediator-00000007-[0-9]+-000001\.jsonl\.open", name)
    assert not list(tmp_path.glob("*.jsonl"))
    audit.close()
    audit.close()
    assert [path.name for path in tmp_path.iterdir()] == [name.removesuffix(".open")]
    assert short(read(tmp_path)) == [{"event": "start"}]


def test_size_and_age_end_a_segment(tmp_path: Path) -> None:
    clock = Clock()
    audit = Audit(tmp_path, "kg", 1, SITE, segment_bytes=1000, segment_ms=5000, now=clock)
    for _ in range(3):
        for _ in range(10):
            audit.write("stop", reason="x" * 100)
        asyncio.run(audit.synced())
    audit.write("stop", reason="old")
    asyncio.run(audit.synced())
    [name] = opened(tmp_path)
    clock.now += 5000
    while opened(tmp_path) == [name]:
        audit.write("start")
        asyncio.run(audit.synced())
    audit.close()
    assert len(list(tmp_path.iterdir())) >= 4
    assert sum(line["event"] == "stop" for line in read(tmp_path)) == 31


def test_names_and_ids_are_never_reused_whatever_the_clock_does(tmp_path: Path) -> None:
    clock = Clock()
    for _ in range(3):  # the same inst, at the same millisecond
        audit = Audit(tmp_path, "kg", 1, SITE, strict=True, now=clock)
        audit.write("start")
        audit.close()
    assert len(list(tmp_path.iterdir())) == 3
    assert short(read(tmp_path)) == [{"event": "start"}] * 3


def test_a_segment_never_replaces_another(tmp_path: Path) -> None:
    Segment(tmp_path, "a").close()
    with pytest.raises(FileExistsError):
        Segment(tmp_path, "a")
    segment = Segment(tmp_path, "b")
    segment.append(b"{}\n")
    (tmp_path / "b.jsonl").write_bytes(b"another's")
    with pytest.raises(FileExistsError):
        segment.close()
    segment.abandon()
    assert (tmp_path / "b.jsonl").read_bytes() == b"another's"


LEFT = b'{"v":1}\n{"v":2}\n'


@pytest.mark.parametrize(
    ("tail", "dropped"),
    [(b"", 0), (b'{"v":3', 6), (b"\x00" * 50 + b"\n", 51), (b'[]\n{"v":4}\n', 11), (b"\n", 1)],
)
def test_what_a_crash_left_open_is_closed_without_its_torn_tail(
    tmp_path: Path, tail: bytes, dropped: int
) -> None:
    left = tmp_path / "mediator-00000003-1-000001.jsonl.open"
    left.write_bytes(LEFT + tail)
    other = tmp_path / "kg-00000003-1-000001.jsonl.open"
    other.write_bytes(LEFT + tail)
    audit = Audit(tmp_path, "mediator", 7, SITE, strict=True)
    audit.close()
    assert not left.exists()
    assert other.read_bytes() == LEFT + tail, "that is another role's"
    assert left.with_suffix("").read_bytes() == LEFT
    other.unlink()
    left.with_suffix("").unlink()
    assert short(read(tmp_path)) == [
        {
            "event": "log-recovered",
            "segment": "mediator-00000003-1-000001.jsonl",
            "lines": 2,
            "dropped_bytes": dropped,
            # No process that is killed leaves a whole line after a torn one.
            **({"count": 1} if b"}\n" in tail else {}),
        }
    ]


def test_the_segment_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    first = Audit(tmp_path, "mediator", 1, SITE, strict=True)
    first.write("start")
    asyncio.run(first.synced())
    names = opened(tmp_path)
    second = Audit(tmp_path, "mediator", 2, SITE, strict=True)
    second.close()
    assert opened(tmp_path) == names
    first.close()
    assert short(read(tmp_path)) == [{"event": "start"}]


CHILD = """
import asyncio, os, sys
from pathlib import Path
from sealmq.audit import Audit
audit = Audit(Path(sys.argv[1]), "mediator", 1, "00c0ffee")
i = 0
while True:
    i += 1
    audit.write("stop", reason=str(i))
    asyncio.run(audit.synced())
    os.write(1, b"%d\\n" % i)
"""


def test_what_was_synced_survives_kill_9(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(20)]
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    said += child.stdout.readlines()
    child.stdout.close()
    assert opened(tmp_path)
    Audit(tmp_path, "mediator", 2, SITE).close()
    reasons = [line["reason"] for line in short(read(tmp_path)) if line["event"] == "stop"]
    synced = [line.strip() for line in said if line.endswith("\n")]
    assert reasons[: len(synced)] == synced


def test_the_fsync_comes_before_synced_returns(tmp_path: Path) -> None:
    log = tmp_path / "trace"
    script = CHILD.replace("while True", "while i < 5") + "audit.close()\n"
    command = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=fsync,write,rename"]
    done = subprocess.run(
        [*command, sys.executable, "-c", script, str(tmp_path / "audit")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = []
    for line in log.read_text().splitlines():
        call = line.partition(" ")[2].strip()
        if call.startswith("write(") and ".jsonl.open>" in call:
            seen.append("w")
        elif re.match(r"(fsync\(.*\.jsonl\.open>\)|<\.\.\. fsync resumed>\)).*= 0", call):
            seen.append("s")
        elif call.startswith("write(1<"):
            seen.append("d")
        elif call.startswith("rename("):
            seen.append("r")
    assert "".join(seen) == "wsd" * 5 + "sr"


class Full(Segment):
    """Half a write, then a disk that is full, as often as it is told."""

    times = 0

    def append(self, data: bytes) -> None:
        if Full.times:
            Full.times -= 1
            os.write(self._fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(data)


def test_a_full_disk_delays_records_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealmq.audit.log.Segment", Full)
    monkeypatch.setattr("sealmq.audit.log.RETRY_S", 0.01)
    audit = Audit(tmp_path, "kg", 1, SITE, strict=True)
    audit.write("start")
    asyncio.run(audit.synced())
    Full.times = 3
    for i in range(5):
        audit.write("stop", reason=str(i))
    asyncio.run(audit.synced())
    assert Full.times == 0
    audit.close()
    assert audit.error is None
    reasons = [line.get("reason") for line in short(read(tmp_path))]
    assert reasons == [None, "0", "1", "2", "3", "4"]


def test_what_does_not_fit_into_memory_is_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealmq.audit.log.Segment", Full)
    monkeypatch.setattr("sealmq.audit.log.RETRY_S", 0.01)
    monkeypatch.setattr("sealmq.audit.log.WAITING", 10)
    Full.times = 1 << 30
    audit = Audit(tmp_path, "kg", 1, SITE, strict=True)
    for i in range(25):
        audit.write("stop", reason=str(i))
    Full.times = 0
    asyncio.run(audit.synced())
    audit.close()
    lines = short(read(tmp_path))
    kept = [line for line in lines if line["event"] == "stop"]
    lost = sum(line["count"] for line in lines if line["event"] == "log-lost")
    assert len(kept) + lost == 25
    assert lost >= 1


def test_a_disk_that_stays_full_does_not_keep_the_process_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealmq.audit.log.Segment", Full)
    monkeypatch.setattr("sealmq.audit.log.RETRY_S", 0.01)
    Full.times = 1 << 30
    audit = Audit(tmp_path, "kg", 1, SITE, strict=True)
    audit.write("stop")

    async def wait() -> None:
        synced = asyncio.create_task(audit.synced())
        await asyncio.sleep(0)
        audit.close()
        with pytest.raises(AuditError):
            await synced

    asyncio.run(wait())
    Full.times = 0
    assert audit.error == "No space left on device"


def test_only_owner_and_group_read_the_log(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "kg", "kg", 1, SITE, strict=True)
    audit.write("start")
    audit.close()
    [path] = (tmp_path / "kg").iterdir()
    assert path.stat().st_mode & 0o137 == 0


@pytest.mark.parametrize("by", [-5000, -86_400_000])
def test_a_clock_that_was_set_back_ends_a_segment(tmp_path: Path, by: int) -> None:
    """Readers take closed ones only: what comes would reach nobody for as long."""
    clock = Clock()
    audit = Audit(tmp_path, "kg", 1, SITE, segment_ms=5000, now=clock)
    audit.write("start")
    asyncio.run(audit.synced())
    [name] = opened(tmp_path)
    clock.now += by
    for _ in range(1000):
        audit.write("stop")
        asyncio.run(audit.synced())
        if opened(tmp_path) != [name]:
            break
    assert opened(tmp_path) != [name]
    audit.close()
