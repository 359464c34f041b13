"""What running text shows: each figure by its name, how it is made of rows, how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from evidence.place import EvidenceError
from evidence.reduced import Reduced

Take = Callable[[Reduced], float]
OURS, CHACHA, TLS, PLAIN = "sealmq-ccm", "sealmq-chacha", "tls13-ecdsa", "plain"


@dataclass(frozen=True)
class Figure:
    """`of`: in words. `take` gives the value, `show` the text that stands in a page."""

    name: str
    part: str
    unit: str
    of: str
    take: Take
    show: Callable[[float], str]


def about(digits: int) -> Callable[[float], str]:
    """With so many digits that count: 145,911 is about 146,000."""

    def show(value: float) -> str:
        whole = float(f"{value:.{digits - 1}e}")
        return f"{whole:,.0f}" if whole >= 10 ** (digits - 1) else f"{whole:.{digits}g}"

    return show


def fixed(places: int, per: float = 1) -> Callable[[float], str]:
    """With so many places behind the point, in units of `per`."""
    return lambda value: f"{value / per:,.{places}f}"


_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()


def words(value: float) -> str:
    """ "Twenty-three", at the begin of a sentence."""
    whole = round(value)
    if whole < len(_WORDS):
        return _WORDS[whole].capitalize()
    if not 20 <= whole < 100:
        raise EvidenceError(f"no word for {whole}")
    tens, ones = divmod(whole, 10)
    return (_TENS[tens] + (f"-{_WORDS[ones]}" if ones else "")).capitalize()


def row(part: str, measure: str, variant: str, size: int | None = None, **params: Any) -> Take:
    """Takes one row's value."""
    return lambda reduced: reduced.value(part, measure, variant, size, **params)


def ratio(over: Take, under: Take) -> Take:
    """Takes one value divided by another."""
    return lambda reduced: over(reduced) / under(reduced)


def more(over: Take, under: Take) -> Take:
    """Takes by how much one value is above another."""
    return lambda reduced: over(reduced) - under(reduced)


def ours(measure: str, variant: str = OURS, size: int | None = 64) -> Take:
    """Takes a row of the device bench."""
    return row("device", measure, variant, size)


def _own(measure: str) -> Take:
    """The share of the interpreter's own work: what known operations do not explain."""
    from bench_table import PARTS

    def take(reduced: Reduced) -> float:
        whole = reduced.value("device", measure, OURS, 64)
        known = sum(reduced.value("device", *of) * times for _, of, times in PARTS[measure])
        return (whole - known) / whole

    return take


def _bench_heap(reduced: Reduced) -> float:
    """What C libraries take where no client of ours or TLS is in it."""
    return float(reduced.row("device", "heap_peak", PLAIN, None, bits=64)["params"]["c_libraries"])


def _subscribe(variant: str) -> Take:
    return row("purposes", "cpu_subscribe", variant, process="mediator", stage="variants")


def _flash(param: str) -> Take:
    def take(reduced: Reduced) -> float:
        return float(reduced.row("flash", "flash_to_publishing", "virtual", 0)["params"][param])

    return take


_WAKE = "wake_publish_sleep"
_TLS_TO_PLAIN = ratio(ours("connect", TLS), ours("connect", PLAIN))
FIGURES = (
    Figure("connect.share", "device", "of a TLS 1.3 handshake", "connect: ours to TLS 1.3 ECDSA",
           ratio(ours("connect"), ours("connect", TLS)), fixed(4)),
    Figure("connect.own", "device", "of a connect", "what is the interpreter's own of it",
           _own("connect"), fixed(2)),
    Figure("connect.tls", "device", "times", "connect: TLS 1.3 ECDSA to plain",
           _TLS_TO_PLAIN, fixed(0)),
    Figure("wake.import", "device", "of a wake", "the client's import in it",
           ratio(ours("import", size=None), ours(_WAKE)), fixed(2)),
    Figure("wake.start", "device", "of a wake", "the interpreter's start in it",
           ratio(row("device", "part_interpreter", "micropython"), ours(_WAKE)), fixed(2)),
    Figure("wake.ccm", "device", "million instructions", "wake, publish, sleep with AES-CCM",
           ours(_WAKE), fixed(1, 1e6)),
    Figure("wake.chacha", "device", "million instructions", "the same with ChaCha20-Poly1305",
           ours(_WAKE, CHACHA), fixed(1, 1e6)),
    Figure("subscribe.none", "device", "instructions", "a subscription without a purpose",
           ours("subscribe", size=None), about(2)),
    Figure("subscribe.purpose", "device", "instructions", "a subscription for one",
           ours("subscribe_purpose", size=None), about(3)),
    Figure("reserve", "device", "instructions", "a reservation, to its answer",
           ours("reserve", size=None), about(3)),
    Figure("heap.bench", "device", "kB", "heap of C libraries that is the bench's own",
           _bench_heap, fixed(0, 1000)),
    Figure("journal.more", "gateway", "µs", "CPU that the journal adds to a publish with QoS 1",
           more(row("gateway", "publish_qos1_journal", "mediator"),
                row("gateway", "publish_qos1", "mediator")), fixed(1)),
    Figure("claims", "tree", "claims", "of THREATS.md",
           row("tree", "claims", "threats"), words),
    Figure("subscribe.hybrid", "purposes", "times", "CPU of a subscription: hybrid to labels",
           ratio(_subscribe("hybrid"), _subscribe("labels")), fixed(2)),
    Figure("flash.boards", "flash", "boards", "how many at once",
           lambda r: float(r.row("flash", "flash_to_publishing", "virtual", 0)["n"]), fixed(0)),
    Figure("flash.seconds", "flash", "s", "from the first begin to the last board read",
           row("flash", "flash_to_publishing", "virtual"), fixed(0)),
    Figure("flash.cores", "flash", "cores", "of that machine", _flash("cores"), fixed(0)),
    Figure("flash.load", "flash", "load average", "beside it", _flash("load"), fixed(0)),
)  # fmt: skip


def made(reduced: Reduced) -> Reduced:
    """The same with its figures. EvidenceError for one whose rows are missing."""
    figures = {}
    for figure in FIGURES:
        value = figure.take(reduced)
        figures[figure.name] = {
            "value": round(value, 6),
            "shown": figure.show(value),
            "unit": figure.unit,
            "of": figure.of,
            "source": figure.part,
            "command": reduced.parts[figure.part]["command"],
        }
    return replace(reduced, figures=figures)
