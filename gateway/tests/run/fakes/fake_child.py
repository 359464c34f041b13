"""A process of a site that does nothing but what the supervisor expects of one, or fails to.

SITE/fake-<role>.json says how it behaves: {"do": "fail" | "hang" | "stubborn" | "flood" |
"slow"}. One that is slow serves once there is SITE/go.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

from sealmq.run.secrets import receive
from sealmq.site.layout import Layout, write_atomically
from sealmq.unix import short_path

KEYS = {"kg": {"key", "audit", "last_good"}, "mediator": {"cache_key", "broker", "audit"}}


def main(role: str) -> int:
    layout = Layout.open(Path(sys.argv[1]))
    secrets = receive()
    if set(secrets) != KEYS[role]:
        print(f"{role}: handed over {sorted(secrets)}", file=sys.stderr)
        return 1
    note(layout, role, secrets)
    plan = layout.root / f"fake-{role}.json"
    do = json.loads(plan.read_text())["do"] if plan.exists() else "serve"
    if do == "fail":
        print(f"{role}: first line\n{role}: the key does not open this site", file=sys.stderr)
        return 3
    if do == "flood":
        print("x" * 1_000_000, "\x1b[31m", "\n" * 1000, file=sys.stderr, flush=True)
    if do == "hang":
        print("waiting for something that never comes", file=sys.stderr, flush=True)
        time.sleep(600)
    if do == "slow":
        print("waiting for SITE/go", file=sys.stderr, flush=True)
        while not (layout.root / "go").exists():
            time.sleep(0.02)
    serve(layout, role, stubborn=do == "stubborn")
    return 0


def note(layout: Layout, role: str, secrets: dict[str, object]) -> None:
    """Tell the test what this process got and how it runs."""
    umask = os.umask(0o077)
    os.umask(umask)
    status = Path("/proc/self/status").read_text()
    told = {
        "secrets": secrets,
        "pid": os.getpid(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "umask": umask,
        "env": dict(os.environ),
        "argv": sys.argv,
        "new_privs": "NoNewPrivs:\t0" in status,
        "limits": Path("/proc/self/limits").read_text(),
    }
    with (layout.state_of(role) / "told.jsonl").open("a") as file:
        file.write(json.dumps(told) + "\n")


def serve(layout: Layout, role: str, *, stubborn: bool) -> None:
    if role == "kg":
        sock = socket.socket(socket.AF_UNIX)
        layout.kg_socket.unlink(missing_ok=True)
        with short_path(layout.kg_socket) as short:
            sock.bind(short)
        layout.kg_socket.chmod(0o666)
        address = str(layout.kg_socket)
    else:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    sock.listen()
    over = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal over
        over = not stubborn
        (layout.state_of(role) / "term").write_text("got it")

    def hup(number: int, frame: FrameType | None) -> None:
        (layout.state_of(role) / "hup").write_text("reloaded")

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, hup)
    ready = {"role": role, "pid": os.getpid(), "address": address, "ready": True}
    write_atomically(layout.ready(role), json.dumps(ready).encode(), 0o644)
    sock.settimeout(0.05)
    while not over:
        try:
            sock.accept()[0].close()
        except TimeoutError:
            pass
    layout.ready(role).unlink(missing_ok=True)
    if role == "kg":
        layout.kg_socket.unlink(missing_ok=True)
