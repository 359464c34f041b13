"""The variants of the gateway's bench: brokers alone, and sites."""

from __future__ import annotations

from load_sites import Variant

# What the bars compare with.
BASE = "mosquitto-tls"
NATS = "nats"
LABELS, HYBRID = "sealmq-labels", "sealmq-hybrid"
TWO = "sealmq-workers-2"
VARIANTS = {
    v.name: v
    for v in (
        Variant("mosquitto", broker="mosquitto"),
        Variant(BASE, broker="mosquitto-tls"),
        Variant(NATS, broker="nats"),
        Variant("amqtt", broker="amqtt"),
        Variant(LABELS),
        Variant(HYBRID, "hybrid", "cache"),
        Variant(TWO, workers=2),
    )
}
# How many reservations a site with purposes holds.
RESERVATIONS = 1000
