"""The rows as tables for people: the bars, the paper's Tables I and II beside ours, CPU by process,
rates, decisions. Markdown whose columns line up, so that it reads on a terminal as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench_print import Row

BEGIN = "<!-- purposes.json: begin -->"
END = "<!-- purposes.json: end -->"
BAR = 1.05
OURS = ("fop-cache", "hybrid")

# Wolf and others, Tables I and II, at 250 clients: messages a second and what is lost of them in
# percent; milliseconds of a round trip and what is added. Theirs is HiveMQ, on machines of a cloud.
PAPER: dict[str, tuple[float, float | None, float, float | None]] = {
    "mosquitto": (6254.49, None, 50.64, None),
    "fos": (5467.28, 12.59, 54.13, 6.89),
    "fop-cache": (4998.86, 20.08, 60.59, 19.64),
    "hybrid": (4690.76, 25.00, 67.87, 34.02),
    "fop": (4638.01, 25.85, 68.95, 36.16),
    "fop-flat": (3519.83, 43.72, 1148.30, 2167.57),
}
ORDER = ("mosquitto", "labels", "fos", "fop-cache", "hybrid", "fop", "fop-flat")
PROCESSES = ("mediator", "broker", "kg", "gateway", "generator")


class Book:
    """Rows by what they are of."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def get(self, measure: str, variant: str, **params: Any) -> Row | None:
        """The first row with these params."""
        for row in self.rows:
            if row["measure"] == measure and row["variant"] == variant:
                if all(row["params"].get(name) == value for name, value in params.items()):
                    return row
        return None

    def variants(self) -> list[str]:
        """Those of the first stage, in the paper's order."""
        there = {row["variant"] for row in self.rows if row["measure"] == "throughput"}
        return [name for name in ORDER if name in there]

    @property
    def held(self) -> int:
        """Reservations in the first stage."""
        rows = (row for row in self.rows if row["measure"] == "throughput")
        return next((r["params"]["reservations"] for r in rows if r["params"]["reservations"]), 0)

    def levels(self, measure: str) -> list[int]:
        """Numbers of reservations for which there is a row."""
        found = {r["params"]["reservations"] for r in self.rows if r["measure"] == measure}
        return sorted(found - {0})


def table(rows: Sequence[Row]) -> str:
    """Everything that the rows tell."""
    book = Book(rows)
    makers: tuple[Callable[[Book], str], ...] = (
        _bars, _one, _two, _cpu, _rates, _by_held, _decisions
    )  # fmt: skip
    return "\n\n".join(text for text in (make(book) for make in makers) if text)


def bars(rows: Sequence[Row]) -> list[tuple[str, Row, bool]]:
    """(what, its row, whether it is within BAR) of each bar that the rows can tell."""
    book, told = Book(rows), []
    for variant in OURS:
        for burst in (1, 16):
            for process in ("mediator", "gateway"):
                words = f"{variant} to labels: CPU a message, {_who(process)}, {_sent(burst)}"
                row = book.get("cpu_message_to_labels", variant, burst=burst, process=process)
                if row is not None:
                    told.append((words, row, row["value"] <= BAR))
    for variant in OURS:
        levels = book.levels("cpu_message_to_fewest")
        if levels:
            most = max(levels)
            words = (
                f"{variant}, {most:,} reservations to {_fewest(book):,}: CPU a message, mediator"
            )
            row = book.get(
                "cpu_message_to_fewest", variant, burst=1, process="mediator", reservations=most
            )
            if row is not None:
                told.append((words, row, row["value"] <= BAR))
    return told


def _fewest(book: Book) -> int:
    return min(
        int(r["params"]["fewest"]) for r in book.rows if r["measure"] == "cpu_message_to_fewest"
    )


def _who(process: str) -> str:
    return "all processes of the gateway" if process == "gateway" else process


def _sent(burst: int) -> str:
    return "single messages" if burst == 1 else f"{burst} at a time"


