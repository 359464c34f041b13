"""Provisioning and KG time as SPEC.md 7.2 and 7.3 have them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kg.helpers import Device, MadeSite, own
from sealmq.aead import make
from sealmq.kg.bucket import Buckets
from sealmq.kg.core import Kg
from sealmq.kg.errors import Bad, Denied, KgRefusal, Unauthentic, Unknown
from sealmq.kg.store import KgStore
from sealmq_spec import provision
from sealmq_spec.errors import Denied as DeviceDenied
from sealmq_spec.errors import SealError, Unavailable
from sealmq_spec.identity import Identity

START = 1_800_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def changes() -> list[tuple[int, int | None]]:
    return []


@pytest.fixture
def kg(
    site: MadeSite, key: bytes, clock: Clock, changes: list[tuple[int, int | None]]
) -> Iterator[Kg]:
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id, clock)
    yield Kg(
        store,
        site.config,
        clock=clock,
        on_change=lambda kseq, client: changes.append((kseq, client)),
    )
    store.close()


@pytest.fixture
def device(kg: Kg) -> Device:
    return Device(kg.enrol("m1-control-panel"))


def slots(kg: Kg, device: Device) -> list[tuple[int, bool]]:
    return [(k["gen"], k["pending"]) for k in kg.links(device.ident.client)]


def test_a_new_client_gets_its_keys(
    kg: Kg, device: Device, changes: list[tuple[int, int | None]]
) -> None:
    done, links = kg.answer(device.ask(), 1)
    assert device.accept(done.packet) == START
    ident = device.ident
    assert (ident.gen, ident.mediator, ident.suite) == (1, 1, 1)
    assert own(device).epoch == 1
    assert links == [{"gen": 1, "epoch": 1, "km": ident.km.hex(), "pending": True}]
    assert ident.kseq == done.kseq == kg.snapshot()["kseq"]
    assert changes == [(done.kseq, ident.client)]
    assert own(device).label == next(r["number"] for r in kg.labels() if r["name"] == "m1-ctrl")


def test_while_one_is_pending_the_same_is_answered(kg: Kg, device: Device) -> None:
    first, _ = kg.answer(device.ask(), 1)
    device.accept(first.packet)
    before = (device.ident.gen, device.ident.km, device.ident.kseq)
    for _ in range(3):
        done, _ = kg.answer(device.ask(gen=0), 1)
        assert not done.fresh
        device.accept(done.packet)
        assert (device.ident.gen, device.ident.km, device.ident.kseq) == before
    assert slots(kg, device) == [(1, True)]


def test_a_replayed_request_changes_nothing(
    kg: Kg, device: Device, changes: list[tuple[int, int | None]]
) -> None:
    request = device.ask()
    first, _ = kg.answer(request, 1)
    before = kg.snapshot()
    for _ in range(50):
        again, _ = kg.answer(request, 1)
        assert (again.status, again.gen, again.fresh) == (provision.OK, first.gen, False)
    assert kg.snapshot() == before
    assert len(changes) == 1
    # after the generation is confirmed, an old request opens a new pending one, once, and the
    # confirmed one stays good
    kg.confirm(device.ident.client, 1)
    for _ in range(5):
        kg.answer(request, 1)
    assert slots(kg, device) == [(1, False), (2, True)]


def test_each_generation_goes_with_one_epoch(kg: Kg, device: Device) -> None:
    def held() -> list[tuple[int, int, bool]]:
        links = kg.links(device.ident.client)
        return [(k["gen"], k["epoch"], k["pending"]) for k in links]

    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert (device.ident.gen, own(device).epoch) == (1, 1)
    kg.rekey(["m1-ctrl"], 60, False)
    # pending under the old epoch: another generation, not the same one with other roots; the device
    # may have stored the first
    device.accept(kg.answer(device.ask(gen=0), 1)[0].packet)
    assert (device.ident.gen, own(device).epoch) == (2, 2)
    assert held() == [(1, 1, True), (2, 2, True)]
    kg.confirm(device.ident.client, 2)
    kg.rekey(["m1-temp"], 60, False)  # another label's epoch is nothing to it
    done, links = kg.answer(device.ask(), 1)
    assert done.gen == 3
    assert links == kg.links(device.ident.client)
    kg.rekey(["m1-ctrl"], 60, False)
    again, _ = kg.answer(device.ask(), 1)
    device.accept(again.packet)
    assert (device.ident.gen, own(device).epoch) == (4, 3)
    assert held() == [(2, 2, False), (3, 2, True), (4, 3, True)]
    before = kg.snapshot()["kseq"]
    again, _ = kg.answer(device.ask(), 1)  # it names 4 as held: those before are over
    assert (again.gen, again.fresh) == (4, False)
    assert again.kseq > before
    assert held() == [(4, 3, True)]


def test_few_pending_slots_are_kept(kg: Kg, device: Device) -> None:
    kg.answer(device.ask(), 1)
    kg.confirm(device.ident.client, 1)
    for _ in range(6):
        kg.rekey(["m1-ctrl"], 60, False)
        kg.answer(device.ask(gen=0), 1)
    assert slots(kg, device) == [(1, False), (4, True), (5, True), (6, True), (7, True)]
    kg.confirm(device.ident.client, 6)  # a later one may still come
    assert slots(kg, device) == [(6, False), (7, True)]


def test_an_identity_is_lent_with_the_current_epoch(kg: Kg, device: Device) -> None:
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    kg.confirm(device.ident.client, 1)
    kg.rekey(["m1-ctrl"], 60, False)
    enrolment, dump = kg.lend("m1-control-panel")
    lent = Identity.from_enrolment(enrolment)
    lent.load(dump)
    assert (lent.gen, own(lent).epoch) == (2, 2)
    assert kg.lend("m1-control-panel") == (enrolment, dump)
    # the device's own generation is good until somebody proves that he holds the new one
    assert slots(kg, device) == [(1, False), (2, True)]
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert (device.ident.gen, device.ident.km) == (2, lent.km)


def test_confirming_ends_the_old_slot(
    kg: Kg, device: Device, changes: list[tuple[int, int | None]]
) -> None:
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    number = device.ident.client
    assert kg.confirm(number, 1)
    assert not kg.confirm(number, 1)
    first = device.ident.km
    done, links = kg.answer(device.ask(), 1)
    device.accept(done.packet)
    assert device.ident.gen == 2
    assert [(k["gen"], k["km"] == first.hex(), k["pending"]) for k in links] == [
        (1, True, False), (2, False, True)
    ]  # fmt: skip
    assert kg.confirm(number, 2)
    assert slots(kg, device) == [(2, False)]
    with pytest.raises(Unknown, match="no generation 1"):
        kg.confirm(number, 1)
    with pytest.raises(Unknown):
        kg.confirm(number, 3)
    with pytest.raises(Unknown):
        kg.confirm(999, 1)
    kseqs = [kseq for kseq, _ in changes]
    assert kseqs == sorted(set(kseqs))
    assert len(kseqs) == 4


def test_power_cuts_of_the_client_lose_nothing(kg: Kg, device: Device) -> None:
    """It stored nothing, or stored and did not connect: one of the two slots always fits."""
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    kg.confirm(device.ident.client, 1)
    lost, _ = kg.answer(device.ask(), 1)  # the answer never arrives
    assert slots(kg, device) == [(1, False), (2, True)]
    later, _ = kg.answer(device.ask(), 1)
    device.accept(later.packet)
    assert device.ident.gen == lost.gen == 2
    kept, _ = kg.answer(device.ask(), 1)  # it holds gen 2 now and asks again before it connects
    device.accept(kept.packet)
    assert device.ident.gen == 2


def test_a_client_ahead_of_a_restored_store_is_not_locked_out(kg: Kg, device: Device) -> None:
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    device.ident.gen = 40
    done, _ = kg.answer(device.ask(), 1)
    device.accept(done.packet)
    assert device.ident.gen == 40 + 1024  # 41 may be what it was answered and did not hear
    assert slots(kg, device) == [(1, True), (1064, True)]
    device.ident.gen = 0xFFFFFE
    assert kg.answer(device.ask(), 1)[0].gen == 0xFFFFFF
    kg.confirm(device.ident.client, 0xFFFFFF)
    device.ident.gen = 0xFFFFFF
    with pytest.raises(Bad, match="used up"):
        kg.answer(device.ask(), 1)


def test_a_changed_request_is_refused(kg: Kg, device: Device) -> None:
    request = device.ask()
    before = kg.snapshot()
    for i in range(len(request)):
        changed = bytearray(request)
        changed[i] ^= 1
        with pytest.raises((Bad, Unauthentic, Unknown)):
            kg.answer(bytes(changed), 1)
    for wrong in (b"", request[:-1], request + b"\0", os.urandom(43)):
        with pytest.raises(KgRefusal):
            kg.answer(wrong, 1)
    assert kg.snapshot() == before


def test_another_clients_secret_does_not_help(kg: Kg, device: Device) -> None:
    monitor = Device(kg.enrol("monitor"))
    monitor.ident.client = device.ident.client
    with pytest.raises(Unauthentic, match="in the name of m1-control-panel"):
        kg.answer(monitor.ask(), 1)
    device.ident.site = bytes(4)
    with pytest.raises(Unauthentic):
        kg.answer(device.ask(), 1)


def test_another_mediator_does_not_get_the_answer(kg: Kg, device: Device) -> None:
    with pytest.raises(Unknown, match="mediator 2"):
        kg.answer(device.ask(), 2)
    device.ident.mediator = 2  # its request for mediator 2, passed on by mediator 1
    with pytest.raises(Unauthentic):
        kg.answer(device.ask(), 1)
    assert slots(kg, device) == []


def test_another_suite_is_not_tried(kg: Kg, device: Device) -> None:
    device.ident.suite = 2
    with pytest.raises(Unauthentic, match="suite 2, its is 1"):
        kg.answer(device.ask(), 1)


def test_only_the_open_request_is_answered(kg: Kg, device: Device) -> None:
    old, _ = kg.answer(device.ask(), 1)
    new, _ = kg.answer(device.ask(), 1)
    with pytest.raises(SealError):
        device.accept(old.packet)
    changed = bytearray(new.packet)
    for i in range(len(changed)):
        changed[i] ^= 1
        with pytest.raises(SealError):
            device.accept(bytes(changed))
        changed[i] ^= 1
    device.accept(bytes(changed))


def test_a_chacha_client(site: MadeSite, kg: Kg) -> None:
    site.edit("[topics]", 'fast = { label = "m1-ctrl", suite = "chacha" }\n\n[topics]')
    kg.apply(site.config)
    device = Device(kg.enrol("fast"))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert (device.ident.suite, own(device).suite) == (2, 1)
    blob = kg.time(device.ident.client, bytes(16), 2)
    i = device.ident
    provision.open_kg_time(make, i.site, i.ps, 2, i.client, bytes(16), blob)


@pytest.mark.parametrize("line", ["", 'monitor = { label = "none", kind = "app" }\n'])
def test_a_disabled_client_is_told_so_under_seal(line: str, site: MadeSite, kg: Kg) -> None:
    device = Device(kg.enrol("monitor"))
    site.edit('monitor = { label = "monitor", kind = "app" }\n', line)
    kg.apply(site.config)
    done, links = kg.answer(device.ask(), 1)
    assert links == []
    with pytest.raises(DeviceDenied, match="disabled"):
        device.accept(done.packet)
    with pytest.raises(Denied):
        kg.time(device.ident.client, bytes(16), 1)


def test_too_many_requests_get_try_later(kg: Kg, device: Device, clock: Clock) -> None:
    def provisioned() -> int:
        done, _ = kg.answer(device.ask(), 1)
        if done.gen:
            kg.confirm(device.ident.client, done.gen)
        return done.status

    assert [provisioned() for _ in range(25)] == [provision.OK] * 20 + [provision.LATER] * 5
    done, _ = kg.answer(device.ask(), 1)
    with pytest.raises(Unavailable, match="try later"):
        device.accept(done.packet)
    other = Device(kg.enrol("monitor"))
    assert kg.answer(other.ask(), 1)[0].status == provision.OK
    clock.ms += 2000
    assert [provisioned() for _ in range(3)] == [provision.OK] * 2 + [provision.LATER]


def test_recorded_requests_use_up_nothing_of_their_client(kg: Kg, device: Device) -> None:
    recorded = [device.ask() for _ in range(6)]
    for _ in range(20):
        for request in recorded:
            assert kg.answer(request, 1)[0].status == provision.OK
    assert slots(kg, device) == [(1, True)]
    assert kg.answer(device.ask(), 1)[0].status == provision.OK


def test_buckets_survive_a_clock_that_goes_back() -> None:
    buckets = Buckets(3, 1000)
    assert [buckets.take(1, 10**9) for _ in range(4)] == [True, True, True, False]
    assert not buckets.take(1, 5)
    assert buckets.take(1, 5 + 1000)


def test_no_two_answers_share_a_nonce(kg: Kg, device: Device, clock: Clock) -> None:
    seen = set()
    for step in [0, 0, 5, -100_000, 0, 3]:
        clock.ms += step
        packet = kg.answer(device.ask(), 1)[0].packet
        assert int.from_bytes(packet[2:5], "big") == kg.inst
        seen.add(packet[2:14])
        seen.add(kg.time(device.ident.client, os.urandom(16), 1)[2:14])
    assert len(seen) == 12


def test_kg_time(kg: Kg, device: Device, clock: Clock) -> None:
    i = device.ident
    nonce = os.urandom(16)
    blob = kg.time(i.client, nonce, 1)
    ms, epoch, kseq = provision.open_kg_time(make, i.site, i.ps, 1, i.client, nonce, blob)
    assert (ms, epoch, kseq) == (START, 1, kg.snapshot()["kseq"])
    with pytest.raises(SealError):
        provision.open_kg_time(make, i.site, i.ps, 1, i.client, os.urandom(16), blob)
    with pytest.raises(Unknown):
        kg.time(999, nonce, 1)
    with pytest.raises(Bad, match="suite"):
        kg.time(i.client, nonce, 2)


def test_lend(kg: Kg, device: Device) -> None:
    enrolment, dump = kg.lend("m1-control-panel")
    lent = Identity.from_enrolment(enrolment)
    assert lent.load(dump)
    assert (lent.gen, lent.kseq) == (1, kg.snapshot()["kseq"])
    assert slots(kg, device) == [(1, False)]
    assert lent.km.hex() == kg.links(device.ident.client)[0]["km"]
    assert own(lent).epoch == 1
    assert kg.lend("m1-control-panel") == (enrolment, dump)
    # a pending generation that the device has just been given is confirmed, not replaced
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert slots(kg, device) == [(1, False), (2, True)]
    kg.confirm(device.ident.client, 2)
    _, dump = kg.lend("m1-control-panel")
    lent.load(dump)
    assert (lent.gen, lent.km) == (2, device.ident.km)
    with pytest.raises(Unknown):
        kg.lend("nobody")


def test_lend_while_pending(kg: Kg, device: Device) -> None:
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    _, dump = kg.lend("m1-control-panel")
    lent = Device(kg.enrol("m1-control-panel")).ident
    lent.load(dump)
    assert (lent.gen, lent.km) == (1, device.ident.km)
    assert slots(kg, device) == [(1, False)]
