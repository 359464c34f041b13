"""Where everything of a site lies, and who may read it.

Nothing secret lies under SITE in clear; permissions are the second fence. Each role's state has a
folder of its own, so that separate users can own them.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sealmq.near import closest

from .errors import NoSite

ROLES = ("kg", "mediator", "broker")
GROUP = "sealmq"
CONFIG = "sealmq.toml"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one site; `root` is absolute."""

    root: Path

    @classmethod
    def of(cls, site: str | os.PathLike[str]) -> Layout:
        """The layout of a folder that need not exist."""
        return cls(Path(site).absolute())

    @classmethod
    def open(cls, site: str | os.PathLike[str], begins: bool = False) -> Layout:
        """The layout of a site that exists; NoSite otherwise. begins: whoever asks may well want
        a new one.
        """
        layout = cls.of(site)
        if not layout.config.is_file():
            what = f"it has no {CONFIG}" if layout.root.exists() else "there is no such folder"
            raise NoSite(f"{os.fspath(site)} is no site: {what}", layout._meant(site, begins))
        return layout

    def _meant(self, site: str | os.PathLike[str], begins: bool) -> str:
        """A hint: a site beside a folder that is not there, or where sites come from."""
        beside: list[str] = []
        if not self.root.exists():
            with contextlib.suppress(OSError):
                beside = [path.parent.name for path in self.root.parent.glob(f"*/{CONFIG}")]
        near_by = closest(self.root.name, beside)
        new = f"sealmq init {os.fspath(site)}"
        if near_by:
            meant = f"did you mean {Path(site).parent / near_by}?"
            return f"{meant} A new one: {new}" if begins else meant
        return new if begins else "a site is a folder that `sealmq init` has made"

    @property
    def config(self) -> Path:
        """sealmq.toml (0640)."""
        return self.root / CONFIG

    @property
    def state(self) -> Path:
        """0700, or 0711 where separate users own what is below."""
        return self.root / "state"

    @property
    def salt(self) -> Path:
        """16 bytes, not secret: the salt of the master key."""
        return self.state / "salt"

    @property
    def kg_db(self) -> Path:
        return self.state / "kg" / "kg.db"

    @property
    def kg_lock(self) -> Path:
        """Locked (flock) by whoever has kg.db open for writing."""
        return self.state / "kg" / "lock"

    @property
    def mediator_db(self) -> Path:
        return self.state / "mediator" / "mediator.db"

    @property
    def broker_state(self) -> Path:
        return self.state / "broker"

    @property
    def run(self) -> Path:
        """The supervisor's; each role writes into a folder of its own there (0755)."""
        return self.root / "run"

    def run_of(self, role: str) -> Path:
        """Where this role, and nobody else, has its readiness file and its socket."""
        return self.run / role

    @property
    def kg_socket(self) -> Path:
        return self.run_of("kg") / "kg.sock"

    @property
    def broker_socket(self) -> Path:
        """A private Mosquitto's, in a folder that its user and the mediator's pass."""
        return self.run / "mosquitto" / "mosquitto.sock"

    def lock_file(self, of: str) -> Path:
        """Locked while something is done that takes turns, say "edit". See `locked`."""
        return self.root / f".{of}.lock"

    @property
    def up_lock(self) -> Path:
        """Locked (flock) by `sealmq up` and all that it starts."""
        return self.run / "up.lock"

    @property
    def up_log(self) -> Path:
        """What `sealmq up` writes in the background; its folder is its own (0700)."""
        return self.root / "log" / "up.log"

    def state_of(self, role: str) -> Path:
        """The folder that only this role's user reads: 0700, the broker's 0711 if users differ."""
        return self.state / role

    def ready(self, role: str) -> Path:
        """There while the process really serves. Of a broker the supervisor writes it."""
        return self.run_of(role) / "ready.json"

    def totals(self, role: str, name: str = "0") -> Path:
        """What a process of the role counts, for metrics."""
        return self.run_of(role) / f"totals-{name}.json"

    def seen(self, name: str = "0") -> Path:
        """When a worker of the mediator has last seen each of its clients."""
        return self.state_of("mediator") / f"seen-{name}.json"

    def writers(self) -> dict[str, str]:
        """The processes that write an audit log, and count, with the role that their logs name."""
        borders = sorted(folder.name for folder in self.audit("").glob(border_role("*")))
        alone = {role: role for role in ("kg", "mediator", "bridge")}
        return alone | dict.fromkeys(borders, "border")

    def audit(self, role: str) -> Path:
        """Segments of this role's audit log."""
        return self.root / "audit" / role


def user_of(role: str) -> pwd.struct_passwd | None:
    """The separate user of a role (`sealmq-kg`, ...), if the system has it."""
    try:
        return pwd.getpwnam(f"sealmq-{role}")
    except KeyError:
        return None


def group() -> int | None:
    """The id of the group `sealmq`, in which the separate users are."""
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return None


def separate_users() -> dict[str, pwd.struct_passwd]:
    """role -> user: all three when we are root and the system has them, else none (shared user)."""
    if os.geteuid() != 0 or group() is None:
        return {}
    users = {role: user for role in ROLES if (user := user_of(role)) is not None}
    return users if len(users) == len(ROLES) else {}


