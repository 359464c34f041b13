"""Fetch real MicroPython, 64-bit and 32-bit, and umqtt.simple into build/micropython.

Run it as often as you like: what is in place and works stays. The host system is never changed
and root is not needed. Afterwards `build/micropython/bin/micropython64` and `micropython32` pass
all their arguments on, and `build/micropython/lib` holds umqtt.simple (put it on MICROPYPATH).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import debs
import umqtt_lib
from apt_sources import mirrors
from steps import FetchError, run

DEST = Path(__file__).resolve().parents[2] / "build" / "micropython"
VERSION = "1.25.0"
_PINS = Path(__file__).with_name("micropython_debs.txt")
FORMAT = 1  # raise it when what is written below changes

# Debian architectures of the two interpreters, by the host's own.
_ARCHES = {
    "amd64": ("amd64", "i386"),
    "i386": ("amd64", "i386"),
    "arm64": ("arm64", "armhf"),
    "armhf": ("arm64", "armhf"),
}
_PROBE = (
    "import sys; print('%d.%d.%d' % sys.implementation[1][:3], 64 if sys.maxsize >> 32 else 32)"
)


def main(argv: list[str] | None = None) -> int:
    """Command line entry; 0 when everything is in place."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dest", type=Path, default=DEST, help="folder (default: %(default)s)")
    dest: Path = parser.parse_args(argv).dest
    try:
        fetch(dest.resolve())
    except FetchError as error:
        print(f"fetch: {error.line()}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"fetch: {error.filename or dest}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fetch: interrupted; run it again", file=sys.stderr)
        return 130
    print(f"MicroPython {VERSION}, 64-bit and 32-bit, and umqtt.simple: ready in {dest}")
    return 0


def fetch(dest: Path) -> None:
    """Bring `dest` up to date. Raises FetchError, OSError."""
    dest.mkdir(parents=True, exist_ok=True)
    with open(dest / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second run waits for the first and finds all done
        arches = _arches()
        for bits, arch in zip((64, 32), arches, strict=True):
            if not _ready(dest, bits, arch):
                _interpreter(dest, bits, arch)
        simple = dest / "lib" / "umqtt" / "simple.py"
        if not simple.is_file():
            print("fetching umqtt.simple", file=sys.stderr)
            umqtt_lib.fetch(simple)


def _arches() -> tuple[str, str]:
    hint = "MicroPython is taken from Debian packages: use Debian 12+ or Raspberry Pi OS 12+"
    host = run("architecture", ["dpkg", "--print-architecture"], hint=hint).strip()
    if host not in _ARCHES:
        raise FetchError(f"no MicroPython for a '{host}' host", "use an amd64 or arm64 machine")
    return _ARCHES[host]


def _ready(dest: Path, bits: int, arch: str) -> bool:
    try:
        stamp = json.loads((dest / str(bits) / "stamp.json").read_text(encoding="utf-8"))
        wrapper = (dest / "bin" / f"micropython{bits}").read_text(encoding="utf-8")
        if (stamp["format"], stamp["arch"]) != (FORMAT, arch):
            return False
        if wrapper != _wrapper(stamp["argv"]) or not Path(stamp["argv"][0]).is_relative_to(dest):
            return False  # the folder was moved or copied
        _probe(stamp["argv"], bits, arch)
    except (OSError, ValueError, KeyError, TypeError, FetchError):
        return False
    return True


def _interpreter(dest: Path, bits: int, arch: str) -> None:
    print(f"fetching MicroPython {VERSION}, {bits}-bit ({arch})", file=sys.stderr)
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    fresh = dest / f"{bits}.part"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    packages = debs.unpack(f"micropython={VERSION}*", arch, mirrors(codename), fresh, _PINS)
    for unused in ("etc", "usr/share", "usr/sbin"):
        shutil.rmtree(fresh / unused, ignore_errors=True)
    home = dest / str(bits)
    argv = [str(home / part.relative_to(fresh)) for part in _loader(fresh)]
    argv = [argv[0], "--inhibit-cache", "--library-path", argv[1], argv[2]]
    stamp = {"format": FORMAT, "arch": arch, "argv": argv, "packages": packages}
    (fresh / "stamp.json").write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
    debs.replace_folder(fresh, home)
    _probe(argv, bits, arch)
    wrapper = dest / "bin" / f"micropython{bits}"
    wrapper.parent.mkdir(exist_ok=True)
    part = wrapper.with_suffix(".part")
    part.write_text(_wrapper(argv), encoding="utf-8")
    part.chmod(0o755)
    part.replace(wrapper)


def _loader(root: Path) -> tuple[Path, Path, Path]:
    """The dynamic loader, the library folder and the program inside an unpacked `root`."""
    for loader in sorted(root.glob("usr/lib/*-linux-*/ld-linux*.so.*")):
        return loader, loader.parent, root / "usr" / "bin" / "micropython"
    raise FetchError("the unpacked libc6 holds no dynamic loader", "report this as a bug")


def _wrapper(argv: list[str]) -> str:
    # exec: signals, exit status and valgrind's --trace-children reach the interpreter itself.
    return f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n'


def _probe(argv: list[str], bits: int, arch: str) -> None:
    """Start the interpreter and see that it is what it should be."""
    hint = ""
    if bits == 32:
        hint = f"this kernel must be able to run 32-bit ({arch}) programs"
    try:
        done = subprocess.run(
            [*argv, "-c", _PROBE], capture_output=True, text=True, check=False, env=_clean()
        )
    except OSError as error:
        raise FetchError(f"cannot start MicroPython {bits}-bit: {error.strerror}", hint) from error
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise FetchError(f"MicroPython {bits}-bit does not run: {reason[-1]}", hint)
    if done.stdout.split() != [VERSION, str(bits)]:
        raise FetchError(
            f"MicroPython {bits}-bit answers '{done.stdout.strip()}', wanted {VERSION} {bits}"
        )


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MICROPY")}


if __name__ == "__main__":
    sys.exit(main())
