"""What connecting and publishing may cost, in instructions of 64-bit MicroPython under valgrind.

On 64-bit ARM there is no viper, so no such bound: the counts are not taken there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import measure_connect
from real_micropython import VIPER

CONNECT = 360_000
TIMES_TLS = 120


def row(measure: str, variant: str, value: int) -> dict[str, object]:
    """A row as measure_connect makes them."""
    params = {"pairs": 1, "least": value, "most": value}
    return {"measure": measure, "variant": variant, "value": value, "params": params}


if 64 in VIPER:

    def test_connect_to_the_first_accepted_publish(tmp_path: Path) -> None:
        mpy = measure_connect.compile_device(tmp_path / "mpy")
        tls = measure_connect.tls(mpy)
        value = {}
        # Where things come to lie in the heap makes a few thousand more or less: of three sites the
        # cheapest counts.
        for site in ("first", "second", "third"):
            (tmp_path / site).mkdir()
            ours = measure_connect.sealmq(tmp_path / site, mpy)
            value = {(r["measure"], r["variant"]): r["value"] for r in [*ours, *tls]}
            if value["connect", "sealmq-ccm"] < CONNECT:
                break
        assert 0 < value["connect", "sealmq-ccm"] < CONNECT
        assert value["reconnect", "sealmq-ccm"] < value["connect", "sealmq-ccm"]
        assert 0 < value["publish", "sealmq-ccm"] < 65_000
        assert value["connect", "tls13-ecdsa"] > TIMES_TLS * value["connect", "sealmq-ccm"]
        assert tls[0]["params"]["suite"] == "TLS1-3-AES-256-GCM-SHA384"


def test_the_table_goes_between_its_marks(tmp_path: Path) -> None:
    rows = [row("connect", "sealmq-ccm", 300_000), row("connect", "tls13-ecdsa", 45_000_000)]
    text = f"before\n{measure_connect.BEGIN}\nold\n{measure_connect.END}\nafter\n"
    made = measure_connect.document(text, rows)
    assert "old" not in made
    assert made.startswith("before\n")
    assert made.endswith("\nafter\n")
    assert "300,000" in made
    assert "150 times" in made
    assert measure_connect.document(made, rows) == made
    with pytest.raises(measure_connect.MeasureError):
        measure_connect.document("no marks", rows)


def test_the_document_holds_the_table() -> None:
    text = measure_connect.DOCUMENT.read_text(encoding="utf-8")
    assert text.count(measure_connect.BEGIN) == text.count(measure_connect.END) == 1
