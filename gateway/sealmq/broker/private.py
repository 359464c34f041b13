"""A private Mosquitto's process: `python -m sealmq.broker.private SITE`, started by the supervisor.

It takes its credentials from the pipe, writes Mosquitto's files into state/broker as the broker's
own user, and becomes Mosquitto: same process, same limits. Of the password only a hash is written.
No TCP port is opened: mediators come over a Unix socket, whose folder says who may.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from sealmq.run import secrets
from sealmq.run.errors import BadHandOver, RunError
from sealmq.site.layout import Layout, write_atomically
from sealmq.site.model import Limits

from . import mosquitto
from .process import credentials_of


def write(layout: Layout, user: str, password_line: str, limits: Limits) -> Path:
    """Write the three files (0600); where the configuration is."""
    folder, root = layout.broker_state, os.geteuid() == 0
    for name, text in (
        (mosquitto.PASSWORDS, password_line),
        (mosquitto.ACL, mosquitto.acl(user)),
        (mosquitto.CONFIG, mosquitto.config(folder, layout.broker_socket, limits, root=root)),
    ):
        write_atomically(folder / name, text.encode(), 0o600)
    return folder / mosquitto.CONFIG


def become(program: str, config: Path, folder: Path) -> NoReturn:
    """Be Mosquitto from here on, in its socket's folder, with none of our environment."""
    os.chdir(folder)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    os.execve(program, ["mosquitto", "-c", str(config)], env)  # noqa: S606 - no shell wanted


def main(arguments: list[str]) -> int:
    """Does not return when all goes well."""
    try:
        handed = secrets.receive()
        credentials = credentials_of(handed)
        program = handed.get("program")
        told = handed.get("limits")
        if not isinstance(program, str) or not isinstance(told, dict) or len(arguments) != 1:
            raise BadHandOver("no program, no limits, or no site to serve")
        layout = Layout.open(arguments[0])
        line = mosquitto.passwords(credentials)
        config = write(layout, credentials.user, line, Limits(**told))
        become(program, config, layout.broker_socket.parent)
    except (RunError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
