"""The made-up logs: what they hold is what is told of them, and the same each time."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import generator
import jsonschema
import pytest
import spark_world as world
from spark_tally import CONTRACTS, Tally

SPEC = Path(__file__).resolve().parents[2] / "shared_spec"
LINES, PER_DAY, SEGMENT = 10_000, 4_000, 1_000
SAME_BYTES = "290c410661bfd926cbe82d0e577e1de4538fe71192c1094b17dbdd9f0b51c7ec"


def validators() -> dict[str, jsonschema.Draft202012Validator]:
    """By contract; of the audit log by event, and flat: its forty parts take milliseconds."""
    found = {}
    for name in CONTRACTS:
        schema = json.loads((SPEC / f"{name}.schema.json").read_bytes())
        for part in schema.get("oneOf", ()):
            properties = {
                field: schema["$defs"][shape["$ref"].removeprefix("#/$defs/")]
                if "$ref" in shape
                else shape
                for field, shape in {**schema["properties"], **part["properties"]}.items()
            }
            flat = {
                "type": "object",
                "properties": properties,
                "required": [*schema["required"], *part.get("required", ())],
                "additionalProperties": False,
            }
            event = part["properties"]["event"]["const"]
            found[f"{name} {event}"] = jsonschema.Draft202012Validator(flat)
        found.setdefault(name, jsonschema.Draft202012Validator(schema))
    return found


VALIDATORS = validators()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tally]:
    folder = tmp_path_factory.mktemp("logs") / "logs"
    return folder, generator.generate(folder, LINES, per_day=PER_DAY, segment_lines=SEGMENT)


def lines_of(folder: Path) -> list[str]:
    return [
        line for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()
    ]


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON Schema cannot see a field that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field stands twice")
    return found


def record(line: str) -> tuple[str, dict[str, Any]] | None:
    """(its contract, the record) of a good line, as a validator sees it that is not ours."""
    try:
        found = json.loads(line, object_pairs_hook=once)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    name = "nonce" if "nonce" in found else "hil" if "behaviour" in found else "audit"
    validator = VALIDATORS.get(f"audit {found.get('event')}" if name == "audit" else name)
    return (name, found) if validator is not None and validator.is_valid(found) else None


def test_what_is_told_is_what_is_there(made: tuple[Path, Tally]) -> None:
    folder, told = made
    seen = Tally()
    first: dict[str, str] = {}
    sealed: dict[tuple[str, str], str] = {}
    for line in lines_of(folder):
        seen.lines += 1
        good = record(line)
        if good is None or first.get(good[1]["id"], line) != line:
            seen.bad["any"] += 1
            continue
        name, found = good
        if found["id"] in first:
            seen.repeated += 1
            continue
        first[found["id"]] = line
        seen.kept[name] += 1
        if name == "audit":
            count_audit(found, seen)
        if name == "nonce":
            pair = found["key"], found["nonce"]
            assert sealed.setdefault(pair, found["digest"]) == found["digest"], "used twice"
    for path in folder.rglob("*.json"):
        document = json.loads(path.read_bytes())
        VALIDATORS["bench"].validate(document)
        seen.kept["bench"] += len(document["rows"])
    assert seen.bad.total() == told.bad.total() > 4
    assert (seen.lines, seen.repeated) == (told.lines, told.repeated)
    assert seen.repeated > 30
    assert seen.kept == told.kept
    assert seen.events == told.events
    assert seen.decided == told.decided
    topics = {
        found["topic"]
        for line in first.values()
        if (found := json.loads(line)).get("event") == "delivered"
    }
    assert len(topics) == len(told.topics)


def count_audit(found: dict[str, Any], seen: Tally) -> None:
    seen.events[found["event"]] += 1
    event = found.get("of", found["event"])
    if "rule" in found and event != "topic-labelled":
        seen.decided[event, found["rule"]] += found.get("count", 1)
    elif event in ("connect", "delivered", "publish-accepted", "config-reloaded"):
        seen.decided[event, ""] += found.get("count", 1)


def test_lines_come_as_they_do_from_a_gateway(made: tuple[Path, Tally]) -> None:
    folder, told = made
    assert abs(told.lines - LINES) < 10
    assert told.files == sum(path.is_file() for path in folder.rglob("*"))
    assert told.bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    segments = sorted((folder / "audit" / "mediator").glob("*.jsonl"))
    times = [
        [int(at) for at in re.findall(r'"at_ms":(\d+)', segment.read_text())]
        for segment in segments
    ]
    assert any(each != sorted(each) for each in times)
    assert len({at // world.DAY_MS for each in times for at in each}) >= 3


def test_the_same_bytes_however_many_write(made: tuple[Path, Tally], tmp_path: Path) -> None:
    folder, told = made
    other = tmp_path / "logs"
    again = generator.generate(other, LINES, per_day=PER_DAY, segment_lines=SEGMENT, workers=2)
    assert again == told
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for name in names:
        data = (folder / name).read_bytes()
        assert data == (other / name).read_bytes(), name
        digest.update(f"{name}\n".encode() + data)
    # On another machine, under another Python as well. Whoever changes the logs changes it.
    assert digest.hexdigest() == SAME_BYTES


def test_another_seed_makes_other_logs(made: tuple[Path, Tally], tmp_path: Path) -> None:
    other = generator.generate(
        tmp_path / "logs", LINES, seed="2", per_day=PER_DAY, segment_lines=SEGMENT
    )
    assert other.decided != made[1].decided


def test_topics_are_many_and_few_of_them_are_most() -> None:
    """Of a million lines 470,000 are deliveries."""
    rnd = random.Random("skew").random
    drawn = Counter(world.popular_topic(rnd()) for _ in range(470_000))
    assert len(drawn) > 50_000
    assert max(drawn) < world.TOPICS
    busiest = sum(count for _, count in drawn.most_common(100))
    assert 0.3 < busiest / drawn.total() < 0.6


def test_a_day_has_its_hours() -> None:
    """Per hour of a day, and day after day."""
    hours = Counter(
        (world.at_ms(line, 10_000) - world.EPOCH_MS) // world.HOUR_MS for line in range(20_000)
    )
    assert set(hours) == set(range(48))
    assert hours[10] > 4 * hours[3]
    assert hours[3] == hours[27]


def test_it_refuses_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ValueError, match="not empty"):
        generator.generate(tmp_path, LINES)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
