"""What a scrape each second costs, with many clients enrolled and some connected: CPU of all
processes of a site, in windows with and without it that take turns.

    build/venv/bin/python gateway/bench/scrape_bench.py
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bench_beside import with_load
from bench_command import Command
from bench_print import Row, row

from bench_form import aligned
from sealmq.client import Client

COMMAND = Command(
    "scrape",
    "scrape_bench.py",
    "Measure what a scrape each second costs a site, by the CPU of its processes.",
    "",
    {},
    {
        "enrolled": "so many clients are enrolled (default: 10000)",
        "clients": "so many of them are connected (default: 500)",
        "pairs": "windows with a scrape each second, and as many without (default: 6)",
        "window": "seconds of each (default: 15)",
    },
    barred=True,
)
SEALMQ = [sys.executable, "-m", "sealmq.cli"]
BAR = 1.0
"""Percent of a core that watching may cost."""
TICKS_A_S = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """One that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def cpu_s(pids: list[int]) -> float:
    """Seconds of these processes, user and system, so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS_A_S


def site(folder: Path, enrolled: int, port: int) -> Path:
    """A site that is up, with so many clients enrolled besides its own."""
    root = folder / "site"
    words = ["--key-file", str(folder / "key"), "--listen", f"127.0.0.1:{free_port()}"]
    run("init", str(root), "--example", "factory", "--policy", "labels", *words)
    config = root / "sealmq.toml"
    config.write_text(config.read_text() + f'\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
    rows = "".join(f"c{n},m1-temp\n" for n in range(enrolled))
    (folder / "enrolments").mkdir()
    (folder / "clients.csv").write_text("name,label\n" + rows)
    run("client", "add", str(root), "--from", str(folder / "clients.csv"),
        "-o", str(folder / "enrolments"))  # fmt: skip
    run("up", str(root), "--detach")
    return root


def run(*words: str) -> None:
    """A command that has to go well."""
    subprocess.run(  # noqa: S603 - words of our own
        [*SEALMQ, *words], check=True, stdout=subprocess.DEVNULL
    )


class Watched:
    """What the windows have found, in percent of a core."""

    def __init__(self) -> None:
        self.without: list[float] = []
        self.scraped: list[float] = []
        self.alone: list[float] = []

    async def window(self, pids: dict[str, int], seconds: int, url: str | None) -> None:
        """One of so many seconds; url: what is scraped in it, each second."""
        before, own = cpu_s(list(pids.values())), cpu_s([pids["metrics"]])
        for _ in range(seconds):
            if url is not None:
                await asyncio.to_thread(scrape, url)
            await asyncio.sleep(1.0)
        used = (cpu_s(list(pids.values())) - before) / seconds * 100
        (self.without if url is None else self.scraped).append(used)
        if url is not None:
            self.alone.append((cpu_s([pids["metrics"]]) - own) / seconds * 100)


async def measure(
    root: Path, folder: Path, clients: int, pairs: int, window: int, url: str
) -> Watched:
    """Connects them, and watches. ValueError: not all are connected."""
    async with contextlib.AsyncExitStack() as stack:
        gate = asyncio.Semaphore(20)

        async def enter(number: int) -> None:
            async with gate:
                file = folder / "enrolments" / f"c{number}.sealmq.json"
                client = Client.from_enrolment(file, state=folder / f"c{number}.state")
                await stack.enter_async_context(client)

        await asyncio.gather(*(enter(number) for number in range(clients)))
        told = json.loads((root / "run" / "up.json").read_bytes())["processes"]
        pids = {role: one["pid"] for role, one in told.items()}
        await asyncio.sleep(5)  # what they had to say at first is said
        found = Watched()
        for _ in range(pairs):
            await found.window(pids, window, None)
            await found.window(pids, window, url)
        lines = scrape(url).decode().splitlines()
        counts = [x.rpartition(" ")[2] for x in lines if x.startswith("sealmq_clients_connected{")]
        if (there := sum(map(float, counts))) != clients:
            raise ValueError(f"{there:g} clients are connected, not {clients}")
        return found


def scrape(url: str) -> bytes:
    """As Prometheus does it."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - our own
        return bytes(answer.read())


_UNIT = "% of a core"
_WORDS = {
    "not-scraped": "all processes of the site",
    "scraped": "the same, /metrics asked for each second",
    "metrics": "of that, the process that answers",
}


def measured(enrolled: int, clients: int, pairs: int, window: int) -> list[Row]:
    """Start, measure, end."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = site(folder, enrolled, port)
        try:
            url = f"http://127.0.0.1:{port}"
            found = asyncio.run(measure(root, folder, clients, pairs, window, url))
        finally:
            run("down", str(root))
    rows = []
    by = zip(_WORDS, (found.without, found.scraped, found.alone), strict=True)
    for variant, values in by:
        one = row("watching", variant, statistics.median(values), _UNIT, len(values), 0)
        one["params"] |= {"enrolled": enrolled, "clients": clients}
        one["params"] |= {"least": min(values), "most": max(values)}
        rows.append(one)
    return with_load(rows)


def table(rows: Sequence[Row]) -> str:
    """For people."""
    body = [
        [
            _WORDS[one["variant"]],
            f"{one['params']['enrolled']:,}",
            f"{one['params']['clients']:,}",
            f"{one['value']:.2f}",
            f"{one['params']['least']:.2f} to {one['params']['most']:.2f}",
        ]
        for one in sorted(rows, key=lambda one: list(_WORDS).index(one["variant"]))
    ]
    return aligned(["CPU of", "enrolled", "connected", _UNIT, "in its windows"], body, 1)


def missed(rows: Sequence[Row]) -> list[str]:
    """The bar that they miss."""
    by = {one["variant"]: one["value"] for one in rows}
    costs = max(by["metrics"], by["scraped"] - by["not-scraped"])
    return [f"a scrape each second: {costs:.2f} {_UNIT}, less than {BAR:g}"] if costs >= BAR else []


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = COMMAND.read(argv)
    usual = (200, 20, 1, 3) if given.quick else (10_000, 500, 6, 15)
    asked = (given.enrolled, given.clients, given.pairs, given.window)
    numbers = [one or other for one, other in zip(asked, usual, strict=True)]
    return COMMAND.end(given, lambda: measured(*numbers), table, missed)


if __name__ == "__main__":
    sys.exit(main())
