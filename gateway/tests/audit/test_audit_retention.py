"""`[audit] keep`: what is old is deleted, after the log has said so, and the rest stays sound."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from audit.audit_lines import Clock, read
from audit.test_audit_verify import KEY, SITE, made, run
from sealmq.audit import Audit
from sealmq.audit.retention import AT_ONCE, READ, Retention
from sealmq.audit.verify import anchor, differs, verify
from sealmq.site.config import ConfigError, loads

DAY = 86_400_000


def aged(folder: Path, clock: Clock, which: str = "kg-*") -> None:
    """As if each file had been written when the test's clock says."""
    for file in folder.glob(which):
        os.utime(file, ns=(clock.now * 1_000_000,) * 2)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("kg-*")}


def later(folder: Path, clock: Clock, keep: Retention) -> None:
    """Another process, that has segments enough to delete what is due."""
    audit = Audit(
        folder, "kg", 9, SITE, segment_bytes=500, strict=True, now=clock, chain=made(),
        retention=keep,
    )  # fmt: skip
    for _ in range(20):
        audit.write("config-refused", reason="x" * 100)
        asyncio.run(audit.synced())
    audit.close()


def test_old_segments_go_and_the_log_that_is_left_is_sound(tmp_path: Path, clock: Clock) -> None:
    old = run(tmp_path, clock)
    aged(tmp_path, clock)
    told = anchor(SITE, clock.now, [verify(tmp_path, "kg", KEY)])["roles"][tmp_path.name]
    clock.now += DAY
    run(tmp_path, clock, inst=2)
    young = names(tmp_path) - {file.name for file in old}
    aged(tmp_path, clock, "kg-00000002-*")
    clock.now += DAY
    later(tmp_path, clock, Retention(DAY + DAY // 2))
    assert not any(file.exists() for file in old)
    assert young < names(tmp_path)
    report = verify(tmp_path, "kg", KEY, DAY + DAY // 2, clock.now)
    differs(report, told)
    assert report.faults == []
    assert report.notes == [f"{len(old)} segments were deleted as old"]
    gone = [name for line in read(tmp_path) for name in line.get("notes", ()) if
            line["event"] == "log-expired"]  # fmt: skip
    assert sorted(gone) == sorted(file.name.removesuffix(".jsonl") for file in old)

    # And nothing else may be missing.
    one = min(tmp_path / name for name in young)
    one.unlink()
    report = verify(tmp_path, "kg", KEY, DAY + DAY // 2, clock.now)
    assert {fault.segment for fault in report.faults} == {one.name}


@pytest.fixture
def clock() -> Clock:
    """Two days ago, so that what a test writes at its end is new by the files' own times."""
    return Clock(time.time_ns() // 1_000_000 - 2 * DAY)


def test_only_what_a_report_has_read_goes_where_the_site_says_so(
    tmp_path: Path, clock: Clock
) -> None:
    folder, report = tmp_path / "audit", tmp_path / "report"
    folder.mkdir()
    old = run(folder, clock)
    aged(folder, clock)
    clock.now += 2 * DAY
    keep = Retention(DAY, report)
    later(folder, clock, keep)
    assert all(file.exists() for file in old), "there is no report"
    report.mkdir()
    sizes = [f"{file.name} {file.stat().st_size}\n" for file in old]
    # The third as it was before something came to it; then comes one that was read.
    sizes[2] = f"{old[2].name} {old[2].stat().st_size - 1}\n"
    # A copy of the first was read before it was whole.
    (report / READ).write_text("".join(sizes) + f"{old[0].name} 9\ntorn")
    clock.now += 1000
    later(folder, clock, keep)
    assert [file.exists() for file in old] == [False, False, *[True] * (len(old) - 2)]
    assert verify(folder, "kg", KEY, DAY, clock.now).faults == []


def test_what_a_report_says_neither_ends_the_log_nor_keeps_it_waiting(tmp_path: Path) -> None:
    """Its folder may be another user's."""
    name, said = "kg-00000001-0000000000001-000001", tmp_path / READ
    (tmp_path / f"{name}.jsonl").write_text("x")
    keep = Retention(1, tmp_path)
    said.write_text(f"{name}.jsonl {'9' * 5000}\n{name}.jsonl 1\n")
    assert keep.due(tmp_path, "kg", 1 << 60) == [name]
    said.rename(tmp_path / "elsewhere")
    said.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        keep.due(tmp_path, "kg", 1 << 60)
    said.unlink()
    os.mkfifo(said)
    with pytest.raises(OSError, match="no plain file"):
        keep.due(tmp_path, "kg", 1 << 60)


def test_without_a_word_nothing_goes(tmp_path: Path, clock: Clock) -> None:
    old = run(tmp_path, clock)
    clock.now += 50 * 365 * DAY
    later(tmp_path, clock, Retention())
    assert all(file.exists() for file in old)


def test_the_record_is_on_disk_before_a_segment_goes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = run(tmp_path, clock, 10)
    aged(tmp_path, clock)
    clock.now += 2 * DAY
    unlink, said = Path.unlink, []

    def looks(self: Path, missing_ok: bool = False) -> None:
        if self in old:
            text = b"".join(file.read_bytes() for file in tmp_path.glob("kg-00000009-*"))
            said.append(b'"log-expired"' in text and self.name[:-6].encode() in text)
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", looks)
    later(tmp_path, clock, Retention(DAY))
    assert said == [True] * len(old)


@pytest.mark.parametrize(
    ("keep", "ahead"), [(0, 0), (2 * DAY, 0), (2 * DAY, 10 * DAY)], ids=["all", "young", "clock"]
)
def test_who_says_that_young_segments_were_old_is_told(
    tmp_path: Path, clock: Clock, keep: int, ahead: int
) -> None:
    """Whoever has taken the process over can seal it, with any clock: sealmq.toml decides."""
    old = run(tmp_path, clock)
    clock.now += DAY
    now, clock.now = clock.now, clock.now + ahead
    audit = Audit(tmp_path, "kg", 9, SITE, strict=True, now=clock, chain=made())
    audit.write("log-expired", notes=[file.name.removesuffix(".jsonl") for file in old])
    audit.close()
    for file in old:
        file.unlink()
    report = verify(tmp_path, "kg", KEY, keep, now)
    told = [one for one in report.faults if "sealmq.toml" in one.what]
    assert len(told) == len(old)
    assert any("the segment is missing" in one.what for one in report.faults)


def test_a_segment_that_cannot_be_deleted_writes_nothing_twice(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = run(tmp_path, clock)
    aged(tmp_path, clock)
    clock.now += 2 * DAY
    unlink = Path.unlink

    def stuck(self: Path, missing_ok: bool = False) -> None:
        if self == old[0]:
            raise PermissionError(1, "not permitted", str(self))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", stuck)
    later(tmp_path, clock, Retention(DAY))
    assert [file.exists() for file in old] == [True, *[False] * (len(old) - 1)]
    assert verify(tmp_path, "kg", KEY, DAY, clock.now).faults == []
    assert sum(line["event"] == "config-refused" and line["reason"] == "x" * 100
               for line in read(tmp_path)) == 20  # fmt: skip


def test_what_the_log_had_no_room_to_say_is_not_deleted(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = run(tmp_path, clock)
    aged(tmp_path, clock)
    clock.now += 2 * DAY
    put = Audit._put

    def full(self: Audit, event: str, fields: dict[str, Any], now: int) -> None:
        if event != "log-expired":  # when it is its turn, too much waits
            put(self, event, fields, now)

    monkeypatch.setattr(Audit, "_put", full)
    later(tmp_path, clock, Retention(DAY))
    assert all(file.exists() for file in old)


def test_of_many_so_many_go_at_once(tmp_path: Path) -> None:
    for number in range(1, AT_ONCE + 51):
        (tmp_path / f"kg-00000001-0000000000001-{number:06d}.jsonl").touch()
    assert len(Retention(1).due(tmp_path, "kg", 1 << 60)) == AT_ONCE


CONFIG = '[site]\nname = "factory"\nid = "00c0ffee"\n[audit]\n'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('keep = "90"', "audit.keep"),
        ('keep = "0d"', "audit.keep"),
        ('keep = "99999d"', "audit.keep"),
        ("keep = 90", "audit.keep"),
        ('after_report = "/srv/report"', "audit.after_report"),
        ('kept = "90d"', "audit.kept"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads(CONFIG + text)
    assert refused.value.key == key
    assert refused.value.hint


def test_what_sealmq_toml_says() -> None:
    assert loads(CONFIG).audit == (0, None)
    found = loads(CONFIG + 'keep = "90d"\nafter_report = "/srv/report"').audit
    assert found == (90 * DAY, Path("/srv/report"))


def test_what_was_written_under_a_clock_that_was_behind_is_kept(
    tmp_path: Path, clock: Clock
) -> None:
    """A board without a clock, until a network sets it: by its time of then it is old at once."""
    old = run(tmp_path, clock)
    assert len(old) > 2
    aged(tmp_path, clock)
    before = sorted(old)[:2]
    for minutes, file in enumerate(before):
        os.utime(file, ns=(minutes * 300_000_000_000,) * 2)
    later(tmp_path, clock, Retention(DAY))
    assert all(file.exists() for file in before)
    clock.now += 2 * DAY
    later(tmp_path, clock, Retention(DAY))
    assert not any(file.exists() for file in before)


def test_nothing_goes_that_verify_would_doubt(tmp_path: Path, clock: Clock) -> None:
    """A process that began under a clock that was ahead."""
    clock.now += 400 * DAY
    old = run(tmp_path, clock)
    clock.now -= 400 * DAY
    aged(tmp_path, clock)
    clock.now += 2 * DAY
    later(tmp_path, clock, Retention(DAY))
    assert verify(tmp_path, "kg", KEY, DAY, clock.now).faults == []
    assert all(file.exists() for file in old)
