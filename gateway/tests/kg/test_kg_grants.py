"""Grants of policy families at the key generator: numbers, epochs and keys, and who holds them
(GATEWAY.md G7). The allowlist's groups ask for them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kg.helpers import Device, MadeSite
from kg.test_kg_migrate import to_version_1
from kg.test_kg_store import scan
from sealmq.backup.make import backup
from sealmq.backup.restore import restore
from sealmq.families.allowlist import kg_part
from sealmq.kg import lift, limits, rows, whole
from sealmq.kg.core import Kg
from sealmq.kg.errors import Bad, StoreBroken
from sealmq.kg.lift import Issued
from sealmq.kg.store import KgStore
from sealmq_spec.const import U24

ORDER = 'order = ["labels"]\n'
WITH = 'order = ["labels", "allowlist"]\n'
ITS = 'monitor = { label = "monitor"'
SENSOR, PANEL, MONITOR = "m1-temp-sensor", "m1-control-panel", "monitor"


def rule(*clients: str, name: str = "shift", sealed: str = "a/#") -> str:
    """A rule about these, whose group has this name."""
    listed = ", ".join(f'"{client}"' for client in clients)
    who = f"clients = [{listed}]\n" if clients else ""
    return f'[[families.allowlist.rule]]\n{who}sealed = ["{sealed}"]\nsealed_for = "{name}"\n'


@pytest.fixture
def plain(site: MadeSite) -> str:
    """sealmq.toml with the family in its order, and no rule."""
    site.edit(ORDER, WITH)
    return site.layout.config.read_text()


def ruled(site: MadeSite, plain: str, *rules: str) -> None:
    site.layout.config.write_text(plain + "\n" + "".join(rules))


def found(kg: Kg) -> dict[str, tuple[int, int, str, set[str]]]:
    """Of the snapshot, by group: number, epoch, G, names of who holds it."""
    whole = kg.snapshot()
    names = {row["number"]: row["name"] for row in whole["clients"]}
    out = {}
    for row in whole["grants"]:
        assert (row["family"], row["suite"], len(row["g"])) == ("allowlist", 1, 64)
        who = {names[client] for number, client in whole["holders"] if number == row["number"]}
        out[row["name"]] = row["number"], row["epoch"], row["g"], who
    return out


def test_a_group_gets_a_number_and_a_key_and_the_same_again_changes_nothing(
    site: MadeSite, kg: Kg, plain: str
) -> None:
    ruled(site, plain, rule(PANEL, MONITOR), rule(SENSOR, name="other"))
    before = kg.kseq()
    assert kg.apply(site.config).kseq > before
    made = found(kg)
    assert {name: row[:2] for name, row in made.items()} == {"shift": (1, 1), "other": (2, 1)}
    assert made["shift"][3] == {PANEL, MONITOR}
    assert made["shift"][2] != made["other"][2]
    again = kg.apply(site.config)
    assert not again.changed
    assert found(kg) == made


def test_a_snapshot_says_for_which_policy_it_was_made(site: MadeSite, kg: Kg, plain: str) -> None:
    """Also where no key changes: a mediator waits for it."""
    for text in (rule(PANEL), rule(PANEL) + "# a comment\n"):
        ruled(site, plain, text)
        before = kg.kseq()
        kg.apply(site.config)
        assert kg.kseq() > before
        assert kg.snapshot()["policy"] == site.config.digest


def test_who_joins_is_told_the_key_that_there_is(site: MadeSite, kg: Kg, plain: str) -> None:
    ruled(site, plain, rule(PANEL))
    kg.apply(site.config)
    before = found(kg)["shift"]
    ruled(site, plain, rule(PANEL, MONITOR))
    done = kg.apply(site.config)
    assert done.changed
    assert found(kg)["shift"] == (*before[:3], {PANEL, MONITOR})
    assert not [note for note in done.notes if "shift" in note]


@pytest.mark.parametrize(
    ("old", "new", "holds"),
    [
        (f', "{MONITOR}"', f', "{SENSOR}"', {PANEL, SENSOR}),  # taken out of the rule
        (f', "{MONITOR}"', "", {PANEL}),
        (
            'monitor = { label = "monitor"',
            'monitor = { disabled = true, label = "monitor"',
            {PANEL},
        ),
        ('monitor = { label = "monitor"', 'monitor = { label = "none"', {PANEL}),
        # Somebody may have the old secret, and with it what was told under it.
        (ITS, ITS.replace("{", "{ rotation = 1,"), {PANEL, MONITOR}),
    ],
    ids=["replaced", "taken out", "disabled", "at no label", "rotated"],
)
def test_when_somebody_must_not_have_it_any_more_it_gets_a_new_key(
    old: str, new: str, holds: set[str], site: MadeSite, kg: Kg, plain: str
) -> None:
    ruled(site, plain, rule(PANEL, MONITOR), rule(PANEL, name="other"))
    kg.apply(site.config)
    before = found(kg)
    site.edit(old, new)
    done = kg.apply(site.config)
    number, epoch, g, who = found(kg)["shift"]
    assert (number, epoch, who) == (before["shift"][0], 2, holds)
    assert g != before["shift"][2]
    assert found(kg)["other"] == before["other"], "nobody left that one"
    assert f"allowlist: shift has a new key, since {MONITOR} must not have it" in done.words()


def test_who_is_removed_leaves_and_who_changes_label_and_kind_is_judged_anew(
    site: MadeSite, kg: Kg, plain: str
) -> None:
    text = '[[families.allowlist.rule]]\nlabels = ["m1-ctrl"]\nkinds = ["app"]\n'
    ruled(site, plain, text + 'sealed = ["a"]\nsealed_for = "shift"\n')
    kg.apply(site.config)
    assert found(kg)["shift"][1::2] == (1, {PANEL, MONITOR})
    site.edit('monitor = { label = "monitor", kind = "app" }\n', "")
    kg.apply(site.config)
    assert found(kg)["shift"][1::2] == (2, {PANEL})
    site.edit('m1-control-panel = { label = "m1-ctrl"', 'm1-control-panel = { label = "m1-temp"')
    kg.apply(site.config)
    assert found(kg)["shift"][1::2] == (3, set())


def test_who_is_put_out_at_once_leaves(site: MadeSite, kg: Kg, plain: str) -> None:
    ruled(site, plain, rule(PANEL, MONITOR))
    kg.apply(site.config)
    before = found(kg)["shift"]
    kg.hold(MONITOR, True)
    after = found(kg)["shift"]
    assert after[1::2] == (2, {PANEL})
    assert after[2] != before[2]


def test_a_group_that_was_gone_has_another_number(
    site: MadeSite, store: KgStore, kg: Kg, plain: str
) -> None:
    seen = set()
    for number in range(1, 4):
        ruled(site, plain, rule(PANEL))
        kg.apply(site.config)
        shift = found(kg)["shift"]
        assert shift[:2] == (number, 1)
        seen.add(shift[2])
        ruled(site, plain)
        kg.apply(site.config)
        assert found(kg) == {}
    assert len(seen) == 3
    with store.transaction() as tx:
        assert rows.holders(tx) == {}
    site.layout.config.write_text(plain.replace(WITH, ORDER))
    kg.apply(site.config)


def test_after_its_last_epoch_it_gets_another_number(
    site: MadeSite, store: KgStore, kg: Kg, plain: str
) -> None:
    ruled(site, plain, rule(PANEL, MONITOR))
    kg.apply(site.config)
    with store.transaction() as tx:
        row = rows.grants(tx)["allowlist", "shift"]
        rows.new_g(tx, store.vault, rows.GrantRow(row.number, row.family, row.name, U24))
    site.edit(f', "{MONITOR}"', "")
    kg.apply(site.config)
    assert found(kg)["shift"][:2] == (2, 1)
    assert found(kg)["shift"][3] == {PANEL}


def test_what_the_doctor_puts_in_and_takes_out_gives_no_new_key(
    site: MadeSite, kg: Kg, plain: str
) -> None:
    """Nobody but the operator's own command has their keys (site/canary.py)."""
    low = '[[families.allowlist.rule]]\nsealed = ["a"]\nsealed_for = "all"\n'
    ruled(site, plain, low)
    kg.apply(site.config)
    before = found(kg)["all"]
    text = site.layout.config.read_text()
    site.edit("[labels]\n", "[labels]\nsealmq-doctor-low = []\n")
    site.edit("[clients]\n", '[clients]\nsealmq-doctor-writer = { label = "sealmq-doctor-low" }\n')
    kg.apply(site.config)
    assert found(kg)["all"][3] - before[3] == {"sealmq-doctor-writer"}
    site.layout.config.write_text(text)
    kg.apply(site.config)
    assert found(kg)["all"] == before


