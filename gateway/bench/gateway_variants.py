"""The variants of the gateway's bench: brokers alone, and sites."""

from __future__ import annotations

from load_family import benches, site_of
from load_sites import Variant

from sealmq.cli.init import DEFAULT

# What the bars compare with.
BASE = "mosquitto-tls"
NATS = "nats"
LABELS, TWO = "sealmq-labels", "sealmq-workers-2"
FAMILIES = {
    name: Variant(f"sealmq-{bench.variant}", name, site_of(name).SETTINGS)
    for name, (_, bench) in benches().items()
}
"""A site under each policy family that has a bench."""
# As `sealmq init` makes one.
USUAL = FAMILIES[DEFAULT].name
VARIANTS = {
    v.name: v
    for v in (
        Variant("mosquitto", broker="mosquitto"),
        Variant(BASE, broker="mosquitto-tls"),
        Variant(NATS, broker="nats"),
        Variant("amqtt", broker="amqtt"),
        Variant(LABELS),
        *FAMILIES.values(),
        Variant(TWO, workers=2),
    )
}
# How many records of its family a site holds.
HELD = 1000
