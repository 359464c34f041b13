"""MQTT 3.1.1 through SealMQ beside Mosquitto without it: the same packets, the same answers.

What is meant to differ stands in gateway/MQTT.md, and each row of its table is played here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from mqtt_scripts import DIFFERENT, KEPT, SAME
from mqtt_stage import Seen, Stage, plain_stage, sealed_stage
from running_site import ROOT

UPSTREAMS = ("embedded", "mosquitto")
TABLE = ROOT / "gateway/MQTT.md"


class Stages(NamedTuple):
    """All three; what Mosquitto alone does is played once for each script."""

    plain: Stage
    sealed: dict[str, Stage]
    known: dict[str, dict[str, Seen]]

    def mosquitto(self, name: str, script: str) -> dict[str, Seen]:
        if name not in self.known:
            self.known[name] = self.plain.play(name, script)
        return self.known[name]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    folder = tmp_path_factory.mktemp("stages")
    with ExitStack() as stack:
        plain = stack.enter_context(plain_stage(folder))
        sealed = {u: stack.enter_context(sealed_stage(folder / u, u)) for u in UPSTREAMS}
        yield Stages(plain, sealed, {})


@pytest.mark.parametrize(
    "upstream", [pytest.param("embedded", marks=pytest.mark.full), "mosquitto"]
)
@pytest.mark.parametrize("name", SAME)
def test_as_mosquitto_does(stages: Stages, name: str, upstream: str) -> None:
    assert stages.sealed[upstream].play(name, SAME[name]) == stages.mosquitto(name, SAME[name])


@pytest.mark.parametrize("name", KEPT)
def test_kept_sessions_as_mosquitto_does(stages: Stages, name: str) -> None:
    assert stages.sealed["mosquitto"].play(name, KEPT[name]) == stages.mosquitto(name, KEPT[name])


def lines(seen: dict[str, Seen]) -> list[str]:
    """As they stand in mqtt_scripts.py, by client."""
    kinds = ("got", "told")
    return [f"{who} {k} {x}" for who in sorted(seen) for k in kinds for x in getattr(seen[who], k)]


@pytest.mark.parametrize(
    ("name", "upstream"), [(n, u) for n, d in DIFFERENT.items() for u in d.upstreams]
)
def test_what_differs_by_design(stages: Stages, name: str, upstream: str) -> None:
    case = DIFFERENT[name]
    stage = stages.sealed[upstream]
    seen = stage.play(name, case.script)
    assert seen != stages.mosquitto(name, case.script), "no difference: it belongs to SAME"
    assert lines(seen) == [line.strip() for line in case.sealed.strip().splitlines()]
    assert tuple(rule for rules in stage.notices.values() for rule in rules) == case.notices


def test_the_table_lists_what_differs() -> None:
    rows = re.findall(r"^\| `([a-z0-9.-]+)` \|", TABLE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(DIFFERENT)
