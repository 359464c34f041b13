"""What a scrape each second costs, while clients are connected: CPU of all processes of the site,
in windows with and without it that take turns.

    build/venv/bin/python gateway/bench/scrape_cost.py --clients 500 --pairs 4 --window 12
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

from sealmq.client import Client

SEALMQ = [sys.executable, "-m", "sealmq.cli"]
TICKS_A_S = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """One that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def cpu_s(pids: list[int]) -> float:
    """Seconds of these processes, user and system, so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS_A_S


def site(folder: Path, clients: int, port: int) -> Path:
    """A site that is up, with so many clients enrolled."""
    root = folder / "site"
    words = ["--key-file", str(folder / "key"), "--listen", f"127.0.0.1:{free_port()}"]
    run("init", str(root), "--example", "factory", "--policy", "labels", *words)
    config = root / "sealmq.toml"
    config.write_text(config.read_text() + f'\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
    rows = "".join(f"c{n},m1-temp\n" for n in range(clients))
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


async def measure(root: Path, folder: Path, args: argparse.Namespace, url: str) -> None:
    """Connects them all, and prints one JSON object."""
    clients = []
    async with contextlib.AsyncExitStack() as stack:
        gate = asyncio.Semaphore(20)

        async def enter(number: int) -> None:
            async with gate:
                file = next((folder / "enrolments").glob(f"c{number}.*json"))
                client = Client.from_enrolment(file, state=folder / f"c{number}.state")
                clients.append(await stack.enter_async_context(client))

        await asyncio.gather(*(enter(number) for number in range(args.clients)))
        told = json.loads((root / "run" / "up.json").read_bytes())["processes"]
        pids = {role: row["pid"] for role, row in told.items()}
        used: dict[bool, list[float]] = {True: [], False: []}
        alone: list[float] = []
        for pair in range(2 * args.pairs):
            scraped = bool(pair % 2)
            before, own = cpu_s(list(pids.values())), cpu_s([pids["metrics"]])
            for _ in range(args.window):
                if scraped:
                    await asyncio.to_thread(scrape, url)
                await asyncio.sleep(1.0)
            used[scraped].append((cpu_s(list(pids.values())) - before) / args.window * 100)
            if scraped:
                alone.append((cpu_s([pids["metrics"]]) - own) / args.window * 100)
        body = scrape(url).decode()
        line = next(x for x in body.splitlines() if x.startswith("sealmq_clients_connected{"))
        told = {
            "clients_connected": float(line.rpartition(" ")[2]),
            "site_without_percent": round(statistics.median(used[False]), 2),
            "site_with_percent": round(statistics.median(used[True]), 2),
            "metrics_process_percent": round(statistics.median(alone), 2),
            "windows_s": args.window,
            "pairs": args.pairs,
        }
        print(json.dumps(told))


def scrape(url: str) -> bytes:
    """As Prometheus does it."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - our own
        return bytes(answer.read())


def main() -> None:
    """Start, measure, end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=4, help="windows with, and as many without")
    parser.add_argument("--window", type=int, default=12, help="seconds")
    args = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = site(folder, args.clients, port)
        try:
            asyncio.run(measure(root, folder, args, f"http://127.0.0.1:{port}"))
        finally:
            run("down", str(root))


if __name__ == "__main__":
    main()
