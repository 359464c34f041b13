"""The rows as tables for people: the bars, the paper's Tables I and II beside ours, CPU by process,
rates, decisions. Markdown whose columns line up, so that it reads on a terminal as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench_print import Row

from bench_form import aligned

from .book import CLOSER, HELD_STAGE, ORDER, PAPER, VARIED, Book, percent, short

BAR = 1.05
OURS = ("fop-cache", "hybrid")
# Of one delivery under labels alone, and with purposes in the default mode; microseconds of CPU.
DECIDED = ("labels", "hybrid")
DECISION_BARS = {"decision_uncached": 10.0, "decision_cached": 0.2}
WHAT = {
    "decision_uncached": "a delivery that is judged",
    "decision_cached": "a delivery whose verdict is cached",
}
DECISIONS = {
    "decision_cached": "delivery, cached",
    "decision_uncached": "judged",
    "publish_judged": "publish, judged",
    "subscription_judged": "subscription, judged",
    "change": "change",
}

PROCESSES = ("mediator", "broker", "kg", "gateway", "generator")


def beside(rows: Sequence[Row], closer: Sequence[Row]) -> list[Row]:
    """The rows, and beside them more rounds of the few that the bars are about."""
    return [*rows, *({**r, "params": {**r["params"], "stage": CLOSER}} for r in closer)]


def shown(rows: Sequence[Row]) -> list[Row]:
    """Those of the rows that the tables show."""
    book = Book(rows)
    _all(book)
    return [row for at, row in enumerate(rows) if at in book.seen]


def table(rows: Sequence[Row]) -> str:
    """Everything that the rows tell."""
    return _all(Book(rows))


def _all(book: Book) -> str:
    makers: tuple[Callable[[Book], str], ...] = (
        _how, _bars, _one, _two, _cpu, _rates, _by_held, _decisions
    )  # fmt: skip
    return "\n\n".join(text for text in (make(book) for make in makers) if text)


def _how(book: Book) -> str:
    told = []
    for stage, words in ((VARIED, "all variants"), (HELD_STAGE, "by reservations")):
        of = book.params(stage)
        if of:
            told.append(
                f"{words}: {of['n']} rounds of {of['clients']} clients, load average {of['load']} "
                f"when they began"
            )
    text = "; ".join(told)
    return f"{text[:1].upper()}{text[1:]}. Medians; between: at least 95 % sure from 6 rounds on."


def bars(book: Book) -> list[tuple[str, Row, bool]]:
    """(what, its row, whether it is within BAR) of each bar that the rows can tell."""
    told = _to_labels(book, VARIED)
    for variant in OURS:
        levels = book.levels("cpu_message", HELD_STAGE)
        for level in levels[-1:]:
            words = f"{variant}, {level:,} reservations to {levels[0]:,}: CPU a message, mediator"
            row = _to_fewest(book, variant, level)
            if row is not None:
                told.append((words, row, row["value"] <= BAR))
    return told


def _to_labels(book: Book, stage: str) -> list[tuple[str, Row, bool]]:
    told = []
    for variant in OURS:
        for burst in (1, 16):
            for process in ("mediator", "gateway"):
                words = f"{variant} to labels: CPU a message, {_who(process)}, {_sent(burst)}"
                params = {"stage": stage, "burst": burst, "process": process}
                row = book.get("cpu_message_to_labels", variant, **params)
                if row is not None:
                    told.append((words, row, row["value"] <= BAR))
    return told


def _to_fewest(book: Book, variant: str, level: int) -> Row | None:
    params = {"burst": 1, "process": "mediator", "reservations": level}
    return book.get("cpu_message_to_fewest", variant, **params)


def _who(process: str) -> str:
    return "all processes of the gateway" if process == "gateway" else process


def _sent(burst: int) -> str:
    return "single messages" if burst == 1 else f"{burst} at a time"


def _bars(book: Book) -> str:
    text = _told("The bars", bars(book))
    closer = _to_labels(book, CLOSER)
    if closer:
        row = closer[0][1]
        title = (
            f"The same three variants alone, {row['n']} rounds, load average "
            f"{row['params']['load']} when they began"
        )
        text += "\n\n" + _told(title, closer)
    return text


def _told(title: str, told: Sequence[tuple[str, Row, bool]]) -> str:
    body = []
    for what, row, holds in told:
        between = f"{percent(row['params']['low'])} to {percent(row['params']['high'])}"
        body.append([what, percent(row["value"]), between, "pass" if holds else "MISS"])
    if not body:
        return ""
    head = ["64 B", "more", "between", f"at most {percent(BAR)}"]
    return f"{title}:\n\n{aligned(head, body, 1)}"


def _one(book: Book) -> str:
    def mine(variant: str) -> Row | None:
        return book.varied("throughput", variant, burst=1)

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
        return book.varied("round_trip", variant, burst=1)

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
    measured = book.variants()
    for variant in ORDER:
        row = mine(variant)
        if row is None and (variant != "NoF" or not measured):
            continue
        theirs = PAPER.get(variant)
        value, more = (theirs[columns[0]], theirs[columns[1]]) if theirs else (None, None)
        told = ["" if value is None else f"{value:,.2f}", "" if more is None else f"{more:.2f} %"]
        if row is None:
            body.append([variant, *told, "", "", "", ""])
            continue
        told.append(f"{short(row['value'])}{'*' if row['params']['generator_busy'] else ''}")
        to = book.varied(paired, variant, burst=1)
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
    with_ = book.params(VARIED)
    where = f"{with_['clients']} clients, {with_['reservations']:,} reservations, single messages"
    text = f"{title} ({where}):\n\n{aligned(head, body, 1)}"
    if any("*" in cell for line in body for cell in line):
        text += "\n\n\\* The load generator used more than 70 % of a core there: it may hold it up."
    return text


def _cpu(book: Book) -> str:
    body = []
    for burst in (1, 16):
        for variant in book.variants():
            cells = []
            for process in PROCESSES:
                row = book.varied("cpu_message", variant, burst=burst, process=process)
                cells.append("" if row is None else f"{row['value']:.1f}")
            row = book.varied("throughput", variant, burst=burst)
            if row is not None:
                shares = [row["params"].get(f"{of}_share") for of in ("generator", "mediator")]
                cells += ["" if share is None else f"{share:.0%}" for share in shares]
                body.append([_sent(burst), variant, *cells])
    if not body:
        return ""
    head = ["", "", *PROCESSES[:3], "these", "generator", "its share", "mediator's"]
    title = (
        "Microseconds of CPU a published message, which three clients receive, and which share of "
        "a core generator and mediator used"
    )
    return f"{title}:\n\n{aligned(head, body)}"


def _rates(book: Book) -> str:
    body = []
    for variant in book.variants():
        cells = []
        for measure in ("round_trip_calm", "subscribe_rate", "reserve_rate"):
            row = book.varied(measure, variant)
            cells.append("" if row is None else short(row["value"]))
        for measure in ("cpu_subscribe", "cpu_reserve"):
            row = book.varied(measure, variant, process="mediator")
            cells.append("" if row is None else f"{row['value']:,.0f}")
        body.append([variant, *cells])
    if not body:
        return ""
    head = ["", "ms, idle", "subscriptions/s", "reservations/s", "µs of CPU each", "each"]
    title = (
        "A round trip when nothing else is under way; commands of all clients at once, one of each "
        "under way, and what they cost the mediator. A reservation is on disk before its reply"
    )
    return f"{title}:\n\n{aligned(head, body, 1)}"


def _by_held(book: Book) -> str:
    body = []
    levels = book.levels("cpu_message", HELD_STAGE)
    if not levels:
        return ""
    for variant in ("labels", *OURS):
        for level in [0] if variant == "labels" else levels:

            def of(measure: str, variant: str = variant, level: int = level, **params: Any) -> str:
                row = book.get(measure, variant, stage=HELD_STAGE, reservations=level, **params)
                return "" if row is None else short(row["value"])

            cells = [
                of("cpu_message", process="mediator", burst=1),
                of("throughput", burst=1),
                of("subscribe_rate"),
                of("reserve_rate"),
                of("memory"),
            ]
            to = _to_fewest(book, variant, level) if level > levels[0] else None
            between = ["", ""]
            if to is not None:
                ends = to["params"]
                between[0] = percent(to["value"])
                between[1] = f"{percent(ends['low'])} to {percent(ends['high'])}"
            body.append([variant, f"{level:,}" if level else "", *cells, *between])
    head = ["", "reservations", "µs a message", "messages/s", "subscriptions/s"]
    head += ["reservations/s", "MiB", "CPU, to the fewest", "between"]
    title = "By how many reservations are held; CPU and memory of the mediator"
    return f"{title}:\n\n{aligned(head, body, 1)}"


def _decisions(book: Book) -> str:
    body = []
    measured = {row["measure"] for row in book.rows}
    columns = {measure: head for measure, head in DECISIONS.items() if measure in measured}
    for variant in ("labels", "fos", "hybrid", "fop-cache", "fop", "fop-flat"):
        for level in [0, *book.levels("decision_uncached")]:
            rows = [book.get(measure, variant, reservations=level) for measure in columns]
            if any(row is not None for row in rows):
                cells = ["" if row is None else short(row["value"]) for row in rows]
                body.append([variant, f"{level:,}" if level else "", *cells])
    if not body:
        return ""
    title = (
        "One decision of the whole policy in microseconds of CPU, without network and crypto; "
        "change: a reservation overwritten"
    )
    text = f"{title}:\n\n{aligned(['', 'reservations', *columns.values()], body, 1)}"
    told = []
    for measure, most in DECISION_BARS.items():
        rows = [book.get(measure, variant) for variant in DECIDED]
        found = [row for row in rows if row is not None]
        # Rows from before the default mode was measured tell no bar.
        for row in found if len(found) == len(DECIDED) else ():
            holds = "pass" if row["value"] <= most else "MISS"
            what = f"{row['variant']}: {WHAT[measure]}"
            told.append([what, short(row["value"]), f"at most {most:g}", holds])
    return f"{text}\n\n{aligned(['', 'µs', 'bar', ''], told, 1)}" if told else text
