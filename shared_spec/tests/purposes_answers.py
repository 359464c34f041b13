# What the grammar of purposes makes of each case of a file, one JSON text a line: run by CPython
# and both MicroPythons, whose answers must be the same (test_purposes_interpreters.py).
#
# The first line has the words of all readers. Then [words, published, text], or [words, value].
import json
import sys

from sealmq_spec.errors import SealError
from sealmq_spec.purposes_read import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def put(by: "Reader", value: "Any") -> str:
    if len(value) == 2:
        return by.access(value[0], value[1])
    kind, a, b, c = value
    if kind == "presub":
        return by.presubscribe(a, b, c)
    if kind == "set":
        return by.setting(a, b)
    if kind == "get":
        return by.query(a, b)
    return by.reserve(a, b, c) if kind == "reserve" else by.release(a)


# A refusal is its class alone.
def answer(readers: "list[tuple[Reader, Reader]]", case: "list[Any]") -> "Any":
    try:
        if len(case) == 2:
            return put(readers[case[0]][0], case[1])
        by = readers[case[0]][case[1]]
        return by.read_access(case[2]) or by.read(case[2])
    except SealError as e:
        return {"refused": type(e).__name__}


def make(words: "list[Any]") -> "list[tuple[Reader, Reader]]":
    return [(Reader(some), Reader(some, True)) for some in words]


def main(path: str) -> None:
    with open(path) as f:
        readers = make(json.loads(f.readline()))
        for line in f:
            print(json.dumps(answer(readers, json.loads(line))))


if __name__ == "__main__":
    main(sys.argv[1])
