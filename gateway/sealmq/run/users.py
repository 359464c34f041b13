"""Separate users: the key generator, the mediator and the broker each run as somebody else.

Then "the mediator cannot decrypt" does not rest on good manners: its user can neither read the key
generator's memory nor its files. The three share the group `sealmq`, which may read sealmq.toml.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import subprocess

from sealmq.site.layout import ROLES, separate_users

from .child import Identity
from .errors import BadUsers

GROUP = "sealmq"


def name_of(role: str) -> str:
    """The user of a role."""
    return f"sealmq-{role}"


def identities() -> dict[str, Identity]:
    """role -> as whom it runs. Empty: all of them run as our own user."""
    shared: tuple[int, ...] = ()
    with contextlib.suppress(KeyError):
        shared = (grp.getgrnam(GROUP).gr_gid,)
    return {
        role: Identity(user.pw_name, user.pw_uid, user.pw_gid, shared)
        for role, user in separate_users().items()
    }


def check(found: dict[str, Identity]) -> None:
    """BadUsers when the users that there are separate nothing."""
    uids = [who.uid for who in found.values()]
    if len(set(uids)) != len(uids) or 0 in uids:
        raise BadUsers(
            "the users " + ", ".join(sorted(who.name for who in found.values())) + " are not three "
            "different ones without root's rights",
            "remove them, and let `sealmq system-users` make them",
        )


def create() -> list[str]:
    """Make what is missing of the group and the three users (as root); what was made."""
    if os.geteuid() != 0:
        raise BadUsers("users can be made by root only", "sudo sealmq system-users")
    for tool in ("groupadd", "useradd"):
        if shutil.which(tool, path=_PATH) is None:
            raise BadUsers(f"{tool} is not installed", "apt-get install passwd")
    made = []
    if not _exists(GROUP, grp.getgrnam):
        _call("groupadd", "--system", GROUP)
        made.append(f"group {GROUP}")
    for role in ROLES:
        name = name_of(role)
        if not _exists(name, pwd.getpwnam):
            _call(
                "useradd",
                "--system",
                "--user-group",
                "--groups",
                GROUP,
                "--no-create-home",
                "--home-dir",
                "/nonexistent",
                "--shell",
                "/usr/sbin/nologin",
                "--comment",
                f"SealMQ {role}",
                name,
            )
            made.append(f"user {name}")
    return made


_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def _exists(name: str, find: object) -> bool:
    try:
        find(name)  # type: ignore[operator]
    except KeyError:
        return False
    return True


def _call(*command: str) -> None:
    done = subprocess.run(  # noqa: S603 - arguments of our own making
        command, capture_output=True, text=True, check=False, env={"PATH": _PATH}
    )
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise BadUsers(f"{command[0]} failed: {said or f'exit code {done.returncode}'}")
