"""Separate users, tried out for real, in a mount namespace of its own: `python apart.py FOLDER`.

/etc is a copy there, so that `sealmq system-users` makes its users without touching this machine.
Started as root by `unshare --mount`. Prints one JSON object for the test to judge.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CLI = [sys.executable, "-m", "sealmq.cli"]
UNIT = Path(__file__).resolve().parents[3] / "systemd" / "sealmq@.service"
_PR_SET_MDWE = 65
WAIT_S = 60.0


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done


def expose(path: Path, folder: Path) -> None:
    """Let other users pass to `path`, though a folder above it is closed (a root's home is)."""
    # Of the folders that are made here, too, whatever umask we were started with.
    os.umask(0o022)
    closed = [p for p in reversed(path.parents) if not p.stat().st_mode & 0o001]
    if not closed:
        return
    aside = folder / f"aside{len(list(folder.iterdir()))}"
    aside.mkdir()
    run("mount", "--bind", str(path), str(aside))
    if not os.path.ismount(closed[0]):
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(closed[0]))
    path.mkdir(parents=True, exist_ok=True)
    run("mount", "--bind", str(aside), str(path))


def as_the_unit_has_it() -> list[str]:
    """Cut root's powers down to what the systemd unit leaves of them; what to start `up` with."""
    lines = UNIT.read_text().splitlines()
    [powers] = [line for line in lines if line.startswith("CapabilityBoundingSet=")]
    kept = [name.removeprefix("CAP_").lower() for name in powers.partition("=")[2].split()]
    bounds = ",".join(["-all", *(f"+{name}" for name in kept)])
    if "MemoryDenyWriteExecute=yes" in lines:
        # From Linux 6.3 on; systemd does it by a filter of system calls.
        ctypes.CDLL(None).prctl(_PR_SET_MDWE, 1, 0, 0, 0)
    return ["setpriv", "--bounding-set", bounds, "--inh-caps", "-all", "--no-new-privs"]


def status(site: Path) -> dict[str, Any]:
    done = run(*CLI, "status", str(site), "--json", check=False)
    return dict(json.loads(done.stdout)) | {"code": done.returncode}


def until_ready(site: Path, up: subprocess.Popen[str], said: Path) -> dict[str, Any]:
    end = time.monotonic() + WAIT_S
    while (told := status(site))["code"] != 0 and up.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    if up.poll() is not None:
        sys.exit(f"`sealmq up` ended with {up.returncode}: {said.read_text()}")
    return told


def ids(pid: int) -> dict[str, list[int]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: [int(n) for n in found[name].split()] for name in ("Uid", "Gid", "Groups")}


def powers(pid: int) -> int:
    """The effective capabilities of a process, as bits."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)


def tries(site: Path, user: str, pids: dict[str, int], key: Path) -> list[str]:
    """What of the others this user can get at."""
    state = site / "state"
    attempts = {
        "read the key file": f"open({str(key)!r}).read()",
        "read the salt": f"open({str(state / 'salt')!r}).read()",
        "read sealmq.toml": f"open({str(site / 'sealmq.toml')!r}).read()",
        "write sealmq.toml": f"open({str(site / 'sealmq.toml')!r}, 'a')",
        "write into run/": f"open({str(site / 'run' / 'new')!r}, 'x'); "
        f"os.unlink({str(site / 'run' / 'new')!r})",
        "remove run/kg/kg.sock": f"os.unlink({str(site / 'run' / 'kg' / 'kg.sock')!r})",
        "write into run/mediator/": f"open({str(site / 'run' / 'mediator' / 'new')!r}, 'x'); "
        f"os.unlink({str(site / 'run' / 'mediator' / 'new')!r})",
    }
    for role, pid in pids.items():
        attempts[f"list state/{role}"] = f"os.listdir({str(state / role)!r})"
        attempts[f"trace {role}"] = f"open('/proc/{pid}/mem', 'rb')"
        attempts[f"kill {role}"] = f"os.kill({pid}, 0)"
    for role in ("kg", "mediator"):
        attempts[f"list audit/{role}"] = f"os.listdir({str(site / 'audit' / role)!r})"
    done = []
    for name, code in attempts.items():
        full = f"import os, sys\ntry:\n    {code}\nexcept PermissionError:\n    sys.exit(77)"
        names = ("--reuid", user, "--regid", user, "--init-groups")
        tried = run("setpriv", *names, sys.executable, "-c", full, check=False)
        if tried.returncode == 0:
            done.append(name)
        elif tried.returncode != 77:
            done.append(f"{name}: {tried.stderr}")
    return sorted(done)


def reached(site: Path, told: dict[str, Any]) -> dict[str, str]:
    """Who connects to Mosquitto's socket: each user as a command of its own, and as the process."""
    path = str(site / "run" / "mosquitto" / "mosquitto.sock")
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
    found = {}
    for row in told["processes"]:
        user, of = f"sealmq-{row['role']}", ids(row["pid"])
        as_process = ["--groups", ",".join(map(str, of["Groups"]))] if of["Groups"] else []
        for name, groups in (
            (row["role"], as_process or ["--clear-groups"]),
            (f"{user}'s commands", ["--init-groups"]),
        ):
            who = ["--reuid", user, "--regid", user, *groups]
            done = run("setpriv", *who, sys.executable, "-c", code, check=False)
            found[name] = done.stderr.rpartition("\n")[0].rpartition("\n")[2]
    who = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
    done = run("setpriv", *who, sys.executable, "-c", code, check=False)
    return found | {"nobody": done.stderr.rpartition("\n")[0].rpartition("\n")[2]}


