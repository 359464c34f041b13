"""The rows as tables for people: figures by size, bars, and where ours goes.

Markdown, with columns that line up, so that it reads on a terminal as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bench_form import aligned
from bench_rows import Row, value

OURS, TLS, PLAIN = "sealmq-ccm", "tls13-ecdsa", "plain"


@dataclasses.dataclass(frozen=True)
class Bar:
    """`over` divided by `under`, both (measure, variant), has to be at most or at least `limit`."""

    what: str
    over: tuple[str, str]
    under: tuple[str, str]
    limit: float
    at_least: bool = False

    def ratio(self, rows: Sequence[Row]) -> float | None:
        over, under = value(rows, *self.over), value(rows, *self.under)
        return None if over is None or not under else over / under

    def holds(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least else ratio <= self.limit


BARS = (
    Bar("connect: TLS 1.3 ECDSA to ours", ("connect", TLS), ("connect", OURS), 120, True),
    Bar(
        "wake, publish, sleep: TLS 1.3 ECDSA to ours",
        ("wake_publish_sleep", TLS),
        ("wake_publish_sleep", OURS),
        8,
        True,
    ),
    Bar("publish: ours to TLS 1.3", ("publish", OURS), ("publish", TLS), 0.8),
    Bar("publish: ours to plain", ("publish", OURS), ("publish", PLAIN), 1.6),
    Bar("two seals to one TLS record", ("seal", OURS), ("tls_record", TLS), 2.4),
    Bar("receive: ours to TLS 1.3", ("receive", OURS), ("receive", TLS), 0.8),
    Bar("receive: ours to plain", ("receive", OURS), ("receive", PLAIN), 1.6),
)

# What of ours is known by how often it happens: (words, row, how often); test_bench.py counts.
_AEAD = ("part_aead", "micropython", 64)
_READ = ("part_read", "micropython", 4)
_SEAL = ("seal", OURS, 64)
_WRITE = ("part_write", "micropython", 64)
PARTS: dict[str, tuple[tuple[str, tuple[str, str, int], int], ...]] = {
    "connect": (
        ("SHA-256: five keys and the salt", ("part_sha256", "micropython", 48), 6),
        ("ciphers that take a key", ("part_aead_key", "micropython", 0), 5),
        ("messages sealed or opened: proof, welcome, time, two layers", _AEAD, 5),
        ("address looked up and socket opened", ("part_socket", "micropython", 0), 1),
        ("writes", _WRITE, 2),
        ("reads", _READ, 4),
    ),
    "wake_publish_sleep": (
        ("interpreter that starts", ("part_interpreter", "micropython", 0), 1),
        ("import of the client", ("import", OURS, 0), 1),
        ("connect to the first accepted publish", ("connect", OURS, 64), 1),
    ),
    "publish": (
        ("time both layers sealed", _SEAL, 1),
        ("write", _WRITE, 1),
    ),
    "receive": (
        ("time both layers opened, as dear as sealing them", _SEAL, 1),
        ("reads", _READ, 2),
    ),
}
_REST = {"wake_publish_sleep": "enrolment, roots, and all that is done for the first time"}
_OWN = "the interpreter's own: bytecode, calls, names, objects"


def table(rows: Sequence[Row]) -> str:
    """Everything that the rows tell."""
    parts = [_bars(rows), _instructions(rows), _heap(rows), _wire(rows), _parts(rows)]
    return "\n\n".join(part for part in parts if part)


def _grid(rows: Sequence[Row], digits: int = 0) -> str:
    """One line a measure and variant, one column a size."""
    sizes = sorted({r["size"] for r in rows if r["size"]})
    found: dict[tuple[str, str], dict[int, str]] = {}
    for r in rows:
        figures = found.setdefault((r["measure"], r["variant"]), {})
        # What has no payload stands in the first column of figures.
        figures[r["size"] or sizes[0]] = f"{r['value']:,.{digits}f}"
    body = [[*who, *(figures.get(size, "") for size in sizes)] for who, figures in found.items()]
    return aligned(["measure", "variant", *(f"{size} B" for size in sizes)], body)


def _parts(rows: Sequence[Row]) -> str:
    """Where ours goes, as far as single operations explain it."""
    body: list[tuple[str, str, float, float]] = []
    for measure, parts in PARTS.items():
        whole = value(rows, measure, OURS)
        costs = [value(rows, *what) for _, what, _ in parts]
        known = [cost for cost in costs if cost is not None]
        if whole is None or len(known) < len(costs):
            continue
        left = whole
        for (words, _, times), cost in zip(parts, known, strict=True):
            left -= cost * times
            body.append((measure, f"{times} {words}", cost * times, cost * times / whole))
        body.append((measure, _REST.get(measure, _OWN), left, left / whole))
    lines = [[of, what, f"{cost:,.0f}", f"{share:.0%}"] for of, what, cost, share in body]
    head = ["64 B", "", "instructions", "share"]
    return f"Where {OURS} goes:\n\n{aligned(head, lines)}" if lines else ""


def _instructions(rows: Sequence[Row]) -> str:
    counted = [r for r in rows if r["unit"] == "instructions"]
    # A single operation has one size only.
    by_size = {r["measure"] for r in counted if r["size"] > 64}
    parts = []
    if by_size:
        figures = _grid([r for r in counted if r["measure"] in by_size])
        parts.append(f"Instructions a time, by bytes of payload:\n\n{figures}")
    rest = [r for r in counted if r["measure"] not in by_size]
    if rest:
        body = [[r["measure"], r["variant"], f"{r['value']:,}"] for r in rest]
        figures = aligned(["measure", "variant", "instructions"], body)
        parts.append(f"Instructions a time, payloads of 64 bytes where there are any:\n\n{figures}")
    return "\n\n".join(parts)


def _heap(rows: Sequence[Row]) -> str:
    parts = []
    for bits in (64, 32):
        left = [r for r in rows if r["unit"] == "bytes" and r["params"].get("bits") == bits]
        each = [r for r in left if r["measure"] == "heap_per_message"]
        if each:
            title = f"Bytes of heap that a message leaves to the collector, {bits} bit"
            parts.append(f"{title}:\n\n{_grid(each)}")
        peak = [r for r in left if r["measure"] == "heap_peak"]
        if peak:
            body = [
                [
                    r["measure"],
                    r["variant"],
                    f"{r['params']['micropython']:,}",
                    f"{r['params']['code']:,}",
                    f"{r['params']['c_libraries']:,}",
                    f"{r['value']:,}",
                ]
                for r in peak
            ]
            head = ["measure", "variant", "MicroPython", "of it code", "C libraries", "together"]
            title = f"The least bytes with which it connects and publishes, {bits} bit"
            parts.append(f"{title}:\n\n{aligned(head, body)}")
    return "\n\n".join(parts)


def _wire(rows: Sequence[Row]) -> str:
    parts = []
    for direction, words in (("sent", "sends"), ("received", "receives")):
        grid = [r for r in rows if r["params"].get("direction") == direction and r["value"]]
        if grid:
            title = f"Bytes that the client {words}, as TCP carries them without its own headers"
            parts.append(f"{title}:\n\n{_grid(grid)}")
    return "\n\n".join(parts)


def bars(rows: Sequence[Row]) -> list[tuple[str, float, str, bool]]:
    """(what, ratio, what it has to be, whether it holds) of each bar that the rows can tell."""
    told = []
    for bar in BARS:
        ratio = bar.ratio(rows)
        if ratio is not None:
            words = f"at {'least' if bar.at_least else 'most'} {bar.limit:g}"
            told.append((bar.what, ratio, words, bar.holds(ratio)))
    for bits in (64, 32):
        left = value(rows, "heap_per_message", OURS, bits=bits)
        if left is not None:
            locked = value(rows, "heap_per_message", OURS, bits=bits, heap_locked=True) is not None
            told.append((f"bytes a publish leaves, {bits} bit", left, "at most 0", left == 0))
            words = "works with the heap locked"
            told.append((f"the same, heap locked, {bits} bit", float(locked), words, locked))
    return told


def _bars(rows: Sequence[Row]) -> str:
    body = [
        [what, words, f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}", "pass" if holds else "MISS"]
        for what, ratio, words, holds in bars(rows)
    ]
    head = ["64 B", "bar", "measured", ""]
    return f"The bars:\n\n{aligned(head, body)}" if body else ""
