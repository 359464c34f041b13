"""The rows of scale.py as tables for people: Markdown whose columns line up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scale_fit import MAY_MISS, MILLION, Line, Row, line

from bench_form import aligned

LOCAL, APART = "local-2", "standalone-2"
STEPS = ("ingest", "settle", "measures", "page")
BARS = {"report": 1.5, "read": 2.0}
"""How often the CPU of the plain job (scale_plain.py) a report may take, for what that does."""
WORDS = {"report": "the least report", "read": "reading alone"}
_MB, _MIB = 1e6, 1 << 20


class Book:
    """Rows by what they are."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def all(self, measure: str, variant: str, **params: Any) -> list[Row]:
        """Those with these params, in their order."""
        return [
            row
            for row in self.rows
            if (row["measure"], row["variant"]) == (measure, variant)
            and all(row["params"].get(name) == value for name, value in params.items())
        ]

    def get(self, measure: str, variant: str, **params: Any) -> float | None:
        """The value of the first, if there is one."""
        found = self.all(measure, variant, **params)
        return None if not found else float(found[0]["value"])

    def need(self, measure: str, variant: str, **params: Any) -> float:
        """The value. ValueError: there is none."""
        found = self.get(measure, variant, **params)
        if found is None:
            raise ValueError(f"there is no {measure} of {variant} with {params}")
        return found

    def sizes(self, variant: str) -> list[int]:
        """How many lines, smallest first."""
        return sorted(row["params"]["lines"] for row in self.all("report_seconds", variant))


def table(rows: Sequence[Row]) -> str:
    """Everything that the rows tell."""
    book = Book(rows)
    makers: tuple[Callable[[Book], str], ...] = (
        _how,
        _sizes,
        _line,
        _beside,
        _memory,
        _formats,
        _apart,
    )
    return "\n\n".join(text for text in (make(book) for make in makers) if text)


def _how(book: Book) -> str:
    rows = book.all("report_seconds", LOCAL)
    with_, times = rows[0]["params"], max(row["n"] for row in rows)
    often = "one of each" if times == 1 else f"medians of up to {times}"
    return (
        f"`local[2]`, 1 GiB of memory for Java, {with_['machine']}, Python {with_['python']}; each "
        f"report in a process of its own, sizes in shuffled order, {often}; "
        f"load average {with_['load']} when it began. Every report was right to the last count."
    )


def _sizes(book: Book) -> str:
    body = []
    for lines in book.sizes(LOCAL):

        def of(measure: str, lines: int = lines, **params: Any) -> float:
            return book.need(measure, LOCAL, lines=lines, **params)

        body.append(
            [
                f"{lines:,}",
                f"{of('report_bytes', of='logs') / _MB:,.0f}",
                f"{of('report_bytes', of='report') / _MB:,.0f}",
                f"{of('report_start'):.1f}",
                f"{of('report_seconds'):.1f}",
                f"{_through(book, 'report_seconds').misses[lines]:+.1f} %",
                f"{of('report_cpu'):.1f}",
                f"{_through(book, 'report_cpu').misses[lines]:+.1f} %",
                f"{of('report_read') / _MB:,.0f}",
                f"{of('report_written') / _MB:,.0f}",
            ]
        )
    head = ["lines", "logs, MB", "report, MB", "Java's start, s", "then, s", "off the line"]
    head += ["CPU, s", "off", "read, MB", "written, MB"]
    return aligned(head, body, 1)


def _through(book: Book, measure: str) -> Line:
    found = {row["params"]["lines"]: row["value"] for row in book.all(measure, LOCAL)}
    return line(dict(sorted(found.items())))