def _bars(book: Book) -> str:
    body = []
    for what, row, holds in bars(book.rows):
        between = f"{_percent(row['params']['low'])} to {_percent(row['params']['high'])}"
        body.append([what, _percent(row["value"]), between, "pass" if holds else "MISS"])
    if not body:
        return ""
    head = ["64 B", "more", "between", f"at most {_percent(BAR)}"]
    return f"The bars:\n\n{lines(head, body, 1)}"


# "+1.2 %" of a ratio.
def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _one(book: Book) -> str:
    def mine(variant: str) -> Row | None:
        return book.get("throughput", variant, burst=1)

    return _beside(
        book,
        "Table I, throughput in messages/s, and what is lost of it",
        mine,
        "throughput_to_labels",
        (0, 1),
        lambda ratio: 1 - ratio,
    )


def _two(book: Book) -> str:
    def mine(variant: str) -> Row | None:
        return book.get("round_trip", variant, burst=1)

    return _beside(
        book,
        "Table II, round trip in ms while all clients publish, and what is added",
        mine,
        "round_trip_to_labels",
        (2, 3),
        lambda ratio: ratio - 1,
    )


def _beside(
    book: Book,
    title: str,
    mine: Callable[[str], Row | None],
    paired: str,
    columns: tuple[int, int],
    change: Callable[[float], float],
) -> str:
    plain = mine("mosquitto")
    body = []
    for variant in book.variants():
        row = mine(variant)
        if row is None:
            continue
        theirs = PAPER.get(variant)
        value, more = (theirs[columns[0]], theirs[columns[1]]) if theirs else (None, None)
        told = ["" if value is None else f"{value:,.2f}", "" if more is None else f"{more:.2f} %"]
        told.append(f"{row['value']:,.5g}{'*' if row['params']['generator_busy'] else ''}")
        to = book.get(paired, variant, burst=1)
        if to is None or row is plain:
            told += ["", ""]
        else:
            ends = sorted(100 * change(to["params"][end]) for end in ("low", "high"))
            told += [f"{100 * change(to['value']):.1f} %", f"{ends[0]:.1f} to {ends[1]:.1f} %"]
        known = plain is not None and plain is not row
        told.append(
            f"{100 * change(row['value'] / plain['value']):.0f} %" if known and plain else ""
        )
        body.append([variant, *told])
    if not body:
        return ""
    head = ["", "paper", "to HiveMQ", "here", "to labels", "between", "to mosquitto"]
    clients = next(r["params"]["clients"] for r in book.rows if r["measure"] == "throughput")
    where = f"{clients} clients, {book.held:,} reservations, single messages"
    text = f"{title} ({where}):\n\n{lines(head, body, 1)}"
    if any("*" in cell for line in body for cell in line):
        text += "\n\n\\* The load generator used more than 70 % of a core there: it may hold it up."
    return text


def _cpu(book: Book) -> str:
    body = []
    for burst in (1, 16):
        for variant in book.variants():
            cells = []
            for process in PROCESSES:
                row = book.get("cpu_message", variant, burst=burst, process=process)
                cells.append("" if row is None else f"{row['value']:.1f}")
            share = book.get("throughput", variant, burst=burst)
            shares = ["", ""]
            if share is not None:
                told = share["params"]
                shares = [f"{told['generator_share']:.0%}", f"{told.get('mediator_share', 0):.0%}"]
            body.append([_sent(burst), variant, *cells, *shares])
    if not body:
        return ""
    head = ["", "", *PROCESSES[:3], "these", "generator", "its share", "mediator's"]
    title = (
        "Microseconds of CPU a published message, which three clients receive, and which share of "
        "a core generator and mediator used"
    )
    return f"{title}:\n\n{lines(head, body)}"


