"""The bench's Noise device speaks with a library that is not ours, and refuses what is forged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

import bench_noise
from bench_noise import NoisePeer
from bench_runs import BenchError
from bench_table import table

SCHEMA = Path(__file__).parents[2] / "shared_spec" / "bench.schema.json"
FRAME, TAG, HEAD, EPHEMERAL = 3, 16, 4, 32
HELLO = FRAME + len(b"\1bench\0" + b"001122334455\0")
SHAKE = FRAME + 1 + EPHEMERAL + TAG
# (sent, received) by the device; connect: from the peer's empty hello to a first message.
WIRE = {
    "connect": (HELLO + SHAKE + FRAME + HEAD + 64 + TAG, FRAME + SHAKE),
    "publish": (FRAME + HEAD + 64 + TAG, 0),
    "receive": (0, FRAME + HEAD + 64 + TAG),
}


@contextmanager
def device(folder: Path, run: tuple[int, int, int], size: int = 64) -> Iterator[Any]:
    """A device that has ended, and its peer."""
    with NoisePeer(run, size).serving() as peer:
        words = [str(bench_noise.program(folder)), *map(str, (peer.port, *run, size))]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    yield SimpleNamespace(peer=peer, code=done.returncode, said=done.stderr)


# May fetch libsodium, and compiles.
@pytest.mark.full
def test_the_device_and_home_assistants_library_understand_each_other(tmp_path: Path) -> None:
    rig: Any = SimpleNamespace(folder=tmp_path)
    with device(tmp_path, (2, 5, 5), 1024) as ran:
        assert (ran.code, ran.peer.seen) == (0, 2), ran.said
    rows = []
    for stage, expected in WIRE.items():
        made = bench_noise.wire_noise(rig, f"wire_noise_{stage}", bench_noise.VARIANT, 64)
        assert tuple(row["value"] for row in made) == expected, stage
        rows += made
    rows += bench_noise.noise(rig, "noise_publish", bench_noise.VARIANT, 64)
    jsonschema.validate({"rows": rows}, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert "Beside ESPHome's Noise" in table(rows)
    assert "The bars" not in table(rows)


@pytest.mark.full
def test_a_peer_with_another_key_or_a_forged_message_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as other:
        other.setattr(bench_noise, "_PSK", bytes(32))
        with device(tmp_path, (1, 0, 0)) as ran:
            assert ran.said == "noise_device: a message does not verify\n"
            assert (ran.code, ran.peer.seen) == (1, 0)

    send = bench_noise._send
    sent = []

    def flipped(sock: Any, body: bytes) -> None:
        sent.append(body)
        send(sock, body if len(sent) < 4 else body[:-1] + bytes((body[-1] ^ 1,)))

    monkeypatch.setattr(bench_noise, "_send", flipped)
    with device(tmp_path, (1, 0, 2)) as ran:
        assert (ran.code, ran.said) == (1, "noise_device: a message does not verify\n")
        assert len(sent) == 4  # hello, handshake, a message that was right, one that was not


def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="no C compiler: sudo apt install gcc libc6-dev"):
        bench_noise.program(tmp_path)
