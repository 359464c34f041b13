"""What the pages show is what was reduced, and what was reduced is what was measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence.blocks import BLOCKS, block
from evidence.collect import noted
from evidence.figures import FIGURES, made
from evidence.pages import (
    LOOSE,
    PAGES,
    STRICT,
    holds,
    problems,
    read,
    stated,
    unused,
    written,
)
from evidence.parts import PARTS
from evidence.place import REDUCED, ROOT, EvidenceError
from evidence.reduced import Reduced, Row, load, order, text

REDUCED_NOW = load()
TEXTS = {page: read(page) for page in PAGES}
STATED = stated()


def told(page: str, said: str, reduced: Reduced = REDUCED_NOW) -> list[str]:
    return problems(page, said, reduced, STATED)


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_of_a_page_is_in_the_reduced_output(page: str) -> None:
    assert told(page, TEXTS[page]) == []
    assert written(page, TEXTS[page], REDUCED_NOW) == TEXTS[page]


def test_nothing_is_stated_or_reduced_for_no_page() -> None:
    assert unused(TEXTS, STATED, REDUCED_NOW) == []


def test_every_page_is_looked_at() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for pattern in (
            "README.md",
            "*/README.md",
            "*/*/README.md",
            "SECURITY.md",
            "*/PERFORMANCE.md",
        )
        for path in ROOT.glob(pattern)
        if not path.relative_to(ROOT).parts[0].startswith((".", "build"))
    }
    assert found <= set(PAGES)
    assert {"gateway/PERFORMANCE.md", "firmware/PERFORMANCE.md"} <= set(STRICT)
    assert not set(STRICT) & set(LOOSE)


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


def test_the_figures_are_made_of_the_rows_and_the_file_is_as_it_is_written() -> None:
    assert made(replace(REDUCED_NOW, figures={})).figures == REDUCED_NOW.figures
    assert text(REDUCED_NOW) == REDUCED.read_text(encoding="utf-8")
    for figure in REDUCED_NOW.figures.values():
        assert set(figure) == {"value", "shown", "unit", "of", "source", "command"}
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


# --- seen red ------------------------------------------------------------------------------------


def other(digit: str) -> str:
    return str((int(digit) + 1) % 10)


def changeable(page: str) -> list[int]:
    """Digits that a reader sees: not those of names, links, commands and comments."""
    said = TEXTS[page]
    kept = re.sub(
        r"^(```|~~~)(?:.|\n)*?^\1 *$|^ {4}.*$",
        lambda m: "\n" * 0 + " " * len(m[0]),
        said,
        flags=re.M,
    )
    kept = re.sub(r"<!--.*?-->|(?<=\])\([^)]*\)", lambda m: " " * len(m[0]), kept)
    return [m.start(1) for m in re.finditer(r"(?<![\w.,/-])[+-]?(?:\d[\d,.]*)?(\d)", kept)]


@pytest.mark.parametrize("page", STRICT)
def test_one_digit_changed_anywhere_is_noticed(page: str) -> None:
    said = TEXTS[page]
    ends = [
        (m.start(), m.end())
        for m in re.finditer(r"<!-- (\S+): begin -->(?:.|\n)*?<!-- \1: end -->", said)
    ]
    places = changeable(page)
    assert len(places) > 5
    within = [at for at in places if any(a <= at < b for a, b in ends)]
    # Of a table each digit counts alike: some of them.
    chosen = [at for at in places if at not in set(within)] + within[:: max(1, len(within) // 12)]
    for at in chosen:
        changed = said[:at] + other(said[at]) + said[at + 1 :]
        assert told(page, changed), f"{page}: {said[max(0, at - 40) : at + 20]!r}"


@pytest.mark.parametrize(
    "more",
    [
        "It takes 1.7 times as much.",
        "It takes 1.7x as much.",
        "| publish | 27,412 |",
        "| publish | `27,412` |",
        "Some `27k` of them.",
        "27k instructions",
        "**27,412** instructions",
        "a third of it",
        "twice as fast",
        "about four minutes",
        "under a minute",
        "a thousand times cheaper",
        "-3.5 % of CPU",
        "±2 %",
        "(12 ms)",
        "<b>12</b> ms",
        "12\nms",
        "forty-two claims",
        "    make demo        # under 30 seconds",
        "```console\n$ make demo     # 12 s here\n```",
    ],
)
def test_a_figure_from_nowhere_is_noticed(more: str) -> None:
    for page in ("README.md", "firmware/PERFORMANCE.md"):
        assert told(page, f"{TEXTS[page]}\n\n{more}\n"), more


@pytest.mark.parametrize(
    "more",
    [
        "takes 99 ms",
        "| 99 kB |",
        "a call of 3.3 and 99 kB",
        "`99 ms`",
        "99k",
        "four minutes",
        "9 %",
    ],
)
def test_a_figure_with_a_unit_is_noticed_where_limits_are_stated(more: str) -> None:
    for page in LOOSE:
        assert told(page, f"{TEXTS[page]}\n\n{more}\n"), page


@pytest.mark.parametrize(
    "more",
    [
        "The client m1 speaks SHA-256 on an ESP32, x86_64.",
        "See [this](page-12.md#part-3).",
        "```console\n$ sealmq pub -m 21.5\n```",
        "1. First\n2. Second",
        "<!-- 12 -->",
    ],
)
def test_names_and_commands_are_no_figures(more: str) -> None:
    assert told("README.md", f"{TEXTS['README.md']}\n\n{more}\n") == []


def test_what_was_measured_anew_changes_the_page() -> None:
    figures = {name: dict(of) for name, of in REDUCED_NOW.figures.items()}
    figures["reserve"]["shown"] = "999,000"
    newer = replace(REDUCED_NOW, figures=figures)
    page = "firmware/README.md"
    assert any("reserve is 999,000" in line for line in told(page, TEXTS[page], newer))
    assert "999,000<!--= reserve -->" in written(page, TEXTS[page], newer)
    assert told(page, written(page, TEXTS[page], newer), newer) == []


def test_table_5_of_a_page_is_the_report_s() -> None:
    paper = [{**row, "percent": row["percent"] + 7} for row in REDUCED_NOW.rig["paper"]]
    newer = replace(REDUCED_NOW, rig={**REDUCED_NOW.rig, "paper": paper})
    page = "firmware/PERFORMANCE.md"
    assert any("the table device.json" in line for line in told(page, TEXTS[page], newer))
    now, then = (written(page, TEXTS[page], of).split("Table 5 of") for of in (newer, REDUCED_NOW))
    assert (now[0] == then[0], now[1] == then[1]) == (True, False)
    with pytest.raises(EvidenceError, match="no Table 5"):
        block("device.json", replace(REDUCED_NOW, rig={**REDUCED_NOW.rig, "paper": []}))


def test_words_that_no_longer_hold_are_told() -> None:
    figures = {name: dict(of) for name, of in REDUCED_NOW.figures.items()}
    figures["connect.share"]["value"] = 0.02
    newer = replace(REDUCED_NOW, figures=figures)
    assert any("no longer true" in line for line in told("README.md", TEXTS["README.md"], newer))
    assert written("README.md", TEXTS["README.md"], newer) == TEXTS["README.md"]


def test_conditions() -> None:
    values: dict[str, Any] = {"a.b": {"value": 2}, "c": {"value": 3}}
    reduced = Reduced({}, {}, {}, values)
    true = ("a.b = 2", "1 < a.b < c", "a.b <= 2", "c = 3 = c")
    false = ("a.b = 3", "a.b < 2", "1 < a.b < 1.5", "c < a.b")
    assert [holds(said, reduced) for said in (*true, *false)] == [True] * 4 + [False] * 4
    for wrong in ("a.b", "nobody < 2", "a.b > 2"):
        with pytest.raises(EvidenceError):
            holds(wrong, reduced)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(EvidenceError, match="no figure nobody"):
        told("README.md", "takes 5<!--= nobody --> s")
    assert told("README.md", "<!-- nobody: begin -->\n5\n<!-- nobody: end -->")
    assert {figure.name for figure in FIGURES} == set(REDUCED_NOW.figures)
    shown = "\n".join(TEXTS.values())
    assert all(f"<!-- {name}: begin -->\n" in shown for name in BLOCKS)
