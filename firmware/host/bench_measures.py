"""Each measure of bench_device.py: which runs it compares, for which variants and sizes."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import build_mpy
from bench_noise import VARIANT as NOISE
from bench_noise import noise, wire_noise
from bench_rows import SOFTWARE, Row, each, row
from bench_runs import (
    BOARD_HEAP,
    CLIENTS,
    IN_SOFTWARE,
    SUITES,
    USUAL,
    VARIANTS,
    BenchError,
    Rig,
    of_set,
)
from bench_wire import wire
from count import counted as counted_alone

SIZES = (16, 64, 256, 1024, 4096, 16384)
ONE = (64,)
AES_PART = 1024  # bytes that part_cbc and part_ecb take at a time
SETS = tuple(name for name in build_mpy.SETS if name.endswith("purposes") or name == "asyncio")
_TLS = tuple(v for v in VARIANTS if v.startswith("tls"))
_OURS = tuple(SUITES)
_COMPARED = ("plain", "tls13-ecdsa", "sealmq-ccm")
# How often over TLS: a handshake varies by some 400,000 instructions from run to run, and is to
# weigh less than a hundredth, also of one record alone. The rest hardly varies.
_OFTEN_TLS = {16: 4000, 64: 4000, 256: 3000, 1024: 1000, 4096: 200, 16384: 100}
_RECORDS = {16: 8000, 64: 8000}
_OFTEN = {16: 300, 64: 300, 256: 300, 1024: 200, 4096: 50, 16384: 20}
_BLOCK = 25
_LARGE_BLOCK = 5
_HEAP = "1M"
_MESSAGES = 200
_PEAK_MESSAGES = 100
_STEP = 1024
_SURE = 3
_CODE = re.compile(r"^code (\d+)$", re.MULTILINE)
_SYSTEM = re.compile(r"Arena 0:\nsystem bytes +=\s+(\d+)\nin use bytes +=\s+(\d+)")
_PARTS = (
    ("part_sha256", 48),
    ("part_aead_key", 0),
    ("part_aead", 64),
    ("part_socket", 0),
    ("part_write", 64),
    ("part_read", 4),
    ("part_call", 0),
    ("part_slice", 64),
)


@dataclasses.dataclass(frozen=True)
class Task:
    """One measure of one variant at one size; `act` gives its rows."""

    measure: str
    variant: str
    size: int
    act: Callable[[Rig, str, str, int], list[Row]]

    @property
    def heap(self) -> bool:
        return self.measure.startswith("heap")

    def run(self, rig: Rig) -> list[Row]:
        return self.act(rig, self.measure, self.variant, self.size)


def _differ(
    rig: Rig,
    measure: str,
    variant: str,
    size: int,
    times: tuple[int, int],
    params: dict[str, Any],
    *,
    blocks: int = 0,
    heap: str = _HEAP,
    clients: int = 1,
) -> list[Row]:
    """The row of two runs that do it so many times; in software also how many AES blocks it is."""
    runs = []
    with rig.far_end(variant, clients) as far:
        for n in times:
            connects = 3 + (n if measure in ("connect", "reconnect") else 0)
            # What is measured with the collector as it comes is the same work.
            what = measure.removesuffix("_steady")
            runs.append(far.count(far.words(what, size, n, blocks), heap, connects))
            params = {**params, **runs[-1].params}
    params["heap"] = heap
    if blocks:
        params["collector"] = f"before each {times[1] // blocks}, not counted"
    few, many = runs
    of = times[1] - times[0]
    cost = each(few.instructions, many.instructions, *times)
    rows = [row(measure, variant, size, cost, "instructions", of, params)]
    if variant in IN_SOFTWARE:
        # As many as in hardware: so it is said of the variant, once.
        blocks_of = each(few.blocks, many.blocks, *times)
        name = variant.removesuffix(SOFTWARE)
        rows.append(row(f"aes_blocks_{measure}", name, size, blocks_of, "blocks", of))
    return rows


def _connect(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    params: dict[str, Any] = {"first_publish_qos": 1, "collector": "off"}
    if variant in SUITES:
        params |= {"boot_session": "new", "kg_time": True, "boot_counter": True}
    times = (0, CLIENTS)
    return _differ(rig, measure, variant, size, times, params, heap="2M", clients=1 + CLIENTS)


def _reconnect(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    params = {"first_publish_qos": 1, "boot_session": "same", "kg_time": False}
    return _differ(rig, measure, variant, size, (0, 20), params, blocks=20)


def _subscribe(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    n = 500 if variant in _TLS else 100
    return _differ(rig, measure, variant, size, (0, n), {"qos": 0}, blocks=20)


def _often(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    n = (_OFTEN_TLS if variant in _TLS else _OFTEN)[size]
    if measure == "tls_record":
        n = _RECORDS.get(size, n)
    blocks = n // (_BLOCK if size <= 1024 else _LARGE_BLOCK)
    params = {} if measure in ("seal", "tls_record") else {"qos": measure.endswith("qos1") * 1}
    return _differ(rig, measure, variant, size, (0, n), params, blocks=blocks)


def _steady(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    params = {"qos": 0, "collector": "on"}
    # The heap of a board is full after some 1,000 messages that leave 128 bytes each.
    times = (200, 1200) if variant in _OURS else (500, 4500)
    return _differ(rig, measure, variant, size, times, params, heap=BOARD_HEAP)


def _uncached(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    # A reader keeps 64 windows: two senders come before, one by one come these.
    return _differ(rig, measure, variant, size, (0, 50), {"qos": 0}, blocks=10)


def _wake(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Not a difference: the whole process, of which `part_interpreter` and `import` tell a part."""
    runs = 3 if variant in _TLS else 2
    params: dict[str, Any] = {"first_publish_qos": 1, "heap": BOARD_HEAP}
    with rig.far_end(variant) as far:
        counts = []
        for _ in range(runs):
            run = far.count(far.wake_words(), BOARD_HEAP, 1)
            counts.append(run.instructions)
            params |= run.params
    params |= {"least": min(counts), "most": max(counts)}
    mean = sum(counts) / runs
    return [row(measure, variant, size, mean, "instructions", runs, params)]


