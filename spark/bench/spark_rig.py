"""Runs of the rig and documents of the device bench, made up: a small part of what a site keeps."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from spark_tally import Tally

BOARDS = 8
CUTS = 12
PAIRS = 1500
BOARDS_FEW, PAIRS_FEW = 3, 150
"""Where logs are small."""
_STAGES = {
    "flash": ("build", "loader", "write", "boot", "publish"),
    "publish": ("read", "refuse", "heap"),
    "family": ("agree", "refuse"),
    "broker-loss": ("lose", "recover"),
    "mediator-loss": ("lose", "recover"),
    "wifi-loss": ("lose", "recover"),
    "power-loss": ("lose", "recover"),
    "cut-counter": ("measure",),
    "rekey-awake": ("rekey", "publish"),
    "rotate": ("rotate", "provision", "publish"),
    "update": ("keep", "roll-back"),
}
_SKIPPED = "wifi-loss"
_LAYERS = ("m2", "m2", "m2", "up", "down", "m3", "m1")
_VARIANTS = {"plain": 1.0, "tls13-ecdsa": 1.5, "sealmq-ccm": 0.7}
_MEASURES = {"publish": 26_000, "publish_steady": 22_000, "connect": 240_000, "receive": 28_000}


class Run:
    """One run of the rig. `results`, `nonces`: its lines; `tally`: what they are."""

    def __init__(self, number: int, seed: str, at: int, *, few: bool = False) -> None:
        self.rnd = random.Random(f"{seed} rig {number}").random  # noqa: S311 - repeatable
        self.run = hashlib.sha256(f"{seed} {number}".encode()).hexdigest()[:16]
        self.at = at
        self.tally = Tally()
        self._boards, self._pairs = (BOARDS_FEW, PAIRS_FEW) if few else (BOARDS, PAIRS)
        # Two runs a commit.
        self._commit = hashlib.sha1(f"{number // 2}".encode(), usedforsecurity=False).hexdigest()
        self._lines: list[str] = []

    def results(self) -> list[str]:
        """Every behaviour of every board, a line a stage and a verdict each."""
        for board in range(1, self._boards + 1):
            for behaviour, stages in _STAGES.items():
                self._behaviour(f"virtual-{board}", behaviour, stages)
        return self._lines

    def _behaviour(self, board: str, behaviour: str, stages: tuple[str, ...]) -> None:
        if behaviour == _SKIPPED:
            self._line(board, behaviour, "verdict", "skip", cause="there is no access point")
            return
        for stage in stages:
            more = {"heap": 140_000 + int(9_000 * self.rnd())} if stage == "heap" else {}
            if stage == "write":
                more = {"bytes": 2_183_584}
            self._line(board, behaviour, stage, "pass", **more)
        if behaviour == "cut-counter":
            for _ in range(CUTS):
                self._cut(board, behaviour)
        # Some are flaky.
        if self.rnd() < 0.01:
            self._line(board, behaviour, "verdict", "fail", cause="nothing was read within 30 s")
        else:
            self._line(board, behaviour, "verdict", "pass")

    def _cut(self, board: str, behaviour: str) -> None:
        drawn, inside = int(40 * self.rnd()), self.rnd() < 0.6
        self._line(
            board,
            behaviour,
            "cut",
            "pass",
            cut_after=1 + drawn,
            cut_op="erase" if drawn % 4 == 0 else "program",
            cut_address=0x9000 + 256 * drawn,
            cut_size=4096 if drawn % 4 == 0 else 256,
            cut_inside=inside,
            cut_partition="nvs",
            **({"cut_done": int(256 * self.rnd())} if inside else {}),
        )

    def _line(self, board: str, behaviour: str, stage: str, outcome: str, **more: Any) -> None:
        ms = int(200 + 800 * self.rnd() ** 2)
        self.at += ms
        row = {
            "v": 1,
            "id": f"{self.run}-{len(self._lines) + 1}",
            "run": self.run,
            "at_ms": self.at,
            "seed": 4711,
            "board": board,
            "kind": "virtual",
            "chip": "esp32",
            "interpreter": "MicroPython of this host, 64 bits",
            "commit": self._commit,
            "behaviour": behaviour,
            "stage": stage,
            "outcome": outcome,
            "ms": ms,
            **more,
        }
        self._lines.append(json.dumps(row))
        self.tally.lines += 1
        self.tally.kept["hil"] += 1

    def nonces(self) -> list[str]:
        """Pairs of key and nonce: some packets were sent again, no nonce was used twice."""
        found: list[str] = []
        last = None
        for number in range(1, self._pairs + 1):
            if last is None or self.rnd() >= 0.02:
                last = self._pair(number)
            self.at += 3
            line = {
                "v": 1,
                "id": f"{self.run}-n{number}",
                "run": self.run,
                "at_ms": self.at,
                **last,
            }
            found.append(json.dumps(line))
        self.tally.lines += self._pairs
        self.tally.kept["nonce"] += self._pairs
        return found

    def _pair(self, number: int) -> dict[str, str]:
        board = 1 + number % self._boards
        layer = _LAYERS[int(self.rnd() * len(_LAYERS))]
        tag = {"m1": "i1", "m3": "o1"}.get(layer, "l1")
        return {
            "board": f"virtual-{board}",
            "layer": layer,
            "key": f"{tag} site={self.run[:8]} client={board} gen=1 way={layer}",
            "nonce": f"{board:08x}{number:016x}",
            "digest": f"{int(self.rnd() * (1 << 52)):032x}",
        }


def documents(seed: str) -> tuple[list[dict[str, Any]], Tally]:
    """What the device bench printed, on two days; and how many rows that is."""
    rnd = random.Random(f"{seed} bench").random  # noqa: S311 - repeatable
    tally, found = Tally(), []
    for _ in range(2):
        rows = [
            {
                "measure": measure,
                "variant": variant,
                "size": size,
                "value": int(base * share * (1 + size / 2048) * (0.999 + 0.002 * rnd())),
                "unit": "instructions",
                "n": 1000,
                "params": {"qos": 0, "collector": "on", "heap": "256k"},
            }
            for measure, base in _MEASURES.items()
            for variant, share in _VARIANTS.items()
            for size in ((0,) if measure == "connect" else (64, 256, 1024))
        ]
        tally.kept["bench"] += len(rows)
        found.append({"rows": rows})
    return found, tally
