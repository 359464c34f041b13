"""The rows as tables for people: figures by size, bars, and where ours goes.

Markdown, with columns that line up, so that it reads on a terminal as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench_form import aligned
from bench_rows import SOFTWARE, Row, row, value, whose

OURS, TLS, PLAIN = "sealmq-ccm", "tls13-ecdsa", "plain"
_NOISE = "esphome-c"
# What tells the price of a block, and over how many bytes.
_AES, _AES_PART = ("part_cbc", "part_ecb"), 1024
# Bytes of payload up to which nothing may be left to the collector; above less than a copy.
_NOTHING = (16, 64, 256, 1024)
_LESS_THAN_A_COPY = (4096, 16384)
_FLASH = 48 * 1024
_PURPOSES_HEAP = 88 * 1024


@dataclasses.dataclass(frozen=True)
class Bar:
    """A limit for what `of` makes of the rows; `size`: bytes of payload, 0 where there are none.

    at_least: the limit is a lower one. aim: what would be better still. up_to: all sizes up to that
    one as well.
    """

    what: str
    of: Callable[[Sequence[Row]], float | None]
    limit: float
    size: int = 0
    at_least: bool = False
    aim: float | None = None
    bytes: bool = False
    up_to: bool = False

    def holds(self, found: float) -> bool:
        return found >= self.limit if self.at_least else found <= self.limit

    def said(self, found: float | None) -> str:
        """A figure as the bar is written."""
        if found is None:
            return ""
        return f"{found:,.0f} B" if self.bytes else f"{found:.4g}"


def _ratio(
    over: tuple[str, str], under: tuple[str, str], size: int
) -> Callable[[Sequence[Row]], float | None]:
    """Of two (measure, variant), both measured at that size."""

    def of(rows: Sequence[Row]) -> float | None:
        above, below = value(rows, *over, size), value(rows, *under, size)
        return None if above is None or not below else above / below

    return of


def _beside_tls(measure: str, limits: Mapping[int, float], how: str = "") -> Iterator[Bar]:
    """`how`: the end of both variants' names."""
    words = ", AES in software" if how else ""
    for size, limit in limits.items():
        of = _ratio((measure, f"{OURS}{how}"), (measure, f"{TLS}{how}"), size)
        yield Bar(f"{measure}: ours to TLS 1.3{words}", of, limit, size)


def _left(rows: Sequence[Row], bits: int, sizes: Sequence[int]) -> list[Row]:
    return [
        r
        for r in rows
        if (r["measure"], whose(r), r["params"].get("bits")) == ("heap_per_message", OURS, bits)
        and r["size"] in sizes
    ]


def _most_left(bits: int, sizes: Sequence[int]) -> Callable[[Sequence[Row]], float | None]:
    return lambda rows: max((r["value"] for r in _left(rows, bits, sizes)), default=None)


def _more_than_plain(bits: int, sizes: Sequence[int]) -> Callable[[Sequence[Row]], float | None]:
    """Bytes that a received message leaves beyond what plain umqtt does, which is the message."""

    def of(rows: Sequence[Row]) -> float | None:
        found = []
        for size in sizes:
            ours, plain = (
                value(rows, "heap_per_received", of_, size, bits=bits) for of_ in (OURS, PLAIN)
            )
            if ours is not None and plain is not None:
                found.append(max(0.0, ours - plain))
        return max(found, default=None)

    return of


def _locked(bits: int) -> Callable[[Sequence[Row]], float | None]:
    """1: a publish works with the heap locked."""

    def of(rows: Sequence[Row]) -> float | None:
        found = [bool(r["params"]["heap_locked"]) for r in _left(rows, bits, _NOTHING)]
        return float(all(found)) if found else None

    return of


def _largest(measure: str, end: str = "") -> Callable[[Sequence[Row]], float | None]:
    """Of the variants whose names end so."""

    def of(rows: Sequence[Row]) -> float | None:
        found = [r["value"] for r in rows if r["measure"] == measure and r["variant"].endswith(end)]
        return max(found, default=None)

    return of


_LIMITS = {256: 1.0, 1024: 2.0, 4096: 3.0, 16384: 3.0}
_SOFTWARE_LIMITS = dict.fromkeys((16, 64, 256), 1.5)
BARS = (
    Bar(
        "connect: TLS 1.3 ECDSA to ours",
        _ratio(("connect", TLS), ("connect", OURS), 64), 138, 64, True, 200,
    ),
    Bar(
        "wake, publish, sleep: TLS 1.3 ECDSA to ours",
        _ratio(("wake_publish_sleep", TLS), ("wake_publish_sleep", OURS), 64), 8, 64, True, 12,
    ),
    *_beside_tls("publish", {16: 1.0, 64: 0.6, **_LIMITS}),
    *_beside_tls("receive", {16: 1.0, 64: 0.8, **_LIMITS}),
    *_beside_tls("publish", _SOFTWARE_LIMITS, SOFTWARE),
    *_beside_tls("receive", _SOFTWARE_LIMITS, SOFTWARE),
    Bar("publish: ours to plain", _ratio(("publish", OURS), ("publish", PLAIN), 64), 1.6, 64),
    Bar("receive: ours to plain", _ratio(("receive", OURS), ("receive", PLAIN), 64), 1.6, 64),
    Bar(
        "two seals to one TLS record",
        _ratio(("seal", OURS), ("tls_record", TLS), 64), 2.2, 64, aim=1.5,
    ),
    *(
        Bar(
            f"{what}, {bits} bit", left(bits, sizes), limit, sizes[-1],
            bytes=True, up_to=sizes is _NOTHING,
        )
        for what, left in (
            ("a publish leaves to the collector", _most_left),
            ("a receive leaves beside its message", _more_than_plain),
        )
        for bits in (64, 32)
        for sizes, limit in ((_NOTHING, 0), *(((n,), n - 1) for n in _LESS_THAN_A_COPY))
    ),
    *(
        Bar(
            f"publishes with the heap locked (1: yes), {bits} bit", _locked(bits), 1, _NOTHING[-1],
            at_least=True, up_to=True,
        )
        for bits in (64, 32)
    ),
    Bar("largest set of files", _largest("set_bytes"), _FLASH, bytes=True),
    Bar(
        "heap that a set with purposes needs, 32 bit",
        _largest("heap_purposes", "-purposes"), _PURPOSES_HEAP, bytes=True,
    ),
)  # fmt: skip

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
    rest = [r for r in rows if r["variant"] != _NOISE]
    parts = [
        _bars(rest),
        _instructions(rest),
        _blocks(rest),
        _noise(rows),
        _heap(rest),
        _wire(rest),
        _parts(rest),
    ]
    return "\n\n".join(part for part in parts if part)


