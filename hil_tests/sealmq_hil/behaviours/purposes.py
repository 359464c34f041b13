"""A board says what its data is for: a reader for that gets it, and no other; taken back, what the
site says counts again.
"""

from __future__ import annotations

import time

from ..behaviour import Behaviour, Policy
from ..bench import Bench
from ..errors import Failed
from ..processes import until
from ..reader import Reader
from ..site import ABOVE, BELOW

CARER = "rig-carer"
RIG, CARE = "rig", "care"

# With the board's own secret, in the place of its program. The client stays for what comes next.
_RESERVES = """
from sealmq_device import Client
from sealmq_device.nvs import NvsStore
c = Client(NvsStore(), timeout=10)
c.connect()
c.reserve({topic!r}, [{care!r}], [{rig!r}])
c.publish({topic!r}, {word!r}, qos=1)
print("said", "all")
"""
_RELEASES = """
c.release({topic!r})
c.publish({topic!r}, {word!r}, qos=1)
c.disconnect()
print("said", "all")
"""


def private_of(board: str) -> str:
    """Where it publishes what is for care as well."""
    return f"rig/{board}/private"


def _run(bench: Bench) -> None:
    site, topic = bench.site, private_of(bench.name)
    carer = site.others[CARER]
    token = f"{bench.dice.getrandbits(32):x}"
    # A message is judged when it is delivered, so each is awaited before the next command.
    for stage, script, reader in (
        ("reserve", _RESERVES, carer),
        ("release", _RELEASES, site.above),
    ):
        with bench.stage(stage):
            word = f"{stage} {token}"
            text = script.format(topic=topic, care=CARE, rig=RIG, word=word)
            with bench.serial.away(), bench.heavy:
                printed = bench.tools.program(bench.board, text)
            if "said all" not in printed:
                raise Failed(f"the board did not say all of it: {printed[-300:]}")
            _await(reader, topic, word)
    with bench.stage("refuse"):
        before, since = bench.salts(), time.monotonic()
        bench.board.reset()
        # The rig's reader gets this one behind all that came before.
        bench.fresh(since, not_in=before)
        _await(carer, topic, f"release {token}")
        heard = [text for text in _heard(site.above, topic) if text.endswith(token)]
        if heard != [f"release {token}"]:
            raise Failed(f"the reader for {RIG} has read {heard} of {topic}")


def _heard(reader: Reader, topic: str) -> list[str]:
    return [message.payload for message in reader.all() if message.topic == topic]


def _await(reader: Reader, topic: str, text: str) -> None:
    until(f"{reader.name} to read {text}", lambda: text in _heard(reader, topic))


# What boards publish is for the rig, some of it for care, too, which has a reader. The rig's other
# readers say themselves for what as little as other programs of today.
_POLICY = Policy(
    tables=[
        (
            "families.purposes.reserve",
            [
                f'"rig/#" = {{ aip = ["{RIG}"] }}',
                f'"{private_of("+")}" = {{ aip = ["{CARE}"] }}',
            ],
        )
    ],
    named=[
        (
            "families.purposes.presubscribe",
            [f'"{name}" = {{ "rig/#" = "{RIG}" }}' for name in (ABOVE, BELOW)],
        )
    ],
    reader=CARER,
    filters=[private_of("+")],
    words=["--purpose", CARE],
)

BEHAVIOUR = Behaviour(
    "purposes",
    "read for the purpose that it reserves, not for the one it prohibits",
    _run,
    policy=_POLICY,
)
