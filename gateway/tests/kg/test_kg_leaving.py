"""Who leaves a label has no key that is good for what comes (GATEWAY.md G7), in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from kg.helpers import Device, MadeSite, own
from kg.history import within_reach
from sealmq.kg import limits, rows
from sealmq.kg.core import Kg
from sealmq.kg.errors import Bad, Unauthentic, Unknown
from sealmq.kg.store import KgStore
from sealmq_spec.errors import Denied as DeviceDenied
from sealmq_spec.records import get_record

MONITOR = 'monitor = { label = "monitor", kind = "app" }'
PANEL = 'm1-control-panel = { label = "m1-ctrl", kind = "device" }'
M1 = {"m1-ctrl", "m1-temp", "bottom"}
ALL_BUT_TOP = {
    "m1-temp", "m1-ctrl", "m1-arm", "m2-temp", "m2-ctrl", "m2-arm", "ctrl-room-temp", "monitor",
    "bottom",
}  # fmt: skip


def epochs(kg: Kg) -> dict[str, int]:
    return {row["name"]: row["epoch"] for row in kg.labels()}


def risen(kg: Kg, before: dict[str, int]) -> set[str]:
    after = epochs(kg)
    assert all(after[name] - epoch in (0, 1) for name, epoch in before.items())
    return {name for name, epoch in before.items() if after[name] != epoch}


def provisioned(kg: Kg, name: str) -> Device:
    device = Device(kg.enrol(name))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    kg.confirm(device.ident.client, device.ident.gen)
    return device


def seen(kg: Kg, name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(r for r in kg.snapshot()["clients"] if r["name"] == name)
    return row


def records(kg: Kg) -> list[bytes]:
    return [bytes.fromhex(text) for text in kg.snapshot()["records"]]


LEAVE: list[tuple[str, str, str, str, set[str]]] = [
    ("disabled", "monitor", MONITOR, MONITOR[:-2] + ", disabled = true }", ALL_BUT_TOP),
    ("disabled", "m1-control-panel", PANEL, PANEL[:-2] + ", disabled = true }", M1),
    ("disabled", "m1-control-panel", PANEL, PANEL.replace("m1-ctrl", "none"), M1),
    ("removed", "m1-control-panel", PANEL, "", M1),
    ("rotated", "m1-control-panel", PANEL, PANEL[:-2] + ", rotation = 1 }", M1),
    ("relabelled", "m1-control-panel", PANEL, PANEL.replace("m1-ctrl", "m1-temp"), M1),
    ("relabelled", "m1-control-panel", PANEL, PANEL.replace("m1-ctrl", "m2-arm"), M1),
]


@pytest.mark.parametrize(("why", "name", "old", "new", "labels"), LEAVE)
def test_leaving(
    why: str, name: str, old: str, new: str, labels: set[str], site: MadeSite, kg: Kg
) -> None:
    device = provisioned(kg, name)
    stays = provisioned(kg, "m2-arm-operator")
    public = records(kg)
    before, label = epochs(kg), site.config.clients[name].label
    site.edit(old, new)
    done = kg.apply(site.config)
    assert done.left == [(name, label, why)]
    assert risen(kg, before) == labels == {e.label for e in done.epochs}
    assert f"{name} has left label {label}: {why}" in done.words()
    row = seen(kg, name)
    assert row["links"] == []
    assert row["ended"] == device.ident.gen
    assert row["disabled"] == (why in ("disabled", "removed"))
    others = seen(kg, "m2-arm-operator")
    assert (len(others["links"]), others["ended"]) == (1, 0)
    # the old roots of those labels are over at once
    now = {r["name"]: r for r in kg.snapshot()["labels"]}
    for new_epoch in done.epochs:
        told = now[new_epoch.label]
        assert told["previous"]["epoch"] == new_epoch.epoch - 1
        assert told["previous"]["handover_end"] == new_epoch.until
    # with all that it held, all that was public and all that is, it opens none of the new ones
    number = {r["name"]: r["number"] for r in kg.labels()}
    fresh = {(number[e.label], e.epoch) for e in done.epochs}
    site_id = site.config.site.id
    assert not fresh & within_reach(site_id, [own(device)], public + records(kg))
    # while who stays reaches those that are below him, through his own label's new epoch
    stays.accept(kg.answer(stays.ask(), 1)[0].packet)
    mine = site.config.below["m2-arm"] & labels
    reached = within_reach(site_id, [own(stays)], records(kg))
    assert {(number[n], epochs(kg)[n]) for n in mine} <= reached
    assert not kg.apply(site.config).changed


def test_the_search_finds_what_is_within_reach(site: MadeSite, kg: Kg) -> None:
    """Were only the label itself to get a new epoch, the old roots would still open those below."""
    device = provisioned(kg, "m1-control-panel")
    number = {r["name"]: r["number"] for r in kg.labels()}
    kg.rekey(["m1-ctrl"], 0, False)
    reach = within_reach(site.config.site.id, [own(device)], records(kg))
    assert (number["m1-ctrl"], 2) not in reach
    old = within_reach(site.config.site.id, [own(provisioned(kg, "monitor"))], records(kg))
    assert {(number[n], 1) for n in ALL_BUT_TOP} | {(number["m1-ctrl"], 2)} == old


STAY = [
    (PANEL, PANEL.replace("m1-ctrl", "m1-arm")),
    (PANEL, PANEL.replace("m1-ctrl", "top")),
    (PANEL, PANEL.replace("device", "app")),
    ("[topics]", "new = { label = 'm1-ctrl' }\n\n[topics]"),
    ("m1-temp = []", 'm1-temp = ["late"]\nlate = []'),
    ('m1-arm = ["m1-ctrl"]', 'm1-arm = ["m1-ctrl", "m2-temp"]'),
]


@pytest.mark.parametrize(("old", "new"), STAY)
def test_who_joins_or_moves_upwards_rekeys_nothing(
    old: str, new: str, site: MadeSite, kg: Kg
) -> None:
    provisioned(kg, "m1-control-panel")
    before = epochs(kg)
    site.edit(old, new)
    done = kg.apply(site.config)
    assert done.changed
    assert (done.left, done.epochs, risen(kg, before)) == ([], [], set())


def test_enabled_again(site: MadeSite, kg: Kg) -> None:
    device = provisioned(kg, "m1-control-panel")
    disabled = PANEL[:-2] + ", disabled = true }"
    site.edit(PANEL, disabled)
    kg.apply(site.config)
    with pytest.raises(DeviceDenied, match="disabled"):
        device.accept(kg.answer(device.ask(), 1)[0].packet)
    # what becomes of it while it is out is no leaving a second time
    site.edit('label = "m1-ctrl", kind', 'label = "m2-temp", kind')
    before = epochs(kg)
    assert kg.apply(site.config).left == []
    site.edit(
        'label = "m2-temp", kind = "device", disabled = true', 'label = "m1-ctrl", kind = "device"'
    )
    done = kg.apply(site.config)
    assert done.changed
    assert (done.left, risen(kg, before)) == ([], set())
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert own(device).epoch == 2
    assert device.ident.gen > seen(kg, "m1-control-panel")["ended"]


def test_a_rotated_client_needs_its_new_secret(site: MadeSite, kg: Kg) -> None:
    device = provisioned(kg, "m1-control-panel")
    site.edit(PANEL, PANEL[:-2] + ", rotation = 3 }")
    kg.apply(site.config)
    with pytest.raises(Unauthentic):
        kg.answer(device.ask(), 1)
    fresh = Device(kg.enrol("m1-control-panel"))
    assert fresh.ident.ps != device.ident.ps
    fresh.accept(kg.answer(fresh.ask(), 1)[0].packet)
    row = seen(kg, "m1-control-panel")
    assert (row["ended"], fresh.ident.gen) == (1, 2)
    # a sealmq.toml from before the rotation does not bring the old secret back, nor draw another
    site.edit(", rotation = 3", "")
    assert not kg.apply(site.config).changed
    assert kg.enrol("m1-control-panel")["ps"] == fresh.ident.ps.hex()


EDGES: list[tuple[list[tuple[str, str]], set[str]]] = [
    # the chain below goes with it, as far as nothing else leads there
    ([('m1-arm = ["m1-ctrl"]', "m1-arm = []")], {"m1-ctrl", "m1-temp"}),
    ([('m1-arm = ["m1-ctrl"]', 'm1-arm = ["m1-temp"]')], {"m1-ctrl"}),
    # monitor still dominates it on another way
    ([('"m1-arm", "m2-arm"', '"m1-ctrl", "m1-arm", "m2-arm"'),
      ('m1-arm = ["m1-ctrl"]', "m1-arm = []")], {"m1-ctrl", "m1-temp"}),
    ([('"m1-arm", "m2-arm", ', '"m2-arm", ')], {"m1-arm", "m1-ctrl", "m1-temp"}),
    # an edge that says nothing new
    ([("m2-temp = []", 'm2-temp = []\nx = ["m2-ctrl"]\ny = ["x", "m2-ctrl"]')], set()),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "labels"), EDGES)
def test_an_edge_out_of_the_order(
    edits: list[tuple[str, str]], labels: set[str], site: MadeSite, kg: Kg
) -> None:
    upper = [provisioned(kg, name) for name in ("monitor", "m1-arm-operator")]
    public, before = records(kg), epochs(kg)
    for old, new in edits:
        site.edit(old, new)
    done = kg.apply(site.config)
    assert (done.left, risen(kg, before)) == ([], labels)
    number = {r["name"]: r["number"] for r in kg.labels()}
    for device in upper:
        held = next(n for n in number if number[n] == own(device).label)
        roots = [own(device)]
        device.accept(kg.answer(device.ask(), 1)[0].packet)
        roots.append(own(device))
        reach = within_reach(site.config.site.id, roots, public + records(kg))
        for name in labels:
            assert ((number[name], 2) in reach) == site.config.dominates(held, name)
    assert not kg.apply(site.config).changed


def test_an_edge_that_said_nothing_may_go(site: MadeSite, kg: Kg) -> None:
    site.edit('"m1-arm", "m2-arm"', '"m1-arm", "m1-temp", "m2-arm"')
    kg.apply(site.config)
    before = epochs(kg)
    site.edit('"m1-arm", "m1-temp", "m2-arm"', '"m1-arm", "m2-arm"')
    assert kg.apply(site.config).epochs == []
    assert risen(kg, before) == set()


def test_many_at_once_make_one_epoch(site: MadeSite, kg: Kg) -> None:
    before = epochs(kg)
    for old in (MONITOR, PANEL, 'm1-temp-sensor = { label = "m1-temp", kind = "device" }'):
        site.edit(old, old[:-2] + ", disabled = true }")
    site.edit('m2-arm = ["m2-ctrl"]', "m2-arm = []")
    done = kg.apply(site.config)
    assert risen(kg, before) == ALL_BUT_TOP
    assert len(done.left) == 3
    assert len({r["kseq"] for r in [kg.snapshot()]}) == 1


@pytest.mark.parametrize("at", ["first root", "fifth root", "records"])
def test_cut_off_anywhere_it_is_all_or_nothing(
    at: str, site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    provisioned(kg, "monitor")
    before = kg.snapshot()
    site.edit(MONITOR, MONITOR[:-2] + ", disabled = true }")
    real, left = rows.put_records, [4 if at == "fifth root" else 0]

    def cut(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    def fails(*args: Any, **kwargs: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return new_epoch(*args, **kwargs)

    new_epoch = rows.new_epoch
    with monkeypatch.context() as patch:
        if at != "records":
            patch.setattr(rows, "new_epoch", fails)
        else:
            patch.setattr(rows, "put_records", cut)
        with pytest.raises(KeyboardInterrupt):
            kg.apply(site.config)
    kg._whole = None
    assert kg.snapshot() == before
    assert len(seen(kg, "monitor")["links"]) == 1
    assert kg.apply(site.config).left == [("monitor", "monitor", "disabled")]
    assert seen(kg, "monitor")["links"] == []


# --- rekey ----------------------------------------------------------------------------------------


def test_rekey_with_and_without_those_below(kg: Kg) -> None:
    before = epochs(kg)
    done = kg.rekey(["m1-arm", "ctrl-room-temp"], 60, False)
    assert risen(kg, before) == {"m1-arm", "ctrl-room-temp"}
    assert (done.left, done.changed) == ([], True)
    before = epochs(kg)
    done = kg.rekey(["m1-arm"], 60, True)
    assert risen(kg, before) == {"m1-arm", "m1-ctrl", "m1-temp", "bottom"}
    assert {e.label: e.epoch for e in done.epochs} == {
        "m1-arm": 3, "m1-ctrl": 2, "m1-temp": 2, "bottom": 2,
    }  # fmt: skip
    assert len({e.until for e in done.epochs}) == 1
    with pytest.raises(Unknown, match="no label m1-amr") as caught:
        kg.rekey(["m1-temp", "m1-amr"], 60, False)
    assert caught.value.hint == "did you mean m1-arm?"
    with pytest.raises(Bad, match="none has no keys"):
        kg.rekey(["none"], 60, True)


def test_the_limit_of_a_day(
    site: MadeSite, store: KgStore, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ASKED_A_DAY", 3)
    for _ in range(3):
        kg.rekey(["m1-temp"], 0, False)
    before = kg.snapshot()
    with pytest.raises(Bad, match="m1-temp has had 3 new epochs today") as caught:
        kg.rekey(["m1-ctrl", "m1-temp"], 0, False)
    assert caught.value.hint is not None
    assert kg.snapshot() == before
    # who leaves is not kept in by it
    site.edit(PANEL, PANEL[:-2] + ", disabled = true }")
    assert kg.apply(site.config).left
    # nor another label, nor another day
    kg.rekey(["m1-ctrl"], 0, False)
    tomorrow = kg._clock() + 86_400_000
    monkeypatch.setattr(kg, "_clock", lambda: tomorrow)
    for _ in range(3):
        kg.rekey(["m1-temp"], 0, False)
    with pytest.raises(Bad, match="at most 3"):
        kg.rekey(["m1-temp"], 0, False)


def test_the_limit_is_256_and_4096(kg: Kg) -> None:
    assert (limits.ASKED_A_DAY, limits.EPOCHS_A_DAY) == (256, 4096)
    label = rows.LabelRow(16, "x", 1, False, day=3, made=4095)
    assert limits.one_more(label, 3 * 86400, limits.EPOCHS_A_DAY).made == 4096
    with pytest.raises(Bad):
        limits.one_more(limits.one_more(label, 3 * 86400, 4096), 3 * 86400, 4096)
    assert limits.one_more(label, 4 * 86400, 4096).made == 1


def test_the_oldest_epochs_go(
    site: MadeSite, store: KgStore, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEPT", 4)
    number = {r["name"]: r["number"] for r in kg.labels()}["m1-temp"]
    for _ in range(9):
        kg.rekey(["m1-temp"], 0, False)
    with store.transaction() as tx:
        assert [e.epoch for e in rows.epochs(tx)[number]] == [7, 8, 9, 10]
    links = [get_record(p)[3] for p in records(kg) if get_record(p)[2] == get_record(p)[4]]
    assert sorted(links) == [7, 8, 9]
    label = next(r for r in kg.snapshot()["labels"] if r["name"] == "m1-temp")
    assert (label["epoch"], label["previous"]["epoch"]) == (10, 9)
    assert [row[:2] for row in kg.snapshot()["older"]] == [[number, 7], [number, 8]]
    assert not kg.apply(site.config).changed
