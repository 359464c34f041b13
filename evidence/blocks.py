"""The tables that pages show whole, each made of the reduced results alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache, lru_cache, partial

from bench_form import aligned
from evidence.parts import FAMILIES, PARTS, tables
from evidence.place import ROOT, EvidenceError
from evidence.reduced import ROUNDS, Reduced, Row

OURS, TLS = "sealmq-ccm", "tls13-ecdsa"
# What a row of gateway/PERFORMANCE.md says, and (measure, variant) of what it shows.
_GATEWAY = (
    ("decode and encode one PUBLISH, QoS 0, one a read", "publish_qos0_decode_encode_one", "codec"),
    ("the same in batches", "publish_qos0_decode_encode_batch", "codec"),
    ("policy, verdict cached", "publish_hit", "labels"),
    ("policy, cached among 100,000 topics in random order", "publish_cold", "labels"),
    ("policy, judged anew", "publish_miss", "labels"),
)  # fmt: skip
_FILE = {"codec": "codec", "labels": "policy"}
_ARCHS = ("xtensawin", "rv32imc", "armv6m")
_SHARES = {
    "recall": "of what is bad, withheld (recall)",
    "precision": "of what is withheld, bad (precision)",
    "good": "of what is good, delivered",
}
# Of the paper's Table 5: its lines, its columns, and the payloads of ours.
_COMPARED = ("TLS > plain", "ours > plain", "TLS > ours")
_STAGES = ("connect", "subscribe", "receive", "publish", "overall")
_PAPER_SIZES = (64, 16384)


def _rows(reduced: Reduced, part: str) -> list[Row]:
    if not reduced.rows.get(part):
        raise EvidenceError(f"nothing was reduced of {part}", f"make evidence PARTS={part}")
    return reduced.rows[part]


def device(reduced: Reduced) -> str:
    """What the device client costs, in the bench's own order."""
    from bench_measures import tasks
    from bench_rows import whose
    from bench_table import table

    order = {(t.measure, t.variant, t.size): n for n, t in enumerate(tasks())}

    def place(row: Row) -> tuple[int, int]:
        params, of = row["params"], (row["measure"], whose(row))
        at = min((n for key, n in order.items() if key[:2] == of), default=len(order))
        # What a task measures on both interpreters comes in turns.
        return order.get((*of, row["size"]), at), -params.get("bits", 0)

    return f"{table(sorted(_rows(reduced, 'device'), key=place))}\n\n{_paper(reduced)}"


def _paper(reduced: Reduced) -> str:
    """Table 5 of Chen and Wilson, and the same as the report reckoned it."""
    rows = [row for row in reduced.rig["paper"] if row["what"] == "instructions"]
    if not rows:
        raise EvidenceError("the report has no Table 5", "make evidence PARTS=device")
    cells = {(r["comparison"], r["size"], r["stage"]): r for r in rows}
    body = []
    for who in _COMPARED:
        paper = [cells[who, _PAPER_SIZES[0], stage]["paper"] for stage in _STAGES]
        lines_: list[tuple[str, list[float]]] = [("paper, 1 MiB", paper)]
        for size in _PAPER_SIZES:
            here = [cells[who, size, stage]["percent"] for stage in _STAGES]
            lines_.append((f"here, {size:,} B", here))
        for where, figures in lines_:
            body.append([who, where, *(f"{figure:+,.0f}%" for figure in figures)])
    title = f"Table 5 of the paper, and the same of these figures ({TLS} and {OURS})"
    return f"{title}:\n\n{aligned(['more than', '', *_STAGES], body, 2)}"


def of_family(name: str, reduced: Reduced) -> str:
    """What a policy family costs."""
    return tables(name).table(_rows(reduced, name))


def gateway(reduced: Reduced) -> str:
    """What a message costs the gateway: all of it beside brokers alone, then two of its parts."""
    from gateway_table import table
    from gateway_variants import VARIANTS

    measured = [row for row in _rows(reduced, "gateway") if row["variant"] in VARIANTS]
    whole = table(measured) or "Not measured yet: `make evidence PARTS=gateway`."
    body = []
    for words, measure, variant in _GATEWAY:
        row = reduced.row("gateway", measure, variant)
        value = row["value"] / (1000 if row["unit"] == "ns of CPU" else 1)
        body.append([words, f"{_FILE[variant]}: `{measure}`", f"{value:.3g}"])
    parts_ = aligned(["what", "from", "µs"], body, 2)
    return f"{whole}\n\nParts of the mediator in a loop, by themselves:\n\n{parts_}"


def bridge(reduced: Reduced) -> str:
    """What a message costs bridges, and what judging between sites costs."""
    from bridge_bench import table

    return table(_rows(reduced, "bridge"))


def agent(reduced: Reduced) -> str:
    """What a message costs an agent, beside Mosquitto's bridge."""
    from agent_bench import table

    return table(_rows(reduced, "agent"))


def scrape(reduced: Reduced) -> str:
    """What being watched costs a site."""
    from scrape_bench import table

    rows = reduced.rows.get("scrape")
    return table(rows) if rows else "Not measured yet: `make evidence PARTS=scrape`."


def sizes(reduced: Reduced) -> str:
    """What lies on a board, by set and architecture."""
    from build_mpy import ABOUT

    body = []
    for name, words in ABOUT.items():
        kilobytes = (reduced.value("sizes", "flash", f"{name}-{arch}") / 1000 for arch in _ARCHS)
        body.append([f"`{name}/<arch>/`", words, *(f"{each:.1f} kB" for each in kilobytes)])
    return aligned(["`build/firmware/`", "for a board that", *_ARCHS], body, 2)


