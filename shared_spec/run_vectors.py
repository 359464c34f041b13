# Runs the test vectors against sealmq_spec: this very file on CPython, on MicroPython, on a board.
#
#   run_vectors.py [--dir DIR] [--aead MODULE] [--flips all|some|none] [--only PART] [-v]
#
# MODULE has make(suite, key): by default the device's on MicroPython, the gateway's elsewhere.
# --flips: at which bytes packets are changed; some on a board, all elsewhere. Exit code 0: every
# case in DIR/INDEX is there and came out as written, and every packet with one bit changed was
# refused. Anything else, a missing file or no case at all, is 1.
import gc
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEVICE = sys.implementation.name == "micropython"
BOARD = DEVICE and sys.platform not in ("linux", "darwin", "win32")
_HERE = __file__.replace("\\", "/").rpartition("/")[0] or "."
sys.path.insert(0, _HERE)

from sealmq_spec.errors import SealError  # noqa: E402
from vector_ops import Wrong, basics, class_of, kg, packets, purposes, scripts  # noqa: E402

# Where to flip in long packets when not everywhere: all of the first and last bytes, some between.
_FIRST, _LAST, _BETWEEN = 32, 20, 12


class Report:
    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self.positive = self.negative = self.flipped = self.failed = 0

    def fail(self, name: str, text: str) -> None:
        self.failed += 1
        print(f"FAIL {name}: {text}")


def positions(size: int, everywhere: bool) -> "list[int]":
    if everywhere or size <= _FIRST + _LAST + _BETWEEN:
        return list(range(size))
    step = max(1, (size - _FIRST - _LAST) // _BETWEEN)
    between = list(range(_FIRST, size - _LAST, step))
    return list(range(_FIRST)) + between + list(range(size - _LAST, size))


# What the code under test makes of it: ("out", {...}) or ("refuse", class).
def outcome(call: "Any", *args: "Any") -> "tuple[str, Any]":
    try:
        return "out", call(*args)
    except SealError as e:
        return "refuse", class_of(e)


# None, or what is wrong with an outcome.
def verdict(case: "dict[str, Any]", got: "tuple[str, Any]") -> "str | None":
    kind = "out" if "out" in case else "refuse"
    if got[0] == kind and got[1] == case[kind]:
        return None
    return f"{got[0]} {got[1]}, the vector says {kind} {case[kind]}"


# Every field of d named in `fields`, with one bit changed at one place, must be refused.
def flip(
    name: str,
    report: Report,
    call: "Any",
    d: "dict[str, Any]",
    fields: "list[str]",
    everywhere: bool,
) -> None:
    for field in fields:
        genuine = d[field]
        data = bytes.fromhex(genuine)
        for at in positions(len(data), everywhere):
            changed = bytearray(data)
            changed[at] ^= 1 << at % 8
            d[field] = bytes(changed).hex()
            got = outcome(call, d)
            report.flipped += 1
            if got[0] != "refuse":
                report.fail(name, f"{field} was accepted with byte {at} changed")
        d[field] = genuine


def run_single(case: "dict[str, Any]", make: "Any", report: Report, flips: str) -> None:
    op = OPS[case["op"]]

    def call(d: "dict[str, Any]") -> "Any":
        return op(make, d)

    wrong = verdict(case, outcome(call, case["in"]))
    if wrong:
        report.fail(case["name"], wrong)
    elif "flip" in case and flips != "none":
        flip(case["name"], report, call, case["in"], case["flip"], flips == "all")


def run_script(case: "dict[str, Any]", make: "Any", report: Report, flips: str) -> None:
    script = SCRIPTS[case["op"]](make, case["in"])
    for at, step in enumerate(case["steps"]):
        if "flip" in step and flips != "none":
            flip(case["name"], report, script.step, step, step["flip"], flips == "all")
        wrong = verdict(step, outcome(script.step, step))
        if wrong:
            report.fail(case["name"], f"step {at + 1} ({step['do']}): {wrong}")
            return


OPS: "dict[str, Any]" = {}
OPS.update(basics.OPS)
OPS.update(packets.OPS)
OPS.update(kg.OPS)
OPS.update(purposes.OPS)
SCRIPTS: "dict[str, Any]" = scripts.SCRIPTS


def run_case(case: "dict[str, Any]", make: "Any", report: Report, flips: str) -> None:
    last = case["steps"][-1] if "steps" in case else case
    if "refuse" in last or last["out"] == {"matches": False}:
        report.negative += 1
    else:
        report.positive += 1
    failed = report.failed
    try:
        if "steps" in case:
            run_script(case, make, report, flips)
        else:
            run_single(case, make, report, flips)
    except (Wrong, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as e:
        report.fail(case["name"], f"{type(e).__name__}: {e}")
    if report.verbose and report.failed == failed:
        print("ok", case["name"])


# The names in INDEX, one at a time: a board has no room for all of them.
def names_of(folder: str) -> "Any":
    with open(folder + "/INDEX") as f:
        for line in f:
            if line.strip():
                yield line.strip()


def read_case(folder: str, name: str, report: Report) -> "Any":
    try:
        with open(f"{folder}/{name}.json") as f:
            case = json.load(f)
    except (OSError, ValueError) as e:
        report.fail(name, f"cannot be read: {e}")
        return None
    if case["name"] != name:
        report.fail(name, f"is called {case['name']} inside")
    return case


def run_all(folder: str, only: str, make: "Any", report: Report, flips: str) -> None:
    listed = 0
    for name in names_of(folder):
        listed += 1
        case = read_case(folder, name, report) if only in name else None
        if case:
            run_case(case, make, report, flips)
        case = None
        gc.collect()
    there = len(os.listdir(folder)) - 1
    if there != listed:
        report.fail("INDEX", f"lists {listed} cases, {there} files are there")


def backend(module: str) -> "Any":
    return __import__(module, None, None, ["make"]).make


def main(args: "list[str]") -> int:
    option = {"--dir": _HERE + "/vectors", "--aead": "", "--flips": "", "--only": ""}
    verbose = False
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "-v":
            verbose = True
        elif word in option and rest:
            option[word] = rest.pop(0)
        else:
            print(f"run_vectors: unknown argument {word}")
            return 1
    folder = option["--dir"]
    flips = option["--flips"] or ("some" if BOARD else "all")
    make = backend(option["--aead"] or ("sealmq_device.aead" if DEVICE else "sealmq.aead"))
    report = Report(verbose)
    try:
        run_all(folder, option["--only"], make, report, flips)
    except OSError as e:
        print(f"run_vectors: no INDEX in {folder}: {e}")
        return 1
    count = report.positive + report.negative
    good = count > 0 and not report.failed
    print(
        f"vectors: {report.positive} positive, {report.negative} negative, "
        f"{report.flipped} flipped, {report.failed} failed: {'ok' if good else 'FAILED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
