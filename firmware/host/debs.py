"""Debian packages unpacked into a folder of ours, without root and without touching the host.

Files pinned by their SHA-256 are taken first: they need no package lists, which a mirror serves out
of step for hours while it synchronises. Otherwise apt runs with its own sources, lists, status and
cache, so that it resolves the packages for any architecture as if nothing were installed; it still
checks every signature with the host's keys.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tempfile
from pathlib import Path

from apt_sources import Mirror
from steps import FetchError, run

SUITE = "trixie"  # the Debian release that packages MicroPython 1.25

_HINT = "check the network and this host's apt mirror, then run it again"


def unpack(
    package: str, arch: str, mirrors: list[Mirror], into: Path, pins: Path | None = None
) -> list[str]:
    """Unpack `package` and all it depends on for `arch` into `into`; the package files' names.

    `pins` lists the package files of some architectures: lines of SHA-256 and path in the mirror.
    The mirrors are tried in turn. Raises FetchError with the last mirror's reason.
    """
    pinned = _pinned(pins, arch) if pins else []
    problem = FetchError(f"no mirror to take {package} from", _HINT)
    for mirror in mirrors:
        with tempfile.TemporaryDirectory(prefix="sealmq-apt-") as name:
            room = Path(name)
            # apt drops to its own user for downloads: it must be able to enter, not to write.
            room.chmod(0o755)
            try:
                archives = _pinned_files(pinned, mirror, room) or _download(
                    package, arch, mirror, room
                )
            except FetchError as error:
                problem = error
                continue
            for archive in archives:
                argv = ["dpkg-deb", "-x", str(archive), str(into)]
                run(f"unpack {archive.name}", argv, hint="is the disk full?")
            return [archive.name for archive in archives]
    raise problem


def _pinned(pins: Path, arch: str) -> list[tuple[str, str]]:
    """(SHA-256, path in the mirror) of the files that `pins` lists for `arch`."""
    lines = pins.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [(digest, path) for digest, path in rows if path.endswith(f"_{arch}.deb")]


def _pinned_files(pinned: list[tuple[str, str]], mirror: Mirror, room: Path) -> list[Path]:
    """Download exactly the `pinned` files; [] when there are none or one cannot be had."""
    archives: list[Path] = []
    # apt's downloader uses the host's proxy settings. It stays who we are: only we may write here.
    argv = ["/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=", "download-file"]
    for digest, path in pinned:
        archives.append(room / path.rpartition("/")[2])
        argv += [f"{mirror.uri.rstrip('/')}/{path}", str(archives[-1]), f"SHA256:{digest}"]
    if archives:
        try:
            run(f"download {len(archives)} pinned packages", argv)
        except FetchError as error:
            print(f"{error.line()}; asking apt for the packages instead", file=sys.stderr)
            return []
    return archives


def _download(package: str, arch: str, mirror: Mirror, room: Path) -> list[Path]:
    for folder in ("etc", "state/lists/partial", "cache/archives/partial"):
        (room / folder).mkdir(parents=True)
    (room / "status").touch()
    (room / "etc/debian.sources").write_text(mirror.deb822(SUITE), encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": f"{room}/etc",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": f"{room}/state",
        "Dir::State::status": f"{room}/status",
        "Dir::Cache": f"{room}/cache",
        "APT::Architecture": arch,
        "APT::Architectures::": arch,
        "APT::Sandbox::User": _sandbox_user(),
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "1",
    }
    # Hooks of the host (notifiers, indexers) are about the host's packages: not for us.
    cleared = ("APT::Update::Pre-Invoke", "APT::Update::Post-Invoke")
    config = "".join(f"#clear {name};\n#clear {name}-Success;\n" for name in cleared)
    config += "#clear DPkg;\n"
    config += "".join(f'{name} "{value}";\n' for name, value in options.items())
    (room / "apt.conf").write_text(config, encoding="utf-8")
    # APT_CONFIG is read last, after the host's own proxy and transport settings.
    env = dict(os.environ, APT_CONFIG=f"{room}/apt.conf", LC_ALL="C")
    run(f"package lists ({SUITE}, {arch})", ["apt-get", "update"], env=env, hint=_HINT)
    install = ["apt-get", "install", "-y", "--no-install-recommends", "--download-only", package]
    run(f"download {package} ({arch})", install, env=env, hint=_HINT)
    archives = sorted((room / "cache/archives").glob("*.deb"))
    if not archives:
        raise FetchError(f"{mirror.uri} offers no {package} for {arch}", _HINT)
    return archives


def _sandbox_user() -> str:
    """apt's unprivileged user when we are root; our own name otherwise (apt cannot switch)."""
    if os.geteuid() == 0:
        try:
            return pwd.getpwnam("_apt").pw_name
        except KeyError:
            return "root"
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def replace_folder(fresh: Path, target: Path) -> None:
    """Put the finished folder `fresh` where `target` is or was."""
    if target.exists():
        shutil.rmtree(target)
    fresh.rename(target)
