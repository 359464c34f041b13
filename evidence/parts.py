"""The parts: what each runs, what it leaves, how long it may take."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.place import RESULTS, ROOT, EvidenceError, put
from evidence.reduced import Row
from sealmq.families import registry
from sealmq.families.manifest import BenchWhole, Manifest

_PYTHON = sys.executable
# With --json people get their progress on stderr.
_HIL = ("-m", "sealmq.cli", "hil", "run", "--json")
# Runs of simulated sites: of few, and of as many as a site may have to do with.
_SIMULATED = {
    "sites-20": ("--runs", "10000", "--sites", "20", "--rounds", "15", "--messages", "10"),
    "sites-64": ("--runs", "10000", "--sites", "64", "--rounds", "15"),
}


@dataclass(frozen=True)
class Part:
    """`run`: commands of Python, in turns; WORK in them is the part's folder in build/.

    keep: takes what they left there to where it is committed. `to`: a command's output goes into
    that file of WORK. results: what is reduced. minutes: beyond so many each command is ended.
    idle: whether another load on the machine changes what it measures. of: the folders it measures.
    """

    name: str
    about: str
    run: Sequence[Sequence[str]]
    results: Sequence[Path]
    keep: Callable[[Path], None]
    minutes: float
    idle: bool
    of: Sequence[str]
    to: Sequence[str] = ()

    def command(self) -> str:
        """As people type it."""
        return f"make evidence PARTS={self.name}"


def _copied(*names: str, to: Path | None = None) -> Callable[[Path], None]:
    """Into results/, or the one into that file."""

    def keep(work: Path) -> None:
        for name in names:
            _rows(work / name)
        for name in names:
            put(to or RESULTS / name, (work / name).read_text(encoding="utf-8"))

    return keep


def _rows(file: Path) -> list[Row]:
    found: list[Row] = json.loads(file.read_text(encoding="utf-8")).get("rows", [])
    if not found:
        raise EvidenceError(f"{file} has no rows")
    return found


def rows_text(rows: Sequence[Row]) -> str:
    """A document after shared_spec/bench.schema.json, a line for each row."""
    return '{"rows": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n"


def _sizes(work: Path) -> None:
    found = json.loads((ROOT / "build/firmware/sizes.json").read_text(encoding="utf-8"))
    rows = [
        {
            "measure": "flash",
            "variant": f"{name}-{arch}",
            "size": 0,
            "value": size,
            "unit": "bytes",
            "n": 1,
            "params": {},
        }
        for name, by_arch in found["sets"].items()
        for arch, size in by_arch.items()
    ]
    put(RESULTS / "sizes.json", rows_text(rows))


def _rig(work: Path) -> None:
    segments = sorted((work / "rig").glob("*.jsonl"))
    if not segments:
        raise EvidenceError(f"the rig left no closed segment in {work / 'rig'}")
    # Pairs of key and nonce are many, and of no interest to who reads.
    _lines("rig", [(each, "-nonces-" in each.name) for each in segments])


def _simulations(work: Path) -> None:
    _lines("simulations", [(work / f"{name}.jsonl", True) for name in _SIMULATED])


def _lines(name: str, files: Sequence[tuple[Path, bool]]) -> None:
    """That folder of results/ has these files and no others; True: packed, the same bytes each
    time."""
    fresh = RESULTS / f".{name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file, packed in files:
        if packed:
            (fresh / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        else:
            (fresh / file.name).write_bytes(file.read_bytes())
    shutil.rmtree(RESULTS / name, ignore_errors=True)
    fresh.replace(RESULTS / name)


FAMILIES = {m.name: m for m in registry.manifests() if m.bench and m.bench.whole}
"""The policy families that have a bench of their own."""


def tables(name: str) -> BenchWhole:
    """What makes tables of what a policy family's bench has measured."""
    bench = FAMILIES[name].bench
    if bench is None or bench.whole is None:
        raise EvidenceError(f"the policy family {name} has no bench of its own")
    return FAMILIES[name].load(bench.whole)


def _of_family(manifest: Manifest) -> Iterator[Part]:
    """Its bench, in two runs; of both what the tables show."""
    bench, name = manifest.bench, manifest.name
    if bench is None or bench.command is None:
        return
    command, script = manifest.load(bench.command), ["gateway/bench/family_bench.py", name]
    kept = RESULTS / f"{name}.json"

    def keep(work: Path) -> None:
        make = tables(name)
        rows = make.beside(_rows(work / "whole.json"), _rows(work / "closer.json"))
        put(kept, rows_text(make.shown(rows)))

    yield Part(
        name,
        command.about,
        [
            [*script, *command.first, "--out", "WORK/whole.json"],
            [*script, *command.closer, "--out", "WORK/closer.json"],
        ],
        [kept],
        keep,
        minutes=40,
        idle=True,
        of=["gateway/sealmq", "gateway/bench", "shared_spec"],
    )


