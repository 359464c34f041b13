"""Two real sites, `north` and `south`, joined by their bridges with the commands that operators
type: north listens and exports, south calls and imports.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.joined import Joined
from free_ports import free_port
from run.sites import Site, sealmq, until

Pair = dict[str, Joined]


def ran(*words: str) -> str:
    done = sealmq(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def two_sites() -> Iterator[Pair]:
    """Not joined yet. What was started ends with them."""
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        sites = {one: _made(Path(name), one) for one in ("north", "south")}
        try:
            yield sites
        finally:
            for site in sites.values():
                for up in site.ups:
                    up.end()


def _made(folder: Path, name: str) -> Joined:
    root, key = folder / name, folder / f"{name}.key"
    words = ("--key-file", str(key), "--listen", f"127.0.0.1:{free_port()}")
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


def up(pair: Pair) -> None:
    """Both, one after the other."""
    for site in pair.values():
        site.up().ready()


def joined(pair: Pair) -> None:
    until(lambda: all(line(site) == "up" for site in pair.values()), "the line")


def line(site: Joined) -> str:
    """Of its one peer."""
    [said] = site.lines().values()
    return said