def prepare(layout: Layout) -> None:
    """Make the folders and set whose they are, and modes. Idempotent; `init` and each `up` call it.

    With separate users the group `sealmq` reads sealmq.toml. No role can write where another one,
    or root, writes: below run/ each has a folder of its own.
    """
    users = separate_users()
    gid = group() if users else None
    _folder(layout.root, 0o755)
    _folder(layout.state, 0o711 if users else 0o700)
    _folder(layout.run, 0o755)
    _folder(layout.root / "audit", 0o755)
    for role in ROLES:
        user = users.get(role)
        # A mediator looks when the broker has last written its state down.
        passed = users and role == "broker"
        _folder(layout.state_of(role), 0o711 if passed else 0o700, user)
        _folder(layout.run_of(role), 0o755, user if role != "broker" else None)
        if role != "broker":
            _folder(layout.audit(role), 0o750, user)
    # Mosquitto's socket is its group's, in which only the mediator's process is besides.
    _folder(layout.broker_socket.parent, 0o710 if users else 0o700, users.get("broker"))
    if gid is not None and layout.config.exists():
        os.chown(layout.config, -1, gid)


def prepare_bridge(layout: Layout, user: pwd.struct_passwd | None) -> None:
    """The same for the bridge, of a site that has peers."""
    _folder(layout.state_of("bridge"), 0o700, user)
    _folder(layout.run_of("bridge"), 0o755, user)
    _folder(layout.audit("bridge"), 0o750, user)


def border_role(name: str) -> str:
    """What the process of a border is called; all borders share the folder of state."""
    return f"border-{name}"


def prepare_borders(layout: Layout, names: Iterable[str], user: pwd.struct_passwd | None) -> None:
    """The same for the borders, of a site that has some."""
    _folder(layout.state_of("border"), 0o700, user)
    for role in map(border_role, names):
        _folder(layout.run_of(role), 0o755, user)
        _folder(layout.audit(role), 0o750, user)


def prepare_metrics(layout: Layout, user: pwd.struct_passwd | None) -> None:
    """The same for the process that serves metrics, of a site that wants one."""
    _folder(layout.run_of("metrics"), 0o755, user)


def prepare_mdns(layout: Layout, user: pwd.struct_passwd | None) -> None:
    """The same for the process that announces the site, of one that wants that."""
    _folder(layout.run_of("mdns"), 0o755, user)


@contextlib.contextmanager
def locked(layout: Layout, of: str, patience_s: float) -> Iterator[bool]:
    """Whether we have the lock, for the length of the block; False: somebody else has it still.

    On a file that only root and the site's owner can open: whoever can open one can lock it, and
    the site's folder is open to everybody.
    """
    path, owner = layout.lock_file(of), layout.root.stat()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_uid != owner.st_uid and os.geteuid() == 0:
            os.fchown(fd, owner.st_uid, owner.st_gid)
        yield _lock(fd, patience_s)
    finally:
        os.close(fd)


def _lock(fd: int, patience_s: float) -> bool:
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        time.sleep(0.02)


def _folder(path: Path, mode: int, user: pwd.struct_passwd | None = None) -> None:
    path.mkdir(parents=True, exist_ok=True)
    found = path.stat()
    if (found.st_mode & 0o7777) != mode:
        path.chmod(mode)
    if user is not None and found.st_uid != user.pw_uid:
        for entry in [path, *path.rglob("*")]:
            os.chown(entry, user.pw_uid, user.pw_gid, follow_symlinks=False)


def give_back(layout: Layout) -> None:
    """What root has made in a role's folder belongs to its owner, who must be able to open it."""
    if os.geteuid() != 0:
        return
    for role in ("kg", "mediator"):
        folder = layout.state_of(role)
        if folder.is_dir():
            owner = folder.stat()
            give(folder, owner.st_uid, owner.st_gid)


def give(folder: Path, uid: int, gid: int) -> None:
    """Root's files in a role's folder become the role's.

    Only plain files of root with one name: these folders belong to users on whom root does not
    rely, and a link planted there must not make a file elsewhere theirs.
    """
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in os.listdir(at) if uid else ():
            with contextlib.suppress(FileNotFoundError):
                _give_file(at, name, uid, gid)
    finally:
        os.close(at)


def _give_file(folder: int, name: str, uid: int, gid: int) -> None:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(fd)
        if found.st_uid == 0 and stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            os.chown(f"/proc/self/fd/{fd}", uid, gid)
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes, mode: int, durable: bool = True) -> None:
    """Write, fsync, rename, fsync the folder: the old file or the new one, never a half.

    A file that is replaced keeps its owner and group, as far as we may set them. durable: False
    without fsync, for what counts only as long as the process runs that says it.
    """
    owner = None
    with contextlib.suppress(FileNotFoundError):
        owner = path.lstat()
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if owner is not None and stat.S_ISREG(owner.st_mode):
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        os.rename(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make a rename or a new name in the folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
