"""The rows of the gateway's bench as tables for people, and which bars are met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bench_print import Row
from gateway_variants import BASE, HYBRID, LABELS, TWO, VARIANTS

from bench_form import aligned

# Processes that stand in a column of their own.
PROCESSES = ("mediator", "broker", "gateway", "generator")
STAGES = {
    "qos0": "QoS 0",
    "qos1": "QoS 1, each message on disk before its PUBACK",
    "kept": "QoS 1, readers with kept sessions",
    "purposes": "QoS 0, the two alone, more rounds",
    "workers": "QoS 0, two workers",
}
# Two workers, the broker and the load generator.
_CORES = 4


class Bar(NamedTuple):
    """A row's value has to be at most `most`, or at least `least`."""

    words: str
    row: Row
    most: float = 0.0
    least: float = 0.0

    @property
    def holds(self) -> bool:
        value = self.row["value"]
        return bool(value <= self.most if self.most else value >= self.least)

    @property
    def bound(self) -> str:
        return f"at most {self.most:g}" if self.most else f"at least {self.least:g}"


class Missing(NamedTuple):
    """What could not be measured here, and why. barred: a bar is about it."""

    what: str
    why: str
    barred: bool = True


def _get(rows: Sequence[Row], measure: str, variant: str, **params: Any) -> Row | None:
    for row in rows:
        if (row["measure"], row["variant"]) == (measure, variant) and all(
            row["params"].get(name) == value for name, value in params.items()
        ):
            return row
    return None


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Those that the rows can tell."""
    made = []
    for stage, most in (("qos0", 1.5), ("qos1", 2.0), ("kept", 2.0)):
        for variant in (LABELS, HYBRID):
            for burst in (1, 16):
                row = _get(rows, "cpu_message_to_mosquitto_tls", variant, stage=stage, burst=burst)
                if row is not None:
                    words = f"{stage}, {variant} to {BASE}: CPU a message, {_sent(burst)}"
                    made.append(Bar(words, row, most=most))
    for burst in (1, 16):
        row = _get(rows, "cpu_message_to_labels", HYBRID, stage="purposes", burst=burst)
        row = row or _get(rows, "cpu_message_to_labels", HYBRID, stage="qos0", burst=burst)
        if row is not None:
            words = f"purposes over labels: CPU a message, {_sent(burst)}"
            made.append(Bar(words, row, most=1.02))
    for burst in (1, 16):
        row = _get(rows, "cpu_message_to_one_worker", TWO, burst=burst)
        if row is not None:
            words = f"two workers to one: CPU a message, {_sent(burst)}"
            made.append(Bar(words, row, most=1.2))
        row = _get(rows, "throughput_to_one_worker", TWO, burst=burst)
        if row is not None and row["params"].get("cores", 0) >= _CORES:
            words = f"two workers to one: throughput, {_sent(burst)}"
            made.append(Bar(words, row, least=1.7))
    return made


def missed(rows: Sequence[Row], missing: Sequence[Missing] = ()) -> list[str]:
    """Bars that are not met, in words, and what was not measured."""
    told = [
        f"{bar.words}: {bar.row['value']:.2f} times, {bar.bound} is the bar"
        for bar in bars(rows)
        if not bar.holds
    ]
    return told + [f"{one.what}: not measured: {one.why}" for one in missing if one.barred]


def table(rows: Sequence[Row], missing: Sequence[Missing] = ()) -> str:
    """Everything that the rows tell."""
    parts = [_bars(rows), *(_cpu(rows, stage) for stage in STAGES)]
    parts += [f"Not measured: {one.what}: {one.why}" for one in missing]
    return "\n\n".join(part for part in parts if part)


def _how(params: Row, n: int) -> str:
    return (
        f"{n} rounds of {params['clients']} clients on {params['cores']} cores, load average "
        f"{params['load']} when they began"
    )


def _bars(rows: Sequence[Row]) -> str:
    body = []
    for bar in bars(rows):
        params = bar.row["params"]
        between = f"{params['low']:.2f} to {params['high']:.2f}"
        holds = "pass" if bar.holds else "MISSED"
        body.append([bar.words, f"{bar.row['value']:.2f}", between, bar.bound, holds])
    if not body:
        return ""
    return f"The bars:\n\n{aligned(['', 'times', 'between', 'bar', ''], body, 1)}"


def _sent(burst: int) -> str:
    return "one at a time" if burst == 1 else f"{burst} at a time"


def _cpu(rows: Sequence[Row], stage: str) -> str:
    body, how = [], ""
    for burst in (1, 16):
        for variant in VARIANTS:

            def of(
                measure: str, process: str = "", variant: str = variant, burst: int = burst
            ) -> Row | None:
                params: dict[str, Any] = {"process": process} if process else {}
                return _get(rows, measure, variant, stage=stage, burst=burst, **params)

            rate = of("throughput")
            if rate is None:
                continue
            cells = []
            for process in PROCESSES:
                row = of("cpu_message", process)
                cells.append("" if row is None else f"{row['value']:.1f}")
            whole = of("cpu_message", "gateway")
            low, high = (whole["params"][end] for end in ("low", "high")) if whole else (0, 0)
            to = of("cpu_message_to_mosquitto_tls")
            params = rate["params"]
            how = how or _how(params, rate["n"])
            star = "*" if params["generator_busy"] else ""
            cells[3:3] = [f"{low:.1f} to {high:.1f}", "" if to is None else f"{to['value']:.2f}"]
            cells += [f"{params['generator_share']:.0%}{star}", f"{rate['value']:,.0f}"]
            cells.append(f"{of_value(of('round_trip')):.2f}")
            body.append([_sent(burst), variant, *cells])
    if not body:
        return ""
    head = ["", "", "mediator", "broker", "gateway", "between", f"to {BASE}", "generator"]
    head += ["its share", "messages/s", "round trip, ms"]
    title = f"{STAGES[stage]}; microseconds of CPU a published message ({how})"
    text = f"{title}:\n\n{aligned(head, body)}"
    if any("*" in cell for line in body for cell in line):
        text += "\n\n\\* The load generator used more than 70 % of a core there: it may hold it up."
    return text


def of_value(row: Row | None) -> float:
    """Its value; nothing is 0."""
    return 0.0 if row is None else float(row["value"])