def _grid(rows: Sequence[Row], digits: int = 0) -> str:
    """One line a measure and variant, one column a size."""
    sizes = sorted({r["size"] for r in rows if r["size"]})
    found: dict[tuple[str, str], dict[int, str]] = {}
    for r in rows:
        figures = found.setdefault((r["measure"], whose(r)), {})
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
    # A single operation has one size only, and its own.
    by_size = {r["measure"] for r in counted if r["size"] not in (0, 64)}
    by_size = {name for name in by_size if not name.startswith("part_")}
    parts = []
    if by_size:
        figures = _grid([r for r in counted if r["measure"] in by_size])
        parts.append(f"Instructions a time, by bytes of payload:\n\n{figures}")
    rest = [r for r in counted if r["measure"] not in by_size]
    if rest:
        body = [[r["measure"], whose(r), f"{r['value']:,}"] for r in rest]
        figures = aligned(["measure", "variant", "instructions"], body)
        parts.append(f"Instructions a time, payloads of 64 bytes where there are any:\n\n{figures}")
    return "\n\n".join(parts)


def _blocks(rows: Sequence[Row]) -> str:
    counted = [r for r in rows if r["unit"] == "blocks"]
    parts = [f"AES blocks a time, by bytes of payload:\n\n{_grid(counted)}"] if counted else []
    # What no code of ours can go below. Half of CCM's blocks are CBC.
    alone = []
    for end in ("", SOFTWARE):
        calls = [value(rows, part, f"micropython{end}", _AES_PART) for part in _AES]
        costs = [cost * 16 / _AES_PART for cost in calls if cost is not None]
        for r in counted if len(costs) == len(_AES) else ():
            if r["variant"] == OURS and r["measure"] in (
                "aes_blocks_publish",
                "aes_blocks_receive",
            ):
                of = r["measure"].removeprefix("aes_blocks_")
                cost = r["value"] * sum(costs) / len(costs)
                alone.append(row(of, f"{OURS}{end}", r["size"], cost, "instructions", r["n"]))
    if alone:
        words = "Instructions of these blocks alone, as `cryptolib` does them in C"
        parts.append(f"{words}:\n\n{_grid(alone)}")
    return "\n\n".join(parts)


def _noise(rows: Sequence[Row]) -> str:
    """ESPHome's Noise and, of the same stage, ours and TLS."""
    body = []
    for found in rows:
        if found["variant"] != _NOISE or not found["value"]:
            continue
        direction = found["params"].get("direction")
        what = found["measure"].replace("noise_", "")
        same = {"direction": direction} if direction else {}
        others = (value(rows, what, of, found["size"], **same) for of in (OURS, TLS))
        cells = ("" if figure is None else f"{figure:,.0f}" for figure in others)
        words = f"bytes {direction}" if direction else found["unit"]
        name = what.removeprefix("wire_")
        body.append([name, words, f"{found['size']:,} B", f"{found['value']:,}", *cells])
    head = ["", "", "payload", f"{_NOISE}, in C", f"{OURS}, MicroPython", f"{TLS}, MicroPython"]
    return f"Beside ESPHome's Noise:\n\n{aligned(head, body)}" if body else ""


def _heap(rows: Sequence[Row]) -> str:
    parts = []
    for bits in (64, 32):
        left = [r for r in rows if r["unit"] == "bytes" and r["params"].get("bits") == bits]
        each = [r for r in left if r["measure"] in ("heap_per_message", "heap_per_received")]
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


def bars(rows: Sequence[Row]) -> list[tuple[Bar, float]]:
    """Each bar that the rows can tell, with what was found."""
    found = [(bar, bar.of(rows)) for bar in BARS]
    return [(bar, figure) for bar, figure in found if figure is not None]


def missed(rows: Sequence[Row]) -> list[str]:
    """A line for each bar that does not hold."""
    return [
        ", ".join(filter(None, (bar.what, _payload(bar)))) + f": {bar.said(figure)}, {_limit(bar)}"
        for bar, figure in bars(rows)
        if not bar.holds(figure)
    ]


def _payload(bar: Bar) -> str:
    return f"{'up to ' * bar.up_to}{bar.size:,} B" if bar.size else ""


def _limit(bar: Bar) -> str:
    return f"at {'least' if bar.at_least else 'most'} {bar.said(bar.limit)}"


def _bars(rows: Sequence[Row]) -> str:
    body = [
        [
            bar.what,
            _payload(bar),
            _limit(bar),
            bar.said(bar.aim),
            bar.said(figure),
            "pass" if bar.holds(figure) else "MISS",
        ]
        for bar, figure in bars(rows)
    ]
    head = ["", "payload", "bar", "aim", "measured", ""]
    return f"The bars:\n\n{aligned(head, body, 1)}" if body else ""
