"""The device bench: the form of its rows, what it makes of two counts, and what it must refuse."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import bench_aes
import bench_device
import bench_measures
import bench_runs
import count
from bench_aes import check_aes, without_instructions
from bench_rows import Row, each, row, updated, value
from bench_runs import VARIANTS, BenchError, Run, check_refusal, check_tls
from bench_table import PARTS, bars, missed, table
from count import CountError
from device_script import PRELUDE, board
from mqtt_server import wanted
from peer_connection import Connection

SCHEMA = Path(__file__).parents[2] / "shared_spec" / "bench.schema.json"
SUITE = "TLS1-3-AES-256-GCM-SHA384"
FIGURES = {
    "plain": (40_000, 20_000, 16_000, 12_000),
    "tls13-ecdsa": (43_200_000, 40_000, 25_000, 28_000),
    "sealmq-ccm": (360_000, 30_000, 20_000, 22_400),
}


def rows() -> list[Row]:
    """A small bench's rows."""
    made = []
    for variant, costs in FIGURES.items():
        for measure, cost in zip(
            ("connect", "subscribe", "receive", "publish"), costs, strict=True
        ):
            sizes = (0,) if measure == "subscribe" else (64, 16384)
            made += [row(measure, variant, s, cost, "instructions", 1, {}) for s in sizes]
    for bits, locked in ((64, True), (32, False)):
        params = {"bits": bits, "heap_locked": locked}
        made.append(row("heap_per_message", "sealmq-ccm", 64, 1 * locked, "bytes", 1000, params))
    for variant, cost in (("tls13-ecdsa-software", 40_000), ("sealmq-ccm-software", 70_000)):
        made.append(row("publish", variant, 64, cost, "instructions", 1))
    return made


def check(found: object) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(found)


