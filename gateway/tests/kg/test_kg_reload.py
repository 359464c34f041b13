"""From sealmq.toml to keys: the difference is made, once, and a cut-off run is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kg.helpers import Device, MadeSite, own
from sealmq.kg.core import Kg
from sealmq.kg.errors import Bad, Unknown
from sealmq.kg.store import KgStore
from sealmq_spec import records
from sealmq_spec.records import get_record


def row(kg: Kg, name: str) -> dict[str, Any]:
    return next(r for r in kg.clients() if r["name"] == name)


def provision(kg: Kg, name: str) -> Device:
    device = Device(kg.enrol(name))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    kg.confirm(device.ident.client, device.ident.gen)
    return device


def test_the_same_again_changes_nothing(site: MadeSite, kg: Kg) -> None:
    before = kg.snapshot()
    done = kg.apply(site.config)
    assert not done.changed
    assert done.kseq == before["kseq"]
    assert kg.snapshot() == before


def test_what_a_mediator_gets_is_no_root(site: MadeSite, store: KgStore, kg: Kg) -> None:
    provision(kg, "monitor")
    snapshot = kg.snapshot()
    assert set(snapshot) == {
        "site",
        "kseq",
        "labels",
        "older",
        "order",
        "clients",
        "records",
        "manifests",
        "grants",
        "older_grants",
        "holders",
        "told",
        "policy",
        "closed",
    }
    assert {frozenset(r) for r in snapshot["labels"]} == {
        frozenset(("number", "name", "suite", "epoch", "ek", "previous"))
    }
    client = snapshot["clients"][7]
    assert client["name"] == "monitor"
    assert [set(link) for link in client["links"]] == [{"gen", "epoch", "km", "pending"}]
    enrolled = kg.enrol("monitor")["ps"]
    assert enrolled not in str(snapshot)
    names = {r["number"]: r["name"] for r in snapshot["labels"]}
    assert {(names[h], names[n]) for h, n in snapshot["order"]} == set(site.config.strict_pairs())


def test_new_labels_and_clients(site: MadeSite, kg: Kg) -> None:
    before = kg.snapshot()
    numbers = {r["name"]: r["number"] for r in kg.labels()}
    site.edit('m1-arm = ["m1-ctrl"]', 'm1-arm = ["m1-ctrl", "grip"]\ngrip = []')
    site.edit("[topics]", 'gripper = { label = "grip" }\n\n[topics]')
    done = kg.apply(site.config)
    assert done.changed
    assert done.kseq > before["kseq"]
    assert done.notes == []
    assert {r["name"]: r["number"] for r in kg.labels()} == numbers | {"grip": 24}
    assert row(kg, "gripper")["number"] == 9
    new = set(kg.snapshot()["records"]) - set(before["records"])
    assert set(before["records"]) < set(kg.snapshot()["records"])
    assert len(new) == 4  # m1-arm, monitor, top over grip; grip over bottom
    assert Device(kg.enrol("gripper")).ident.client == 9


def test_a_relabelled_client_gets_its_new_roots_by_provisioning(site: MadeSite, kg: Kg) -> None:
    device = provision(kg, "m1-control-panel")
    old, kseq, gen = own(device), device.ident.kseq, device.ident.gen
    site.edit('m1-control-panel = { label = "m1-ctrl"', 'm1-control-panel = { label = "m1-arm"')
    done = kg.apply(site.config)
    assert done.kseq > kseq
    assert done.notes == []  # upward: it loses nothing
    client = next(c for c in kg.snapshot()["clients"] if c["name"] == "m1-control-panel")
    assert client["links"] == []
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert own(device).label != old.label
    assert device.ident.gen > gen
    assert device.ident.kseq > kseq


def test_an_edge_that_is_gone_has_no_record(site: MadeSite, kg: Kg) -> None:
    site.edit('m1-arm = ["m1-ctrl"]', "m1-arm = []")
    kg.apply(site.config)
    numbers = {r["name"]: r["number"] for r in kg.labels()}
    published = {get_record(bytes.fromhex(p))[4:1:-2] for p in kg.snapshot()["records"]}
    assert (numbers["m1-arm"], numbers["m1-ctrl"]) not in published
    assert (numbers["m1-arm"], numbers["m1-temp"]) not in published
    assert (numbers["monitor"], numbers["m1-arm"]) in published
    # 30 without these four, and back-links of what got a new epoch
    assert len({pair for pair in published if pair[0] != pair[1]}) == 30 - 4


def test_a_removed_client_is_disabled_and_comes_back_as_another(site: MadeSite, kg: Kg) -> None:
    device = provision(kg, "monitor")
    line = 'monitor = { label = "monitor", kind = "app" }\n'
    site.edit(line, "")
    done = kg.apply(site.config)
    assert done.changed
    gone = row(kg, "monitor")
    assert gone["removed"]
    assert gone["disabled"]
    assert gone["gen"] == 0
    with pytest.raises(Unknown, match="no client monitor"):
        kg.enrol("monitor")
    with pytest.raises(Unknown):
        kg.lend("monitor")
    seen = next(c for c in kg.snapshot()["clients"] if c["name"] == "monitor")
    assert seen["disabled"]
    assert seen["links"] == []
    site.edit("[topics]", line + "\n[topics]")
    kg.apply(site.config)
    again = row(kg, "monitor")
    assert again["number"] == gone["number"]
    assert not again["removed"]
    enrolment = kg.enrol("monitor")
    assert enrolment["ps"] != device.ident.ps.hex()
    fresh = provision(kg, "monitor")
    assert fresh.ident.gen > device.ident.gen


def test_a_removed_label_keeps_its_number(site: MadeSite, kg: Kg) -> None:
    before = {r["name"]: r for r in kg.labels()}
    text = site.layout.config.read_text()
    for old, new in [
        ("m2-arm-operator = ", "# "), ('m2-arm = ["m2-ctrl"]\n', ""), ('"m2-arm", ', '"m2-ctrl", '),
    ]:  # fmt: skip
        site.edit(old, new)
    kg.apply(site.config)
    gone = {r["name"]: r for r in kg.labels()}["m2-arm"]
    assert gone == before["m2-arm"] | {"removed": True}
    snapshot = kg.snapshot()
    assert gone["number"] not in {r["number"] for r in snapshot["labels"]}
    assert all(gone["number"] not in pair for pair in snapshot["order"])
    site.layout.config.write_text(text)
    kg.apply(site.config)
    back = {r["name"]: r for r in kg.labels()}
    assert {n: r["number"] for n, r in back.items()} == {n: r["number"] for n, r in before.items()}
    assert not back["m2-arm"]["removed"]
    # whoever knew its roots when it went has not been looked after since
    assert back["m2-arm"]["epoch"] == before["m2-arm"]["epoch"] + 1


def test_label_none_disables(site: MadeSite, kg: Kg) -> None:
    provision(kg, "monitor")
    site.edit('monitor = { label = "monitor", kind', 'monitor = { label = "none", kind')
    kg.apply(site.config)
    seen = next(c for c in kg.snapshot()["clients"] if c["name"] == "monitor")
    assert (seen["label"], seen["disabled"], seen["links"]) == (0, True, [])
    assert row(kg, "monitor")["label"] == "none"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("m1-temp = []", 'm1-temp = { over = [], suite = "chacha" }', "label m1-temp: its keys"),
        ('monitor = { label = "monitor"', 'monitor = { suite = "chacha", label = "monitor"',
         "client monitor: its keys"),
    ],
)  # fmt: skip
def test_another_suite_is_refused(old: str, new: str, what: str, site: MadeSite, kg: Kg) -> None:
    before = kg.snapshot()
    site.edit("[topics]", 'another = { label = "bottom" }\n\n[topics]')
    site.edit(old, new)
    with pytest.raises(Bad, match=what) as caught:
        kg.apply(site.config)
    assert caught.value.hint is not None
    assert kg.snapshot() == before
    assert {r["name"] for r in kg.clients()} == {c["name"] for c in before["clients"]}


def test_another_site_is_refused(site: MadeSite, kg: Kg) -> None:
    site.edit(site.config.site.id.hex(), "00000000")
    with pytest.raises(Bad, match="says site 00000000"):
        kg.apply(site.config)


def test_cut_off_in_the_middle_the_next_run_repairs(
    site: MadeSite, store: KgStore, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kg.snapshot()
    site.edit('m1-arm = ["m1-ctrl"]', 'm1-arm = ["m1-ctrl", "grip"]\ngrip = []')
    real = records.make_record
    left: Iterator[int] = iter(range(3))

    def fails(*args: Any) -> bytes:
        next(left)
        return bytes(real(*args))

    monkeypatch.setattr("sealmq.kg.publish.make_record", fails)
    with pytest.raises(StopIteration):
        kg.apply(site.config)
    monkeypatch.undo()
    assert kg.snapshot() == before
    assert kg.apply(site.config).changed
    assert len(kg.snapshot()["records"]) == len(before["records"]) + 4


def test_the_kept_snapshot_is_what_a_new_one_would_be(site: MadeSite, kg: Kg) -> None:
    def check() -> None:
        kept = kg.snapshot()
        kg._whole = None
        assert kept == kg.snapshot()

    kg.snapshot()
    device = Device(kg.enrol("monitor"))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    check()
    kg.confirm(device.ident.client, 1)
    check()
    kg.answer(device.ask(), 1)
    check()
    kg.lend("m1-temp-sensor")
    check()
    kg.rekey(["m1-temp"], 60, False)
    check()
    site.edit('monitor = { label = "monitor"', 'monitor = { rotation = 1, label = "monitor"')
    kg.apply(site.config)
    check()


def test_a_large_order_comes_in_pieces(site: MadeSite, kg: Kg, tmp_path: Path) -> None:
    chain = "\n".join(f'c{i} = ["c{i - 1}"]' for i in range(1, 110))
    site.edit("m2-temp = []", f"m2-temp = []\nc0 = []\n{chain}")
    kg.apply(site.config)
    whole: dict[str, list[Any]] = {}
    at, pieces = 0, 0
    while True:
        piece = kg.snapshot(at, None)
        pieces += 1
        for name, part in piece.items():
            whole.setdefault(name, []).extend(part if isinstance(part, list) else [part])
        if "next" not in piece:
            break
        at = piece["next"]
    labels, order, found = whole["labels"], whole["order"], whole["records"]
    assert len(labels) == 120
    # a chain of 110, top above and bottom below it, beside the factory's 30
    assert len(order) == len(found) == 110 * 109 // 2 + 2 * 110 + 30
    assert len({tuple(pair) for pair in order}) == len(order)
    assert len(set(found)) == len(found)
    assert len(whole["manifests"]) == 120
    assert pieces == 1 + (120 + 8 + 120 + 2 * len(order) - 1) // 5000
