"""A slow reader slows nobody, and the mediator's memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_peers import Sealed, provisioned, twin
from mqtt_stage import LABEL
from running_site import Site, until

SLOW = 10
MESSAGES = 250
SIZE = 64 * 1024
# Ten times 16 MB are offered. What may be held for each is some 300 KiB.
MORE_MIB = 32


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("slow"))
    made.up("--broker", "mosquitto", forked=False)
    yield made
    made.down()


def resident_mib(pid: int) -> int:
    """Resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def test_who_does_not_read_slows_nobody_and_costs_little(site: Site) -> None:
    file = site.enrol("all", LABEL)
    keys = provisioned(site.port, file)
    writer = Sealed("writer", "slow", keys)
    writer.connect(keepalive=0)
    # One reader, and many that will not read.
    peers = [Sealed(f"p{n}", "slow", twin(keys, file, 10 + n)) for n in range(SLOW + 1)]
    for peer in peers:
        peer.connect(keepalive=0)
        peer.subscribe([("t/x", 0), ("t/sure", 1)])
    reader, slow = peers[0], peers[1:]
    mediator = site.pid("mediator")
    before = resident_mib(mediator)
    for n in range(MESSAGES):
        writer.publish("t/x", b"%06d" % n + bytes(SIZE), 0, False)
        reader.await_("got")
        if n % 25 == 0:
            writer.publish("t/sure", b"%d" % n, 1, False)
            writer.await_("puback")
            reader.await_("got")
    grown = resident_mib(mediator) - before
    assert grown < MORE_MIB, f"{grown} MiB more for {SLOW} readers that do not read"
    # Whoever reads again gets all of QoS 1, and of QoS 0 what came last.
    late = slow[0]
    writer.publish("t/x", b"the last", 0, False)
    while late.got[-1:] != ["t/x the last q0 r0 d0"]:
        late.await_("got")
    sure = [line for line in late.got if line.startswith("t/sure")]
    assert sure == [f"t/sure {n} q1 r0 d0" for n in range(0, MESSAGES, 25)]
    assert len(late.got) < MESSAGES
    for peer in (writer, *peers):
        peer.drop()
    site.down()
    counted = site.audit("deliver-denied", rule="mediator.deliver.slow")
    until("the count", lambda: sum(row["count"] for row in counted) > MESSAGES)
