"""Kept sessions under the allowlist, with one worker and with two: a reload that takes a right away
ends it for the next message, also for what waits for a client that is away; and gives it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_peers import SYNC, Keeper, Sealed, provisioned
from mqtt_stage import LABEL
from purposes_place import seen, sent
from running_site import Site, ran, until
from wire import RawClient

RULES = f"""
[[families.allowlist.rule]]
publish = ["{SYNC}"]
read = ["{SYNC}"]

[[families.allowlist.rule]]
clients = ["writer"]
publish = ["t/#"]
"""
READ = f'\n[[families.allowlist.rule]]\nlabels = ["{LABEL}"]\nread = ["t/#"]\n'
# Their numbers follow one another: with two workers each belongs to another one.
READERS = ("one", "two")


class Ruled:
    """A site with these rules, and clients of it."""

    def __init__(self, site: Site, workers: int) -> None:
        self.site = site
        self._boots = 0
        self.numbers = {}
        for name in ("writer", "keeper", *READERS):
            told = json.loads(site.enrol(name, LABEL).read_text())
            self.numbers[name] = int(told["client"])
        site.edit('order = ["labels"]\n', 'order = ["labels", "allowlist"]\n')
        site.edit("[mediator]\n", f"[mediator]\nworkers = {workers}\n")
        site.toml.write_text(site.toml.read_text() + RULES + READ)
        site.up("--broker", "mosquitto")
        self._keeper = Keeper(lambda: Sealed("keeper", "t", self._raw("keeper")))

    def _raw(self, name: str) -> RawClient:
        raw = provisioned(self.site.port, self.site.clients / name / "sealmq.json")
        self._boots += 1
        raw.boot = 1000 + self._boots
        raw.noted = self.site.noted
        return raw

    def client(self, name: str, clean: bool = True) -> Sealed:
        """Connected, after a start."""
        peer = Sealed(name, "t", self._raw(name))
        peer.keeper = self._keeper

        def admitted() -> bool:
            peer.connect(clean=clean)
            return peer.welcome

        until(f"{name} to be let in", admitted)
        return peer

    def publish(self, payload: str) -> None:
        """The broker has it."""
        writer = self.client("writer")
        sent(writer, ("t/x", payload))
        writer.disconnect()

    def reload(self, old: str, new: str) -> None:
        """It is in force then."""
        self.site.edit(old, new)
        ran("reload", self.site.path)


# With two, each does what the only one does as well.
@pytest.fixture(
    params=[pytest.param(1, marks=pytest.mark.full), 2], ids=["one worker", "two workers"]
)
def ruled(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ruled]:
    site = Site(tmp_path)
    try:
        yield Ruled(site, request.param)
    finally:
        site.down()


def payloads(peer: Sealed) -> list[str]:
    """What it has got since it was asked last."""
    return [line.split()[1] for line in seen(peer)]


def test_a_right_that_a_reload_takes_from_kept_sessions_ends_at_each_worker(ruled: Ruled) -> None:
    assert sum(ruled.numbers[name] % 2 for name in READERS) == 1
    awake = {name: ruled.client(name, clean=False) for name in READERS}
    for peer in awake.values():
        peer.subscribe([("t/x", 1)])

    def both() -> list[list[str]]:
        return [payloads(peer) for peer in awake.values()]

    ruled.publish("1")
    assert both() == [["1"], ["1"]]

    ruled.reload(READ, "")
    ruled.publish("2")
    assert both() == [[], []]

    ruled.reload(RULES, RULES + READ)
    ruled.publish("3")
    assert both() == [["3"], ["3"]]


def test_what_waits_for_a_kept_session_is_judged_by_the_rules_of_when_it_goes_out(
    ruled: Ruled,
) -> None:
    for name in READERS:
        away = ruled.client(name, clean=False)
        away.subscribe([("t/x", 1)])
        away.disconnect()
    ruled.publish("1")
    ruled.reload(READ, "")
    ruled.publish("2")
    back = ruled.client("one", clean=False)
    assert payloads(back) == []
    ruled.reload(RULES, RULES + READ)
    later = ruled.client("two", clean=False)
    assert payloads(later) == ["1", "2"]
    ruled.publish("3")
    assert (payloads(back), payloads(later)) == (["3"], ["3"])
