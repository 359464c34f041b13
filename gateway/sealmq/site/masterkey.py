"""The key that lies outside the site, and the role keys that are made from it.

master = scrypt(content of the key file, SITE/state/salt); a role's key = HKDF-SHA256(master, role).
A copied site folder lacks the key file, so it reveals nothing. Keys never reach a log or a repr.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .errors import KeyFileError, NoSite
from .layout import Layout, sync_folder
from .model import Config
from .values import is_inside

CREDENTIAL = "sealmq-key"
SALT_BYTES = 16
MIN_BYTES = 16
_MAX_BYTES = 4096
# RFC 7914. 32 MiB and about 0.1 s on a Raspberry Pi 4: also a passphrase costs something to guess.
_N, _R, _P = 1 << 15, 8, 1


@dataclass(frozen=True, slots=True)
class RoleKeys:
    """32 bytes each."""

    kg: bytes = field(repr=False)
    mediator_cache: bytes = field(repr=False)
    backup: bytes = field(repr=False)
    line: bytes = field(repr=False)
    audit: bytes = field(repr=False)


def credential() -> Path | None:
    """The key as a systemd credential (LoadCredential=sealmq-key:...), if there is one."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder, CREDENTIAL) if folder else None
    return path if path is not None and path.is_file() else None


def default_path(name: str, site: bytes) -> Path:
    """Where `init` puts a new key: /etc/sealmq for root, else the user's configuration folder.
    KeyFileError: it has none.
    """
    if os.geteuid() == 0:
        folder = Path("/etc/sealmq")
    else:
        try:
            home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        except RuntimeError:
            raise KeyFileError(
                f"user {os.geteuid()} has no home folder, where a key would lie",
                "--key-file FILE, outside the site",
            ) from None
        folder = home / "sealmq"
    return folder / f"{name}-{site.hex()}.key"


def create(path: Path, site: Path) -> None:
    """A new key file, 32 random bytes in hex, 0600. KeyFileError: it is there, or inside SITE."""
    refuse_inside(path, site)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{path} is there already", "it is never overwritten") from None
    with os.fdopen(fd, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fchmod(file.fileno(), 0o600)
        os.fsync(file.fileno())
    sync_folder(path.parent)


def refuse_inside(path: Path, site: Path) -> None:
    """KeyFileError when the key would lie in the folder that it protects."""
    if is_inside(path, site):
        raise KeyFileError(
            f"{path} lies inside the site, whose copy would then reveal everything",
            "choose a file outside the site",
        )


def find(config: Config, site: Path, key_file: Path | None = None) -> Path:
    """The key file to use: systemd credential, then `key_file`, then [site] key_file."""
    found = credential()
    if found is None:
        found = key_file or config.site.key_file
        if found is None:
            raise KeyFileError(
                "no key file is named", 'give --key-file, or key_file = "..." under [site]'
            )
        refuse_inside(found, site)
    return found


def read(path: Path) -> bytes:
    """The content of a key file, without one trailing line end. KeyFileError says what is wrong."""
    try:
        # A pipe must not make us wait for whoever is to write into it.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyFileError(
            f"the key file {path} cannot be read: {error.strerror}",
            "the site's secrets cannot be opened without it; restore it from its backup",
        ) from None
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise KeyFileError(f"the key file {path} is no regular file")
        # systemd guards its own folder; it shows ACL bits as a group's.
        if mode & 0o077 and path != credential():
            raise KeyFileError(
                f"the key file {path} can be read by others (mode {mode & 0o777:04o})",
                f"chmod 600 {path}",
            )
        content = os.read(fd, _MAX_BYTES + 1)
    finally:
        os.close(fd)
    content = content.removesuffix(b"\n").removesuffix(b"\r")
    if not MIN_BYTES <= len(content) <= _MAX_BYTES:
        raise KeyFileError(
            f"the key file {path} has {len(content)} bytes, {MIN_BYTES} to {_MAX_BYTES} are right",
            "32 random bytes in hex, or a long passphrase",
        )
    return content


def derive(content: bytes, salt: bytes) -> RoleKeys:
    """The role keys (RFC 7914, RFC 5869). salt: 16 bytes."""
    # hashlib's own memory limit is just below what these parameters take.
    master = hashlib.scrypt(content, salt=salt, n=_N, r=_R, p=_P, maxmem=64 << 20, dklen=32)
    return RoleKeys(
        kg=_role(master, b"sealmq kg"),
        mediator_cache=_role(master, b"sealmq mediator cache"),
        backup=_role(master, b"sealmq backup"),
        line=_role(master, b"sealmq line to peers"),
        audit=_role(master, b"sealmq audit"),
    )


def _role(master: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(master)


def role_keys(layout: Layout, config: Config, key_file: Path | None = None) -> RoleKeys:
    """Find the key file, read it and derive the role keys of this site."""
    try:
        salt = layout.salt.read_bytes()
    except FileNotFoundError:
        raise NoSite(
            f"{layout.salt} is missing", "restore the site's state folder from its backup"
        ) from None
    if len(salt) != SALT_BYTES:
        raise NoSite(f"{layout.salt} has {len(salt)} bytes, {SALT_BYTES} are right")
    return derive(read(find(config, layout.root, key_file)), salt)
