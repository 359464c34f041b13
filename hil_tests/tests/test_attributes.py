"""A right that begins and ends by a file that somebody else writes, in a started site."""

from __future__ import annotations

import datetime

import pytest

from devices import Device, DeviceError, device
from running_site import Site, sealmq, until

TOPIC = "machine/1/temperature"
SETTINGS = """
[attributes.contract]
source = "file"
path = "../contract.toml"
[attributes.time]
source = "time"
zone = "Europe/Berlin"
[[families.allowlist.rule]]
publish = ["#"]
when = [
  { attribute = "contract", is = "signed" },
  { attribute = "time", weekdays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] },
]
"""


class Contracts:
    """The file, as its owner writes it."""

    def __init__(self, site: Site) -> None:
        self._path = site.path.parent / "contract.toml"

    def write(self, text: str) -> None:
        new = self._path.with_name("contract.new")
        new.write_text(text)
        new.rename(self._path)

    def sign(self, *names: str, seconds: float = 3600) -> None:
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        row = f'value = "signed"\nuntil = {end.isoformat()}\n'
        self.write("".join(f"[{name}]\n{row}" for name in names))

    def remove(self) -> None:
        self._path.unlink()


# With two, each does what the only one does as well.
@pytest.fixture(
    params=[pytest.param(1, marks=pytest.mark.full), 2], ids=["one worker", "two workers"]
)
def paid(site: Site, request: pytest.FixtureRequest) -> Site:
    """A site whose only rule lets those publish that have signed."""
    site.edit('order = ["labels"]\n', 'order = ["labels", "allowlist"]\n')
    site.edit("[mediator]\n", f"[mediator]\nworkers = {request.param}\n")
    site.toml.write_text(site.toml.read_text() + SETTINGS)
    return site


def may(sensor: Device) -> bool:
    """Whether it may publish now; it stays connected."""
    try:
        sensor.publish(TOPIC, "21.5")
    except DeviceError as error:
        if "allowlist.publish.not-allowed" not in str(error):
            raise
        return False
    return True


def note(site: Site) -> str:
    rows = site.status()["processes"]
    return str(next(row["note"] for row in rows if row["role"] == "mediator"))


def test_a_right_begins_and_ends_by_the_file(paid: Site) -> None:
    contracts = Contracts(paid)
    one, two = (paid.enrol(name, "m1-temp") for name in ("one", "two"))
    contracts.sign("one")
    paid.up()
    with device(one) as first, device(two) as second:
        assert may(first), "the file was read before anybody was served"
        assert not may(second)
        contracts.sign("two")
        until("two's right to begin", lambda: may(second))
        until("one's right to end", lambda: not may(first))
        contracts.sign("one", "two")
        until("one's right to begin", lambda: may(first))
        contracts.sign("one", "two", seconds=3)
        until("one's right to end with its validity", lambda: not may(first))
        until("two's as well", lambda: not may(second))

        # What is wrong takes nothing back and gives nothing.
        contracts.sign("one")
        until("one's right to begin", lambda: may(first))
        contracts.write("[two\n")
        until("the warning", lambda: "attribute contract: it is not TOML" in note(paid))
        assert may(first)
        assert not may(second)
        assert "attribute contract: it is not TOML" in paid.log()
        contracts.remove()
        until("the warning", lambda: "attribute contract: it cannot be read" in note(paid))
        assert may(first)
        contracts.sign("two")
        until("two's right to begin", lambda: may(second))
        assert not may(first)
        assert "attribute" not in note(paid)

        done = sealmq("explain", paid.path, "publish", "--client", "two", "-t", TOPIC)
        assert done.returncode == 0, done.stdout
        assert "attribute contract of two: signed, until 20" in done.stdout
        assert "in Europe/Berlin" in done.stdout

        changes = until("the records", lambda: paid.audit("attribute-back"))
        assert [row["attribute"] for row in changes] == ["contract"]
        why = [row["reason"] for row in paid.audit("attribute-away", attribute="contract")]
        assert ["it is not TOML" in why[0], "it cannot be read" in why[1]] == [True, True]
        said = [
            (row["subject"], row.get("value"))
            for row in paid.audit("attribute-changed", attribute="contract")
        ]
        signed, gone = '"signed"', None
        assert said[:3] == [("one", signed), ("two", signed), ("one", gone)]
        assert said[-2:] == [("two", signed), ("one", gone)]
        assert paid.audit("attribute-changed", attribute="time") == []

        # Its settings are taken over live.
        paid.edit('path = "../contract.toml"', 'path = "../other.toml"')
        assert sealmq("reload", paid.path).returncode == 0
        assert not may(second)
        until("the warning", lambda: "attribute contract: it cannot be read" in note(paid))


def test_a_mediator_that_begins_anew_reads_the_file_first(paid: Site) -> None:
    Contracts(paid).sign("one")
    one = paid.enrol("one", "m1-temp")
    paid.up()
    killed = paid.kill("mediator")
    paid.back("mediator", killed)
    with device(one) as first:
        assert may(first)
