"""What a process counts for metrics: the same events as its log, and no name of anybody."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

from audit.audit_lines import Clock
from sealmq.audit import Audit
from sealmq.audit.totals import Totals, read_seen


def test_what_the_log_has_and_what_it_folds_is_counted(tmp_path: Path) -> None:
    clock = Clock()
    totals = Totals(tmp_path / "totals-0.json", tmp_path / "seen-0.json")
    audit = Audit(
        tmp_path / "log", "mediator", 7, "00c0ffee", strict=True, now=clock, totals=totals
    )
    for name in ("pump", "pump", "door"):
        audit.write("connect", client=name, peer="127.0.0.1:1")
    audit.write("disconnect", client="door", reason="it left", clean=True)
    for _ in range(1000):
        audit.write("publish-refused", client="pump", topic="a", rule="labels.x", reason="no")
        audit.count_accepted("pump", "a", "sensors")
    for _ in range(300):
        audit.count_denied("pump", "b", "labels.y")
        audit.count_unenforced("pump", "b", "labels.z", "publish")
    # The file may be written between any two of them: until the last one is in it.
    told = until(tmp_path / "totals-0.json", ["unenforced", "labels.z", 300])
    rows = [
        ["connect", "", 3],
        ["deliver-denied", "labels.y", 300],
        ["disconnect", "", 1],
        ["publish-accepted", "", 1000],
        ["publish-refused", "labels.x", 1000],
        ["unenforced", "labels.z", 300],
    ]
    assert sorted(told["events"]) == rows
    assert (told["clients"], told["connections"], told["error"]) == (1, 2, None)
    assert "pump" not in json.dumps(told)
    audit.close()
    assert not (tmp_path / "totals-0.json").exists(), "of a process that has ended"
    seen = tmp_path / "seen-0.json"
    assert stat.S_IMODE(seen.stat().st_mode) == 0o600
    assert read_seen([seen]) == {"pump": clock.now, "door": clock.now}

    # The next process goes on with it; what makes no sense is left out.
    clock.now += 1000
    later = Audit(
        tmp_path / "log", "mediator", 8, "00c0ffee", strict=True, now=clock,
        totals=Totals(None, seen),
    )  # fmt: skip
    later.write("connect", client="door", peer="127.0.0.1:1")
    later.close()
    assert read_seen([seen]) == {"pump": clock.now - 1000, "door": clock.now}
    other = tmp_path / "seen-1.json"
    other.write_text(json.dumps({"pump": clock.now + 5, "x": "y"}))
    (tmp_path / "seen-2.json").write_text("[")
    assert read_seen(tmp_path.glob("seen-*.json")) == {"pump": clock.now + 5, "door": clock.now}


def until(file: Path, row: list[Any]) -> dict[str, Any]:
    for _ in range(3000):
        if file.exists():
            told: dict[str, Any] = json.loads(file.read_bytes())
            if row in told["events"]:
                return told
        time.sleep(0.01)
    raise AssertionError("it was not told")


def test_what_stands_in_the_place_of_such_a_file_is_not_followed_or_waited_for(
    tmp_path: Path,
) -> None:
    """Root reads it where the mediator's user may write."""
    secret, link, pipe, deep = (tmp_path / name for name in ("secret", "link", "pipe", "deep"))
    secret.write_text(json.dumps({"pump": 7}))
    link.symlink_to(secret)
    deep.write_text("[" * 100_000)
    assert read_seen([link, deep]) == {}
    os.mkfifo(pipe)
    found = list[dict[str, int]]()
    reading = threading.Thread(target=lambda: found.append(read_seen([pipe])), daemon=True)
    reading.start()
    reading.join(20)
    assert found == [{}]