def _part(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """A single operation, to tell by where the rest goes."""
    n = 20  # so that the heap does not fill up
    counts = [
        rig.counted(
            ["bench_parts", rig.plain.port, f"{measure},{size},{n:05d},0"],
            _HEAP,
            variant.endswith(SOFTWARE),
        ).instructions
        for n in (0, n)
    ]
    cost = each(counts[0], counts[1], 0, n)
    return [row(measure, variant, size, cost, "instructions", n, {"heap": _HEAP})]


def _import(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """What importing takes; of nothing: what the interpreter takes to start."""
    end = "ffi.open('libc.so.6').func('v', '_exit', 'i')(0)"
    modules = {"micropython": "ffi", "plain": "umqtt.simple"}
    what = modules.get(variant, "sealmq_device")
    cost = _alone(rig, f"import ffi, {what}; {end}")
    if variant != "micropython":
        cost -= _alone(rig, f"import ffi; {end}")
    return [row(measure, variant, size, cost, "instructions", 1, {"heap": BOARD_HEAP})]


def _alone(rig: Rig, text: str) -> int:
    return counted_alone(
        ["-X", f"heapsize={BOARD_HEAP}", "-c", text], path=[rig.mpy[64]]
    ).instructions


def heap_per_message(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Bytes a message leaves, the collector off; a publish of ours also with the heap locked."""
    rows = []
    for bits in (64, 32):
        params: dict[str, Any] = {"bits": bits, "qos": 0, "collector": "off"}
        with rig.far_end(variant) as far:
            said = rig.plainly(far.words(measure, size, _MESSAGES), bits, "64M").split("\n")
        if measure == "heap_per_message" and variant in SUITES:
            params["heap_locked"] = said[1] == "True"
        left = int(said[0] if variant in SUITES or variant == "plain" else said[1])
        rows.append(row(measure, variant, size, left / _MESSAGES, "bytes", _MESSAGES, params))
    return rows


def heap_peak(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """The least heap with which it connects and publishes, and the most that C libraries take."""
    rows = []
    for bits in (64, 32):
        with rig.far_end(variant) as far:
            words = far.words(measure, size, _PEAK_MESSAGES)
            ours = _least(partial(rig.run, words, bits))
            done = rig.run(words, bits)
        found, code = _SYSTEM.findall(done.stderr), _CODE.search(done.stdout)
        if len(found) != 2 or code is None:
            raise BenchError("a run did not say how much memory it took")
        libraries = int(found[1][0]) - int(found[0][1])
        params = {
            "bits": bits,
            "micropython": ours,
            "code": int(code[1]),
            "c_libraries": libraries,
            "messages": _PEAK_MESSAGES,
        }
        rows.append(row(measure, variant, size, ours + libraries, "bytes", 1, params))
    return rows


def heap_purposes(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """The least heap with which a new board with that set, 32 bit, does what it is for."""
    path = of_set(rig.folder / "sets" / variant, variant, 32)
    rows = []
    with rig.far_end("sealmq-ccm") as far:
        words = ["bench_purposes", far.enrolment(), variant]

        def run(heap: str, program: Path | None) -> subprocess.CompletedProcess[str]:
            far.forget()
            return rig.run(words, 32, heap, path, program)

        for program in (None, *rig.programs):
            least = _least(partial(run, program=program))
            version = run("2M", program).stdout.strip()
            params = {"bits": 32, "micropython_version": version}
            rows.append(row(measure, variant, size, least, "bytes", 1, params))
    return rows


def set_bytes(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Bytes of each set of files that has a limit, on the architecture where it is largest."""
    totals = build_mpy.lay_out(rig.folder / "all", build_mpy.build(rig.folder / "all"))
    return [
        row(measure, name, size, max(of.values()), "bytes", 1)
        for name, of in totals.items()
        if build_mpy.SETS[name]
    ]


def _least(run: Callable[..., subprocess.CompletedProcess[str]]) -> int:
    """Bytes of heap with which a run, given `heap`, succeeds; to the next KiB."""
    low, high = 0, 2048
    while high - low > 1:
        middle = (low + high) // 2
        # What just fits fits not every time: addresses are random, and what looks like one is kept.
        if all(run(heap=f"{middle * _STEP}").returncode == 0 for _ in range(_SURE)):
            high = middle
        else:
            low = middle
    if high == 2048:
        raise BenchError("it does not work with 2 MiB of heap either")
    return high * _STEP


# What is asked of whom at which sizes, the long ones first.
_TABLE: tuple[tuple[str, Any, Sequence[str], Sequence[int]], ...] = (
    ("receive_steady", _steady, _COMPARED, ONE),
    ("publish_steady", _steady, _COMPARED, ONE),
    ("receive", _often, VARIANTS, SIZES),
    ("publish", _often, VARIANTS, SIZES),
    ("publish_qos1", _often, USUAL, ONE),
    ("receive_uncached", _uncached, _OURS, SIZES),
    ("seal", _often, (*_OURS, f"sealmq-ccm{SOFTWARE}"), SIZES),
    ("tls_record", _often, _TLS, SIZES),
    ("subscribe", _subscribe, USUAL, (0,)),
    ("subscribe_purpose", _subscribe, _OURS, (0,)),
    ("reserve", _subscribe, _OURS, (0,)),
    ("connect", _connect, USUAL, ONE),
    ("reconnect", _reconnect, _OURS, ONE),
    ("wake_publish_sleep", _wake, USUAL, ONE),
    ("part_interpreter", _import, ("micropython",), (0,)),
    ("import", _import, ("plain", "sealmq-ccm"), (0,)),
    *((part, _part, ("micropython",), (size,)) for part, size in _PARTS),
    *(
        (part, _part, ("micropython", f"micropython{SOFTWARE}"), (AES_PART,))
        for part in ("part_cbc", "part_ecb")
    ),
    ("heap_per_message", heap_per_message, USUAL, SIZES),
    ("heap_per_received", heap_per_message, USUAL, SIZES),
    ("heap_peak", heap_peak, USUAL, ONE),
    ("heap_purposes", heap_purposes, SETS, (0,)),
    ("set_bytes", set_bytes, ("sealmq",), (0,)),
    ("noise_connect", noise, (NOISE,), ONE),
    ("noise_publish", noise, (NOISE,), SIZES),
    ("noise_receive", noise, (NOISE,), SIZES),
    ("wire_noise_connect", wire_noise, (NOISE,), ONE),
    ("wire_noise_publish", wire_noise, (NOISE,), SIZES),
    ("wire_noise_receive", wire_noise, (NOISE,), SIZES),
    ("wire_connect", wire, USUAL, ONE),
    ("wire_subscribe", wire, USUAL, (0,)),
    ("wire_receive", wire, USUAL, SIZES),
    ("wire_publish", wire, USUAL, SIZES),
)
MEASURES = tuple(line[0] for line in _TABLE)
WHO = tuple(dict.fromkeys(who for line in _TABLE for who in line[2]))


def tasks(
    measures: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[Task]:
    """All tasks, or those chosen; a size chooses among the measures that have several."""
    return [
        Task(measure, variant, size, act)
        for measure, act, of, at in _TABLE
        for variant in of
        for size in at
        if (not measures or measure in measures)
        and (not variants or variant in variants)
        and (not sizes or len(at) == 1 or size in sizes)
    ]
