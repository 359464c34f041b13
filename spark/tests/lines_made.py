"""Good lines of each contract, and lines that are mostly good."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from sealmq_spark.contracts import columns

AUDIT: dict[str, Any] = {
    "v": 1,
    "id": "00000001-mediator-1-1800000000000-1",
    "at_ms": 1_800_000_000_000,
    "site": "00000001",
    "role": "mediator",
    "inst": 1,
    "event": "delivered",
    "client": "panel",
    "topic": "machine/1/température",
    "label": "low",
    "count": 3,
    "minute_ms": 1_800_000_000_000,
}
HIL: dict[str, Any] = {
    "v": 1,
    "id": "0123456789abcdef-1",
    "run": "0123456789abcdef",
    "at_ms": 5,
    "seed": 1,
    "board": "b1",
    "kind": "virtual",
    "chip": "esp32",
    "commit": "unknown",
    "behaviour": "connect",
    "stage": "verdict",
    "outcome": "pass",
    "ms": 12,
}
NONCE: dict[str, Any] = {
    "v": 1,
    "id": "0123456789abcdef-n1",
    "run": "0123456789abcdef",
    "at_ms": 1_795_365_977_273,
    "layer": "record",
    "key": "r1 site=1ea15af5 suite=1 label=2 epoch=1",
    "nonce": "02526401a20426a4be000000",
    "digest": "611434e63042c00245d16de3f162941d",
}
SIMULATION: dict[str, Any] = {
    "v": 1,
    "id": "0123456789abcdef-s1",
    "at_ms": 1_795_909_765_398,
    "simulated": "08f3cce6ae0e325b",
    "sites": 64,
    "rule": "average",
    "kind": "malicious",
    "seed": 1,
    "round": 1,
    "bad_withheld": 0,
    "bad_delivered": 10,
    "good_withheld": 3,
    "good_delivered": 90,
}
BASES = {"audit": AUDIT, "hil": HIL, "nonce": NONCE, "simulation": SIMULATION}
VALUES: list[Any] = [
    None, "", "x", "y" * 2000, "é" * 64, "é" * 65, 'a"b\\c', "\x01", "a\u2028b",
    "\U0001f600" * 64, -1, 0, 1, 7, 1.5, 1e30, 2**53 - 1, 2**53, 2**63, 253_402_300_799_999,
    253_402_300_800_000, True, [], ["a"], ["a"] * 101, ["z" * 201], [1], [None], ["a", None],
    [["a"]], {}, {"a": 1}, {"v": 1}, "pass", "fail", "start", "delivered", "connect", "virtual",
    "0123456789abcdef", 60_000, 1 << 24, "m1",
]  # fmt: skip
_LAST = ("count", "minute_ms", "line", "mac")
_MORE = (
    "rule", "reason", "cause", "cut_op", "cut_after", "cut_inside", "extra", "enforce", "notes",
    "order", "clean", "board", "purpose", "event", "behaviour", "nonce",
)  # fmt: skip


def numbered(base: dict[str, Any], number: int) -> dict[str, Any]:
    """With an id of its own."""
    return {**base, "id": base["id"][:-1] + str(number)}


def changed(base: dict[str, Any], rng: random.Random, number: int) -> str:
    """A line that is mostly good, with up to three changes, in any order, dense or not."""
    line = numbered(base, number)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice([*base, *_MORE])
        if rng.random() < 0.35:
            line.pop(name, None)
        else:
            line[name] = rng.choice(VALUES)
    names = list(line)
    rng.shuffle(names)
    dense = (",", ":") if rng.random() < 0.5 else None
    return json.dumps(
        {name: line[name] for name in names}, ensure_ascii=rng.random() < 0.5, separators=dense
    )


def written(number: int) -> str:
    """The so-manieth of lines as our writers write them, dense and in order, that are spoiled as
    data or as text, or not at all."""
    rng = random.Random(f"written {number}")
    name, base = rng.choice(list(BASES.items()))
    line = numbered(base, number)
    for _ in range(rng.choice((0, 1, 1, 2))):
        line[rng.choice([*base, *_MORE])] = rng.choice(VALUES)
    order = [each for each in columns(name).names if each not in _LAST]
    text = json.dumps({each: line[each] for each in (*order, *_LAST, *line) if each in line},
                      separators=(",", ":"))  # fmt: skip
    return _spoiled(text, rng) if rng.random() < 0.4 else text


def values_as_written() -> list[str]:
    """Each line of BASES, dense, with one of its values replaced by one of _NUMBERS or _TEXTS."""
    dense = [json.dumps(base, separators=(",", ":")) for base in BASES.values()]
    return [
        text[: found.start()] + value + text[found.end() :]
        for text in dense
        for found in re.finditer(r'(?<=":)(\d+|"[^"]*")', text)
        for value in (_NUMBERS if found[0].isdigit() else (f'"{each}"' for each in _TEXTS))
    ]


_NUMBERS = (
    "0", "00", "01", "-0", "-1", "+1", "1.0", "1e1", "1E1", "0x1", "1_0", "9" * 18, "9" * 19,
    "9" * 30, "true", "null", '"1"', "[1]", " 1", "1 ", "",
)  # fmt: skip
_TEXTS = (
    "", " ", "\\n", '\\"', "\\\\", "\\/", "\\x", "\\'", "\\u00e9", "\\u00E9", "\\u0000", "\\u00",
    "\\ud800", "\\udc00", "\\uD800", "\\ud83d\\ude00", "\\ude00\\ud83d", "\t", "\x00", "\x1f",
    "\x7f", "\u0085", "\u2028", "\ufeff", "é", "\U0001f600", '","v":1,"x":"', '"', "\\", "}",
)  # fmt: skip


def fuzzed(number: int) -> str:
    """The so-manieth of lines that are spoiled as data or as text, or not at all. The same for
    ever: what the reader says of them is written down (data/refused.json)."""
    rng = random.Random(f"fuzzed {number}")
    return _spoiled(changed(rng.choice([AUDIT, HIL, NONCE]), rng, number), rng)


def _spoiled(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(9):
            case 0:
                text = text[:at] + rng.choice(_SIGNS) + text[at:]
            case 1:
                text = text[:at] + text[at + 1 :]
            case 2:
                text = text[:at] + rng.choice(_SIGNS) + text[at + 1 :]
            case 3 if at < len(text) and text[at].isalnum():
                text = f"{text[:at]}\\u{ord(text[at]):04x}{text[at + 1 :]}"
            case 4:
                text = text[:-1] + rng.choice(_ENDS)
            case 5:
                text = text.replace(":", rng.choice((" :\t", ":  ", ":[", ":{", ':"', ":-")), 1)
            case 6:
                text = text.replace('"', rng.choice(("'", '\\"', "")), rng.choice((1, 2)))
            case 7:
                text = text[:at]
            case _:
                text = text.replace(",", rng.choice((",,", " , ", ";", ',"v":1,', ",\r")), 1)
    return text


_SIGNS = (
    *'{}[]",:\\ \t\r\x01\x7f01eE.-+x', "é", "\u2028", "\u0085", "\ufeff", "\\n", "\\u0041",
    "\\ud800", "\\ud83d\\ude00", '\\"', "null", "true",
)  # fmt: skip
_ENDS = (
    "}}", "} x", ',"v":1}', ',"x":1}', ',"x":null}', ',"reason":5}', ',"rule":["a"]}', ",}", "} \t",
    ',"\\u0076":1}', ',"rule":{"a":1}}', ',"notes":[]}', ',"notes":["a","b"] }', ',"topic":"[{"}',
    ',"cause":"a\\"b{"}', ',"board":true}', ',"interpreter":"\\ud800"}', ',"rule":"\\/"}', "",
)  # fmt: skip
