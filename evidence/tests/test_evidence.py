"""What the pages show is what was reduced, and what was reduced is what was measured."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence.blocks import BLOCKS, block
from evidence.collect import noted
from evidence.pages import PAGES, named, outdated, read, written
from evidence.parts import PARTS
from evidence.place import REDUCED, ROOT, EvidenceError
from evidence.reduced import ROUNDS, Row, load, order, text

REDUCED_NOW = load()
TEXTS = {page: read(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_a_page_is_in_the_reduced_output(page: str) -> None:
    assert outdated(page, TEXTS[page], REDUCED_NOW) == []
    assert written(page, TEXTS[page], REDUCED_NOW) == TEXTS[page]


def test_every_table_stands_in_one_page() -> None:
    assert Counter(name for said in TEXTS.values() for name in named(said)) == Counter(list(BLOCKS))
    documents = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for pattern in ("*.md", "*/*.md", "*/*/*.md")
        for path in ROOT.glob(pattern)
        if not path.relative_to(ROOT).parts[0].startswith((".", "build"))
    }
    assert {page for page, said in documents.items() if named(said)} == set(PAGES)


def documents() -> dict[str, list[Row]]:
    """By part, the rows of the documents as they lie there."""
    return {
        part.name: [
            row
            for path in part.results
            if path.is_file()  # the rig's are a folder; a part that never ran has none
            for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
        ]
        for part in PARTS
    }


def test_the_reduced_rows_are_those_that_were_measured() -> None:
    for part, rows in documents().items():
        assert REDUCED_NOW.rows.get(part, []) == sorted(rows, key=order), (
            f"{part}: make evidence PARTS=none"
        )


def test_the_reduced_verdicts_are_those_of_the_rig() -> None:
    [folder] = next(part for part in PARTS if part.name == "rig").results
    lines = [
        json.loads(line)
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    hil = [line for line in lines if "behaviour" in line]
    verdicts = [line for line in hil if line["stage"] == "verdict"]
    for outcome, name in (("pass", "passed"), ("fail", "failed"), ("skip", "skipped")):
        count = sum(line["outcome"] == outcome for line in verdicts)
        assert sum(row[name] for row in REDUCED_NOW.rig["behaviours"]) == count
    cut = sum("cut_after" in line for line in hil)
    assert sum(row["cuts"] for row in REDUCED_NOW.rig["cuts"]) == cut > 0
    assert len({line["run"] for line in hil}) == 1


def test_the_reduced_shares_are_those_of_the_simulated_runs() -> None:
    """Counted here without Spark; a mean is of the runs that have something to divide by."""
    [folder] = next(part for part in PARTS if part.name == "simulations").results
    shares: dict[tuple[Any, ...], list[list[float]]] = {}
    for file in folder.glob("*.jsonl.gz"):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            if any(b'"round": %d,' % turn in line for turn in ROUNDS):
                row = json.loads(line)
                whose = (row["sites"], row["kind"], row["rule"], row["round"])
                withheld = row["bad_withheld"] + row["good_withheld"]
                bad = row["bad_withheld"] + row["bad_delivered"]
                good = row["good_delivered"] + row["good_withheld"]
                runs, *lists = shares.setdefault(whose, [[], [], [], []])
                runs.append(1)
                found = (row["bad_withheld"], row["bad_withheld"], row["good_delivered"])
                for some, of, kept in zip(found, (withheld, bad, good), lists, strict=True):
                    kept += [some / of] if of else []
    reduced = REDUCED_NOW.rig["simulations"]
    assert len(reduced) == len(shares) > 0
    for row in reduced:
        runs, *lists = shares[row["sites"], row["kind"], row["rule"], row["round"]]
        assert row["runs"] == len(runs)
        for name, kept in zip(("precision", "recall", "good"), lists, strict=True):
            mean = None if not kept else pytest.approx(sum(kept) / len(kept), abs=1e-6)
            assert row[f"{name}_mean"] == mean


def test_the_file_is_as_it_is_written() -> None:
    assert text(REDUCED_NOW) == REDUCED.read_text(encoding="utf-8")
    for part in PARTS:
        there = any(path.exists() for path in part.results)
        assert there == (part.name in REDUCED_NOW.parts), part.name
        if there and noted(part) is not None:
            assert REDUCED_NOW.parts[part.name] == noted(part), "make evidence PARTS=none"
    for note in REDUCED_NOW.parts.values():
        assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|unknown", note["commit"])


@pytest.mark.full
def test_the_results_reduce_to_that_file(tmp_path: Path) -> None:
    # A process of its own: a suite has one Spark, with other settings.
    script = (
        "import sys; from pathlib import Path; from evidence.reduce import again; "
        "from evidence.reduced import text; found, why = again(Path(sys.argv[1])); "
        "Path(sys.argv[1], 'found').write_text(text(found)); sys.exit(why or 0)"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "found").read_text(encoding="utf-8") == text(REDUCED_NOW)


@pytest.mark.parametrize("page", PAGES)
def test_one_digit_changed_in_a_table_is_noticed(page: str) -> None:
    said = TEXTS[page]
    for table in re.finditer(r"<!-- (\S+): begin -->\n(.*?)<!-- \1: end -->", said, re.DOTALL):
        digits = [found.start() for found in re.finditer(r"\d", table[2])]
        for at in digits[:: max(1, len(digits) // 12)]:
            at += table.start(2)
            changed = f"{said[:at]}{(int(said[at]) + 1) % 10}{said[at + 1 :]}"
            assert len(outdated(page, changed, REDUCED_NOW)) == 1
            assert written(page, changed, REDUCED_NOW) == said


def test_what_was_measured_anew_changes_the_page() -> None:
    rows = [{**row, "value": row["value"] + 7000} for row in REDUCED_NOW.rows["flash"]]
    newer = replace(REDUCED_NOW, rows={**REDUCED_NOW.rows, "flash": rows})
    page = "hil_tests/README.md"
    [told] = outdated(page, TEXTS[page], newer)
    assert "the table flash is not what was reduced: make evidence" in told
    assert outdated(page, written(page, TEXTS[page], newer), newer) == []


def test_table_5_of_a_page_is_the_report_s() -> None:
    paper = [{**row, "percent": row["percent"] + 7} for row in REDUCED_NOW.rig["paper"]]
    newer = replace(REDUCED_NOW, rig={**REDUCED_NOW.rig, "paper": paper})
    page = "firmware/PERFORMANCE.md"
    assert any("the table device.json" in line for line in outdated(page, TEXTS[page], newer))
    now, then = (written(page, TEXTS[page], of).split("Table 5 of") for of in (newer, REDUCED_NOW))
    assert (now[0] == then[0], now[1] == then[1]) == (True, False)
    with pytest.raises(EvidenceError, match="no Table 5"):
        block("device.json", replace(REDUCED_NOW, rig={**REDUCED_NOW.rig, "paper": []}))


def test_a_table_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(EvidenceError, match=r"README.md: nobody makes the table nobody"):
        written("README.md", "<!-- nobody: begin -->\n5\n<!-- nobody: end -->", REDUCED_NOW)
