"""Separate users: the key generator, the mediator and the broker each run as somebody else.

Then "the mediator cannot decrypt" does not rest on good manners: its user can neither read the key
generator's memory nor its files. Key generator and mediator share the group `sealmq`, which reads
sealmq.toml and writes into run/; the broker and the process that announces the site need neither
and are not in it. The mediator's process is in the broker's group besides, whose is the socket of a
private Mosquitto.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping

from sealmq.site.layout import GROUP, ROLES, Layout, give, group, separate_users, user_of

from .child import Identity
from .errors import BadUsers

BRIDGE, BORDER, METRICS, MDNS = "bridge", "border", "metrics", "mdns"
IN_GROUP = ("kg", "mediator", BRIDGE, BORDER, METRICS)


def name_of(role: str) -> str:
    """The user of a role."""
    return f"sealmq-{role}"


def identities() -> dict[str, Identity]:
    """role -> as whom it runs. Empty: all of them run as our own user."""
    gid, users = group(), separate_users()
    shared = () if gid is None else (gid,)
    groups = {role: shared for role in IN_GROUP}
    if users:
        # So it, and nobody else, reaches the socket of a private Mosquitto.
        groups["mediator"] = (*shared, users["broker"].pw_gid)
    return {
        role: Identity(user.pw_name, user.pw_uid, user.pw_gid, groups.get(role, ()))
        for role, user in users.items()
    }


def beside(role: str, found: Mapping[str, Identity]) -> pwd.struct_passwd | None:
    """As whom bridges, borders, metrics or mDNS run where the other processes are kept apart.
    BadUsers: there is nobody.
    """
    if not found:
        return None
    user = user_of(role)
    there = [user_of(other) for other in _HAS if other != role]
    taken = {0} | {who.uid for who in found.values()} | {who.pw_uid for who in there if who}
    if user is None or user.pw_uid in taken:
        raise BadUsers(
            f"this site has {_HAS[role]}, and there is no user {name_of(role)} of its own",
            "sudo sealmq system-users",
        )
    return user


_HAS = {BRIDGE: "peers", BORDER: "borders", METRICS: "[metrics]", MDNS: "[mdns]"}


def as_beside(user: pwd.struct_passwd | None) -> Identity | None:
    """The same, for starting a process."""
    if user is None:
        return None
    gid = group() if user.pw_name in map(name_of, IN_GROUP) else None
    return Identity(user.pw_name, user.pw_uid, user.pw_gid, () if gid is None else (gid,))


def check(found: dict[str, Identity]) -> None:
    """BadUsers when the users that there are separate nothing."""
    uids = [who.uid for who in found.values()]
    if len(set(uids)) != len(uids) or 0 in uids:
        raise BadUsers(
            "the users " + ", ".join(sorted(who.name for who in found.values())) + " are not three "
            "different ones without root's rights",
            "remove them, and let `sealmq system-users` make them",
        )


def give_back(layout: Layout, found: Mapping[str, Identity]) -> None:
    """What root's own commands have made in the roles' folders becomes the roles'."""
    for role, who in found.items():
        for folder in (layout.state_of(role), layout.audit(role)):
            if folder.is_dir():
                give(folder, who.uid, who.gid)


def create() -> list[str]:
    """Make what is missing of the group and the users (as root); what was made."""
    if os.geteuid() != 0:
        raise BadUsers("users can be made by root only", "sudo sealmq system-users")
    for tool in ("groupadd", "useradd"):
        if shutil.which(tool, path=_PATH) is None:
            raise BadUsers(f"{tool} is not installed", "apt-get install passwd")
    made = []
    if not _exists(GROUP, grp.getgrnam):
        _call("groupadd", "--system", GROUP)
        made.append(f"group {GROUP}")
    for role in (*ROLES, BRIDGE, BORDER, METRICS, MDNS):
        name = name_of(role)
        if not _exists(name, pwd.getpwnam):
            _call(
                "useradd",
                "--system",
                "--user-group",
                *(["--groups", GROUP] if role in IN_GROUP else []),
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
