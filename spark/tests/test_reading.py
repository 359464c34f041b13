"""What the reader calls good is what an independent validator calls good; nothing gets lost."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyspark.sql import Row, SparkSession

from contract import Contract
from lines_made import AUDIT, BASES, HIL, NONCE, changed, fuzzed, values_as_written, written
from sealmq_spark import contracts
from sealmq_spark.reading import NAMELESS, as_written, judge, rows

# Blanks between members, signs of numbers, escapes that our writers have no use for.
_UNUSUAL = re.compile(r"[,:{\[][ \t]|[ \t][,}\]]|\\|[ \t\r]$")
SPEC = Path(__file__).resolve().parents[2] / "shared_spec"


def judged(spark: SparkSession, texts: list[str] | list[bytes]) -> list[Row]:
    """The lines as `judge` gives them, in the order of the texts."""
    kind = "binary" if texts and isinstance(texts[0], bytes) else "string"
    numbered = [(str(number), text) for number, text in enumerate(texts)]
    frame = spark.createDataFrame(numbered, f"file string, raw {kind}")
    found = judge(frame.selectExpr("file", "CAST(raw AS string) AS raw")).collect()
    assert len(found) == len(texts), "a line was lost or doubled"
    return sorted(found, key=lambda row: int(row.file))


def test_good_is_what_a_validator_calls_good(spark: SparkSession) -> None:
    rng = random.Random("reading")
    made = [(name, changed(base, rng, n)) for name, base in BASES.items() for n in range(900)]
    found = judged(spark, [text for _, text in made])
    valid = {name: Contract(name) for name in BASES}
    for (_, text), row in zip(made, found, strict=True):
        line = json.loads(text)
        fits = [name for name, one in valid.items() if one.is_valid(line)]
        assert row.kind == (fits[0] if fits else "bad"), (text, row.reason)
        assert (row.reason is None, row.id) == ((True, line["id"]) if fits else (False, None)), text
        for name in BASES:
            kept = row[name] and {k: v for k, v in row[name].asDict().items() if v is not None}
            assert kept == (line if [name] == fits else None), text
    counted = Counter(row.kind for row in found)
    assert min(counted.values()) > 150, f"the test makes too few of one sort: {counted}"
    assert len({row.reason for row in found}) > 40


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.full)])
def test_fuzzed_lines_are_refused_as_ever(spark: SparkSession, every: int) -> None:
    """data/refused.json has what the reader says of each of ten thousand: its contract, or why it
    is bad. Whoever makes the reader anew makes it say the same."""
    known = json.loads((Path(__file__).parent / "data" / "refused.json").read_bytes())
    texts = [fuzzed(number) for number in range(10_000)]
    assert zlib.crc32("\n".join(texts).encode()) == known["crc"], "these are other lines"
    wanted = [known["said"][int(number)] for number in known["lines"].split()][::every]
    found = judged(spark, texts[::every])
    said = [row.reason if row.kind == "bad" else row.kind for row in found]
    other = [each for each in zip(texts[::every], wanted, said, strict=True) if each[1] != each[2]]
    assert other[:10] == []


def test_lines_as_our_writers_write_them_are_known_as_they_are_judged(spark: SparkSession) -> None:
    """What is good at the first look is what it is in detail; and of what is good in detail little
    is not known at the first look."""
    texts = [*values_as_written(), *map(written, range(2_500))]
    found = {int(row.file): row for row in judged(spark, texts)}
    numbered = [(str(number), text) for number, text in enumerate(texts)]
    frame = spark.createDataFrame(numbered, "file string, raw string")
    for name in BASES:
        lines, good = as_written(frame, name)
        known = {int(row.file): row[name] for row in lines.where(good).collect()}
        other = [
            (texts[number], line, found[number])
            for number, line in known.items()
            if (found[number].kind, found[number][name]) != (name, line)
        ]
        assert other[:5] == []
        assert len(known) > 100, f"{name}: only {len(known)} are as our writers write them"
        dense = [
            text
            for number, text in enumerate(texts)
            if found[number].kind == name and number not in known and not _UNUSUAL.search(text)
        ]
        assert dense[:5] == []


def test_bytes_that_are_no_text_are_not_known_at_the_first_look(spark: SparkSession) -> None:
    line = json.dumps(AUDIT, ensure_ascii=False, separators=(",", ":")).encode()
    found = [line, line.replace("é".encode(), b"\xe9"), line.replace(b"panel", b"pa\xffel")]
    frame = spark.createDataFrame([("", each) for each in found], "file string, raw binary")
    lines, good = as_written(frame.selectExpr("CAST(raw AS string) AS raw"), "audit")
    known = lines.selectExpr(f"{good} AS good").collect()
    assert [row.good for row in known] == [True, False, False]


def test_what_no_validator_sees_is_bad(spark: SparkSession) -> None:
    """All in one frame, since each costs seconds."""
    good = [json.dumps(base) for base in (AUDIT, HIL, NONCE)]
    bad = [text for each in good for text in spoiled(each)]
    found = judged(spark, [*bad, *(space for text in good for space in (f" \t{text}\t\r", text))])
    assert [row.kind for row in found[: len(bad)]] == ["bad"] * len(bad)
    for number in range(len(bad), len(found), 2):
        assert [row.kind for row in found[number : number + 2]] != ["bad", "bad"]


def spoiled(text: str) -> list[str]:
    return [
        text + " x", text + text, text + "}", text[:-1] + ',"v":1}', text[:-1] + ",}", text[:-1],
        text.replace('"v": 1', '"v": 1.0'), text.replace('"v": 1', '"v": 01'),
        text.replace('"v": 1', '"v": NaN'), text.replace('"', "'"), text[1:],
        text + "\u2028", text + "\u0085", text + "\u2029", text + "\n",
    ]  # fmt: skip


def test_reasons(spark: SparkSession) -> None:
    said = {
        "not json": "no JSON object",
        "[1]": "no JSON object",
        "null": "no JSON object",
        '{"event":"delivered"': "no JSON object",
        "{}": NAMELESS,
        '{"v":1}': NAMELESS,
        '{"board":"behaviour"}': NAMELESS,
        '{"event":"none"}': "there is no such event",
        '{"event":"delivered","v":1,"v":1}': "a field stands twice",
        '{"event":"delivered","x":1}': "unknown field x",
        '{"event":"delivered"}': "missing: v",
        json.dumps({**AUDIT, "pid": 1}): "this event has no pid",
        json.dumps(
            {**AUDIT, "count": 0}
        ): "count must be a whole number from 1 to 9007199254740991",
        json.dumps({**AUDIT, "count": None}): "count must be a whole number from 1 to "
        "9007199254740991",
        json.dumps({**AUDIT, "client": ""}): "client must be text of 1 to 64 characters",
        json.dumps({**AUDIT, "minute_ms": 1}): "minute_ms must be a multiple of 60000",
        json.dumps({**HIL, "outcome": "fail"}): "cause is missing",
        json.dumps({**HIL, "cause": "x"}): "cause where it passed",
        json.dumps({**HIL, "cut_op": "time"}): "cut_op without cut_after",
        json.dumps({**NONCE, "layer": "x"}): "layer must be m1 or m2 or m3 or up or down or proof "
        "or token or request or record",
        json.dumps(HIL) + "x": "more stands behind the JSON object",
    }
    found = judged(spark, list(said))
    assert {text: row.reason for text, row in zip(said, found, strict=True)} == said
    assert all(row.raw == text[:500] for text, row in zip(said, found, strict=True))


def test_lines_that_could_end_a_job_are_only_bad(spark: SparkSession) -> None:
    text = json.dumps(AUDIT)
    escapes = '"' + '\\"' * 300_000 + '"'
    texts = [
        b"\xff\xfe" + text.encode(), text.encode("utf-16"), b"\x00" * 100, b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"event":' + b"9" * 5000 + b"}",
        text.replace('"panel"', escapes).encode(),
        text.replace('"panel"', '"' + "x" * 900_000 + '"').encode(),
        (text[:-1] + ',"v": 1' * 50_000 + "}").encode(),
        (text[:-1] + "".join(f',"k{n}": 1' for n in range(50_000)) + "}").encode(),
        b'{"event":"delivered","client":"\\ud800"}', b'{"event":"delivered","client":"\\u00"}',
        b'{"nonce":' + b"[" * 2000 + b"]" * 2000 + b"}",
        json.dumps({**AUDIT, "event": "keys-changed", "notes": ["\\" * 200] * 5000}).encode(),
    ]  # fmt: skip
    found = judged(spark, texts)
    assert [row.kind for row in found] == ["bad"] * len(texts)
    assert found[0].reason == "no UTF-8"
    assert all(len(row.raw) <= 500 and row.reason for row in found)
    longest = {**AUDIT, "event": "keys-changed", "kseq": 1, "notes": ['"\U0001f600' * 100] * 100}
    for name in ("client", "topic", "label", "count", "minute_ms"):
        longest.pop(name)
    assert [row.kind for row in judged(spark, [json.dumps(longest)])] == ["audit"]


def test_blank_lines_are_none_and_every_byte_is_counted(spark: SparkSession) -> None:
    found = judged(spark, ["", " \t\r", "é", json.dumps(AUDIT)])
    assert [(row.kind, row.size) for row in found] == [
        ("blank", 1), ("blank", 4), ("bad", 3), ("audit", len(json.dumps(AUDIT)) + 1),
    ]  # fmt: skip


def test_rows_of_documents(spark: SparkSession) -> None:
    schema = json.loads((SPEC / "bench.schema.json").read_bytes())
    good = {"measure": "a", "variant": "b", "size": 0, "value": 1.5, "unit": "ms", "n": 1}
    good["params"] = {"x": True, "y": "é", "z": 1.5}
    bad = [
        {**good, "n": 0}, {**good, "value": -1}, {**good, "value": "NaN"},
        {**good, "params": {"X": 1}}, {**good, "params": {"x": None}},
        {**good, "params": {"x": [1]}}, {**good, "more": 1}, {},
    ]  # fmt: skip
    for row in bad:
        assert not jsonschema.Draft202012Validator(schema).is_valid({"rows": [row]}), row
    texts = [
        json.dumps({"rows": [good, *bad]}, indent=1), "[]", '{"rows":[]}', '{"a":1}', "x", "",
        json.dumps({"rows": [good], "more": 1}),
        # Two runs of a bench appended to one file, and what is no JSON behind one.
        2 * (json.dumps({"rows": [good]}) + "\n"), json.dumps({"rows": [good]}) + " x",
        # What looks like a row, as a text.
        json.dumps({"rows": [json.dumps(good)]}), json.dumps({"rows": [good, json.dumps(good)]}),
        json.dumps({"rows": [json.dumps(good), good]}),
    ]  # fmt: skip
    frame = spark.createDataFrame(
        [(text, str(n)) for n, text in enumerate(texts)], "raw string, file string"
    ).selectExpr("*", "timestamp'2026-01-01' AS made")
    found = rows(frame).collect()
    assert Counter((row.file, row.reason is None) for row in found) == {
        ("0", True): 1, ("0", False): len(bad), **{(str(n), False): 1 for n in range(1, 12)}
    }  # fmt: skip
    (kept,) = (row.bench.asDict() for row in found if row.reason is None)
    assert kept == {**good, "params": {"x": "true", "y": "é", "z": "1.5"}}
    whole = {row.reason for row in found if row.file != "0"}
    assert whole == {"no document of a bench"}


def test_words_for_people_make_no_other_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a report would have to read all logs again, also those that are gone by now."""
    now = contracts.fingerprint()
    load = contracts.load

    def said(name: str) -> dict[str, Any]:
        return {**load(name), "title": "another", "description": "others"}

    def loosened(name: str) -> dict[str, Any]:
        schema = load(name)
        return {**schema, "required": [each for each in schema["required"] if each != "run"]}

    monkeypatch.setattr(contracts, "load", said)
    assert contracts.fingerprint() == now
    monkeypatch.setattr(contracts, "load", loosened)
    assert contracts.fingerprint() != now
