"""What the family keeps in the store, as rows: key and JSON. The last writer wins.

    r/FILTER           {"aip": [...], "pip": [...], "by": CLIENT, "label": LABEL or "", "at": ms}
    p/CLIENT/FILTER    {"ap": PURPOSE, "by": CLIENT, "at": ms}
    s/NAME             {"value": VALUE, "by": CLIENT, "at": ms}
    b/CLIENT           {"since": ms}: what an earlier bearer has left is put right (bearers.py)

CLIENT with GONE after it was removed.

A client's name has no slash, so the keys are told apart. What cannot be read is an error: the
engine then lets the family allow nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..api import FamilyRecord
from ..bearers import GONE
from .store import SHARED, Reservation

NAME = "purposes"
RESERVATION, PRESUBSCRIPTION, SETTING = "r/", "p/", "s/"
_AT = b',"at":'
_known: dict[bytes, Reservation] = {}
_decode = json.JSONDecoder().decode


def reservation(r: Reservation, at_ms: int) -> FamilyRecord:
    """The row of a client's reservation."""
    value = {"aip": sorted(r.aip), "pip": sorted(r.pip), "by": r.by, "label": r.label, "at": at_ms}
    return _row(RESERVATION + r.filter, value)


def released(filt: str) -> FamilyRecord:
    return FamilyRecord(NAME, RESERVATION + filt, None)


def presubscription(client: str, filt: str, ap: str, by: str, at_ms: int) -> FamilyRecord:
    """The row of a presubscription; ap "" removes it."""
    key = f"{PRESUBSCRIPTION}{client}/{filt}"
    return _row(key, {"ap": ap, "by": by, "at": at_ms}) if ap else FamilyRecord(NAME, key, None)


def setting(name: str, value: str, by: str, at_ms: int) -> FamilyRecord:
    """The row of a setting; value "" goes back to what sealmq.toml says."""
    key = SETTING + name
    if not value:
        return FamilyRecord(NAME, key, None)
    return _row(key, {"value": value, "by": by, "at": at_ms})


def orphaned(key: str, value: bytes, since: Mapping[str, int]) -> FamilyRecord | None:
    """What becomes of a row once others bear its names, or None: it stays as it is.

    A presubscription goes with the client that it is for. Who made a row that stays is told as
    somebody who is gone.
    """
    row = _decoded(value)
    by, at = row["by"], row["at"]
    if key.startswith(PRESUBSCRIPTION):
        client = key.removeprefix(PRESUBSCRIPTION).partition("/")[0]
        if at < since.get(client, 0):
            return FamilyRecord(NAME, key, None)
    if at < since.get(by, 0):
        return _row(key, {**row, "by": by + GONE})
    return None


def read_reservation(filt: str, value: bytes) -> Reservation:
    """Many rows differ in their time alone, and decoding is half of what a row costs at start-up.

    What stands before the time is all of a reservation; in a JSON text no string has these bytes.
    """
    said = value[: max(value.rfind(_AT), 0)]
    known = _known.get(said)
    if known is None:
        row = _decoded(value)
        if len(_known) >= SHARED:
            _known.clear()
        first = Reservation(filt, row["aip"], row["pip"], row["by"], row["label"])
        if said:
            _known[said] = first
        return first
    return Reservation(filt, known.aip, known.pip, known.by, known.label)


def read_presubscription(key: str, value: bytes | None) -> tuple[str, str, str, str, int]:
    """(client, filter, ap or "", by, Unix ms) of what follows p/."""
    client, _, filt = key.partition("/")
    if value is None:
        return client, filt, "", "", 0
    row = _decoded(value)
    return client, filt, row["ap"], row["by"], row["at"]


def read_setting(value: bytes) -> str:
    return str(_decoded(value)["value"])


def origin(value: bytes) -> tuple[str, int]:
    """Who made a row of any kind, and when (Unix ms)."""
    row = _decoded(value)
    return row["by"], row["at"]


def _row(key: str, value: dict[str, Any]) -> FamilyRecord:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return FamilyRecord(NAME, key, text.encode())


def _decoded(value: bytes) -> Any:
    return _decode(value.decode())
