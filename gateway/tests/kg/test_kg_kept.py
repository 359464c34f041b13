"""What the key generator keeps for a policy family, sealed, and what of it mediators are told."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from families.blinded.blinded_site import A_X, B_Q1, KEPT, WORDS
from kg.helpers import MadeSite
from kg.test_kg_migrate import to_version_1
from kg.test_kg_store import scan
from sealmq.families.blinded import kg_part
from sealmq.kg import kept, snapshot, whole
from sealmq.kg import rows as in_store
from sealmq.kg.core import Kg
from sealmq.kg.errors import Bad, StoreBroken
from sealmq.kg.store import KgStore
from sealmq.mediator.core.keyring import Keyring

ORDER = 'order = ["labels"]\n'
WITH = 'order = ["labels", "blinded"]\n'
PANEL = "m1-control-panel"
TEXT = KEPT.replace("[customers.miner]", f'[customers."{PANEL}"]')


@pytest.fixture
def blinded(site: MadeSite, kg: Kg) -> Kg:
    site.edit(ORDER, WITH)
    kg.apply(site.config)
    return kg


def told(kg: Kg) -> dict[str, str]:
    return {key: value for family, key, value in kg.snapshot()["told"] if family == "blinded"}


def test_what_is_kept_is_told_as_filters_and_raises_the_serial_number(blinded: Kg) -> None:
    before = blinded.kseq()
    done = blinded.keep("blinded", TEXT.encode())
    assert done.changed
    assert before < done.kseq == blinded.kseq() == blinded.snapshot()["kseq"]
    rows = told(blinded)
    assert f"e/{B_Q1}" in rows
    assert {key.rpartition("/")[2] for key in rows if key[0] == "m"} == {PANEL}
    ring = Keyring(bytes.fromhex(blinded.snapshot()["site"]), 1, blinded.snapshot())
    assert ring.told == {"blinded": {key: bytes.fromhex(value) for key, value in rows.items()}}
    shown = json.dumps(blinded.snapshot())
    assert not [word for word in WORDS if word in shown]
    again = blinded.keep("blinded", TEXT.encode())
    assert (again.changed, again.kseq) == (False, done.kseq)
    assert blinded.kept("blinded").decode() == TEXT


def test_it_lies_sealed_and_survives_a_start(
    blinded: Kg, site: MadeSite, store: KgStore, key: bytes
) -> None:
    blinded.keep("blinded", TEXT.encode())
    before = told(blinded)
    store.close()
    assert scan(site.layout.root, {word: word.encode() for word in WORDS}) == []
    other = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    try:
        found = Kg(other, site.config)
        assert told(found) == before
        with other.transaction() as tx:
            whole.check(tx, other.vault)
            tx.exec_driver_sql("UPDATE kept SET secret = substr(secret, 1, length(secret) - 1)")
            with pytest.raises(StoreBroken, match="what blinded keeps"):
                whole.check(tx, other.vault)
    finally:
        other.close()


def test_whoever_a_mediator_says_has_matched_has_no_key_by_that(blinded: Kg) -> None:
    """Against a mediator that matches everybody labels' keys are left, and a grant's."""
    text = TEXT.replace(f'id = "{B_Q1}"', f'id = "{B_Q1}"\nsealed = true')
    blinded.keep("blinded", text.encode())
    shown = blinded.snapshot()
    ring = Keyring(bytes.fromhex(shown["site"]), 1, shown)
    label = {one.name: one.number for one in ring.labels.values()}
    client = {one.name: one.number for one in ring.clients.values()}
    # A reader beside is told nothing that opens what is sealed for the label.
    assert ring.records_for(label["m2-ctrl"], label["m1-ctrl"]) == []
    assert ring.records_for(label["monitor"], label["m1-ctrl"]) != []
    assert ring.grants["blinded", B_Q1].holders == {client[PANEL]}


def test_what_cannot_be_kept_changes_nothing(blinded: Kg, monkeypatch: pytest.MonkeyPatch) -> None:
    blinded.keep("blinded", TEXT.encode())
    before = blinded.kseq(), told(blinded)
    with pytest.raises(Bad, match=r"customers\.q\.hs: unknown key 'hs'"):
        blinded.keep("blinded", b"[customers.q]\nhs = 1\n")
    with pytest.raises(Bad, match="at most 2097152"):
        blinded.keep("blinded", b"#" * (kept.MOST_SAID + 1))
    with pytest.raises(Bad, match="as JSON"):
        blinded.keep("blinded", TEXT.encode() + ("# " + "é" * 800_000).encode())
    for family in ("labels", "nothing"):
        with pytest.raises(Bad, match="keeps anything"):
            blinded.keep(family, b"")
        with pytest.raises(Bad, match="keeps anything"):
            blinded.kept(family)
    most = kept.MOST_ROW
    monkeypatch.setattr(kg_part, "rows", lambda config, kept: [("k", b"x" * (most + 1))])
    with pytest.raises(Bad, match="more than fits"):
        blinded.keep("blinded", TEXT.encode() + b"# other\n")
    monkeypatch.undo()
    assert (blinded.kseq(), told(blinded)) == before
    assert blinded.kept("blinded").decode() == TEXT


def test_a_policy_under_which_mediators_could_not_be_told_is_refused(
    blinded: Kg, site: MadeSite
) -> None:
    """Else no mediator got any keys from then on, and no revocation counted."""
    atoms = " & ".join(f"a{n} = 1" for n in range(32))
    blinded.keep("blinded", TEXT.encode() + f'[customers.monitor]\nhas = ["{atoms}"]\n'.encode())
    before = told(blinded)
    in_force = site.config
    settings = '[families.blinded]\nencoding = "paper"\ndecoys = 1.0\n'
    site.layout.config.write_text(site.layout.config.read_text() + settings)
    with pytest.raises(Bad, match="places of one conjunction are too many"):
        blinded.apply(site.config)
    assert blinded.config == in_force
    assert told(blinded) == before
    blinded.rekey(["monitor"], 0, False)
    assert blinded.snapshot()["kseq"] == blinded.kseq()


@pytest.mark.parametrize("broken", [False, True], ids=["taken out", "broken"])
def test_a_family_that_is_out_of_the_order_and_not_there_keeps_nobody_in(
    kg: Kg, site: MadeSite, store: KgStore, broken: bool
) -> None:
    family = "blinded" if broken else "gone"
    with store.transaction() as tx:
        in_store.keep(tx, store.vault, family, b"no JSON")
    line = next(line for line in site.layout.config.read_text().splitlines() if PANEL in line)
    site.edit(line + "\n", "")
    done = kg.apply(site.config)
    assert [note for note in done.notes if note.startswith(family)] == [
        f"{family} is not in [policy] order and cannot be asked: what it keeps of clients that are "
        "gone goes when it can be"
    ]
    (row,) = (one for one in kg.clients() if one["name"] == PANEL)
    assert row["removed"]
    with store.transaction() as tx:
        assert in_store.kept(tx, store.vault, family) == b"no JSON"


def test_a_family_that_could_not_be_told_who_is_gone_gives_the_next_of_the_name_nothing(
    blinded: Kg, site: MadeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    blinded.keep("blinded", TEXT.encode())
    site.edit(WITH, ORDER)
    line = next(line for line in site.layout.config.read_text().splitlines() if PANEL in line)

    def fails(*words: Any) -> bytes:
        raise KeyError("broken")

    monkeypatch.setattr(kg_part, "left", fails)
    site.edit(line + "\n", "# gone\n")
    assert any("cannot be asked" in note for note in blinded.apply(site.config).notes)
    site.edit("# gone\n", line + "\n")
    assert not any("cannot be asked" in note for note in blinded.apply(site.config).notes)
    monkeypatch.undo()
    site.edit(ORDER, WITH)
    done = blinded.apply(site.config)
    assert "blinded keeps nothing more of clients that are gone" in done.notes
    assert PANEL not in blinded.kept("blinded").decode()
    # What is kept from now on is the new one's.
    blinded.keep("blinded", TEXT.encode())
    blinded.rekey(["monitor"], 0, False)
    assert PANEL in blinded.kept("blinded").decode()


def test_who_leaves_is_told_of_no_more_and_sealed_grants_follow_what_is_kept(
    blinded: Kg, site: MadeSite
) -> None:
    text = TEXT.replace(f'id = "{B_Q1}"', f'id = "{B_Q1}"\nsealed = true')
    blinded.keep("blinded", text.encode())

    def grant() -> tuple[int, set[int]]:
        shown = blinded.snapshot()
        (row,) = (one for one in shown["grants"] if one["name"] == B_Q1)
        return row["epoch"], {c for number, c in shown["holders"] if number == row["number"]}

    epoch, holders = grant()
    assert len(holders) == 1
    blinded.keep("blinded", text.replace("datamining", "mining", 1).encode())
    assert grant() == (epoch + 1, set())
    blinded.keep("blinded", text.encode())
    assert grant()[1] == holders
    site.edit(f"{PANEL} = {{", f"{PANEL} = {{ disabled = true,")
    blinded.apply(site.config)
    assert grant()[1] == set()
    assert not any(key.endswith(PANEL) for key in told(blinded))


def test_a_large_whole_comes_in_pieces_that_fit_a_frame(blinded: Kg) -> None:
    blinded.keep("blinded", TEXT.encode())
    whole_ = dict(blinded.snapshot())
    whole_["told"] = [["blinded", f"k{n}", "00" * 400_000] for n in range(7)]
    whole_["holders"] = [[1, n] for n in range(snapshot.PIECE)]
    found: dict[str, list[Any]] = {"told": [], "holders": [], "clients": []}
    at, pieces = 0, 0
    while True:
        piece = snapshot.piece(whole_, at, whole_["kseq"])
        for name, rows in found.items():
            rows += piece[name]
        pieces += 1
        assert len(json.dumps(piece)) < 3 << 20
        if "next" not in piece:
            break
        at = piece["next"]
    assert pieces > 4
    assert found == {name: whole_[name] for name in found}


def test_a_store_of_an_older_version_keeps_things_too(
    site: MadeSite, kg: Kg, store: KgStore, key: bytes
) -> None:
    del kg
    store.close()
    to_version_1(site.layout.kg_db)
    site.edit(ORDER, WITH)
    other = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    try:
        found = Kg(other, site.config)
        found.apply(site.config)
        assert found.keep("blinded", TEXT.encode()).changed
        assert told(found)
    finally:
        other.close()


def test_a_row_of_another_family_does_not_open(blinded: Kg, site: MadeSite, store: KgStore) -> None:
    blinded.keep("blinded", TEXT.encode())
    with sqlite3.connect(site.layout.kg_db) as db:
        db.execute("UPDATE kept SET family = 'other'")
    with store.transaction() as tx, pytest.raises(StoreBroken):
        whole.check(tx, store.vault)


@pytest.mark.parametrize("by", ["keep", "rekey"])
def test_whoever_an_edit_has_taken_out_leaves_nothing_whichever_command_comes_first(
    blinded: Kg, site: MadeSite, store: KgStore, by: str
) -> None:
    """While the site is down a command opens the store with sealmq.toml as it stands."""
    blinded.keep("blinded", TEXT.encode())
    line = next(line for line in site.layout.config.read_text().splitlines() if PANEL in line)
    site.edit(line + "\n", "")
    late = Kg(store, site.config)
    if by == "keep":
        late.keep("blinded", TEXT.encode() + b"# more\n")
    else:
        late.rekey(["monitor"], 0, False)
    site.edit("[clients]\n", f"[clients]\n{line}\n")
    late.apply(site.config)
    assert PANEL not in late.kept("blinded").decode()
    assert not any(key.endswith(PANEL) for key in told(late))


@pytest.mark.parametrize("order", [WITH, ORDER], ids=["in force", "out of the order meanwhile"])
def test_who_bears_a_name_anew_has_nothing_of_the_one_before(
    blinded: Kg, site: MadeSite, order: str
) -> None:
    text = TEXT.replace('client = "jingfang"', f'client = "{PANEL}"', 1)
    blinded.keep("blinded", text.encode())
    line = next(line for line in site.layout.config.read_text().splitlines() if PANEL in line)
    site.edit(line + "\n", "")
    if order != WITH:
        site.edit(WITH, order)
    done = blinded.apply(site.config)
    assert "blinded keeps nothing more of clients that are gone" in done.notes
    site.layout.config.write_text(
        site.layout.config.read_text()
        .replace("[clients]\n", f"[clients]\n{line}\n")
        .replace(order, WITH)
    )
    blinded.apply(site.config)
    assert PANEL not in blinded.kept("blinded").decode()
    assert not any(key.endswith(PANEL) for key in told(blinded))
    assert f"e/{A_X}" not in told(blinded)
    assert f"e/{B_Q1}" in told(blinded)


def test_a_start_encodes_nothing_before_a_mediator_asks(
    blinded: Kg, site: MadeSite, store: KgStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many customers that takes so long that mediators would begin without it."""
    blinded.keep("blinded", TEXT.encode())
    asked: list[str] = []
    rows_of = kg_part.rows

    def counting(config: Any, kept: bytes) -> Any:
        asked.append("")
        return rows_of(config, kept)

    monkeypatch.setattr(kg_part, "rows", counting)
    late = Kg(store, site.config)
    late.apply(site.config)
    assert asked == []
    assert told(late)
    assert asked == [""]
