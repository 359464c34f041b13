"""Two joined sites under separate users, one with two workers, which is restored from its backup:
`python apart_bridge.py FOLDER PORT...`. As apart.py; prints one JSON object for the test to judge.
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

TOKENS = {
    "north": '[families.trust.tokens.boiler]\npublish = ["boiler/#"]\n',
    "south": '[families.trust.tokens.panel]\nsubscribe = ["@north/#"]\n',
}
LABELS = {
    "north": ("heat = []", 'boiler = { label = "heat" }'),
    "south": ('control = ["heat@north"]', 'panel = { label = "control", kind = "app" }'),
}


class Sites:
    """Both, in a folder."""

    def __init__(self, folder: Path, ports: list[str]) -> None:
        self.folder, self.ports = folder, ports
        self.command = as_the_unit_has_it()
        self.ups: dict[str, subprocess.Popen[str]] = {}

    def root(self, name: str) -> Path:
        return self.folder / name

    def key(self, name: str) -> Path:
        [found] = Path("/etc/sealmq").glob(f"{name}-*.key")
        return found

    def make(self, name: str, port: str) -> None:
        run(
            *CLI, "init", str(self.root(name)), "--policy", "trust", "--listen", f"127.0.0.1:{port}"
        )
        path = self.root(name) / "sealmq.toml"
        text = path.read_text()
        if name == "north":
            text = text.replace('kind = "embedded"', 'kind = "mosquitto"')
            text = text.replace("\n[mediator]\n", "\n[mediator]\nworkers = 2\n")
        path.write_text(text)

    def join(self) -> None:
        prints = {
            n: run(*CLI, "peer", "fingerprint", str(self.root(n))).stdout.strip() for n in LABELS
        }
        at = f"127.0.0.1:{self.ports[2]}"
        self._name("north")
        for here, there, *more in (
            ("north", "south", "--listen", at, "--export", "heat"),
            ("south", "north", "--address", at, "--import", "heat"),
        ):
            words = ("--fingerprint", prints[there], *more)
            run(*CLI, "peer", "add", str(self.root(here)), there, *words)
        self._name("south")

    def _name(self, name: str) -> None:
        path = self.root(name) / "sealmq.toml"
        text = path.read_text()
        for table, line in zip(("labels", "clients"), LABELS[name], strict=True):
            text = text.replace(f"\n[{table}]\n", f"\n[{table}]\n{line}\n", 1)
        path.write_text(f"{text}\n[families.trust]\n{TOKENS[name]}")

    def up(self, name: str) -> dict[str, Any]:
        said = self.folder / f"{name}.err"
        with said.open("a") as err:
            command = [*self.command, *CLI, "up", str(self.root(name))]
            self.ups[name] = subprocess.Popen(command, stderr=err, stdout=err, text=True)
        return until_ready(self.root(name), self.ups[name], said)

    def down(self, name: str) -> int:
        up = self.ups.pop(name)
        up.send_signal(signal.SIGTERM)
        return up.wait(WAIT_S)

    def joined(self) -> str:
        """What north says of its line, once that is up: it has to have met its neighbour."""
        end, line = time.monotonic() + WAIT_S, ""
        while line != "up" and time.monotonic() < end:
            peers = run(*CLI, "peer", "list", str(self.root("north")), "--json", check=False)
            line = json.loads(peers.stdout)["peers"][0]["line"]
        return line

    def crosses(self, text: str) -> str:
        """What the panel at south hears first of what the boiler at north says again and again."""
        if (line := self.joined()) != "up":
            return line
        reader = subprocess.Popen(
            [*CLI, "sub", str(self.root("south")), "--client", "panel", "-t", "@north/#", "-C1"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        end = time.monotonic() + WAIT_S
        while reader.poll() is None and time.monotonic() < end:
            words = ("--client", "boiler", "-t", "boiler/1", "-m", text, "-q", "1")
            run(*CLI, "pub", str(self.root("north")), *words, check=False)
        reader.kill()
        return str(reader.communicate()[0])

    def told(self, name: str) -> dict[str, Any]:
        """What root is told by the bridge, and what it has written down."""
        root = str(self.root(name))
        shown = run(*CLI, "trust", "show", root, "--json", check=False)
        peers = run(*CLI, "peer", "list", root, "--json", check=False)
        return {
            "shown": json.loads(shown.stdout or "{}"), "error": shown.stderr,
            "line": json.loads(peers.stdout)["peers"][0],
            "owners": sorted({p.owner() for p in (self.root(name) / "state" / "bridge").iterdir()}),
            "prints": run(*CLI, "peer", "fingerprint", root).stdout.strip(),
        }  # fmt: skip


def main() -> int:
    folder, ports = Path(sys.argv[1]), sys.argv[2:]
    etc = folder / "etc"
    shutil.copytree("/etc", etc, symlinks=True, ignore=shutil.ignore_patterns("sealmq"))
    run("mount", "--bind", str(etc), "/etc")
    for path in (Path(sys.base_prefix), Path(__file__).resolve().parents[4]):
        expose(path, folder)
    run(*CLI, "system-users")
    sites, told = Sites(folder, ports), dict[str, Any]()
    for name, port in zip(LABELS, ports, strict=False):
        sites.make(name, port)
    sites.join()
    try:
        told["status"] = {name: sites.up(name) for name in LABELS}
        told["first"] = sites.crosses("first")
        told["told"] = {name: sites.told(name) for name in LABELS}
        north = sites.root("north")
        pids = {row["role"]: row["pid"] for row in status(north)["processes"]}
        told["ids"] = ids(pids["bridge"])
        told["tries"] = tries(north, "sealmq-bridge", pids, sites.key("north"))
        run(*CLI, "backup", str(north), str(folder / "backup"))
        told["code"] = sites.down("north")
        shutil.rmtree(north)
        key = ("--key-file", str(sites.key("north")))
        told["restore"] = run(*CLI, "restore", str(north), str(folder / "backup"), *key).stdout
        told["restored"] = sites.up("north")
        told["second"] = sites.crosses("second")
        told["again"] = {name: sites.told(name) for name in LABELS}
    finally:
        for name in list(sites.ups):
            sites.down(name)
        told["log"] = {n: (folder / f"{n}.err").read_text()[-3000:] for n in LABELS}
        print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