def with_mosquitto(site: Path, command: list[str], folder: Path) -> dict[str, Any]:
    """The same site with a private Mosquitto: as whom it runs, and what the mediator sees of it."""
    with open(folder / "up.err", "a") as err:
        up = subprocess.Popen(
            [*command, "--broker", "mosquitto"], stderr=err, stdout=err, text=True
        )
    try:
        told = until_ready(site, up, folder / "up.err")
        told |= {"socket": reached(site, told)}
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(WAIT_S)
    saved = site / "state" / "broker" / "mosquitto.db"
    code = f"import os; os.stat({str(saved)!r}); print('seen'); open({str(saved)!r})"
    names = ("--reuid", "sealmq-mediator", "--regid", "sealmq-mediator", "--init-groups")
    said = run("setpriv", *names, sys.executable, "-c", code, check=False)
    return told | {"code": up.returncode, "seen": said.stdout, "read": said.stderr}


def main() -> int:
    folder = Path(sys.argv[1])
    etc = folder / "etc"
    shutil.copytree("/etc", etc, symlinks=True, ignore=shutil.ignore_patterns("sealmq"))
    run("mount", "--bind", str(etc), "/etc")
    for path in (Path(sys.base_prefix), Path(__file__).resolve().parents[4]):
        expose(path, folder)
    told: dict[str, Any] = {
        "made": run(*CLI, "system-users").stdout.splitlines(),
        "again": run(*CLI, "system-users").stdout.splitlines(),
    }
    site = folder / "site"
    run(*CLI, "init", str(site))
    toml = site / "sealmq.toml"
    toml.write_text(toml.read_text().replace("127.0.0.1:1883", f"127.0.0.1:{sys.argv[2]}"))
    [key] = Path("/etc/sealmq").glob("*.key")
    with open(folder / "up.err", "w") as err:
        command = [*as_the_unit_has_it(), *CLI, "up", str(site)]
        up = subprocess.Popen(command, stderr=err, stdout=err, text=True)
    try:
        told["status"] = until_ready(site, up, folder / "up.err")
        told["powers"] = powers(up.pid)
        pids = {row["role"]: row["pid"] for row in told["status"]["processes"]}
        if told["status"]["code"] == 0:
            told["ids"] = {role: ids(pid) for role, pid in pids.items()}
            told["tries"] = {
                role: tries(site, f"sealmq-{role}", pids, key)
                for role in ("mediator", "broker", "kg")  # it does remove its socket
            }
            os.kill(pids["kg"], signal.SIGKILL)
            told["restarted"] = until_ready(site, up, folder / "up.err")
    finally:
        up.send_signal(signal.SIGTERM)
        told["code"] = up.wait(WAIT_S)
    told["mosquitto"] = with_mosquitto(site, command, folder)
    told["log"] = (folder / "up.err").read_text()
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
