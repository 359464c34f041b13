"""Labels whose keys two key generators share (GATEWAY.md G11), each with a store of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kg.helpers import Device
from sealmq import peerkeys
from sealmq.aead import make
from sealmq.kg import limits, rows
from sealmq.kg.core import Kg
from sealmq.kg.errors import Bad, Denied, Unknown
from sealmq.kg.seal import Vault
from sealmq.kg.store import KgStore
from sealmq.site.check import parse
from sealmq_spec.const import CCM, CHACHA
from sealmq_spec.records import derive, get_record

LINE, NORTH, SOUTH = bytes(32), b"n" * 32, b"s" * 32
CERTIFICATE = {
    "north": peerkeys.certificate(LINE, NORTH, b"\0\0\0\1", "north"),
    "south": peerkeys.certificate(LINE, SOUTH, b"\0\0\0\2", "south"),
}


def text(name: str, peer: str, more: str, rest: str) -> str:
    number = {"north": 1, "south": 2}[name]
    found = peerkeys.read(CERTIFICATE[peer]).fingerprint
    return (
        f'[site]\nname = "{name}"\nid = "0000000{number}"\n{rest}'
        f'[peers.{peer}]\nfingerprint = "{found}"\nlisten = "h:1"\n{more}\n'
    )


ALONE = '[labels]\nheat = []\n[clients]\nboiler = { label = "heat" }\n'
EXPORT = text("north", "south", 'export = ["heat"]', ALONE)
IMPORT = text(
    "south",
    "north",
    'import = ["heat"]',
    '[labels]\ncontrol = ["heat@north"]\n[clients]\npanel = { label = "control" }\n'
    'guest = { label = "heat@north" }\n',
)


class Held(NamedTuple):
    label: int
    epoch: int
    r: bytes
    r_bar: bytes


class Pair:
    """Two of them. `give` carries what one has for the other."""

    def __init__(self, folder: Path) -> None:
        self.stores = []
        self.kg = {}
        first = f'[site]\nname = "north"\nid = "00000001"\n{ALONE}'
        for name, key, said in (("north", NORTH, first), ("south", SOUTH, IMPORT)):
            config = parse(said)
            site = config.site.id
            (folder / name).mkdir()
            store = KgStore.create(folder / name / "kg.db", Vault(key, site), site)
            self.stores.append(store)
            kg = self.kg[name] = Kg(store, config, key=peerkeys.kg_key(key))
            kg.apply(config)
        self.kg["north"].apply(parse(EXPORT))

    def packet(self, giver: str) -> bytes:
        other = "south" if giver == "north" else "north"
        return self.kg[giver].peer_give(other, CERTIFICATE[other])

    def take(self, packet: bytes, giver: str = "north") -> dict[str, int]:
        other = "south" if giver == "north" else "north"
        return self.kg[other].peer_take(giver, CERTIFICATE[giver], packet)[1]

    def roots(self, name: str, label: str) -> Held:
        store = self.stores[0 if name == "north" else 1]
        with store.transaction() as tx:
            found = rows.current_roots(tx, store.vault, rows.labels(tx)[label].number)
            return Held(found.label, found.epoch, found.r, found.r_bar)

    def same(self) -> bool:
        north, south = self.roots("north", "heat"), self.roots("south", "heat@north")
        return (north.r, north.r_bar) == (south.r, south.r_bar)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for store in made.stores:
        store.close()


def origin(pair: Pair) -> list[object]:
    labels = pair.kg["south"].snapshot()["labels"]
    found: list[object] = next(r for r in labels if r["name"] == "heat@north").get("origin", [])
    return found


def test_an_exported_label_gets_new_keys_first_and_the_importer_has_them(pair: Pair) -> None:
    assert pair.roots("north", "heat").epoch == 2, "what was sealed before is none of the peer's"
    assert not pair.same()
    assert origin(pair) == []
    number = pair.roots("north", "heat").label
    assert pair.take(pair.packet("north")) == {"heat": number}
    assert pair.same()
    here = pair.roots("south", "heat@north").epoch
    assert origin(pair) == ["00000001", number, [(2, here)]]


def test_a_reader_above_the_import_derives_its_keys(pair: Pair) -> None:
    pair.take(pair.packet("north"))
    kg = pair.kg["south"]
    panel = Device(kg.enrol("panel"))
    panel.accept(kg.answer(panel.ask(), 1)[0].packet)
    imported = pair.roots("south", "heat@north")
    snapshot = kg.snapshot()
    record = next(
        raw
        for raw in map(bytes.fromhex, snapshot["records"])
        if (get_record(raw)[4], get_record(raw)[2]) == (panel.ident.own.label, imported.label)
    )
    found = derive(make, b"\0\0\0\2", panel.ident.own, record)
    north = pair.roots("north", "heat")
    assert (found.r, found.r_bar) == (north.r, north.r_bar)


def test_a_bridges_client_gets_no_roots_and_is_neither_enrolled_nor_lent(pair: Pair) -> None:
    pair.take(pair.packet("north"))
    for name, kg, peer in (
        ("heat.to.south", "north", "south"),
        ("heat.from.north", "south", "north"),
    ):
        [row] = pair.kg[kg].peer_enrol(peer)
        assert row["enrolment"]["name"] == name
        device = Device(row["enrolment"])
        device.accept(pair.kg[kg].answer(device.ask(), 1)[0].packet)
        own = device.ident.own
        assert (own.r, own.r_bar) == (bytes(32), bytes(32))
        for ask in (pair.kg[kg].enrol, pair.kg[kg].lend):
            with pytest.raises(Denied, match="bridge"):
                ask(name)
    with pytest.raises(Unknown):
        pair.kg["north"].peer_enrol("west")


def test_who_removes_a_peer_gives_the_label_keys_that_it_never_gets(pair: Pair) -> None:
    pair.take(pair.packet("north"))
    kept, before = pair.packet("north"), pair.roots("south", "heat@north")
    alone = f'[site]\nname = "north"\nid = "00000001"\n{ALONE}'
    done = pair.kg["north"].apply(parse(alone))
    assert ("heat.to.south", "heat", "removed") in done.left
    assert pair.roots("north", "heat").epoch == 3
    assert not pair.same()
    with pytest.raises(Unknown):
        pair.packet("north")
    pair.take(kept)
    assert pair.roots("south", "heat@north") == before


def test_what_is_replayed_changes_nothing_and_an_older_one_takes_nothing_back(pair: Pair) -> None:
    old = pair.packet("north")
    pair.take(old)
    pair.kg["north"].rekey(["heat"], 60, False)
    pair.take(pair.packet("north"))
    assert pair.same()
    after, kseq = pair.roots("south", "heat@north"), pair.kg["south"].kseq()
    for packet in (old, pair.packet("north")):
        pair.take(packet)
    assert pair.roots("south", "heat@north") == after
    assert pair.kg["south"].kseq() == kseq
    assert len(origin(pair)[2]) == 2  # type: ignore[arg-type]


def test_when_a_reader_leaves_the_import_has_keys_of_its_own_until_the_owner_gives_new_ones(
    pair: Pair,
) -> None:
    pair.take(pair.packet("north"))
    pair.kg["south"].apply(parse(IMPORT.replace('guest = { label = "heat@north" }\n', "")))
    assert not pair.same(), "whoever left has the old ones still"
    before = pair.roots("north", "heat").epoch
    pair.take(pair.packet("south"), giver="south")
    assert pair.roots("north", "heat").epoch == before + 1
    pair.take(pair.packet("south"), giver="south")
    assert pair.roots("north", "heat").epoch == before + 1, "it is asked for once"
    pair.take(pair.packet("north"))
    assert pair.same()


@pytest.mark.parametrize("who", ["north", "other"])
def test_whoever_is_not_the_peer_gets_nothing(pair: Pair, who: str) -> None:
    other = peerkeys.certificate(LINE, b"o" * 32, b"\0\0\0\3", "south")
    der = {"north": CERTIFICATE["north"], "other": other}[who]
    with pytest.raises(Denied, match="another fingerprint"):
        pair.kg["north"].peer_give("south", der)
    with pytest.raises(Denied, match="another fingerprint"):
        pair.kg["north"].peer_take("south", der, pair.packet("south"))


def test_a_packet_of_another_key_generator_is_refused(pair: Pair) -> None:
    own = pair.packet("north")
    for packet in (own[:-1], own[:40] + bytes((own[40] ^ 1,)) + own[41:], pair.packet("south")):
        with pytest.raises(Denied, match="do not come from"):
            pair.take(packet)
    assert not pair.same()


def test_only_what_is_imported_is_taken(pair: Pair) -> None:
    between = peerkeys.Between(
        peerkeys.kg_key(NORTH), b"\0\0\0\1", peerkeys.read(CERTIFICATE["south"])
    )
    said = {
        "v": 1,
        "exports": [["control", 17, 1, 9, 0, "11" * 64], ["heat", 16, 2, 9, 0, "11" * 64]],
        "stale": {"control": 1},
    }
    before = pair.roots("south", "control")
    with pytest.raises(Bad, match="suite ccm here and chacha there"):
        pair.take(between.seal(json.dumps(said).encode()))
    said["exports"] = said["exports"][:1]  # type: ignore[index]
    assert pair.take(between.seal(json.dumps(said).encode())) == {}
    assert pair.roots("south", "control") == before
    for wrong in (b"[]", b"{}", b"x", json.dumps(said | {"v": 2}).encode()):
        with pytest.raises(Denied, match="does not understand"):
            pair.take(between.seal(wrong))


def sealed(giver: str, said: dict[str, object]) -> bytes:
    own, other = (NORTH, "south") if giver == "north" else (SOUTH, "north")
    number = {"north": 1, "south": 2}[giver]
    between = peerkeys.Between(
        peerkeys.kg_key(own), bytes((0, 0, 0, number)), peerkeys.read(CERTIFICATE[other])
    )
    return between.seal(json.dumps({"v": 1, "exports": [], "stale": {}} | said).encode())


# The more epochs a label has, the longer each new one takes: the real limits are for test-full.
@pytest.mark.parametrize(
    ("peers", "asked"), [(16, 40), pytest.param(64, 256, marks=pytest.mark.full)]
)
def test_a_peer_cannot_use_up_the_rekeys_that_an_operator_has(
    pair: Pair, peers: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claim 45, too: what it asks for too often comes later, and no operator is refused for it."""
    monkeypatch.setattr(limits, "BY_PEERS_A_DAY", peers)
    monkeypatch.setattr(limits, "ASKED_A_DAY", asked)
    north = pair.kg["north"]
    now = [north._clock()]
    north._clock = lambda: now[0]

    def ask() -> int:
        before = pair.roots("north", "heat").epoch
        pair.take(sealed("south", {"stale": {"heat": before}}), giver="south")
        return pair.roots("north", "heat").epoch - before

    assert [ask() for _ in range(12)] == [1] * 8 + [0] * 4
    before = pair.roots("north", "heat").epoch
    north.peers_due()
    assert pair.roots("north", "heat").epoch == before, "it is not due"
    waits = [north.peers_wait]
    now[0] += 15 * 60_000
    north.peers_due()
    north.peers_due()
    assert pair.roots("north", "heat").epoch == before + 1, (
        "what had to wait is made when it is due"
    )
    waits.append(north.peers_wait)
    assert waits == [True, False], "nobody looks after it any more"
    begun = now[0] - now[0] % 86_400_000 + 86_400_000
    for number in range(peers + 26):
        now[0] = begun + number * 15 * 60_000
        ask()
    assert pair.roots("north", "heat").epoch - before - 1 == peers
    for _ in range(asked - peers):
        north.rekey(["heat"], 0, False)
    with pytest.raises(Bad, match=f"at most {asked}"):
        north.rekey(["heat"], 0, False)


