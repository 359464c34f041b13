"""`sealmq audit verify` of a site that runs: the key generator's and the mediator's own lines."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from run.sites import sealmq, until
from run.test_run_real import RealSite, real
from sealmq.audit.chain import Chains, run_key
from sealmq.site import masterkey
from sealmq.site.config import load
from sealmq.site.layout import Layout

__all__ = ["real"]


def verify(site: RealSite, *words: str) -> tuple[int, dict[str, Any]]:
    done = sealmq("audit", "verify", str(site.root), "--json", *words)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def segments(site: RealSite, role: str) -> list[Path]:
    return sorted((site.root / "audit" / role).glob("*.jsonl"))


def test_a_killed_mediator_leaves_a_sound_log_and_each_change_is_named(real: RealSite) -> None:
    up = real.up().ready()
    check_forgotten(real)
    os.kill(real.row("mediator")["pid"], signal.SIGKILL)
    until(lambda: "mediator is ready again" in up.err.read_text(), "the mediator's restart")
    code, told = verify(real)
    assert (code, told["sound"]) == (0, True)
    notes = [note for role in told["roles"] for note in role["notes"]]
    assert sum("its process was killed after line" in note for note in notes) == 1
    assert sum("is being written" in note for note in notes) == 2
    assert up.end() == 0
    assert not any(role["unsealed"] for role in told["roles"])
    anchor = str(real.root.parent / "anchor.json")
    code, told = verify(real, "--save", anchor)
    assert (code, told["sound"]) == (0, True)

    # What nobody may change: who started, and by which rules.
    [first, second] = segments(real, "mediator")
    was = second.read_bytes()
    second.write_bytes(was.replace(b'"enforce":true', b'"enforce":false'))
    done = sealmq("audit", "verify", str(real.root))
    line = next(n for n, text in enumerate(was.splitlines(), 1) if b'"enforce"' in text)
    assert done.returncode == 1
    assert f"FAULT {second.name}, line {line}: line {line} of the log was changed" in done.stdout
    second.write_bytes(was)
    assert verify(real, "--anchor", anchor)[0] == 0
    # A border whose whole log is gone.
    more = json.loads(Path(anchor).read_text())
    more["roles"]["border-a"] = {"border-00000001-0000000000001-000001.jsonl": [1, "00"]}
    Path(anchor).write_text(json.dumps(more))
    code, told = verify(real, "--anchor", anchor)
    assert code == 1
    [fault] = [fault for role in told["roles"] for fault in role["faults"]]
    assert fault["what"] == "the segment is missing; the anchor has it"
    first.unlink()
    done = sealmq("audit", "verify", str(real.root), "--save", "-")
    assert (done.returncode, done.stdout) == (1, "")
    assert "FAULT" in done.stderr
    code, told = verify(real)
    assert code == 1
    faults = [fault for role in told["roles"] for fault in role["faults"]]
    assert {fault["segment"] for fault in faults} == {first.name}


def test_an_anchor_that_is_none_is_one_clear_line(real: RealSite) -> None:
    file, text = real.root.parent / "anchor.json", ""
    for text in ("[]", "{", '{"sealmq-audit-anchor": 1, "roles": {"kg": 7}}'):
        file.write_text(text)
        done = sealmq("audit", "verify", str(real.root), "--anchor", str(file))
        assert done.returncode == 1
        assert done.stderr.startswith(f"sealmq: {file} is no ")
    done = sealmq("audit", "verify", str(real.root), "--save", str(file))
    assert (done.returncode, file.read_text()) == (1, text)
    assert "is there already" in done.stderr


def check_forgotten(site: RealSite) -> None:
    """The mediator's memory is its user's to read: the first keys of its log are not in it."""
    layout = Layout.open(site.root)
    key = masterkey.role_keys(layout, load(layout.config)).audit
    [segment] = (site.root / "audit" / "mediator").glob("*.open")
    run, _, number = json.loads(segment.read_bytes().splitlines()[0])["chain"].partition(".")
    assert number == "0"
    begun = run_key(key, "mediator", run)
    _, first = Chains(run, begun).next()
    memory = _memory(site.row("mediator")["pid"])
    assert run.encode() in memory, "else nothing was read"
    for secret in (key, begun, first):
        assert secret not in memory
        assert secret.hex().encode() not in memory


def _memory(pid: int) -> bytes:
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, rights, *_ = line.split()
            if rights.startswith("rw"):
                begin, end = (int(word, 16) for word in where.split("-"))
                try:
                    memory.seek(begin)
                    found.append(memory.read(end - begin))
                except (OSError, ValueError, OverflowError):
                    continue
    return b"".join(found)
