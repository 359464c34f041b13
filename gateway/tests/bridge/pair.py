"""Two real sites, `north` and `south`, joined by their bridges with the commands that operators
type: north listens and exports, south calls and imports.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from pathlib import Path
from typing import Any

from run.sites import Site, Up, sealmq, until
from typed_page import free_port


class Joined(Site):
    """A site of the pair."""

    def up(self, *options: str, env: dict[str, str] | None = None) -> Up:
        made = Up.start(self, ["-m", "sealmq.cli", "up", str(self.root), *options], env or {})
        self.ups.append(made)
        return made.ready()

    def line(self) -> dict[str, Any]:
        """What `sealmq peer list` says of its one peer."""
        done = sealmq("peer", "list", str(self.root), "--json")
        rows: list[dict[str, Any]] = json.loads(done.stdout)["peers"]
        return rows[0]

    def bridge(self) -> int:
        return self.pid("bridge")

    def pid(self, role: str) -> int:
        told = json.loads((self.root / "run" / "up.json").read_text())["processes"]
        return int(told[role]["pid"])

    def dropped(self) -> list[dict[str, Any]]:
        """What the bridge's audit log names."""
        return self.events("bridge", "bridge-dropped")

    def events(self, role: str, event: str) -> list[dict[str, Any]]:
        """What that process's audit log says of this."""
        rows = []
        for path in sorted((self.root / "audit").glob(f"{role}/*")):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    rows.append(json.loads(line))
        return [row for row in rows if row["event"] == event]


Pair = dict[str, Joined]


def ran(*words: str) -> str:
    done = sealmq(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(folder: Path, name: str) -> Joined:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    root, key = folder / name, folder / f"{name}.key"
    words = ("--key-file", str(key), "--listen", f"127.0.0.1:{port}")
    ran("init", str(root), "--policy", "labels", *words)
    site = Joined(root, key)
    text = (root / "sealmq.toml").read_text()
    (root / "sealmq.toml").write_text(text.replace('kind = "embedded"', 'kind = "mosquitto"'))
    return site


def written(site: Site, labels: str, clients: str, more: str = "") -> None:
    """Lines of sealmq.toml; more: at its end."""
    path = site.root / "sealmq.toml"
    text = re.sub(r"(?m)^\[labels\]$", f"[labels]\n{labels}", path.read_text())
    path.write_text(re.sub(r"(?m)^\[clients\]$", f"[clients]\n{clients}", text) + more)


def join(sites: Pair, label: str) -> None:
    """North exports the label to south."""
    at = f"127.0.0.1:{free_port()}"
    north, south = str(sites["north"].root), str(sites["south"].root)
    theirs = ran("peer", "fingerprint", south).strip()
    ran("peer", "add", north, "south", "--fingerprint", theirs, "--listen", at,
        "--export", label)  # fmt: skip
    theirs = ran("peer", "fingerprint", north).strip()
    ran("peer", "add", south, "north", "--fingerprint", theirs, "--address", at,
        "--import", label)  # fmt: skip


def joined(pair: Pair) -> None:
    until(lambda: all(site.line()["line"] == "up" for site in pair.values()), "the line")
