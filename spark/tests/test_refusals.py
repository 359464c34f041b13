"""Replays and forgeries: the words that the code can say, and what becomes of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from audit_table import NOON, OTHER_SITE, PEER, SITE, record, rows, table
from sealmq_spark.measures.decisions import decisions
from sealmq_spark.measures.refusals import CLASSES, NO_ATTACK, refusals

ROOT = Path(__file__).resolve().parents[2]
HOUR = NOON.replace(minute=0)
WHY: dict[str, Any] = {"reason": "it says so"}
KNOWN = {*CLASSES, *NO_ATTACK}
# SPEC.md calls it by its meaning, the code by its error.
AS_CODE = {"epoch": "wrongepoch", "rate": "ratelimited"}


def error_classes() -> set[str]:
    """The last words that the mediator makes of its errors: names of classes in small letters."""
    tree = ast.parse((ROOT / "shared_spec/sealmq_spec/errors.py").read_text())
    bases = {"SealError"}
    return {
        node.name.lower()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(b) in bases for b in node.bases)
    }


def spec_classes() -> set[str]:
    """The first column of the table in SPEC.md, section 11, in the code's words."""
    text = (ROOT / "shared_spec/SPEC.md").read_text()
    section = text.split("\n## 11 ")[1].split("\n## ")[0]
    words = re.findall(r"^\| ([a-z ]+) \|", section, re.MULTILINE)
    assert words[0] == "class"
    # misuse: in vectors alone, no packet's.
    return {AS_CODE.get(word, word.replace(" ", "")) for word in words[1:]} - {"misuse"}


def written_rules() -> Iterator[str]:
    """Every rule of the mediator that stands whole in its source."""
    for path in (ROOT / "gateway/sealmq/mediator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"mediator(\.[a-z-]+)+", node.value):
                    yield node.value


def test_every_class_has_been_thought_of() -> None:
    in_spec = spec_classes()
    assert len(in_spec) == 11
    assert in_spec <= KNOWN
    # Our own mistakes are nobody's attack, and no rule is named after them.
    assert error_classes() - {"misuse"} <= KNOWN
    found = set(written_rules())
    assert {"mediator.connect.behind", "mediator.deliver.slow"} <= found
    assert {rule for rule in found if rule.rpartition(".")[2] not in KNOWN} == set()
    assert not {*CLASSES} & {*NO_ATTACK}


def test_what_was_refused(spark: SparkSession) -> None:
    who: dict[str, Any] = {"client": "panel", "topic": "machine/1"}

    def packet(rule: str, **more: Any) -> dict[str, Any]:
        return record("packet-refused", **{"peer": PEER, "rule": rule, **WHY, **more})

    def folded(of: str, rule: str, count: int, **more: Any) -> dict[str, Any]:
        return record("folded", of=of, rule=rule, count=count, **more)

    later = NOON + timedelta(hours=1)
    records = [
        packet("mediator.publish.replay", **who),
        packet("mediator.publish.replay", **who | {"topic": "another"}),
        packet("mediator.publish.replay", **who, at=later),
        packet("mediator.publish.replay", **who, site=OTHER_SITE),
        packet("mediator.subscribe.stale", **who),
        packet("mediator.control.unauthentic"),
        packet("mqtt.Malformed"),
        packet("mediator.publish.malformed", **who),
        record("connect-refused", peer=PEER, rule="mediator.connect.unauthentic", **WHY),
        record("connect-refused", peer=PEER, client="panel", rule="mediator.connect.behind", **WHY),
        record("connect-refused", peer=PEER, rule="mediator.connect.ended", **WHY),
        packet("mediator.control.ended"),
        record("deliver-denied", **who, rule="mediator.deliver.replay", count=8),
        folded("packet-refused", "mediator.publish.replay", 90, client="panel"),
        folded("connect-refused", "mediator.connect.unauthentic", 40),
        # None of these.
        packet("mediator.quarantine"),
        packet("mediator.control.denied", client="panel"),
        packet("purposes.command.malformed", client="panel"),
        record("publish-refused", **who, rule="labels.publish.malformed", **WHY),
        record("publish-refused", **who, rule="mediator.publish.wrongepoch", **WHY),
        record("publish-accepted", **who, label="low", count=7),
    ]  # fmt: skip
    found = refusals(decisions(table(spark, records)))
    assert found.columns == ["site", "hour", "client", "class", "rule", "count"]
    assert rows(found) == sorted(
        [
            (SITE, HOUR, "panel", "replayed", "mediator.publish.replay", 92),
            (SITE, HOUR + timedelta(hours=1), "panel", "replayed", "mediator.publish.replay", 1),
            (OTHER_SITE, HOUR, "panel", "replayed", "mediator.publish.replay", 1),
            (SITE, HOUR, "panel", "replayed", "mediator.connect.behind", 1),
            (SITE, HOUR, "panel", "replayed", "mediator.deliver.replay", 8),
            (SITE, HOUR, "panel", "too old", "mediator.subscribe.stale", 1),
            (SITE, HOUR, "panel", "malformed", "mediator.publish.malformed", 1),
            (SITE, HOUR, "", "forged", "mediator.control.unauthentic", 1),
            (SITE, HOUR, "", "forged", "mediator.connect.unauthentic", 41),
            (SITE, HOUR, "", "old keys", "mediator.connect.ended", 1),
            (SITE, HOUR, "", "old keys", "mediator.control.ended", 1),
            (SITE, HOUR, "", "malformed", "mqtt.Malformed", 1),
        ]
    )