def rig(reduced: Reduced) -> str:
    """What the rig's core found: verdicts by behaviour, and how long they took."""
    verdicts: dict[str, list[Row]] = {}
    for row in reduced.rig["behaviours"]:
        verdicts.setdefault(row["behaviour"], []).append(row)
    times = {r["behaviour"]: r for r in reduced.rig["stages"] if r["stage"] == "verdict"}
    body = []
    for name, rows in verdicts.items():
        counts = [str(sum(row[of] for row in rows)) for of in ("passed", "failed", "skipped")]
        of = times.get(name)
        seconds = [f"{of[q] / 1000:.1f}" for q in ("median", "p95")] if of else ["", ""]
        body.append([f"`{name}`", *counts, *seconds])
    head = ["behaviour", "passed", "failed", "skipped", "s, median", "p95"]
    cut, pairs = reduced.rig["cuts"], reduced.rig["nonces"]
    told = (
        f"{sum(c['cuts'] for c in cut)} power cuts, {sum(c['inside'] for c in cut)} of them in "
        f"the middle of a change of the flash; failed: {sum(c['failed'] for c in cut)}. "
        f"{sum(n['distinct'] for n in pairs):,} pairs of key and nonce; with two contents: "
        f"{sum(n['repeated'] for n in pairs)}."
    )
    return f"{aligned(head, body, 1)}\n\n{told}"


def simulations(reduced: Reduced) -> str:
    """What each rule finds of each kind of malice among simulated sites, soon and later."""
    rows = reduced.rig["simulations"]
    if not rows:
        raise EvidenceError("nothing was simulated", "make evidence PARTS=simulations")
    return "\n\n".join(
        _simulated(name, said, [row for row in rows if row["sites"] == sites])
        for sites in sorted({row["sites"] for row in rows})
        for name, said in _SHARES.items()
    )


def _simulated(name: str, said: str, rows: list[Row]) -> str:
    from sealmq.families.trust.cli.runs import KINDS
    from sealmq.families.trust.simulate import RULES

    shares = {(r["kind"], r["rule"], r["round"]): r[f"{name}_mean"] for r in rows}
    bad = {row["kind"] for row in rows if row["recall_mean"] is not None}
    body = []
    for kind in KINDS:
        found = [[shares.get((kind, rule, turn)) for turn in ROUNDS] for rule in RULES]
        if kind in bad or name == "good":
            body.append([kind, *(" → ".join(map(_percent, of)) for of in found)])
    runs = sorted({row["runs"] for row in rows})
    title = (
        f"{rows[0]['sites']} sites, {said}, in percent, in round {' → '.join(map(str, ROUNDS))} "
        f"(mean of {' or '.join(f'{n:,}' for n in runs)} runs each):"
    )
    return f"{title}\n\n{aligned(['kind', *RULES], body, 1)}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


def flash(reduced: Reduced) -> str:
    """How long virtual boards take from flash to publishing."""
    body = []
    for row in _rows(reduced, "flash"):
        params = row["params"]
        cells = (
            f"{row['n']}",
            f"{row['value']:.0f}",
            f"{params['cores']}",
            f"{params['load']:.1f}",
        )
        body.append([row["variant"], *cells])
    return aligned(["boards", "how many", "s", "cores", "load beside it"], body, 1)


@cache
def _defences() -> str:
    words = [sys.executable, str(ROOT / "hil_tests" / "red.py"), "--table"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise EvidenceError(f"hil_tests/red.py --table: {done.stderr.strip()}")
    return done.stdout.strip()


def defences(reduced: Reduced) -> str:
    """Which test attacks which claim, and what it did without the defence."""
    return _defences()


def parts(reduced: Reduced) -> str:
    """When each part was measured, on what."""
    body = []
    for part in PARTS:
        of = reduced.parts.get(part.name)
        if of is None:
            body.append([part.name, "never", "", "", ""])
            continue
        commit = re.sub(r"^([0-9a-f]{10})[0-9a-f]*", r"\1", of["commit"])
        load = "" if of["load"] is None else f"{of['load']:.1f}"
        body.append([part.name, of["began"], f"`{commit}`", load, of.get("note", "")])
    return aligned(["part", "measured", "commit", "load", "note"], body, 5)


@lru_cache(maxsize=64)
def block(name: str, reduced: Reduced) -> str:
    """What stands between the marks of that name. EvidenceError."""
    if name not in BLOCKS:
        raise EvidenceError(f"nobody makes the table {name}")
    return BLOCKS[name](reduced)


def spark(reduced: Reduced) -> str:
    """How reports grow."""
    from scale_table import table

    rows = _rows(reduced, "spark")
    return table(sorted(rows, key=lambda row: row["params"].get("lines", 0)))


BLOCKS: dict[str, Callable[[Reduced], str]] = {
    "device.json": device,
    "gateway.json": gateway,
    "bridge.json": bridge,
    "agent.json": agent,
    "scrape.json": scrape,
    "sizes.json": sizes,
    "flash": flash,
    "rig": rig,
    "defences": defences,
    "results.json": spark,
    "simulations": simulations,
    "parts": parts,
    **{f"{name}.json": partial(of_family, name) for name in FAMILIES},
}
