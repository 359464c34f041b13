"""Derivation through records: the right roots for every pair of the factory, never upward."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sqlalchemy import Engine, event

from kg.helpers import Device, MadeSite
from sealmq.aead import make
from sealmq.kg import rows
from sealmq.kg.core import Kg
from sealmq.kg.store import KgStore
from sealmq_spec.errors import NoKey, SealError, Unauthentic, WrongEpoch
from sealmq_spec.keys import pad, xor32
from sealmq_spec.reader import Reader
from sealmq_spec.records import Roots, check_manifest, derive, get_manifest, get_record

Labels = dict[str, Roots]


def true_roots(store: KgStore) -> dict[tuple[int, int], Roots]:
    """(label, epoch) -> what the store really holds."""
    out = {}
    with store.transaction() as tx:
        for label in rows.labels(tx).values():
            for e in rows.epochs(tx)[label.number]:
                args = (label.number, e.epoch, label.suite)
                out[label.number, e.epoch] = rows.roots(tx, store.vault, *args)
    return out


def numbers(kg: Kg) -> dict[str, int]:
    return {row["name"]: row["number"] for row in kg.labels()}


def packets(snapshot: dict[str, Any], name: str) -> list[bytes]:
    return [bytes.fromhex(text) for text in snapshot[name]]


def same(a: Roots, b: Roots) -> bool:
    return (a.label, a.epoch, a.suite, a.r, a.r_bar) == (b.label, b.epoch, b.suite, b.r, b.r_bar)


def test_every_pair_and_no_other(site: MadeSite, store: KgStore, kg: Kg) -> None:
    roots, number, config = true_roots(store), numbers(kg), site.config
    by_pair = {}
    for packet in packets(kg.snapshot(), "records"):
        _, _, n, e_n, top, e_top, _, _ = get_record(packet)
        assert (top, n) not in by_pair
        assert e_n == e_top == 1
        by_pair[top, n] = packet
    names = [*config.labels, "bottom", "top"]
    assert len(names) == 10
    for high, low in itertools.product(names, repeat=2):
        pair = number[high], number[low]
        strictly = high != low and config.dominates(high, low)
        assert (pair in by_pair) == strictly, (high, low)
        if strictly:
            got = derive(make, site.config.site.id, roots[pair[0], 1], by_pair[pair])
            assert same(got, roots[pair[1], 1])
    # 13 within the factory, top over 8 and bottom, 8 over bottom
    assert len(by_pair) == 13 + 9 + 8


def test_roots_are_all_different_and_32_bytes(store: KgStore) -> None:
    values = [v for own in true_roots(store).values() for v in (own.r, own.r_bar)]
    assert len(set(values)) == len(values) == 20
    assert {len(v) for v in values} == {32}


def test_no_path_leads_up(site: MadeSite, store: KgStore, kg: Kg) -> None:
    """From each label, records reach exactly what it dominates, however they are combined."""
    number, config = numbers(kg), site.config
    edges: dict[int, set[int]] = {}
    for packet in packets(kg.snapshot(), "records"):
        _, _, n, _, top, _, _, _ = get_record(packet)
        edges.setdefault(top, set()).add(n)
    for name in [*config.labels, "bottom", "top"]:
        reached, todo = set(), [number[name]]
        while todo:
            at = todo.pop()
            if at not in reached:
                reached.add(at)
                todo += edges.get(at, ())
        wanted = {number[low] for low in number if config.dominates(name, low)}
        assert reached == wanted, name


def test_a_record_opens_nothing_in_other_hands(site: MadeSite, store: KgStore, kg: Kg) -> None:
    """Claim 2: whoever lacks the source's roots, the target's holder included, derives nothing."""
    roots, number, name = true_roots(store), numbers(kg), site.config.site.id
    monitor, temp = roots[number["monitor"], 1], roots[number["m1-temp"], 1]
    all_records = packets(kg.snapshot(), "records")
    for packet in all_records:
        _, _, n, _, top, _, _, _ = get_record(packet)
        for own in roots.values():
            if own.label == top:
                continue
            with pytest.raises(NoKey):
                derive(make, name, own, packet)
            # ... and with the number forged, so that only the key speaks
            with pytest.raises(Unauthentic):
                derive(make, name, Roots(top, 1, own.suite, own.r, own.r_bar), packet)
        if (top, n) == (monitor.label, temp.label):
            # the holder of n knows the pad, and it is no key of the source
            known = xor32(packet[30:62], temp.r)
            assert known == pad(name, 0, n, 1, packet[14:22], monitor.r)
            assert known not in {v for own in roots.values() for v in (own.r, own.r_bar)}


def test_kids_are_drawn_for_each_record(kg: Kg) -> None:
    kids = [p[i : i + 8] for p in packets(kg.snapshot(), "records") for i in (14, 22)]
    assert len(set(kids)) == len(kids) == 60


def test_manifests_verify_under_their_own_label_only(
    site: MadeSite, store: KgStore, kg: Kg
) -> None:
    roots, name = true_roots(store), site.config.site.id
    found = set()
    for packet in packets(kg.snapshot(), "manifests"):
        _, label, epoch, _, end = get_manifest(packet)
        check_manifest(make, name, roots[label, epoch], packet)
        assert end == 0
        found.add(label)
        for i in range(len(packet)):
            changed = bytearray(packet)
            changed[i] ^= 1
            with pytest.raises(SealError):
                check_manifest(make, name, roots[label, epoch], bytes(changed))
    assert found == {label for label, _ in roots}


def provisioned(kg: Kg, client: str) -> Device:
    device = Device(kg.enrol(client))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    return device


def test_a_provisioned_reader_takes_its_records_and_manifest(
    site: MadeSite, store: KgStore, kg: Kg
) -> None:
    device = provisioned(kg, "m1-arm-operator")
    reader = Reader(device.ident, make)
    number, roots = numbers(kg), true_roots(store)
    mine = number["m1-arm"]
    whole = kg.snapshot()
    taken = 0
    for packet in packets(whole, "records"):
        if get_record(packet)[4] == mine:
            assert reader.add_record(packet)
            taken += 1
    assert taken == 3  # m1-ctrl, m1-temp, bottom
    for name in ("m1-arm", "m1-ctrl", "m1-temp", "bottom"):
        assert same(reader._roots[number[name], 1], roots[number[name], 1])
    for packet in packets(whole, "manifests"):
        if get_manifest(packet)[1] in (mine, number["m1-temp"]):
            reader.add_manifest(packet)


def test_records_of_one_epoch_have_one_kseq(site: MadeSite, kg: Kg) -> None:
    """A client that has seen one of them must not take another for older (SPEC.md 8)."""
    site.edit("m2-temp = []", 'm2-temp = []\nlate = ["m1-temp"]')
    kg.apply(site.config)
    kg.rekey(["m1-temp"], 60, False)
    site.edit("m2-temp = []", 'm2-temp = []\nlater = ["m1-temp"]')
    kg.apply(site.config)
    whole = kg.snapshot()
    seen: dict[tuple[int, int], set[int]] = {}
    for packet in packets(whole, "records"):
        _, _, n, e_n, top, _, kseq, _ = get_record(packet)
        if n != top:
            seen.setdefault((n, e_n), set()).add(kseq)
    for packet in packets(whole, "manifests"):
        _, label, epoch, kseq, _ = get_manifest(packet)
        seen.setdefault((label, epoch), set()).add(kseq)
    assert {len(kseqs) for kseqs in seen.values()} == {1}
    assert len({kseq for kseqs in seen.values() for kseq in kseqs}) == 4


def test_suites_stand_in_records(site: MadeSite, store: KgStore, kg: Kg) -> None:
    site.edit("m2-temp = []", 'm2-temp = []\nfast = { over = ["m1-temp"], suite = "chacha" }')
    kg.apply(site.config)
    number, roots = numbers(kg), true_roots(store)
    pairs = {(get_record(p)[4], get_record(p)[2]): p for p in packets(kg.snapshot(), "records")}
    for high, low, suites in [("fast", "m1-temp", (2, 1)), ("top", "fast", (1, 2))]:
        packet = pairs[number[high], number[low]]
        assert get_record(packet)[:2] == suites
        got = derive(make, site.config.site.id, roots[number[high], 1], packet)
        assert same(got, roots[number[low], 1])


def test_a_new_epoch(site: MadeSite, store: KgStore, kg: Kg) -> None:
    before = kg.snapshot()
    old = true_roots(store)
    device = provisioned(kg, "m1-control-panel")
    reader = Reader(device.ident, make)
    number = numbers(kg)
    temp, ctrl = number["m1-temp"], number["m1-ctrl"]
    for packet in packets(kg.snapshot(), "records"):
        if get_record(packet)[4] == ctrl:
            reader.add_record(packet)
    kg.rekey(["m1-temp"], 600, False)
    after, roots = kg.snapshot(), true_roots(store)
    assert after["kseq"] > before["kseq"]
    assert roots[temp, 2].r != old[temp, 1].r
    assert roots[temp, 2].r_bar != old[temp, 1].r_bar
    label = next(row for row in after["labels"] if row["number"] == temp)
    was = next(row for row in before["labels"] if row["number"] == temp)
    assert label["epoch"] == 2
    assert label["previous"]["epoch"] == 1
    assert label["previous"]["ek"] == was["ek"] != label["ek"]
    new = {(get_record(p)[4], get_record(p)[2]): p for p in packets(after, "records")}
    assert get_record(new[ctrl, temp])[3] == 2
    assert get_record(new[ctrl, temp])[7] == label["previous"]["handover_end"]
    # the pads are new everywhere, and records that are not concerned stay as they were
    assert set(packets(before, "records")) & set(packets(after, "records")) == {
        p for p in packets(before, "records") if temp not in (get_record(p)[2], get_record(p)[4])
    }
    assert reader.add_record(new[ctrl, temp])
    assert same(reader._roots[temp, 2], roots[temp, 2])
    with pytest.raises(WrongEpoch):
        reader.add_record(
            next(p for p in packets(before, "records") if get_record(p)[4:6] == (ctrl, 1)
                 and get_record(p)[2] == temp)
        )  # fmt: skip
    assert after["older"] == []
    kg.rekey(["m1-temp"], 600, False)
    assert kg.snapshot()["older"] == [[temp, 1, was["ek"]]]
    # a back-link from the new epoch opens the old one
    link = new[temp, temp]
    assert get_record(link)[3] == 1
    assert same(derive(make, site.config.site.id, roots[temp, 2], link), old[temp, 1])


def test_the_old_epochs_holder_gets_nothing_new(site: MadeSite, store: KgStore, kg: Kg) -> None:
    """Claim 1, and what the paper's own formula gives away.

    The paper pads with H(n, k_l), which stays as it is while k_l lives (section 4.5): who held the
    old k_n takes the pad off the old z and the new k_n out of the new z. Here the pad has an epoch
    and a kid, so the pad that the old keys reveal is not the new record's.
    """
    number, old = numbers(kg), true_roots(store)
    temp, monitor = number["m1-temp"], number["monitor"]

    def z(snapshot: dict[str, Any]) -> tuple[bytes, bytes]:
        for p in packets(snapshot, "records"):
            if (get_record(p)[4], get_record(p)[2]) == (monitor, temp):
                return p[30:62], p[62:94]
        raise AssertionError("no record")

    before = z(kg.snapshot())
    kg.rekey(["m1-temp"], 0, False)
    after, new = z(kg.snapshot()), true_roots(store)[temp, 2]
    revoked = old[temp, 1]
    # ours
    assert xor32(xor32(before[0], after[0]), revoked.r) != new.r
    assert xor32(xor32(before[1], after[1]), revoked.r_bar) != new.r_bar
    # the paper's, with the very same keys
    k_l = old[monitor, 1].r
    constant = pad(site.config.site.id, 0, temp, 0, bytes(8), k_l)
    z_old, z_new = xor32(revoked.r, constant), xor32(new.r, constant)
    assert xor32(xor32(z_old, z_new), revoked.r) == new.r


def test_a_new_epoch_of_many_labels_reads_each_labels_secrets_in_one_statement(
    site: MadeSite, kg: Kg
) -> None:
    """To make a statement costs ten times what opening a secret does."""
    chain = "".join(f'x{n} = ["x{n - 1}"]\n' if n else "x0 = []\n" for n in range(12))
    site.edit("[labels]\n", "[labels]\n" + chain)
    kg.apply(site.config)
    for _ in range(3):
        kg.rekey(["x11"], 0, below=False)
    asked = list[str]()

    def before(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "epochs.secret" in statement and statement.startswith("SELECT"):
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", before)
    try:
        kg.rekey(["x11"], 0, below=True)
    finally:
        event.remove(Engine, "before_cursor_execute", before)
    assert 0 < len(asked) <= len(kg.labels())