@pytest.mark.parametrize(
    ("wants", "what"),
    [
        ({"x": ["nobody"]}, "for 'nobody', who is no client"),
        ({"": [MONITOR]}, "with such a name"),
        ({"x" * 65: []}, "with such a name"),
        ({str(n): [] for n in range(9)}, "9 grants, and 8 are the most"),
    ],
)
def test_what_a_family_wants_that_cannot_be_changes_nothing(
    wants: dict[str, Any], what: str, site: MadeSite, kg: Kg, plain: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ruled(site, plain, rule(PANEL))
    kg.apply(site.config)
    before = kg.snapshot()
    monkeypatch.setattr(kg_part, "grants", lambda config: wants)
    monkeypatch.setattr("sealmq.kg.limits.GRANTS", 8)
    with pytest.raises(Bad, match=what) as caught:
        kg.apply(site.config)
    assert caught.value.hint
    assert kg.snapshot() == before


def test_no_key_stands_readable_in_a_file_a_text_or_a_log(
    site: MadeSite, store: KgStore, kg: Kg, plain: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ruled(site, plain, rule(PANEL, MONITOR))
    kg.apply(site.config)
    first = found(kg)["shift"][2]
    site.edit(f', "{MONITOR}"', "")
    done = kg.apply(site.config)
    secrets = {"before": bytes.fromhex(first), "now": bytes.fromhex(found(kg)["shift"][2])}
    assert scan(site.layout.root, secrets) == []
    said = repr((done, done.words(), caplog.text))
    assert not [g for g in secrets.values() if g.hex() in said or repr(g)[2:-1] in said]
    with sqlite3.connect(site.layout.kg_db) as db:
        db.execute("UPDATE grants SET epoch = 1")
    db.close()
    with pytest.raises(StoreBroken, match=r"grants\.secret of \(1, 1\) does not open"):
        Kg(store, site.config).snapshot()


def test_a_store_of_an_older_version_opens_and_gets_its_groups(
    site: MadeSite, store: KgStore, key: bytes, plain: str
) -> None:
    store.close()
    to_version_1(site.layout.kg_db)
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg = Kg(store, site.config)
    ruled(site, plain, rule(PANEL))
    kg.apply(site.config)
    assert found(kg)["shift"][:2] == (1, 1)
    store.close()


# --- restore --------------------------------------------------------------------------------------


def test_after_a_restore_no_number_and_no_key_comes_again(
    site: MadeSite, store: KgStore, kg: Kg, key: bytes, plain: str, tmp_path: Path
) -> None:
    """Of an old backup, twice, the second time with a store of the first that is past reading; who
    left since the backup holds nothing.
    """
    number = site.config.site.id
    ruled(site, plain, rule(PANEL, MONITOR), rule(SENSOR, name="other"))
    kg.apply(site.config)
    keys = {row[2] for row in found(kg).values()}
    numbers = {row[0] for row in found(kg).values()}
    backup(site.layout, number, site.key_file, tmp_path / "old")
    for n in range(5):
        ruled(site, plain, rule(PANEL), rule(SENSOR, name=f"later-{n}"))
        kg.apply(site.config)
        keys |= {row[2] for row in found(kg).values()}
        numbers |= {row[0] for row in found(kg).values()}
    store.close()
    for torn in (False, True):
        if torn:
            site.layout.kg_db.write_bytes(b"torn")
        restore(site.layout, tmp_path / "old")
        store = KgStore.open(site.layout.kg_db, key, number)
        kg = Kg(store, site.config)
        kg.apply(site.config)
        now = found(kg)
        assert {name: row[3] for name, row in now.items()} == {
            "shift": {PANEL},
            "later-4": {SENSOR},
        }
        assert numbers.isdisjoint(row[0] for row in now.values())
        assert keys.isdisjoint(row[2] for row in now.values())
        assert min(row[0] for row in now.values()) > 65_536
        numbers |= {row[0] for row in now.values()}
        keys |= {row[2] for row in now.values()}
        store.close()


# --- grants that no client holds: what lies at the broker under one ---


def own(monkeypatch: pytest.MonkeyPatch, *names: str, holders: tuple[str, ...] = ()) -> None:
    """The family wants these, of the mediators' own or for these clients."""
    monkeypatch.setattr(kg_part, "grants", lambda config: dict.fromkeys(names, holders))


def older(kg: Kg) -> dict[int, tuple[str, int, str]]:
    """By number, of those that are over: name, epoch, G."""
    rows = kg.snapshot()["older_grants"]
    return {row["number"]: (row["name"], row["epoch"], row["g"]) for row in rows}


def again(site: MadeSite, kg: Kg, n: int) -> None:
    """Another policy, so that the grants are looked at."""
    ruled(site, site.layout.config.read_text(), f"# {n}\n")
    kg.apply(site.config)


def test_a_grant_that_nobody_holds_is_made_and_its_key_kept_when_it_is_over(
    site: MadeSite, kg: Kg, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(monkeypatch, "mediators")
    again(site, kg, 1)
    number, epoch, g, who = found(kg)["mediators"]
    assert (number, epoch, who) == (1, 1, set())
    again(site, kg, 2)
    assert (found(kg)["mediators"][0], older(kg)) == (1, {}), "the same goes on"
    own(monkeypatch)
    again(site, kg, 3)
    assert (found(kg), older(kg)) == ({}, {1: ("mediators", 1, g)})
    own(monkeypatch, "mediators")
    again(site, kg, 4)
    number, _, fresh, _ = found(kg)["mediators"]
    assert number == 2
    assert fresh != g
    assert older(kg) == {1: ("mediators", 1, g)}


def test_of_a_grant_that_a_client_held_no_older_key_is_kept(
    site: MadeSite, kg: Kg, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holders open what is sealed under that, and no broker's copy may lie there."""
    own(monkeypatch, "mediators")
    again(site, kg, 1)
    own(monkeypatch, "mediators", holders=(PANEL,))
    again(site, kg, 2)
    own(monkeypatch, "mediators")
    again(site, kg, 3)
    assert (found(kg)["mediators"][1], older(kg)) == (2, {})
    own(monkeypatch, "mediators", holders=(PANEL,))
    again(site, kg, 4)
    own(monkeypatch)
    again(site, kg, 5)
    assert older(kg) == {}


def test_the_newest_older_keys_are_kept_and_no_more(
    site: MadeSite, kg: Kg, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OLDER_GRANTS", 3)
    for n in range(5):
        own(monkeypatch, f"own-{n}")
        again(site, kg, n)
    assert sorted(older(kg)) == [2, 3, 4]


def test_after_a_restore_what_lay_under_such_a_grant_is_still_read_and_nothing_sealed_under_it(
    site: MadeSite, store: KgStore, kg: Kg, key: bytes, plain: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    number = site.config.site.id
    own(monkeypatch, "mediators")
    again(site, kg, 1)
    _, _, g, _ = found(kg)["mediators"]
    backup(site.layout, number, site.key_file, tmp_path / "old")
    store.close()
    restore(site.layout, tmp_path / "old")
    store = KgStore.open(site.layout.kg_db, key, number)
    kg = Kg(store, site.config)
    kg.apply(site.config)
    now = found(kg)["mediators"]
    assert now[0] > 65_536
    assert now[2] != g
    assert older(kg) == {1: ("mediators", 1, g)}
    store.close()
    with sqlite3.connect(site.layout.kg_db) as db:
        db.execute("UPDATE older_grants SET secret = x'00'")
    store = KgStore.open(site.layout.kg_db, key, number)
    with store.transaction() as tx, pytest.raises(StoreBroken, match="which is over"):
        whole.check(tx, store.vault)
    store.close()


def test_numbers_begin_above_what_any_source_may_have_issued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lift, "randbelow", lambda n: 0)
    day = 86_400
    source = Issued(1_800_000_000, 1, 1, 1, 1, 16, 1, grant=100)
    begin = lift.above(None, [source], source.at_s + 3 * day)
    assert begin.grant == 100 + 65_536 * 4 + 1
    assert lift.above(source, [], source.at_s).grant == 101


def test_a_file_of_a_restore_of_before_there_were_grants_counts_for_the_other_numbers() -> None:
    told = Issued(1_800_000_000, 9, 9, 9, 9, 99, 9)
    written = asdict(told)
    del written["grant"]
    assert lift.from_json(json.loads(json.dumps(written))) == told


def test_a_backup_whose_grant_does_not_open_is_refused(
    site: MadeSite, store: KgStore, kg: Kg, plain: str, tmp_path: Path
) -> None:
    ruled(site, plain, rule(PANEL))
    kg.apply(site.config)
    with store.transaction() as tx:
        tx.exec_driver_sql("UPDATE grants SET name = 'crew', epoch = 7")
    backup(site.layout, site.config.site.id, site.key_file, tmp_path / "b")
    store.close()
    with pytest.raises(StoreBroken, match="grant crew of allowlist"):
        restore(site.layout, tmp_path / "b")


def provisioned(kg: Kg, name: str) -> Device:
    device = Device(kg.enrol(name))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    return device


def test_a_new_generation_of_a_client_changes_no_grant(site: MadeSite, kg: Kg, plain: str) -> None:
    ruled(site, plain, rule(PANEL))
    kg.apply(site.config)
    before = found(kg)
    provisioned(kg, PANEL)
    assert found(kg) == before
