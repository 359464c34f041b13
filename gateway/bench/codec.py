"""What the MQTT codec costs: microseconds of CPU a packet, best of several runs, as rows of JSON.

Run: python gateway/bench/codec.py. "one" feeds each packet by itself, as a device sends them;
"batch" feeds 64 KiB at once, as a loaded connection delivers them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench_print import row, show

from sealmq.mqtt import Decoder, Publish, build

TOPIC = "machine/1/temperature"
PAYLOAD = bytes(range(64))
COUNT = 20_000
RUNS = 7
MEBIBYTE = 1 << 20
UNIT = "us of CPU"


def best(work: Callable[[], int]) -> float:
    """Microseconds of CPU for each of the packets that `work` says it handled."""
    figures = []
    for _ in range(RUNS):
        before = time.process_time_ns()
        handled = work()
        figures.append((time.process_time_ns() - before) / handled / 1000)
    return round(min(figures), 3)


def decode_one(packet: bytes) -> Callable[[], int]:
    def work() -> int:
        feed = Decoder(MEBIBYTE, "client").feed
        for _ in range(COUNT):
            feed(packet)
        return COUNT

    return work


def forward_one(packet: bytes) -> Callable[[], int]:
    """Decode, then encode again: what a proxy does with each message."""

    def work() -> int:
        feed, publish = Decoder(MEBIBYTE, "client").feed, build.publish
        for _ in range(COUNT):
            for got in feed(packet):
                if isinstance(got, Publish):
                    publish(got.topic_raw, got.payload, got.qos, got.retain, got.dup, got.packet_id)
        return COUNT

    return work


def forward_batch(packet: bytes) -> Callable[[], int]:
    chunk = packet * (65536 // len(packet))
    each = len(chunk) // len(packet)
    times = max(1, COUNT // each)

    def work() -> int:
        feed, publish = Decoder(MEBIBYTE, "client").feed, build.publish
        for _ in range(times):
            for got in feed(chunk):
                if isinstance(got, Publish):
                    publish(got.topic_raw, got.payload, got.qos, got.retain, got.dup, got.packet_id)
        return times * each

    return work


def encode(topic: str | bytes) -> Callable[[], int]:
    def work() -> int:
        publish = build.publish
        for _ in range(COUNT):
            publish(topic, PAYLOAD)
        return COUNT

    return work


def large() -> int:
    """One packet of 1 MiB in pieces of 1 KiB."""
    packet = build.publish(TOPIC, bytes(MEBIBYTE - 64))
    feed = Decoder(MEBIBYTE, "client").feed
    return sum(len(feed(packet[at : at + 1024])) for at in range(0, len(packet), 1024))


def main() -> None:
    qos0 = build.publish(TOPIC, PAYLOAD)
    qos1 = build.publish(TOPIC, PAYLOAD, 1, packet_id=1)
    figures = {
        "publish_qos0_decode_encode_one": best(forward_one(qos0)),
        "publish_qos0_decode_encode_batch": best(forward_batch(qos0)),
        "publish_qos1_decode_encode_one": best(forward_one(qos1)),
        "publish_qos0_decode_one": best(decode_one(qos0)),
        "publish_qos0_encode_raw_topic": best(encode(TOPIC.encode())),
        "publish_qos0_encode_str_topic": best(encode(TOPIC)),
    }
    rows = [row(name, "codec", cost, UNIT, COUNT, len(PAYLOAD)) for name, cost in figures.items()]
    rows.append(
        row("puback_decode_one", "codec", best(decode_one(build.puback(1))), UNIT, COUNT, 0)
    )
    pieces = best(large)
    rows.append(row("publish_1mib_in_1kib_pieces", "codec", pieces, UNIT, 1, MEBIBYTE - 64))
    show(rows)


if __name__ == "__main__":
    main()
