"""One site with a border, under separate users: `python apart_border.py FOLDER PORT PORT`. As
apart.py; prints one JSON object for the test to judge. Its peer never calls.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from run.fakes.apart import (
    CLI,
    WAIT_S,
    as_the_unit_has_it,
    expose,
    ids,
    run,
    status,
    tries,
    until_ready,
)

BORDER = """
[borders.outlet]
from = "machine"
to = "shared"
topics = ["mill/+"]
declassify = true
"""


def listed(site: Path) -> dict[str, Any]:
    """What `sealmq border list` says of it, once it is up."""
    end, row = time.monotonic() + WAIT_S, dict[str, Any]()
    while row.get("line") != "up" and time.monotonic() < end:
        [row] = json.loads(run(*CLI, "border", "list", str(site), "--json").stdout)["borders"]
    return row


def crossed(site: Path) -> list[str]:
    """Topics of the border's events, once there is one."""
    end, found = time.monotonic() + WAIT_S, list[str]()
    while not found and time.monotonic() < end:
        words = ("--client", "mill", "-t", "mill/1", "-m", "21", "-q", "1")
        run(*CLI, "pub", str(site), *words, check=False)
        for path in (site / "audit" / "border-outlet").iterdir():
            for line in path.read_text().splitlines():
                if '"border-crossed"' in line:
                    found.append(json.loads(line)["topic"])
    return found


def main() -> int:
    folder, ports = Path(sys.argv[1]), sys.argv[2:]
    etc = folder / "etc"
    shutil.copytree("/etc", etc, symlinks=True, ignore=shutil.ignore_patterns("sealmq"))
    run("mount", "--bind", str(etc), "/etc")
    for path in (Path(sys.base_prefix), Path(__file__).resolve().parents[4]):
        expose(path, folder)
    run(*CLI, "system-users")
    site, told = folder / "north", dict[str, Any]()
    run(*CLI, "init", str(site), "--policy", "labels", "--listen", f"127.0.0.1:{ports[0]}")
    path = site / "sealmq.toml"
    text = path.read_text().replace("\n[labels]\n", "\n[labels]\nmachine = []\nshared = []\n", 1)
    text = text.replace("\n[clients]\n", '\n[clients]\nmill = { label = "machine" }\n', 1)
    peer = f'\n[peers.south]\nfingerprint = "{"ab" * 32}"\nlisten = "127.0.0.1:{ports[1]}"\n'
    path.write_text(text + peer + 'export = ["shared"]\n' + BORDER)
    [key] = Path("/etc/sealmq").glob("north-*.key")
    with open(folder / "north.err", "a") as err:
        command = [*as_the_unit_has_it(), *CLI, "up", str(site)]
        up = subprocess.Popen(command, stderr=err, stdout=err, text=True)
    try:
        told["status"] = until_ready(site, up, folder / "north.err")
        told["listed"], told["crossed"] = listed(site), crossed(site)
        state = site / "state" / "border"
        told["owners"] = sorted({found.owner() for found in (state, *state.iterdir())})
        told["modes"] = [oct(state.stat().st_mode & 0o777)]
        pids = {row["role"]: row["pid"] for row in status(site)["processes"]}
        told["ids"] = ids(pids["border-outlet"])
        told["tries"] = tries(site, "sealmq-border", pids, key)
    finally:
        up.send_signal(signal.SIGTERM)
        told["code"] = up.wait(WAIT_S)
        told["log"] = (folder / "north.err").read_text()[-3000:]
        print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
