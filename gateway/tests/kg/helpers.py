"""Sites and key generators for tests: made by `sealmq init`, run as the real process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sealmq_forks
from sealmq.aead import make
from sealmq.cli.main import main
from sealmq.run.secrets import FD, handed_over
from sealmq.site import masterkey
from sealmq.site.config import Config, load
from sealmq.site.layout import Layout
from sealmq_spec import provision
from sealmq_spec.identity import Identity
from sealmq_spec.records import Roots

WAIT_S = 20.0


@dataclass(frozen=True)
class MadeSite:
    """A site on disk, and its key outside of it."""

    layout: Layout
    key_file: Path

    @property
    def config(self) -> Config:
        return load(self.layout.config)

    @property
    def kg_key(self) -> bytes:
        return masterkey.role_keys(self.layout, self.config).kg

    def edit(self, old: str, new: str) -> None:
        """Change sealmq.toml as an operator's editor would."""
        text = self.layout.config.read_text()
        assert old in text
        self.layout.config.write_text(text.replace(old, new))


def make_site(folder: Path, example: str | None = "factory") -> MadeSite:
    """`sealmq init`."""
    site, key = folder / "site", folder / "keys" / "site.key"
    extra = ["--policy", "labels", *([] if example is None else ["--example", example])]
    assert main(["init", str(site), "--key-file", str(key), *extra]) == 0
    return MadeSite(Layout.open(site), key)


def copy_of(site: MadeSite, folder: Path) -> MadeSite:
    """A copy to work on; its key is the original's."""
    root = folder / "site"
    shutil.copytree(site.layout.root, root)
    return MadeSite(Layout.open(root), site.key_file)


class KgProcess:
    """The key generator as `sealmq up` starts it."""

    def __init__(self, site: MadeSite, key: bytes | None = None, last_good: bool = False) -> None:
        self.site = site
        self.stderr = site.layout.root.parent / "kg.stderr"
        secrets = {"key": (key or site.kg_key).hex(), "last_good": last_good}
        with handed_over(secrets) as fd, self.stderr.open("ab") as errors:
            self.popen: sealmq_forks.Apart = sealmq_forks.popen(
                [sys.executable, "-P", "-m", "sealmq.kg.process", str(site.layout.root)],
                env=os.environ | {FD: str(fd)},
                pass_fds=[fd],
                stderr=errors,
            )

    def wait_ready(self) -> KgProcess:
        """Until it serves; its stderr if it does not."""
        end = time.monotonic() + WAIT_S
        path = self.site.layout.ready("kg")
        while time.monotonic() < end:
            if self.popen.poll() is not None:
                break
            if path.exists() and json.loads(path.read_text())["pid"] == self.popen.pid:
                return self
            time.sleep(0.01)
        raise AssertionError(f"not ready: {self.stderr.read_text()}")

    def wait_said(self, text: str) -> None:
        """Until its stderr has this text."""
        end = time.monotonic() + WAIT_S
        while text not in (said := self.stderr.read_text()):
            if time.monotonic() > end:
                raise AssertionError(f"never said {text!r}: {said}")
            time.sleep(0.01)

    def kill(self) -> None:
        """kill -9."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(WAIT_S)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.popen.terminate()
        return self.popen.wait(WAIT_S)


@contextmanager
def running(
    site: MadeSite, key: bytes | None = None, last_good: bool = False
) -> Iterator[KgProcess]:
    """A key generator that serves; stopped at the end."""
    process = KgProcess(site, key, last_good)
    try:
        yield process.wait_ready()
    finally:
        if process.popen.poll() is None:
            process.stop()


def own(who: Device | Identity) -> Roots:
    """The roots of its label that it holds."""
    roots: Any = (who.ident if isinstance(who, Device) else who).own
    assert isinstance(roots, Roots)
    return roots


class Device:
    """A client as far as provisioning goes, with the portable package."""

    def __init__(self, enrolment: dict[str, Any]) -> None:
        self.ident = Identity.from_enrolment(enrolment)
        self.boot = 1
        self.nonce = b""

    def ask(self, gen: int | None = None) -> bytes:
        """A request with a fresh N_c."""
        i = self.ident
        self.nonce = os.urandom(16)
        held = i.gen if gen is None else gen
        who = i.site, i.ps, i.suite, i.client, held
        return provision.ask(make, *who, self.boot, self.nonce, i.mediator)

    def accept(self, packet: bytes) -> int:
        """Take the answer to the last request; its time in ms."""
        return self.ident.accept(make, self.nonce, packet)