def test_a_peer_cannot_use_up_the_epochs_that_one_who_leaves_needs(pair: Pair) -> None:
    south = pair.kg["south"]
    now = south._clock()
    south._clock = lambda: now
    pair.take(pair.packet("north"))
    label = pair.roots("north", "heat").label
    with pair.stores[1].transaction() as tx:
        row = rows.labels(tx)["heat@north"]
        rows.put_label(tx, replace(row, day=limits.day_of(now // 1000), made=limits.TAKEN_A_DAY))
    before = pair.roots("south", "heat@north")
    export = ["heat", label, 1, 99, 0, "11" * 64]
    assert pair.take(sealed("north", {"exports": [export]})) == {"heat": label}
    assert pair.roots("south", "heat@north") == before
    assert origin(pair) == ["00000001", label, [(2, before.epoch)]], "nothing is taken for it"
    south.apply(parse(IMPORT.replace('guest = { label = "heat@north" }\n', "")))
    assert pair.roots("south", "heat@north").epoch == before.epoch + 1
    now += 86_400_000
    pair.take(sealed("north", {"exports": [export]}))
    assert pair.roots("south", "heat@north").r == b"\x11" * 32


BORDER = '[borders.outlet]\nfrom = "mill"\nto = "heat"\ntopics = ["a"]\ndeclassify = true\n'


def test_a_borders_clients_get_the_roots_of_their_own_labels_from_its_process_alone(
    pair: Pair,
) -> None:
    kg = pair.kg["north"]
    with pytest.raises(Unknown, match="no border"):
        kg.border_enrol("outlet")
    kg.apply(parse(EXPORT.replace("[labels]", "[labels]\nmill = []") + BORDER))
    found = kg.border_enrol("outlet")
    for word, label in (("in", "mill"), ("out", "heat")):
        assert found[word]["enrolment"]["name"] == f"outlet.{word}"
        device = Device(found[word]["enrolment"])
        device.accept(kg.answer(device.ask(), 1)[0].packet)
        own, held = device.ident.own, pair.roots("north", label)
        assert (own.label, own.r, own.r_bar) == (held.label, held.r, held.r_bar)
        for ask in (kg.enrol, kg.lend):
            with pytest.raises(Denied, match="a border's"):
                ask(f"outlet.{word}")


def test_whoever_takes_a_border_out_gives_what_it_has_opened_new_keys(pair: Pair) -> None:
    kg, text = pair.kg["north"], EXPORT.replace("[labels]", "[labels]\nmill = []")
    kg.apply(parse(text + BORDER))
    before = pair.roots("north", "mill")
    done = kg.apply(parse(text))
    assert ("outlet.in", "mill", "removed") in done.left
    assert pair.roots("north", "mill").epoch == before.epoch + 1


def test_a_bridges_new_client_has_chacha_and_an_older_one_keeps_its_suite(pair: Pair) -> None:
    def suite() -> int:
        seen = pair.kg["north"].snapshot()["clients"]
        return int(next(c["suite"] for c in seen if c["name"] == "heat.to.south"))

    assert suite() == CHACHA
    kept = CCM
    with pair.stores[0].transaction() as tx:
        row = rows.clients(tx)["heat.to.south"]
        rows.put_client(
            tx, replace(row, suite=kept), rows.new_ps(pair.stores[0].vault, row.number, kept)
        )
    pair.kg["north"].apply(parse(EXPORT.replace('"heat" }', '"heat", rotation = 1 }')))
    assert suite() == kept
