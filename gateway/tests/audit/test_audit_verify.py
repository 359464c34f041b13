"""Claim 52: what is changed in an audit log is named, and what a kill leaves is no fault."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.audit_lines import Clock, read
from sealmq.audit import Audit
from sealmq.audit import chain as chains
from sealmq.audit.segment import Segment
from sealmq.audit.verify import Report, anchor, differs, verify
from sealmq.site.reserve import Reserve

KEY = bytes(range(32))
SITE = "00c0ffee"


def made(role: str = "kg") -> chains.Chain:
    found = chains.first({"audit": chains.draw(KEY, role)})
    assert found is not None
    return found


def run(folder: Path, clock: Clock, lines: int = 30, inst: int = 1) -> list[Path]:
    """One process's log of several segments; its files."""
    clock.now += 1000
    audit = Audit(
        folder, "kg", inst, SITE, segment_bytes=1500, strict=True, now=clock, chain=made()
    )
    for number in range(lines):
        audit.write("config-refused", reason=f"line {number}")
        asyncio.run(audit.synced())
    audit.close()
    return sorted(folder.glob(f"kg-{inst:08d}-{clock.now:013d}-*"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> list[Path]:
    files = run(tmp_path, clock)
    assert len(files) > 4
    assert len({len(file.read_bytes().splitlines()) for file in files[:-1]}) <= 2
    return files


def found(folder: Path) -> list[tuple[str, int | None, str]]:
    return [(one.segment, one.line, one.what) for one in verify(folder, "kg", KEY).faults]


def until(what: Callable[[], bool]) -> None:
    for _ in range(3000):
        if what():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")


def change(file: Path, how: Callable[[list[bytes]], list[bytes]]) -> None:
    file.write_bytes(b"".join(how(file.read_bytes().splitlines(keepends=True))))


def test_a_log_that_nobody_has_touched_is_sound_and_as_its_contract_has_it(
    tmp_path: Path, log: list[Path], clock: Clock
) -> None:
    run(tmp_path, clock, inst=2)
    report = verify(tmp_path, "kg", KEY)
    assert (report.faults, report.notes, report.unsealed) == ([], [], 0)
    lines = read(tmp_path)
    assert report.lines == len(lines)
    assert sum(line["event"] == "config-refused" for line in lines) == 60
    first = [line for line in lines if line["line"] == 1]
    assert len(first) == report.segments
    assert {line["event"] for line in first} == {"log-opened"}
    assert first[-1]["chain"] != first[0]["chain"]


def test_another_sites_key_finds_every_segment_wrong(tmp_path: Path, log: list[Path]) -> None:
    report = verify(tmp_path, "kg", bytes(32))
    assert {one.segment for one in report.faults} == {file.name for file in log}


def test_a_line_that_was_changed_is_named(tmp_path: Path, log: list[Path]) -> None:
    change(log[1], lambda lines: [*lines[:2], lines[2].replace(b"line ", b"Line "), *lines[3:]])
    assert found(tmp_path) == [(log[1].name, 3, "line 3 of the log was changed")]


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_line_that_was_taken_out_is_named_the_first_and_the_last_too(
    tmp_path: Path, log: list[Path], at: int
) -> None:
    whole = len(log[1].read_bytes().splitlines())
    number = at % whole + 1
    change(log[1], lambda lines: [line for n, line in enumerate(lines, 1) if n != number])
    assert found(tmp_path) == [(log[1].name, number, f"line {number} of the log is missing")]


def test_lines_that_changed_places_are_named(tmp_path: Path, log: list[Path]) -> None:
    change(log[1], lambda lines: [lines[0], lines[2], lines[1], *lines[3:]])
    assert found(tmp_path) == [(log[1].name, 3, "line 2 of the log stands here, after later ones")]


@pytest.mark.parametrize("from_another", [False, True])
def test_a_line_that_was_put_in_is_named(
    tmp_path: Path, log: list[Path], from_another: bool
) -> None:
    twice = (log[2] if from_another else log[1]).read_bytes().splitlines(keepends=True)[1]
    change(log[1], lambda lines: [*lines[:3], twice, *lines[3:]])
    assert found(tmp_path) == [(log[1].name, 4, "no line of the log: it was put in")]


def test_a_segment_that_was_dropped_is_named(tmp_path: Path, log: list[Path]) -> None:
    log[2].unlink()
    [(segment, line, what)] = found(tmp_path)
    assert (segment, line) == (log[2].name, None)
    assert what.startswith("the segment is missing")


def test_a_whole_run_that_was_dropped_is_named_by_the_next(
    tmp_path: Path, log: list[Path], clock: Clock
) -> None:
    run(tmp_path, clock, inst=2)
    for file in log:
        file.unlink()
    [(segment, line, what)] = found(tmp_path)
    assert (segment, line) == (log[-1].name, None)
    assert what.startswith("the segment is missing")


def test_segments_that_changed_names_are_named(tmp_path: Path, log: list[Path]) -> None:
    one, two = log[1].read_bytes(), log[2].read_bytes()
    log[1].write_bytes(two)
    log[2].write_bytes(one)
    assert {segment for segment, _, _ in found(tmp_path)} >= {log[1].name, log[2].name}


def test_whatever_is_done_to_one_line_or_file_is_found_in_its_segment(
    tmp_path: Path, log: list[Path]
) -> None:
    """Each of many kinds of changes, at places of which nobody has thought."""
    chance = random.Random(52)
    for _ in range(150):
        file = chance.choice(log)
        was = file.read_bytes()
        lines = was.splitlines(keepends=True)
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                place = chance.randrange(len(was))
                file.write_bytes(was[:place] + bytes([was[place] ^ 1]) + was[place + 1 :])
            case 1:
                file.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
            case 2:
                file.write_bytes(b"".join([*lines[:at], lines[at], *lines[at:]]))
            case _:
                other = (at + 1) % len(lines)
                lines[at], lines[other] = lines[other], lines[at]
                file.write_bytes(b"".join(lines))
        # The last line of all alone may be gone as by a kill: then that is said.
        report = verify(tmp_path, "kg", KEY)
        assert file.name in {one.segment for one in report.faults} or (
            file == log[-1] and any(file.name in note for note in report.notes)
        )
        file.write_bytes(was)
    assert found(tmp_path) == []


def test_who_takes_the_process_over_rewrites_nothing_from_before(
    tmp_path: Path, clock: Clock
) -> None:
    """It has all that the process holds, after 20 lines, and seals line 10 anew."""
    chain = made()
    audit = Audit(tmp_path, "kg", 1, SITE, strict=True, now=clock, chain=chain)
    for number in range(20):
        audit.write("config-refused", reason=f"line {number}")
    asyncio.run(audit.synced())
    seal = audit._seal
    assert seal is not None
    [file] = tmp_path.glob("*.open")
    lines = file.read_bytes().splitlines(keepends=True)
    body = lines[9].partition(b',"mac"')[0].replace(b"line 8", b"line X") + b"}"
    # Every key that follows from what it has; and a segment's of the same name.
    tried = [seal.copy(), chain.segment(file.name.partition(".")[0], 2)]
    for key in tried:
        for _ in range(30):
            change(
                file,
                lambda lines: [
                    *lines[:9],
                    body[:-1] + b',"mac":"' + key.copy().of(body).encode() + b'"}\n',  # noqa: B023
                    *lines[10:],
                ],
            )
            assert found(tmp_path) == [(file.name, 10, "line 10 of the log was changed")]
            key.step()
    change(file, lambda now: [*now[:9], lines[9], *now[10:]])
    audit.close()
    assert found(tmp_path) == []


def test_a_process_forgets_what_it_was_handed(tmp_path: Path) -> None:
    secrets: dict[str, object] = {"key": "00", "audit": chains.draw(KEY, "mediator")}
    given = chains.chains(secrets)
    assert given is not None
    assert secrets == {"key": "00"}
    name, key = given.next()
    assert name.endswith(".0")
    worker = {"audit": chains.handed(*given.next())}
    assert chains.chain(worker) is not None
    assert worker == {}
    held = given._chains.copy()
    for _ in range(100):
        assert held.make(b"chain") != key
        held.step()


@pytest.mark.parametrize("told", [{}, {"run": "ab"}, {"run": "ab", "key": "00"}, {"key": 7}, "x"])
def test_a_hand_over_that_makes_no_sense_is_refused_and_not_shown(told: object) -> None:
    with pytest.raises(chains.NoChain) as refused:
        chains.chains({"audit": told})
    assert "00" not in str(refused.value)
    assert chains.chains({}) is None


CHILD = """
import asyncio, sys
from pathlib import Path
from sealmq.audit import Audit, chain
audit = Audit(Path(sys.argv[1]), "kg", 1, "00c0ffee", chain=chain.first(
    {"audit": chain.draw(bytes(range(32)), "kg")}))
while True:
    audit.write("stop", reason="x")
    asyncio.run(audit.synced())
    print(flush=True)
"""


def killed(folder: Path) -> Path:
    """What a process that was killed has left open."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    for _ in range(5):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    child.stdout.close()
    [left] = folder.glob("*.open")
    return left


def test_what_kill_9_leaves_is_told_and_no_fault_and_a_line_less_is_one(
    tmp_path: Path, clock: Clock
) -> None:
    left = killed(tmp_path)
    with left.open("ab") as file:
        file.write(b'{"v":1,"id":"00c0')
    report = verify(tmp_path, "kg", KEY)
    assert report.faults == []
    assert ["in the middle of a line (17 bytes)" in note for note in report.notes] == [True]
    run(tmp_path, clock, 1, inst=2)
    report = verify(tmp_path, "kg", KEY)
    assert report.faults == []
    assert ["in the middle of a line (17 bytes)" in note for note in report.notes] == [True]
    closed = left.with_suffix("")
    last = len(closed.read_bytes().splitlines())
    change(closed, lambda lines: lines[:-1])
    assert found(tmp_path) == [(closed.name, last, f"line {last} of the log is missing")]


def test_a_tail_that_somebody_made_unreadable_is_no_torn_line(tmp_path: Path, clock: Clock) -> None:
    left = killed(tmp_path)
    change(left, lambda lines: [*lines[:2], b"x" * 20 + b"\n", *lines[3:]])
    run(tmp_path, clock, 1, inst=2)
    [(segment, line, what)] = found(tmp_path)
    assert (segment, line) == (left.with_suffix("").name, 3)
    assert "whole lines came after one that cannot be read" in what


def test_a_process_that_lives_is_told(tmp_path: Path, clock: Clock) -> None:
    audit = Audit(tmp_path, "kg", 1, SITE, strict=True, now=clock, chain=made())
    audit.write("start")
    asyncio.run(audit.synced())
    report = verify(tmp_path, "kg", KEY)
    assert (report.faults, ["is being written" in note for note in report.notes]) == ([], [True])
    audit.close()
    assert verify(tmp_path, "kg", KEY).notes == []


def test_a_process_that_lives_and_has_nothing_to_write_is_not_called_killed(
    tmp_path: Path, clock: Clock
) -> None:
    audit = Audit(tmp_path, "kg", 1, SITE, segment_bytes=1, now=clock, chain=made())
    audit.write("start")
    until(lambda: bool(list(tmp_path.glob("*.jsonl"))))
    [note] = verify(tmp_path, "kg", KEY).notes
    assert "it has had nothing to write since" in note
    audit.close()


def test_logs_from_before_there_were_seals_are_told_and_later_ones_are_a_fault(
    tmp_path: Path, clock: Clock
) -> None:
    old = Audit(tmp_path, "kg", 1, SITE, strict=True, now=clock)
    old.write("start")
    old.close()
    report = verify(tmp_path, "kg", KEY)
    assert (report.faults, report.unsealed) == ([], 1)
    run(tmp_path, clock, inst=2)
    report = verify(tmp_path, "kg", KEY)
    assert (report.faults, report.unsealed) == ([], 1)
    clock.now += 1000
    Audit(tmp_path, "kg", 3, SITE, strict=True, now=clock).close()
    late = Audit(tmp_path, "kg", 4, SITE, strict=True, now=clock)
    late.write("start")
    late.close()
    [file] = tmp_path.glob("kg-00000004-*")
    assert found(tmp_path) == [(file.name, None, "no line of it is sealed with a key of this site")]


def test_a_disk_that_was_full_leaves_a_sound_log(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is urgent is written first; a line that failed halfway is sealed again."""
    full, append = True, Segment.append

    def fails(self: Segment, data: bytes) -> None:
        if full and b"config-refused" in data:
            os.write(self._fd, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        append(self, data)

    monkeypatch.setattr(Segment, "append", fails)
    monkeypatch.setattr(Reserve, "ordinary", lambda self: None)
    audit = Audit(
        tmp_path, "kg", 1, SITE, strict=True, now=clock, chain=made(), spare=tmp_path / "spare"
    )
    audit.write("config-refused", reason="waits")
    until(lambda: audit.error is not None)
    audit.write("epoch", label="sensors", epoch=2)
    until(lambda: any(b'"epoch"' in file.read_bytes() for file in tmp_path.glob("*.open")))
    full = False
    audit.close()
    events = [line["event"] for line in read(tmp_path)]
    assert events == ["log-opened", "epoch", "config-refused", "log-ended"]
    assert verify(tmp_path, "kg", KEY).faults == []


def test_a_number_that_a_stranger_wrote_costs_nothing(tmp_path: Path, log: list[Path]) -> None:
    """Each would make the verifier step through so many keys."""
    line = b'{"v":1,"line":9007199254740991,"mac":"' + b"0" * 32 + b'"}\n'
    change(log[0], lambda lines: [*lines, *[line] * 1000])
    report = verify(tmp_path, "kg", KEY)
    assert len(report.faults) == 1000
    assert report.left_out == 0


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("log-expired", {"notes": 5}),
        ("log-expired", {"notes": [5]}),
        ("log-expired", {"notes": ["kg-1-1-" + "9" * 5000]}),
        ("log-opened", {"chain": "x"}),
        ("log-opened", {"chain": "x", "lines": "many"}),
        ("log-recovered", {"segment": [], "lines": 1, "dropped_bytes": 0}),
        (["log-ended"], {}),
    ],
)
def test_a_sealed_line_of_a_wrong_shape_ends_nothing(
    tmp_path: Path, clock: Clock, event: str, fields: dict[str, object]
) -> None:
    """Of a process that was taken over, which has its own keys."""
    audit = Audit(tmp_path, "kg", 1, SITE, now=clock, chain=made())
    with audit._lock:
        audit._put(event, fields, clock.now)  # type: ignore[arg-type]
    audit.close()
    told = found(tmp_path)
    if "9" * 5000 in str(fields) or not isinstance(event, str):
        assert told == []
    else:
        assert [one[1:] for one in told] == [(2, "it is sealed, and SealMQ writes no such record")]


def test_a_number_that_no_segment_has_makes_nobody_count_to_it(
    tmp_path: Path, log: list[Path]
) -> None:
    far = log[-1].with_name(f"{log[-1].name.rpartition('-')[0]}-{'9' * 15}.jsonl")
    far.write_bytes(log[-1].read_bytes())
    assert [one[0] for one in found(tmp_path)] == [far.name.removesuffix(".jsonl")]


def test_a_gap_of_many_lines_costs_one_key_each(
    tmp_path: Path, log: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's numbers as well as a real gap: counted, since the machine may be busy."""
    steps, skip = [0], chains.SegmentSeal.skip

    def counted(self: chains.SegmentSeal) -> None:
        steps[0] += 1
        skip(self)

    high = b'{"v":1,"line":60000,"mac":"' + b"0" * 32 + b'"}\n'
    change(log[0], lambda lines: [*lines, *[high] * 50])
    monkeypatch.setattr(chains.SegmentSeal, "skip", counted)
    assert len(verify(tmp_path, "kg", KEY).faults) == 50
    assert steps[0] < 61_000


def test_an_anchor_finds_what_the_sites_own_key_has_written_anew(
    tmp_path: Path, log: list[Path], clock: Clock
) -> None:
    """Root rewrites everything: seals are good again, and only what lies elsewhere tells."""
    kept = json.loads(json.dumps(anchor(SITE, clock.now, [verify(tmp_path, "kg", KEY)])))
    heads = kept["roles"][tmp_path.name]
    assert set(heads) == {file.name for file in log}
    rewritten(log)
    assert found(tmp_path) == []
    report = verify(tmp_path, "kg", KEY)
    differs(report, heads)
    assert [one.segment for one in report.faults] == [log[1].name]
    log[-1].unlink()
    report = verify(tmp_path, "kg", KEY)
    differs(report, heads)
    assert {log[1].name, log[-1].name} <= {one.segment for one in report.faults}


def rewritten(log: list[Path]) -> None:
    """One line of the second segment, with all seals after it, by the site's key."""
    named = json.loads(log[1].read_bytes().splitlines()[0])["chain"]
    first = chains.Chains(run := named.partition(".")[0], chains.run_key(KEY, "kg", run)).next()
    seal = chains.Chain(*first).segment(log[1].name.partition(".")[0], 2)

    def again(lines: list[bytes]) -> list[bytes]:
        bodies = [line.partition(b',"mac"')[0] for line in lines]
        bodies[2] = bodies[2].replace(b"line ", b"Line ")
        return [body + b',"mac":"' + seal.of(body + b"}").encode() + b'"}\n' for body in bodies]

    change(log[1], again)


def test_each_start_and_each_worker_has_keys_of_its_own() -> None:
    told = chains.draw(KEY, "mediator")
    other = chains.draw(KEY, "mediator")
    assert told["run"] != other["run"]
    run = chains.run_key(KEY, "mediator", told["run"])
    keys = {chains.run_key(KEY, "kg", told["run"]), run, bytes.fromhex(other["key"])}
    given = chains.Chains(told["run"], run)
    keys |= {given.next()[1] for _ in range(8)}
    assert len(keys) == 11


def test_a_report_counts_what_it_does_not_list() -> None:
    report = Report("kg")
    for number in range(1500):
        report.fault("a", number, "x")
    assert (len(report.faults), report.left_out) == (1000, 500)


# --- written by a newer SealMQ ---


@pytest.mark.parametrize("at", [0, 3])
def test_lines_of_a_newer_format_are_named_as_such_and_not_called_changed(
    log: list[Path], tmp_path: Path, at: int
) -> None:
    """A whole log of a newer SealMQ, or one that it went on with."""
    files = log if not at else log[-1:]
    newer = 0
    for file in files:
        lines = file.read_bytes().splitlines(keepends=True)
        lines[at:] = [line.replace(b'{"v":1,', b'{"v":2,', 1) for line in lines[at:]]
        newer += len(lines) - at
        file.write_bytes(b"".join(lines))
    faults = [what for _, _, what in found(tmp_path) if "missing" not in what]
    assert len(faults) == newer > 0
    for what in faults:
        assert "has the format 2; this SealMQ" in what
        assert "a newer one is needed" in what


def test_who_changes_a_line_and_calls_it_newer_is_told_of_all_the_same(
    log: list[Path], tmp_path: Path
) -> None:
    lines = log[1].read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'{"v":1,', b'{"v":9,', 1).replace(b"line", b"none")
    log[1].write_bytes(b"".join(lines))
    faults = [(segment, line) for segment, line, _ in found(tmp_path)]
    assert (log[1].name, 3) in faults