def _rates(book: Book) -> str:
    body = []
    for variant in book.variants():
        cells = []
        for measure in ("round_trip_calm", "subscribe_rate", "reserve_rate"):
            row = book.get(measure, variant)
            cells.append("" if row is None else f"{row['value']:,.4g}")
        for measure in ("cpu_subscribe", "cpu_reserve"):
            row = book.get(measure, variant, process="mediator")
            cells.append("" if row is None else f"{row['value']:,.0f}")
        body.append([variant, *cells])
    if not body:
        return ""
    head = ["", "ms, idle", "subscriptions/s", "reservations/s", "µs of CPU each", "each"]
    title = (
        "A round trip when nothing else is under way; commands of all clients at once, one of each "
        "under way, and what they cost the mediator. A reservation is on disk before its reply"
    )
    return f"{title}:\n\n{lines(head, body, 1)}"


def _by_held(book: Book) -> str:
    body = []
    for variant in OURS:
        for level in book.levels("cpu_message_to_fewest"):
            row = book.get("cpu_message_to_fewest", variant, reservations=level)
            if row is None:
                continue
            # Behind the first stage's: the last row of that kind.
            found = [
                _last(book, "cpu_message", variant, level, process="mediator", burst=1),
                _last(book, "throughput", variant, level, burst=1),
                _last(book, "subscribe_rate", variant, level),
                _last(book, "reserve_rate", variant, level),
                _last(book, "memory", variant, level),
            ]
            cells = ["" if r is None else f"{r['value']:,.5g}" for r in found]
            to = book.get(
                "cpu_message_to_fewest", variant, burst=1, process="mediator", reservations=level
            )
            between = ""
            if to is not None:
                ends = to["params"]
                between = f"{_percent(ends['low'])} to {_percent(ends['high'])}"
            body.append([variant, f"{level:,}", *cells, between])
    if not body:
        return ""
    head = ["", "reservations", "µs a message", "messages/s", "subscriptions/s"]
    head += ["reservations/s", "MiB", "CPU, to the fewest"]
    title = "By how many reservations are held; CPU and memory of the mediator"
    return f"{title}:\n\n{lines(head, body, 1)}"


def _last(book: Book, measure: str, variant: str, held: int, **params: Any) -> Row | None:
    return Book(book.rows[::-1]).get(measure, variant, reservations=held, **params)


def _decisions(book: Book) -> str:
    body = []
    for variant in ("labels", "fop-cache", "fop", "fop-flat"):
        for level in [0, *book.levels("decision_uncached")]:
            cells, there = [], False
            for measure in (
                "decision_cached", "decision_uncached", "subscription_judged", "change"
            ):  # fmt: skip
                row = book.get(measure, variant, reservations=level)
                there = there or row is not None
                cells.append("" if row is None else f"{row['value']:,.4g}")
            if there:
                body.append([variant, f"{level:,}" if level else "", *cells])
    if not body:
        return ""
    head = ["", "reservations", "delivery, cached", "judged", "subscription, judged", "change"]
    title = (
        "One decision of the whole policy in microseconds of CPU, without network and crypto; "
        "change: a reservation overwritten"
    )
    return f"{title}:\n\n{lines(head, body, 1)}"


def lines(head: Sequence[str], body: Sequence[Sequence[str]], left: int = 2) -> str:
    """A table; the first `left` columns are words, the others figures."""
    every = [head, *body]
    widths = [max(3, *(len(line[i]) for line in every)) for i in range(len(head))]

    def put(line: Sequence[str]) -> str:
        cells = (
            text.ljust(width) if i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join(cells)} |"

    rule = ["-" * w if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([put(head), put(rule), *map(put, body)])


def document(text: str, rows: Sequence[Row]) -> str:
    """`text` with the tables between its two marks replaced. ValueError when it has no marks."""
    head, _, rest = text.partition(BEGIN)
    _, mark, tail = rest.partition(END)
    if not mark:
        raise ValueError(f"there is no place for the tables: {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table(rows)}\n{END}{tail}"
