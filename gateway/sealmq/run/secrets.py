"""How a process gets its secrets: one JSON line through an inherited pipe, read once.

Only the pipe's number stands in the environment (SEALMQ_SECRETS_FD). An argument list, an
environment and a file can be read by others, or outlive the process; a pipe that has been read is
empty.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .errors import BadHandOver

FD = "SEALMQ_SECRETS_FD"
# What a pipe takes at once even where the system has cut its size down (pipe(7)).
MOST = 4096

_START = "start the site with `sealmq up SITE`"


@contextmanager
def handed_over(secrets: Mapping[str, Any]) -> Iterator[int]:
    """The end to be inherited of a pipe that holds the secrets; it is closed here afterwards."""
    line = json.dumps(secrets, separators=(",", ":")).encode() + b"\n"
    if len(line) > MOST:
        raise BadHandOver(f"secrets of {len(line)} bytes; at most {MOST} fit")
    read_end, write_end = os.pipe()
    try:
        try:
            os.write(write_end, line)
        finally:
            os.close(write_end)
        yield read_end
    finally:
        os.close(read_end)


def receive() -> dict[str, Any]:
    """The secrets of this process; the pipe is closed and its number forgotten."""
    text = os.environ.pop(FD, "")
    if not text.isdecimal():
        raise BadHandOver(
            f"{FD} is not set: nobody handed over this process's secrets",
            _START,
        )
    try:
        with open(int(text), "rb") as pipe:
            line = pipe.read(MOST + 1)
    except OSError as error:
        raise BadHandOver(
            f"{FD}: {error.strerror}", "start the site with `sealmq up SITE`"
        ) from None
    try:
        secrets = json.loads(line)
    except ValueError:
        secrets = None
    if not isinstance(secrets, dict):  # the text itself must not get into a message
        raise BadHandOver(f"{FD}: {len(line)} bytes that are no JSON object")
    return secrets
