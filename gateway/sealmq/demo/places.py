"""Where the demo's things lie: a checkout with what `make setup` made, and a folder of its own.

Everything secret lies in folders that nobody else can read and is removed at the end.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .errors import DemoError

REPO = Path(__file__).resolve().parents[3]
MARK = ".sealmq-demo"
_SETUP = "run it in a checkout of SealMQ, after `make setup`"


@dataclass(frozen=True, slots=True)
class Places:
    """`work` is the demo's folder; see the properties for what lies in it."""

    work: Path

    @property
    def site(self) -> Path:
        return self.work / "site"

    @property
    def key(self) -> Path:
        """The site's key, beside the site."""
        return self.work / "key"

    @property
    def clients(self) -> Path:
        """Enrolment files and what the devices keep."""
        return self.work / "clients"

    @property
    def said(self) -> Path:
        """What each client said, a file each."""
        return self.work / "said"

    @property
    def logs(self) -> Path:
        """What each process wrote to its standard error."""
        return self.work / "log"

    @property
    def capture(self) -> Path:
        """What passed between devices and mediator (network), mediator and broker (broker)."""
        return self.work / "capture"

    @property
    def audit(self) -> Path:
        return self.site / "audit"

    @property
    def handed(self) -> Path:
        """What the reader below the label was handed."""
        return self.work / "handed.json"

    @property
    def facts(self) -> Path:
        """What the command line said about the site: numbers of the clients, processes."""
        return self.work / "facts.json"

    @property
    def summary(self) -> Path:
        return self.work / "summary.json"

    def fresh(self) -> IO[bytes]:
        """An empty folder, which is ours until the file that this returns is closed.

        Only a folder that the demo made is ever emptied.
        """
        mark = self.work / MARK
        if self.work.exists() and any(self.work.iterdir()) and not mark.exists():
            raise DemoError(
                f"{self.work} is not empty and not the demo's", "give --dir another folder"
            )
        self.work.mkdir(parents=True, exist_ok=True)
        # Passable: with separate users the site's processes must get to the site.
        self.work.chmod(0o711)
        lock = mark.open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise DemoError(f"another demo runs in {self.work}", "give --dir another") from None
        for left in self.work.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            elif left != mark:
                left.unlink()
        for folder in (self.clients, self.said, self.logs, self.capture):
            folder.mkdir(mode=0o700)
        return lock

    def clean(self) -> None:
        """Removes what is secret; captures, logs, audit log and summary stay."""
        if self.audit.is_dir():
            shutil.copytree(self.audit, self.work / "audit", dirs_exist_ok=True)
        shutil.rmtree(self.site, ignore_errors=True)
        shutil.rmtree(self.clients, ignore_errors=True)
        self.key.unlink(missing_ok=True)
        for left in self.work.glob("*.pw"):
            left.unlink()


def sealmq() -> Path:
    """The command, of the same virtualenv as this Python."""
    path = Path(sys.executable).with_name("sealmq")
    if not path.exists():
        raise DemoError(f"{path} is missing", _SETUP)
    return path


def micropython(bits: int) -> Path:
    """The interpreter for a device of 32 or 64 bits."""
    path = REPO / "build" / "micropython" / "bin" / f"micropython{bits}"
    if not path.exists():
        raise DemoError(f"{path} is missing", _SETUP)
    return path


def module_path() -> str:
    """MICROPYPATH: the device client, the protocol package, umqtt."""
    parts = ("firmware", "shared_spec", "build/micropython/lib")
    missing = [p for p in parts if not (REPO / p).is_dir()]
    if missing:
        raise DemoError(f"{REPO / missing[0]} is missing", _SETUP)
    return ":".join(str(REPO / p) for p in parts)