def _whole(name: str, about: str, minutes: int, words: Sequence[str] = ()) -> Part:
    """A bench of the gateway, of which all rows are kept."""
    file = f"{name}.json"
    return Part(
        name,
        about,
        [[f"gateway/bench/{name}_bench.py", *words, "--allow-misses", "--out", f"WORK/{file}"]],
        [RESULTS / file],
        _copied(file),
        minutes=minutes,
        idle=True,
        of=["gateway/sealmq", "gateway/bench", "shared_spec"],
    )


def _nothing(work: Path) -> None:
    """The last command has put it there."""


# As operators have it: Debian's Python is built with profiles, a version manager's mostly not.
SHIPPED = ("--python", "build/shipped/bin/python")
SPARK = ROOT / "spark/bench/results.json"
GATEWAY = ("codec", "policy")
_GATEWAY_FILES = ("gateway.json", *(f"gateway-{name}.json" for name in GATEWAY))
PARTS = (
    Part(
        "device",
        "instructions and heap of the device client, by valgrind",
        [["firmware/host/bench_device.py", "--allow-misses", "--out", "WORK/device.json"]],
        [RESULTS / "device.json"],
        _copied("device.json"),
        minutes=60,
        idle=False,
        of=["firmware", "shared_spec"],
    ),
    Part(
        "sizes",
        "what goes onto a board, in bytes",
        [["firmware/host/build_mpy.py"]],
        [RESULTS / "sizes.json"],
        _sizes,
        minutes=10,
        idle=False,
        of=["firmware", "shared_spec"],
    ),
    Part(
        "gateway",
        "what a message costs the gateway, beside brokers alone",
        [
            ["gateway/bench/gateway_bench.py", "--allow-misses", "--out", "WORK/gateway.json"],
            *([f"gateway/bench/{name}.py"] for name in GATEWAY),
        ],
        [RESULTS / name for name in _GATEWAY_FILES],
        _copied(*_GATEWAY_FILES),
        minutes=30,
        idle=True,
        of=["gateway/sealmq", "gateway/bench", "shared_spec"],
        to=("said-1.txt", *_GATEWAY_FILES[1:]),
    ),
    *(part for manifest in FAMILIES.values() for part in _of_family(manifest)),
    _whole(
        "bridge",
        "what a message costs the bridges of two sites, beside Mosquitto's own one",
        30,
        SHIPPED,
    ),
    _whole("agent", "what a message costs an agent, beside a Mosquitto with a bridge", 15, SHIPPED),
    _whole("scrape", "what a scrape each second costs a site with many clients", minutes=5),
    Part(
        "simulations",
        "which rules of trust find which kinds of malice, over simulated runs",
        [
            ["-m", "sealmq.cli", "trust", "simulate", *words, "--out", f"WORK/{name}.jsonl"]
            for name, words in _SIMULATED.items()
        ],
        [RESULTS / "simulations"],
        _simulations,
        minutes=120,
        idle=False,
        of=["gateway/sealmq/families/trust", "shared_spec"],
    ),
    Part(
        "rig",
        "the rig's core: three virtual boards, every behaviour, twenty power cuts",
        [[*_HIL, "--boards", "3", "--cuts", "20", "--seed", "20", "--out", "WORK/rig"]],
        [RESULTS / "rig"],
        _rig,
        minutes=30,
        idle=False,
        of=["firmware", "flash_scripts", "gateway/sealmq", "hil_tests", "shared_spec"],
    ),
    Part(
        "flash",
        "ten virtual boards at once, from flash to publishing",
        [
            [*_HIL, "--boards", "10", "--behaviour", "flash", "--out", "WORK/flash"],
            ["-m", "sealmq_hil.figures", "WORK/flash"],
        ],
        [ROOT / "hil_tests/figures.json"],
        _nothing,
        minutes=20,
        idle=True,
        of=["firmware", "flash_scripts", "gateway/sealmq", "hil_tests", "shared_spec"],
    ),
    Part(
        "spark",
        "how reports grow with what they read",
        [["spark/bench/scale.py", "--out", "WORK/results.json"]],
        [SPARK],
        _copied("results.json", to=SPARK),
        minutes=180,
        idle=True,
        of=["spark", "shared_spec"],
    ),
)


def find(names: Sequence[str]) -> list[Part]:
    """Those parts, in their order; none named: all of them. EvidenceError."""
    known = {part.name for part in PARTS}
    for name in names:
        if name not in known:
            raise EvidenceError(
                f"there is no part {name}", f"parts: {', '.join(p.name for p in PARTS)}"
            )
    return [part for part in PARTS if not names or part.name in names]


def commands(part: Part, work: Path) -> list[list[str]]:
    """What is started, word by word."""
    return [[_PYTHON, *(word.replace("WORK", str(work)) for word in words)] for words in part.run]
