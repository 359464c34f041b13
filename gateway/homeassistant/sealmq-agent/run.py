#!/usr/bin/env python3
"""Makes agent.toml of an add-on's options, and becomes `sealmq agent`.

    run.py DATA CONFIG      DATA: options.json is there, and what is written; CONFIG: the enrolment

The password goes into a file of mode 0600, never onto a command line or into the log.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import tomlkit


class Wrong(Exception):
    """An option that cannot be used, and what would be right."""


def text(options: dict[str, Any], name: str, right: str) -> str:
    """An option that has to be there."""
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise Wrong(f"the option {name!r} is empty; it takes {right}")
    return value


def config_of(options: dict[str, Any], data: Path, config: Path) -> tuple[str, str, str]:
    """agent.toml, the password, and the enrolment. Wrong, OSError."""
    enrolment = text(
        options, "enrolment", "the name of a file in the add-on's configuration folder"
    )
    if "/" in enrolment or enrolment.startswith("."):
        raise Wrong(f"the option 'enrolment' is {enrolment!r}; it takes a file's name, no path")
    file = config / enrolment
    if not file.is_file():
        raise Wrong(
            f"there is no {enrolment!r} in the add-on's configuration folder; `sealmq client add "
            f"SITE NAME --label LABEL --kind app -o {enrolment}` on the gateway makes one"
        )
    name = text(options, "username", "the name by which Home Assistant logs in")
    password = text(options, "password", "8 characters or more, for Home Assistant to log in with")
    if len(password.encode()) < 8:
        raise Wrong("the option 'password' is too short; it takes 8 characters or more")
    port = options.get("port")
    if type(port) is not int or not 0 < port < 65536:
        raise Wrong(f"the option 'port' is {port!r}; it takes a number from 1 to 65535")
    senders: dict[str, list[str]] = {}
    for one in options.get("senders") or []:
        client = text(one, "client", "a client of the site")
        senders.setdefault(client, []).append(text(one, "filter", "a filter of its topics"))
    user: dict[str, Any] = {
        "enrolment": str(data / "enrolment"),
        "state": str(data / f"{enrolment}.state"),
        "password_file": str(data / "password"),
        "discovery": {"senders": senders},
    }
    said = {
        "listen": [f"127.0.0.1:{port}"],
        "spool": str(data / "spool"),
        "users": {name: user},
    }
    return tomlkit.dumps(said), password, file.read_text()


def write(path: Path, content: str) -> None:
    """A file that only its owner reads, from the first moment on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)


def main(words: list[str]) -> int:
    """2 for options that cannot be used; else it becomes the agent."""
    if len(words) != 2:
        print("usage: run.py DATA CONFIG", file=sys.stderr)
        return 2
    data, config = map(Path, words)
    try:
        options = json.loads((data / "options.json").read_text())
        toml, password, enrolment = config_of(options, data, config)
    except (OSError, ValueError, Wrong) as error:
        print(f"sealmq agent: {error}", file=sys.stderr)
        return 2
    os.umask(0o077)
    write(data / "password", password + "\n")
    # What was copied there by a share is readable by others, and the folder is not ours to change.
    write(data / "enrolment", enrolment)
    write(data / "agent.toml", toml)
    program = Path(sys.executable).with_name("sealmq")
    # No shell, and nothing of an option among the words.
    os.execv(program, [str(program), "agent", "--config", str(data / "agent.toml")])  # noqa: S606


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
