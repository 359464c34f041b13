# What the writer of purposes' texts makes of each value of a file, one JSON text a line: run by
# CPython and both MicroPythons, whose answers must be the same (test_purposes_interpreters.py).
import json
import sys

from sealmq_spec import purposes
from sealmq_spec.errors import SealError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def put(value: "Any") -> str:
    if len(value) == 2:
        return purposes.access(value[0], value[1])
    kind, a, b, c = value
    if kind == "presub":
        return purposes.presubscribe(a, b, c)
    if kind == "set":
        return purposes.setting(a, b)
    if kind == "get":
        return purposes.query(a, b)
    return purposes.reserve(a, b, c) if kind == "reserve" else purposes.release(a)


# A refusal is its class alone.
def answer(value: "Any") -> "Any":
    try:
        return put(value)
    except SealError as e:
        return {"refused": type(e).__name__}


def main(path: str) -> None:
    with open(path) as f:
        for line in f:
            print(json.dumps(answer(json.loads(line))))


if __name__ == "__main__":
    main(sys.argv[1])
