"""The rows of the gateway's bench as tables for people, and which bars are met."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from bench_print import Row
from gateway_variants import BASE, FAMILIES, LABELS, TWO, USUAL, VARIANTS

from bench_form import aligned

# Processes that stand in a column of their own.
PROCESSES = ("mediator", "broker", "gateway", "generator")
STAGES = {
    "qos0": "QoS 0",
    "qos1": "QoS 1, each message on disk before its PUBACK",
    "kept": "QoS 1, readers with kept sessions",
    **dict.fromkeys(FAMILIES, "QoS 0, the two alone, more rounds"),
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
        for variant in (LABELS, USUAL):
            for burst in (1, 16):
                row = _get(rows, "cpu_message_to_mosquitto_tls", variant, stage=stage, burst=burst)
                if row is not None:
                    words = f"{stage}, {variant} to {BASE}: CPU a message, {_sent(burst)}"
                    made.append(Bar(words, row, most=most))
    for (family, of), burst in product(FAMILIES.items(), (1, 16)):
        row = _get(rows, "cpu_message_to_labels", of.name, stage=family, burst=burst)
        row = row or _get(rows, "cpu_message_to_labels", of.name, stage="qos0", burst=burst)
        if row is not None:
            words = f"{family} over labels: CPU a message, {_sent(burst)}"
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
    parts += [_latency(rows), _scenarios(rows), _idle(rows), _wild(rows)]
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


def _stage(rows: Sequence[Row], *stages: str) -> list[Row]:
    return [row for row in rows if row["params"].get("stage") in stages]


def _variants(rows: Sequence[Row]) -> list[str]:
    there = {row["variant"] for row in rows}
    return [name for name in VARIANTS if name in there]


_PERCENTILES = (("p50", "median"), ("p99", "99 %"), ("p999", "99.9 %"))


def _latencies(rows: Sequence[Row], variant: str) -> list[str]:
    found = [_get(rows, f"latency_{name}", variant) for name, _ in _PERCENTILES]
    return [f"{of_value(row):.2f}" for row in found]


def _latency(rows: Sequence[Row]) -> str:
    rows = _stage(rows, "latency")
    body = []
    for variant in _variants(rows):
        cells = _latencies(rows, variant)
        for name, _ in _PERCENTILES:
            mine, base = (_get(rows, f"latency_{name}", of) for of in (variant, BASE))
            added = of_value(mine) - of_value(base)
            cells.append(f"{added:+.2f}" if mine and base and mine is not base else "")
        median = _get(rows, "latency_p50", variant)
        share = median["params"]["generator_share"] if median else 0
        star = "*" if median and median["params"]["generator_busy"] else ""
        body.append([variant, *cells, f"{share:.0%}{star}"])
    if not body:
        return ""
    rate = of_value(next((row for row in rows if row["measure"] == "half_load"), None))
    n, params = rows[0]["n"], rows[0]["params"]
    head = ["ms", *(words for _, words in _PERCENTILES)]
    head += [f"{words}, to {BASE}" for _, words in _PERCENTILES] + ["generator's share"]
    return (
        f"From sending to each reader, {rate:,.0f} messages/s: half of what the site carries ({n} "
        f"rounds of {params['clients']} clients, QoS 0, load average {params['load']} when they "
        f"began):\n\n{aligned(head, body, 1)}"
    )


def _scenarios(rows: Sequence[Row]) -> str:
    body = []
    stages = {row["params"]["stage"] for row in rows if "stage" in row["params"]}
    kinds = ("p2p-", "fanout-", "fanin-")
    for stage in sorted(s for s in stages if s.startswith(kinds)):
        mine = _stage(rows, stage)
        for variant in _variants(mine):
            cells = []
            for process in ("mediator", "broker", "gateway"):
                row = _get(mine, "cpu_message", variant, process=process)
                cells.append("" if row is None else f"{row['value']:,.0f}")
            to = _get(mine, "cpu_message_to_mosquitto_tls", variant)
            cells.append("" if to is None else f"{to['value']:.2f}")
            body.append([stage, variant, *cells, *_latencies(mine, variant)])
    if not body:
        return ""
    head = ["", "", "mediator", "broker", "gateway", f"to {BASE}"]
    head += [f"{words}, ms" for _, words in _PERCENTILES]
    title = (
        "Scenarios of emqx/mqttbs, QoS 1: publishers, subscribers, messages a second in and out; "
        "microseconds of CPU a published message, and from sending to each reader"
    )
    return f"{title}:\n\n{aligned(head, body)}"


def _idle(rows: Sequence[Row]) -> str:
    rows = _stage(rows, "idle")
    body = []
    for variant in _variants(rows):
        cells = []
        for measure, process in (
            ("connect_rate", ""), ("connect_p50", ""), ("connect_p99", ""),
            ("cpu_connect", "mediator"), ("cpu_connect", "broker"), ("cpu_connect", "gateway"),
            ("cpu_idle", "gateway"), ("memory", "mediator"), ("memory", "broker"),
            ("memory", "gateway"), ("memory_client", "gateway"),
        ):  # fmt: skip
            params: dict[str, Any] = {"process": process} if process else {}
            row = _get(rows, measure, variant, **params)
            cells.append("" if row is None else f"{row['value']:,.{_digits(row['value'])}f}")
        body.append([variant, *cells])
    if not body:
        return ""
    head = ["", "connects/s", "ms, median", "99 %", "µs of CPU each: mediator", "broker", "gateway"]
    head += ["idle, µs of CPU a second each", "MiB: mediator", "broker", "gateway", "KiB a client"]
    return (
        f"{rows[0]['params']['clients']:,} clients that connect, 100 at a time, and then only keep "
        f"alive, every 60 s; memory is PSS:\n\n{aligned(head, body, 1)}"
    )


def _wild(rows: Sequence[Row]) -> str:
    rows = _stage(rows, "wild")
    body = []
    for variant in _variants(rows):
        cells = []
        for measure in (f"{w}_{of}" for w in ("calm", "wild") for of in ("p50", "p99", "max")):
            row = _get(rows, measure, variant)
            cells.append("" if row is None else f"{row['value']:,.2f}")
        body.append([variant, *cells])
    if not body:
        return ""
    head = ["", "alone: median", "99 %", "longest", "beside: median", "99 %", "longest"]
    params, n = rows[0]["params"], rows[0]["n"]
    return (
        f"From PINGREQ to PINGRESP in ms, alone and while another client subscribes with wildcards "
        f"to what {params['reservations']:,} reservations do not allow (medians of {n} rounds, "
        f"load average {params['load']} when they began):\n\n{aligned(head, body, 1)}"
    )


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1


def of_value(row: Row | None) -> float:
    """Its value; nothing is 0."""
    return 0.0 if row is None else float(row["value"])
