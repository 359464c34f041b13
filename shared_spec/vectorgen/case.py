"""One case, one defect, one small JSON file: how a case is written down, and what a case may be."""

from __future__ import annotations

import json
from typing import Any

from .model import Client, Roots

MAX_BYTES = 4095

Json = dict[str, Any]


class Cases:
    """Collects cases; refuses two of one name, and files too big for a device."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def put(self, name: str, section: str, what: str, rest: Json) -> None:
        """Adds a case whose operation, inputs and expectations are in `rest`."""
        text = json.dumps({"name": name, "section": section, "what": what, **rest}, indent=1) + "\n"
        if name in self.files:
            raise ValueError(f"two cases are called {name}")
        if len(text.encode()) > MAX_BYTES:
            raise ValueError(f"{name} has {len(text)} bytes, more than {MAX_BYTES}")
        self.files[name] = text

    def good(
        self, name: str, section: str, what: str, op: str, inputs: Json, out: Json, *flip: str
    ) -> None:
        """A case that gives `out`; every byte of the inputs named in `flip` counts."""
        rest: Json = {"op": op, "in": inputs, "out": out}
        if flip:
            rest["flip"] = list(flip)
        self.put(name, section, what, rest)

    def bad(self, name: str, section: str, what: str, op: str, inputs: Json, refuse: str) -> None:
        """A case that is refused with the class `refuse` of section 11."""
        self.put(name, section, what, {"op": op, "in": inputs, "refuse": refuse})

    def script(
        self, name: str, section: str, what: str, op: str, inputs: Json, steps: list[Json]
    ) -> None:
        """Several steps on one object; the last one is what the case is about."""
        self.put(name, section, what, {"op": op, "in": inputs, "steps": steps})


def roots_json(r: Roots) -> Json:
    """Roots as a case shows them."""
    return {
        "label": r.label,
        "epoch": r.epoch,
        "suite": r.suite,
        "r": r.r.hex(),
        "r_bar": r.r_bar.hex(),
    }


def client_json(c: Client, gen: int | None = None, kseq: int = 90) -> Json:
    """What a client holds: from enrolment alone when gen is 0, else from provisioning as well."""
    held = c.gen if gen is None else gen
    out: Json = {
        "site": c.site.hex(),
        "client": c.client,
        "mediator": c.mediator,
        "ps": c.ps.hex(),
        "suite": c.suite,
        "gen": held,
        "kseq": kseq,
    }
    if held:
        out["km"] = c.km.hex()
        out["own"] = roots_json(c.own)
    return out


def link_json(c: Client) -> Json:
    """What selects and keys a link: for operations on single packets."""
    return {
        "site": c.site.hex(),
        "client": c.client,
        "mediator": c.mediator,
        "suite": c.suite,
        "boot": c.boot,
        "salt": c.salt.hex(),
        "km": c.km.hex(),
    }


def cut(packet: bytes, size: int) -> str:
    """The first `size` bytes, as hex."""
    return packet[:size].hex()


def with_byte(packet: bytes, at: int, value: int) -> str:
    """The packet with one byte set, as hex."""
    return (packet[:at] + bytes([value]) + packet[at + 1 :]).hex()
