"""umqtt.simple, which official ESP32 firmware has frozen in, for a host's MicroPython.

The archive on PyPI is no pip project, so it is fetched by name and both digests are checked: the
index's and the one pinned here.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from steps import FetchError

PROJECT = "micropython-umqtt.simple"
VERSION = "1.3.4"
SHA256 = "b6a2520239e3992c63a7de9370ee9b3d9d27819a90359c521f1c0f7ccab8d12f"
MEMBER = f"{PROJECT}-{VERSION}/umqtt/simple.py"

_TIMEOUT = 60.0  # seconds without an answer from the index


def fetch(target: Path) -> None:
    """Write umqtt/simple.py to `target`. Raises FetchError."""
    with tempfile.TemporaryDirectory(prefix="sealmq-umqtt-") as name:
        archive = Path(name) / "umqtt.tar.gz"
        _download(archive)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
            raise FetchError(
                f"{PROJECT} {VERSION}: the archive's SHA-256 is not the expected one",
                "the package index serves another file under this name: do not use it",
            )
        try:
            with tarfile.open(archive) as tar:
                member = tar.extractfile(MEMBER)
                source = b"" if member is None else member.read()
        except (tarfile.TarError, KeyError) as error:
            raise FetchError(f"{PROJECT} {VERSION}: no {MEMBER} in the archive") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".part")
    fresh.write_bytes(source)
    fresh.replace(target)


def _download(archive: Path) -> None:
    try:
        import pypi_simple
        import requests
    except ImportError as error:
        raise FetchError(
            "the Python package pypi-simple is missing", "pip install pypi-simple"
        ) from error
    settings = _pip_settings()
    session = requests.Session()
    if "cert" in settings:
        session.verify = settings["cert"]
    index = settings.get("index-url") or pypi_simple.PYPI_SIMPLE_ENDPOINT
    hint = "check the network and pip's index-url, then run it again"
    try:
        with pypi_simple.PyPISimple(index, session=session) as client:
            page = client.get_project_page(PROJECT, timeout=_TIMEOUT)
            for package in page.packages:
                if package.version == VERSION and package.package_type == "sdist":
                    client.download_package(package, archive, verify=True, timeout=_TIMEOUT)
                    return
    except (requests.RequestException, OSError) as error:
        # The text of such an error may hold an index address with a password in it.
        raise FetchError(f"{PROJECT}: download failed ({type(error).__name__})", hint) from error
    except (pypi_simple.NoSuchProjectError, pypi_simple.DigestMismatchError) as error:
        raise FetchError(f"{PROJECT}: {type(error).__name__}", hint) from error
    raise FetchError(f"the package index has no {PROJECT} {VERSION}", hint)


def _pip_settings() -> dict[str, str]:
    """pip's `index-url` and `cert`, so that a host with its own index needs no second setting."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return {}
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in ("index-url", "cert") and name.startswith((":env:", "global.")):
            settings[key] = value.strip().strip("'")
    return settings
