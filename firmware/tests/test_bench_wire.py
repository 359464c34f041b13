"""The device bench counts what TCP really carries: lengths that MQTT gives, and both directions."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import jsonschema
import pytest

import bench_runs
from bench_measures import tasks
from bench_runs import BenchError
from bench_table import table
from bench_wire import Relay

SCHEMA = Path(__file__).parents[2] / "shared_spec" / "bench.schema.json"
TOPIC = 2 + len("machine/1/temperature")
# (sent, received) of umqtt.simple, by its packets; connect: to the PUBACK of a first publish.
PLAIN = {
    ("connect", 64): (2 + 10 + 2 + len("bench") + 2 + TOPIC + 2 + 64, 4 + 4),
    ("subscribe", 0): (2 + 2 + 2 + len("bench/subscribe") + 1, 5),
    ("publish", 64): (2 + TOPIC + 64, 0),
    ("receive", 256): (0, 3 + TOPIC + 256),
}
# Both layers of a published message, whatever its size: headers, and a tag each.
LAYERS = 9 + 28 + 16 + 16


def test_bytes_are_those_of_the_packets() -> None:
    rows = []
    with bench_runs.rig() as rig:
        rig.compile()
        for (stage, size), expected in PLAIN.items():
            [task] = tasks([f"wire_{stage}"], ["plain"], [size])
            made = task.run(rig)
            assert tuple(row["value"] for row in made) == expected, stage
            assert [row["params"]["direction"] for row in made] == ["sent", "received"]
            rows += made
        for size in (16, 64):
            [task] = tasks(["wire_publish"], ["sealmq-ccm"], [size])
            sent, received = task.run(rig)
            body = TOPIC + size + LAYERS
            assert (sent["value"], received["value"]) == ((2 if body < 128 else 3) + body, 0)
            rows += [sent, received]
    jsonschema.validate({"rows": rows}, json.loads(SCHEMA.read_text(encoding="utf-8")))
    shown = table(rows)
    assert "Bytes that the client sends" in shown
    assert "Bytes that the client receives" in shown


def test_a_connection_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench_wire.PATIENCE_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Relay(server.getsockname()[1]).relaying() as relay,
        socket.create_connection(("127.0.0.1", relay.port)) as client,
    ):
        client.sendall(b"12345")
        far = server.accept()[0]
        assert far.recv(16) == b"12345"
        with pytest.raises(BenchError, match="does not end"):
            relay.counts()
        far.sendall(b"123")
        assert client.recv(16) == b"123"
        far.close()
        assert relay.counts() == (5, 3)
