"""The bench of purpose limitation: what it makes of figures, what its generator counts, that it
runs, and that it leaves nothing behind."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import load_generator
import load_sites
import pytest
import tomlkit
from bench_print import Row
from load_cpu import LoadError, cpu_ns
from load_peer import Peer, Sealed
from load_rounds import Rounds, Sizes, Taken
from load_stats import found, ratios

from sealmq.cli import main
from sealmq.families.purposes.bench import decide, whole
from sealmq.families.purposes.bench import rounds as purposes_rounds
from sealmq.families.purposes.bench import site as purposes_site
from sealmq.families.purposes.bench.book import HELD_STAGE, VARIED, Book
from sealmq.families.purposes.bench.rounds import CommandRounds, CommandSizes
from sealmq.families.purposes.bench.table import bars, beside, shown, table
from sealmq.families.purposes.bench.variants import VARIANTS
from sealmq.mqtt import build

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "shared_spec" / "bench.schema.json").read_text(encoding="utf-8"))
SCRIPT = ROOT / "gateway" / "bench" / "family_bench.py"


def check(rows: object) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(rows)


# --- figures -------------------------------------------------------------------------------------


def test_a_median_and_what_it_lies_between() -> None:
    ten = found([5, 1, 9, 3, 7, 2, 8, 4, 6, 10])
    assert (ten.value, ten.low, ten.high, ten.n) == (5.5, 2, 9, 10)
    # All but 11 of 512 cases: the binomial tails below the second of ten.
    assert ten.sure == pytest.approx(1 - 22 / 1024)
    few = found([1, 2, 3])
    assert (few.low, few.high, few.sure) == (1, 3, 0.75)
    assert found([4])[:4] == (4, 4, 4, 0)
    assert [found(range(n)).sure >= 0.95 for n in (5, 6, 7, 30)] == [False, True, True, True]


def test_pairs_take_out_what_hits_both() -> None:
    slow = [1, 1, 5, 1, 9, 1]
    got = ratios([1.02 * each for each in slow], slow)
    assert (got.low, got.value, got.high) == pytest.approx((1.02, 1.02, 1.02))


def taken(variant: str, held: int, cost: float, busy: float = 0.3) -> Taken:
    made = Taken(variant, held, 250, 64)
    for turn, burst in product(range(10), (1, 16)):
        noise = 1 + turn / 100
        for process in ("mediator", "broker", "kg", "gateway", "generator"):
            if variant != "mosquitto" or process != "mediator":
                made.add("cpu_message", cost * noise, burst, process)
                made.add("share", busy if process == "generator" else 0.9, burst, process)
        made.add("throughput", 1e6 / cost / noise, burst)
        made.add("round_trip", cost * noise / 10, burst)
        if burst == 1:
            for measure in ("round_trip_calm", "subscribe_rate", "reserve_rate"):
                made.add(measure, cost * noise)
    return made


def rows(cost: float = 102.0) -> list[Row]:
    first = [taken("mosquitto", 0, 30, 0.9), taken("labels", 0, 100), taken("hybrid", 1000, cost)]
    more = [taken("labels", 0, 100), taken("hybrid", 10, 100), taken("hybrid", 10**6, cost)]
    made = purposes_rounds.rows(first, VARIED, 0.5) + purposes_rounds.rows(more, HELD_STAGE, 0.5)
    return [*made, *decide.measure("fop-cache", 10)]


def test_rows_are_of_the_schema_and_the_table_shows_them() -> None:
    made = rows()
    check({"rows": made})
    text = table(made)
    # The paper's own, beside ours.
    assert "| hybrid    | 4,690.76 |   25.00 % |" in text
    assert re.search(r"\| NoF +\| +55\.20 \| +9\.01 % \| +\|", text)
    assert re.search(r"\| mosquitto \| 6,254\.49 \| +\| 31,8\d\d\* \|", text)
    assert "70 % of a core" in text
    assert "load average 0.5" in text
    told = bars(Book(made))
    assert [holds for _, _, holds in told] == [True] * 5
    assert told[0][1]["value"] == pytest.approx(1.02)
    assert "1,000,000 reservations to 10" in told[4][0]
    assert "MISS" not in text
    assert table(rows(106.0)).count("MISS") == 5


def test_a_decision_by_labels_and_one_of_the_default_mode_have_bars() -> None:
    made = [*decide.measure("labels", 0), *decide.measure("hybrid", 10)]
    check({"rows": made})
    said = {}
    for value in (9.9, 10.1):
        for row in made:
            row["value"] = value if row["measure"] == "decision_uncached" else 0.2
        said[value] = [line.split()[-2] for line in table(made).splitlines() if "at most" in line]
        assert table(shown(made)) == table(made)
    assert said == {9.9: ["pass"] * 4, 10.1: ["MISS", "MISS", "pass", "pass"]}


def test_what_the_tables_show_is_kept_and_nothing_else() -> None:
    made = rows()
    kept = shown(made)
    assert len(kept) < len(made)
    assert table(kept) == table(made)


def test_more_rounds_of_the_few_stand_beside_the_bars() -> None:
    few = [taken("labels", 0, 100), taken("hybrid", 1000, 104)]
    closer = purposes_rounds.rows(few, VARIED, 0.7)
    made = beside(rows(), closer)
    text, kept = table(made), shown(made)
    assert "The same three variants alone, 10 rounds, load average 0.7" in text
    assert text.count("| hybrid to labels: CPU a message, mediator, single messages ") == 2
    assert "+4.0 %" in text
    check({"rows": kept})
    assert table(kept) == text


def test_what_performance_md_shows_is_in_the_committed_figures() -> None:
    committed = json.loads((ROOT / "evidence/results/purposes.json").read_text(encoding="utf-8"))
    check(committed)
    text = (ROOT / "gateway/PERFORMANCE.md").read_text(encoding="utf-8")
    assert table(committed["rows"]) in text, "make evidence PARTS=none"
    book = Book(committed["rows"])
    assert set(book.variants()) == set(VARIANTS)
    assert book.params(VARIED)["clients"] == 250
    assert book.params(VARIED)["n"] >= 10
    assert book.levels("cpu_message", HELD_STAGE) == list(whole.HELD)
    assert all(holds for _, _, holds in bars(book))


# --- the load generator --------------------------------------------------------------------------


@pytest.fixture
def far() -> Iterator[tuple[int, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1], server


OWN, OTHER = "bench/c0001/value", "bench/c0002/value"


def test_a_peer_counts_whatever_comes_in_whatever_pieces(far: tuple[int, socket.socket]) -> None:
    other = build.publish(OTHER, bytes(200))
    stream = build.publish(OWN, bytes(20)) + other + build.suback(7, [0]) + build.publish(OWN, b"x")
    stream += build.unsuback(8) + other
    for step in (1, 2, 3, 7, len(stream)):
        peer = Peer(1, "127.0.0.1", far[0], OWN)
        for at in range(0, len(stream), step):
            peer.take(stream[at : at + step])
        assert (dict(peer.counts), peer.echoed, peer.answered) == (
            {b"\0\x11" + OWN.encode(): 2, b"\0\x11" + OTHER.encode(): 2}, 2, 2
        )  # fmt: skip
        peer.close()


def test_a_refusal_ends_the_measurement(far: tuple[int, socket.socket]) -> None:
    peer = Peer(1, "127.0.0.1", far[0], OWN)
    with pytest.raises(LoadError, match="refused"):
        peer.take(build.suback(7, [0x80]))
    peer.close()
    sealed = Sealed(1, "127.0.0.1", far[0], OWN)

    class Told:
        def down(self, packet: bytes, mono: int) -> tuple[int, Any]:
            assert packet == bytes(60)
            return 3, (1, 5, 5, "purposes.deliver", "not for this")

    sealed.session = Told()  # type: ignore[assignment]
    # A receipt, which is told by its length, is not opened.
    sealed.take(build.publish("!c1", bytes(14 + 12 + 16)))
    with pytest.raises(LoadError, match=r"purposes\.deliver.*not for this"):
        sealed.take(build.publish("!c1", bytes(60)))
    sealed.close()


def test_the_cpu_of_a_process_is_its_own() -> None:
    used = cpu_ns(os.getpid())
    assert used > 0
    sum(range(100_000))
    assert cpu_ns(os.getpid()) > used
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(LoadError, match="has ended"):
        cpu_ns(gone.pid)


@pytest.mark.parametrize(("count", "clients"), [(2, 5), (5, 5), (10, 250), (1000, 250)])
def test_so_many_reservations_as_were_asked_for(count: int, clients: int) -> None:
    topics = [load_generator.topic(n) for n in range(clients)]
    made = list(purposes_site.filters(count, topics))
    assert len(set(made)) == len(made) == count
    assert len(set(topics) & set(made)) == min(clients, count - 2)


def test_no_client_of_the_bench_is_held_back(tmp_path: Path) -> None:
    """A client that is no steward reserves 20 times a second; the bench wants to know how fast."""
    scene = load_sites.Scene(VARIANTS["hybrid"], tmp_path, clients=3, held=0)
    doc: Any = tomlkit.parse("[policy]\n")
    scene._configure(doc)
    assert list(doc["families"]["purposes"]["stewards"]) == list(doc["clients"])


# --- rounds --------------------------------------------------------------------------------------


class Played:
    """A scene that answers as if a message cost it `cost` us."""

    def __init__(self, variant: str, cost: float, log: list[str]) -> None:
        self.variant = VARIANTS[variant]
        self.clients, self.held = 10, 1000
        self._cost, self._log = cost, log

    def do(self, what: str, **words: Any) -> dict[str, Any]:
        self._log.append(f"{self.variant.name} {what}")
        n = words.get("each", 1) * 10
        cpu = {"mediator": self._cost * n, "broker": 1.0 * n, "generator": 1.0 * n}
        span = {"messages": n, "done": words.get("count", 1), "wall_s": self._cost * n / 1e6}
        return {**span, "cpu_us": cpu, "trip_ms": 1.0, "trip95_ms": 2.0}

    def memory_mib(self) -> dict[str, float]:
        return {"mediator": 50.0}


def test_variants_take_turns_and_the_first_round_is_thrown_away() -> None:
    log: list[str] = []
    costs = {"labels": 100, "hybrid": 103, "fop-flat": 900}
    scenes: Any = [Played(variant, cost, log) for variant, cost in costs.items()]
    rounds = CommandRounds(scenes, CommandSizes(pairs=4), lambda what: None)
    rounds.run(4, float("inf"))
    order = [line.split()[0] for line in log if line.endswith("calm")]
    turns = [order[at : at + 3] for at in range(0, 15, 3)]
    assert [sorted(turn) for turn in turns] == [sorted(turns[0])] * 5
    assert len({tuple(turn) for turn in turns}) > 2
    # As many values as there are pairs; and bursts only where the variant has them.
    assert {len(values) for one in rounds.taken for values in one.values.values()} == {4}
    assert ("throughput", 16, "") not in rounds.taken[2].values
    made = purposes_rounds.rows(rounds.taken, VARIED, 0.0)
    row = Book(made).varied("cpu_message_to_labels", "hybrid", burst=1, process="mediator")
    assert row is not None
    assert row["value"] == pytest.approx(1.03)


def test_rounds_end_when_the_time_is_over() -> None:
    scenes: Any = [Played("labels", 100, [])]
    rounds = Rounds(scenes, Sizes(), lambda what: None)
    rounds.run(10, 0.0)
    assert {len(values) for values in rounds.taken[0].values.values()} == {1}


# --- the command ---------------------------------------------------------------------------------


def test_the_command_hands_on_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def run(words: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        started.append(words)
        return subprocess.CompletedProcess(words, 130)

    monkeypatch.setattr(subprocess, "run", run)
    words = ["--json", "--quick", "--variant", "labels", "--variant", "fop-cache"]
    words += ["--pairs", "20", "--clients", "30", "--reservations", "5000", "--out", "x.json"]
    assert main.main(["bench", "purposes", *words]) == 130
    [[_, script, *given]] = started
    assert Path(script) == SCRIPT
    assert given == ["purposes", *words]
    plans: list[whole.Plan] = []

    def measured(plan: whole.Plan) -> list[Row]:
        plans.append(plan)
        return rows()

    assert whole.main(words[2:12], measured) == 0
    [plan] = plans
    assert (plan.sizes.pairs, plan.sizes.clients, plan.held) == (20, 30, 5000)
    assert [v.name for v in plan.variants] == ["labels", "fop-cache"]
    assert not plan.sweep
    assert not plan.decisions


def test_all_of_it_is_the_papers_variants_and_four_sizes() -> None:
    plan = whole.Plan(argparse.Namespace(
        quick=False, variant=None, pairs=None, clients=None, reservations=None
    ))  # fmt: skip
    assert (plan.sizes.clients, plan.sizes.pairs, plan.sizes.size) == (250, 10, 64)
    assert len(plan.variants) == 7
    assert {held for _, held in plan.sweep if held} == {10, 1_000, 100_000, 1_000_000}
    assert ("fop-flat", 1_000_000) in plan.decisions


@pytest.mark.parametrize("words", [["--variant", "flying"], ["--clients", "1"], ["--pairs", "x"]])
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        whole.main(words)
    assert caught.value.code == 2
    assert words[0] in capsys.readouterr().err


# --- real processes ------------------------------------------------------------------------------


@pytest.mark.full
def test_it_measures_real_sites(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    words = ["--quick", "--clients", "4", "--json", "--out", str(out)]
    for variant in ("mosquitto", "labels", "hybrid"):
        words += ["--variant", variant]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "purposes", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == json.loads(out.read_text(encoding="utf-8"))
    check(printed)
    book = Book(printed["rows"])
    for variant, processes in (
        ("mosquitto", ("broker", "generator")),
        ("labels", ("kg", "mediator", "broker", "gateway", "generator")),
        ("hybrid", ("kg", "mediator", "broker", "gateway", "generator")),
    ):
        for process in processes:
            assert book.varied("cpu_message", variant, burst=16, process=process) is not None
        for measure in ("throughput", "round_trip", "round_trip_calm", "subscribe_rate"):
            row = book.varied(measure, variant)
            assert row is not None
            assert row["value"] > 0
    assert book.varied("reserve_rate", "labels") is None
    row = book.varied("reserve_rate", "hybrid")
    assert row is not None
    assert row["params"]["reservations"] == 1000
    assert "to labels" in table(printed["rows"])


@pytest.mark.full
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = ["--quick", "--clients", "3", "--pairs", "8", "--variant", "labels"]
    bench = subprocess.Popen(
        [sys.executable, "-m", "sealmq.cli", "bench", "purposes", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert bench.stderr is not None
    # One line a round, before the first of which everything runs.
    assert "labels has started" in bench.stderr.readline()
    assert len(of(tmp_path)) >= 7
    # As a terminal does it: the command gets it and the bench behind it.
    os.killpg(bench.pid, signal.SIGINT)
    _, said = bench.communicate()
    assert bench.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def of(folder: Path) -> list[str]:
    """Command lines of processes that have to do with a folder."""
    lines = []
    for at in Path("/proc").glob("[0-9]*"):
        try:
            line, environment = (at / "cmdline").read_bytes(), (at / "environ").read_bytes()
        except OSError:
            continue
        if line and os.fsencode(folder) in line + environment:
            lines.append(line.decode(errors="replace").replace("\0", " "))
    return lines