def _line(book: Book) -> str:
    told = []
    for measure, words in (("report_seconds", "Time"), ("report_cpu", "CPU")):
        through = _through(book, measure)
        far = [f"{lines:,}" for lines, miss in through.misses.items() if abs(miss) > MAY_MISS]
        verdict = f"beyond {MAY_MISS:.0f} %: {', '.join(far)}" if far else "linear"
        told.append(
            f"{words}: {through.start:.1f} s and {through.each * MILLION:.2f} s for each million "
            f"lines, at most {through.worst:.1f} % off ({verdict})."
        )
    sizes = book.sizes(LOCAL)
    steps = [(step, book.get("report_step", LOCAL, lines=sizes[-1], step=step)) for step in STEPS]
    parts = ", ".join(f"{step} {value:.0f} s" for step, value in steps if value is not None)
    return " ".join([*told, f"Of {sizes[-1]:,} lines: {parts}."])


def _beside(book: Book) -> str:
    body = []
    ratios = sorted(book.all("beside_cpu", "ratio"), key=lambda row: int(row["params"]["lines"]))
    for row in ratios:
        lines, of = row["params"]["lines"], row["params"]["of"]
        ours, plain = (
            book.need("beside_cpu", variant, lines=lines, of=of)
            for variant in (LOCAL, f"plain-{of}")
        )
        cells = [f"{ours:.1f}", f"{plain:.1f}", f"{row['value']:.2f}", f"{BARS[of]:.1f}"]
        body.append([f"{lines:,}", WORDS[of], *cells])
    if not body:
        return ""
    head = ["lines", "beside", "report's CPU, s", "its CPU, s", "times", "bar"]
    title = "A report over the audit log alone beside a plain job of Spark's, from Java's start on"
    return f"{title}:\n\n{aligned(head, body, 2)}"


def _memory(book: Book) -> str:
    body = []
    for variant, words in ((LOCAL, "driver and executors in one"), (APART, "the driver alone")):
        for measure, process in (
            ("report_java_memory", "Java"),
            ("report_python_memory", "Python"),
        ):
            sizes = book.sizes(variant)
            if not sizes:
                continue
            ends = [book.need(measure, variant, lines=size) / _MIB for size in sizes]
            ratio = f"{ends[-1] / ends[0]:.2f}"
            times = f"{sizes[-1] / sizes[0]:.0f}"
            body.append(
                [variant, words, process, f"{ends[0]:,.0f}", f"{ends[-1]:,.0f}", ratio, times]
            )
    head = [
        "",
        "",
        "",
        "MiB at the smallest",
        "at the largest",
        "times",
        "for so many times the lines",
    ]
    return f"Memory at its highest:\n\n{aligned(head, body, 3)}"


def _formats(book: Book) -> str:
    of = book.all("format_seconds", "parquet")
    if not of:
        return ""
    lines, body = of[0]["params"]["lines"], []
    for name in sorted({row["params"]["table"] for row in of}):
        for format_ in ("json", "parquet"):
            values = [
                book.need(f"format_{each}", format_, table=name)
                for each in ("read", "seconds", "cpu")
            ]
            size = book.need("format_bytes", format_)
            cells = [f"{size / _MB:,.1f}", f"{values[0] / _MB:,.1f}"]
            body.append([name, format_, *cells, *(f"{value:.2f}" for value in values[1:])])
    head = ["table", "", "on disk, MB", "read, MB", "s", "CPU, s"]
    title = f"The same audit records of {lines:,} lines as JSON lines and as Parquet, warm"
    return f"{title}:\n\n{aligned(head, body, 2)}"


def _apart(book: Book) -> str:
    body = []
    for lines in book.sizes(APART):
        same, rows = (book.need(f"checksums_{of}", APART, lines=lines) for of in ("same", "rows"))
        beside = [book.need("report_seconds", variant, lines=lines) for variant in (LOCAL, APART)]
        cells = [f"{value:.1f}" for value in beside]
        body.append([f"{lines:,}", *cells, f"{same:.0f}", f"{rows:,.0f}"])
    if not body:
        return ""
    head = ["lines", "`local[2]`, s", "two workers, s", "tables alike", "rows in them"]
    title = (
        "A standalone master and two workers of one core each on the same machine: every table has "
        "the same checksum (sum of xxhash64 over all columns) and the same number of rows"
    )
    return f"{title}:\n\n{aligned(head, body, 1)}"