def test_rows_are_of_the_schema() -> None:
    check({"rows": rows()})
    for wrong in ({"value": "many"}, {"value": -1}, {"n": 0}, {"size": 1.5}, {"more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check({"rows": [{**rows()[0], **wrong}]})
    with pytest.raises(jsonschema.ValidationError):
        check({"rows": []})


def test_one_time_is_the_difference_of_two_runs() -> None:
    assert each(1_000_000, 1_030_000, 10, 310) == 100
    with pytest.raises(ValueError, match="more often"):
        each(1, 2, 10, 10)


class Far:
    """Counts as if each time cost 700, and the rest of a run 5,000,000."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def words(self, what: str, size: int, n: int, blocks: int = 0) -> list[object]:
        return [what, n]

    def count(self, words: list[Any], heap: str, connects: int = 0) -> Run:
        self.seen.append((words[0], heap, connects))
        return Run(5_000_000 + 700 * words[1], 100 + 33 * words[1], {"verified": True})


class FakeRig:
    def __init__(self) -> None:
        self.far = Far()

    @contextmanager
    def far_end(self, variant: str, clients: int = 1) -> Iterator[Far]:
        yield self.far


@pytest.mark.parametrize("measure", ["publish", "publish_steady", "connect", "subscribe", "seal"])
def test_a_measure_compares_two_runs(measure: str) -> None:
    [task] = bench_measures.tasks([measure], ["sealmq-ccm"], [64])
    rig: Any = FakeRig()
    [made] = task.run(rig)
    check({"rows": [made]})
    assert (made["measure"], made["variant"], made["value"]) == (measure, "sealmq-ccm", 700)
    assert made["params"]["verified"] is True
    assert len(rig.far.seen) == 2
    # In the runs that are compared, only how often differs.
    assert len({seen[:2] for seen in rig.far.seen}) == 1
    assert rig.far.seen[1][2] - rig.far.seen[0][2] == (made["n"] if measure == "connect" else 0)


def test_with_aes_in_software_its_blocks_are_a_row_as_well() -> None:
    [task] = bench_measures.tasks(["publish"], ["sealmq-ccm-software"], [64])
    rig: Any = FakeRig()
    made, blocks = task.run(rig)
    check({"rows": [made, blocks]})
    assert (made["variant"], made["params"]["aes"], made["value"]) == (
        "sealmq-ccm",
        "software",
        700,
    )
    assert (blocks["measure"], blocks["unit"], blocks["value"]) == (
        "aes_blocks_publish", "blocks", 33,
    )  # fmt: skip
    # Rows of both kinds are told apart.
    both = [row("publish", "sealmq-ccm", 64, 1, "instructions", 1), made]
    assert value(both, "publish", "sealmq-ccm") == 1
    assert value(both, "publish", "sealmq-ccm-software") == 700
    assert updated(both, [made]) == both


def test_no_row_where_a_measure_means_nothing() -> None:
    all_of_them = {(task.measure, task.variant, task.size) for task in bench_measures.tasks()}
    assert ("seal", "plain", 64) not in all_of_them
    assert ("tls_record", "sealmq-ccm", 64) not in all_of_them
    assert ("receive_uncached", "tls13-rsa", 64) not in all_of_them
    assert {v for m, v, s in all_of_them if (m, s) == ("publish", 16384)} == set(VARIANTS)
    assert bench_measures.tasks(["seal"], ["plain"]) == []


def test_the_table_shows_figures_bars_and_the_papers_table() -> None:
    made = table(rows())
    assert "43,200,000" in made
    told: dict[Any, Any] = {
        (bar.what, bar.size): (found, bar.holds(found)) for bar, found in bars(rows())
    }
    assert told["connect: TLS 1.3 ECDSA to ours", 64] == (120, False)
    assert told["publish: ours to TLS 1.3", 64] == (0.8, False)
    assert told["publish: ours to TLS 1.3", 16384] == (0.8, True)
    assert told["publish: ours to TLS 1.3, AES in software", 64] == (1.75, False)
    assert told["publish: ours to plain", 64] == (pytest.approx(1.8667, abs=0.001), False)
    assert told["a publish leaves to the collector, 64 bit", 1024] == (1, False)
    assert told["a publish leaves to the collector, 32 bit", 1024] == (0, True)
    assert told["publishes with the heap locked (1: yes), 32 bit", 1024] == (0, False)
    assert not any(what == "two seals to one TLS record" for what, _ in told)
    assert "MISS" in made
    assert "| publish | sealmq-ccm-software |" in " ".join(made.split())
    assert "publish: ours to TLS 1.3, 64 B: 0.8, at most 0.6" in missed(rows())
    assert value(rows(), "connect", "tls13-rsa") is None


def test_what_the_blocks_alone_cost_is_reckoned_of_a_block_s_price() -> None:
    made = [
        row("aes_blocks_publish", "sealmq-ccm", 64, 33, "blocks", 1),
        row("aes_blocks_publish", "tls13-ecdsa", 64, 13, "blocks", 1),
        row("part_cbc", "micropython-software", 1024, 64_000, "instructions", 1),
    ]
    assert "blocks alone" not in table(made)
    made.append(row("part_ecb", "micropython-software", 1024, 32_000, "instructions", 1))
    assert "| publish | sealmq-ccm-software | 24,750 |" in " ".join(table(made).split())


def test_tls_counts_only_as_1_3_with_a_verified_chain() -> None:
    assert check_tls(f"{SUITE} TLSv1.3 True\n") == {"suite": SUITE, "verified": True}
    for said in (f"{SUITE} TLSv1.2 True\n", f"{SUITE} TLSv1.3 False\n", ""):
        with pytest.raises(BenchError):
            check_tls(said)


AES = """
from cryptolib import aes
aes(bytes(32), 1).encrypt(bytes(16 * 7))
"""


def test_aes_is_done_where_a_run_says(tmp_path: Path) -> None:
    hard = count.counted(["-c", AES])
    soft = count.counted(["-c", AES], home=without_instructions(count.HOME, tmp_path))
    check_aes(hard.functions, software=False)
    check_aes(soft.functions, software=True)
    for functions, software in ((hard.functions, True), (soft.functions, False)):
        with pytest.raises(CountError, match=r"was to be in .* ran"):
            check_aes(functions, software)
    with pytest.raises(CountError, match="none was done"):
        check_aes({}, software=True)
    assert bench_aes.blocks(hard.functions, False) == bench_aes.blocks(soft.functions, True) == 7


def test_a_library_that_cannot_be_told_to_do_aes_in_software_is_refused(tmp_path: Path) -> None:
    (tmp_path / "64").mkdir()
    argv = ["ld.so", "--library-path", str(tmp_path), "micropython"]
    (tmp_path / "64" / "stamp.json").write_text(json.dumps({"argv": argv}), encoding="utf-8")
    real = Path(count.interpreter()[3]) / "libmbedcrypto.so.16"
    found = real.read_bytes()
    for wrong, said in (
        (found.replace(b"mbedtls_aesni_has_support", b"mbedtls_aesni_had_support"), "has no"),
        (b"\x7fELF\x02" + bytes(13) + b"\xb7\0" + found[20:], "x86-64 only"),
    ):
        (tmp_path / "libmbedcrypto.so.16").write_bytes(wrong)
        with pytest.raises(CountError, match=said):
            without_instructions(tmp_path, tmp_path / said)


def test_tls_against_real_servers(tmp_path: Path) -> None:
    with bench_runs.rig() as rig:
        rig.mpy[64] = bench_runs.umqtt(tmp_path)
        _, ca, _ = rig.use_tls("ecdsa")
        with pytest.raises(BenchError, match=r"not TLS 1\.3: .*TLSv1\.2"):
            rig.use_tls("ecdsa", ssl.TLSVersion.TLSv1_2)
        # The right authority where a stranger's should be: the client accepts, and that is told.
        with pytest.raises(BenchError, match="accepts"):
            check_refusal(rig, rig.tls["tls13-ecdsa"][0].port, ca)


@pytest.mark.full
def test_messages_are_sent_also_when_another_connection_ends_just_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def another_ends(c: Connection, filt: str, number: int) -> bool:
        c.peer.log("end", "ConnectionClosed", "disconnect")
        return False

    monkeypatch.setattr(bench_runs, "PATIENCE_S", 10.0)
    with bench_runs.rig() as rig:
        rig.compile()
        with rig.far_end("sealmq-ccm") as far:
            far._peers[0].on_subscribe = another_ends
            rig.plainly(far.words("receive", 64, 5))


def test_a_run_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    monkeypatch.setattr(bench_runs, "PATIENCE_S", 0.2)
    monkeypatch.setattr(count, "PATIENCE_S", 0.2)
    with bench_runs.rig() as rig, pytest.raises(BenchError, match="sleeps did not end within"):
        rig.run(["sleeps"], path=tmp_path)
    with pytest.raises(CountError, match="did not end within"):
        count.counted([tmp_path / "sleeps.py"])


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--measure", "seal", "--variant", "sealmq-ccm", "--size", "64"]
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        assert bench_device.main(words) == 1
        assert "valgrind is missing: sudo apt install valgrind" in capsys.readouterr().err
        with pytest.raises(count.CountError, match="cannot start valgrind"):
            count.counted(["-c", "pass"])
    monkeypatch.setattr(bench_runs, "HOME", tmp_path)
    assert bench_device.main(words) == 1
    assert "no 64-bit MicroPython here: run `make setup`" in capsys.readouterr().err


def test_the_command_prints_and_writes_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "rows.json"
    words = ["--measure", "connect", "--json", "--out", str(out), "--allow-misses"]
    assert bench_device.main(words, lambda *given: rows()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(out.read_text(encoding="utf-8"))
    check(printed)


def test_a_missed_bar_is_told_and_ends_in_failure(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--measure", "connect"]
    assert bench_device.main(words, lambda *given: rows()) == bench_device.MISSED
    assert "missed: connect: TLS 1.3 ECDSA to ours, 64 B: 120, at least 138" in (
        capsys.readouterr().err
    )
    held = [r for r in rows() if r["measure"] == "subscribe"]
    assert bench_device.main(words, lambda *given: held) == 0
    assert not capsys.readouterr().err


def test_quick_is_what_the_bars_need_at_two_sizes() -> None:
    chosen: list[bench_measures.Task] = []

    def run(tasks: Sequence[bench_measures.Task], *rest: Any) -> list[Row]:
        chosen.extend(tasks)
        return rows()

    assert bench_device.main(["--quick"], run) == bench_device.MISSED
    assert {task.size for task in chosen} == {0, 64, 1024}
    assert {task.variant for task in chosen if task.measure == "publish"} == {
        "plain", "tls13-ecdsa", "sealmq-ccm", "tls13-ecdsa-software", "sealmq-ccm-software",
    }  # fmt: skip
    assert bench_device.main(["--quick", "--measure", "publish", "--size", "16"], run) == 3
    assert {task.size for task in chosen} == {0, 16, 64, 1024}


def test_rows_measured_anew_replace_their_likes(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    out.write_text(json.dumps({"rows": rows()}), encoding="utf-8")
    fresh = row("connect", "plain", 64, 41_000, "instructions", 1)
    words = ["--measure", "connect", "--update", "--out", str(out), "--allow-misses"]
    assert bench_device.main(words, lambda *given: [fresh]) == 0
    now = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert value(now, "connect", "plain") == 41_000
    assert now[1:] == rows()[1:]


def test_what_a_subscription_asks_for() -> None:
    assert wanted("00010/64") == (10, 64, "")
    assert wanted("10/64/new") == (10, 64, "new")
    assert wanted("bench/subscribe") is None
    assert wanted("#") is None


def test_an_unknown_measure_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        bench_device.main(["--measure", "flying"])
    assert caught.value.code == 2
    assert "receive" in capsys.readouterr().err


# Counts what connecting takes, in a client that has its roots.
COUNTING = """
import hashlib
real = hashlib.sha256
done = {"part_sha256": 0, "part_aead_key": 0, "part_aead": 0}
def sha256(data=b""):
    done["part_sha256"] += 1
    return real(data)
hashlib.sha256 = sha256
import peer_site
class Counting(peer_site.Aead):
    def __init__(self, suite, key):
        done["part_aead_key"] += 1
        super().__init__(suite, key)
    def seal_into(self, *args):
        done["part_aead"] += 1
        return super().seal_into(*args)
    def open_into(self, *args):
        done["part_aead"] += 1
        return super().open_into(*args)
    def rekey(self, key):
        self.__init__(1, key)
"""
CONNECTING = """
c.connect()
c.disconnect()
c = Client(sys.argv[1], make=Counting)
for name in done:
    done[name] = 0
c.connect()
c.publish("machine/1/temperature", bytes(64), False, 1)
for name in sorted(done):
    say(name, done[name])
"""


def test_the_parts_of_a_connect_are_as_often_as_the_table_says(tmp_path: Path) -> None:
    with board(tmp_path) as found:
        lines = found.run("cpython", CONNECTING, prelude=COUNTING + PRELUDE)
    told = {line.split()[0]: int(line.split()[1]) for line in lines}
    assert told == {what[0]: times for _, what, times in PARTS["connect"] if what[0] in told}
    assert len(told) == 3
