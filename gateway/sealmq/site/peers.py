"""[peers] of sealmq.toml: other sites, the labels that cross, and what follows from each of them.

Each imported label LABEL@PEER is one of the site's labels, which others may be over. Each label
that crosses has a client of its own, of kind gateway, through which the bridge does all that it
does: so whoever takes a label or a peer out takes a client out, and the label gets new keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sealmq.kinds import GATEWAY
from sealmq.near import near
from sealmq_spec.const import CHACHA
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter

from . import values
from .errors import ConfigError
from .model import BOTTOM, BUILT_IN, SUITES, Client, Label, Peer

_KEYS = ("fingerprint", "address", "listen", "far", "give", "export", "import")
MOST_GIVEN = 64
# A neighbour's token has at most 4 KiB, with both sites' names.
MOST_GIVEN_BYTES = 3800
_HEX = frozenset("0123456789abcdef")
MOST_PEERS = 32
# Of client names there is room for so much beside the peer's.
_LONGEST = 24


def read(t: Mapping[str, Any]) -> tuple[dict[str, Peer], dict[str, Label]]:
    """The peers, and the labels that they bring. ConfigError."""
    peers: dict[str, Peer] = {}
    labels: dict[str, Label] = {}
    for name, row in t.items():
        key = f"peers.{name}"
        values.check_name(name, key)
        if len(name) > _LONGEST or name.startswith(("sm1", "sealmq")):
            raise ConfigError(
                f"no peer can be called {name!r}",
                f"at most {_LONGEST} characters, and not what begins with sm1 or sealmq",
                key=key,
            )
        if not isinstance(row, dict):
            raise ConfigError("a peer is a table", f"[{key}]", key=key)
        values.only(row, key, _KEYS)
        found = fingerprint(values.text(row, f"{key}.fingerprint", required=True), key)
        sides = {side: _address(row, f"{key}.{side}") for side in ("address", "listen")}
        far = row.get("far", False)
        if type(far) is not bool:
            raise ConfigError(f"{far!r} is neither true nor false", key=f"{key}.far")
        if sum(side is not None for side in sides.values()) + far != 1:
            raise ConfigError(
                "one side of a line listens and the other calls it",
                'listen = "HOST:PORT" here and address = "HOST:PORT" there, or the other way round;'
                " far = true: it is no neighbour",
                key=key,
            )
        imports = _imports(row, key, name, labels)
        peers[name] = Peer(
            name,
            found,
            sides["address"],
            sides["listen"],
            _once(values.names(row, f"{key}.export", ()), f"{key}.export"),
            imports,
            _given(row, key, far),
            far,
        )
    if len(peers) > MOST_PEERS:
        raise ConfigError(f"{len(peers)} peers, at most {MOST_PEERS} go", key="peers")
    twice = [one.name for one in peers.values() if _same(one, peers)]
    if twice:
        raise ConfigError(
            f"{' and '.join(twice)} have one fingerprint",
            "each peer is another site",
            key=f"peers.{twice[-1]}.fingerprint",
        )
    return peers, labels


def _same(one: Peer, peers: Mapping[str, Peer]) -> bool:
    return sum(other.fingerprint == one.fingerprint for other in peers.values()) > 1


def fingerprint(text: str, key: str) -> str:
    """64 hex digits of `SHA256:...`, with or without colons between. ConfigError."""
    found = text.strip().lower().removeprefix("sha256:").replace(":", "")
    if len(found) != 64 or not set(found) <= _HEX:
        digits = sum(c in _HEX for c in found)
        others = f" and {len(found) - digits} other characters" if digits < len(found) else ""
        raise ConfigError(
            f"{text!r} is no fingerprint: it has 64 hex digits, not {digits}{others}",
            "`sealmq peer fingerprint SITE` says it, at the other site",
            key=f"{key}.fingerprint",
        )
    return found


def _given(row: Mapping[str, Any], key: str, far: bool) -> tuple[str, ...] | None:
    key = f"{key}.give"
    if "give" not in row:
        return None
    if far:
        raise ConfigError("what goes to it goes by way of neighbours", "give it to these", key=key)
    found = _once(values.names(row, key, ()), key)
    if len(found) > MOST_GIVEN:
        raise ConfigError(f"{len(found)} filters, at most {MOST_GIVEN} go", key=key)
    size = sum(len(filt.encode("utf-8", "replace")) + 2 for filt in found)
    if size > MOST_GIVEN_BYTES:
        raise ConfigError(
            f"filters of {size} bytes together, at most {MOST_GIVEN_BYTES} go, 2 beside each",
            "fewer and wider ones: #, @SITE/#",
            key=key,
        )
    for filt in found:
        try:
            check_filter(filt)
        except (SealError, UnicodeEncodeError) as error:
            raise ConfigError(f"{filt!r} is no filter: {error}", key=key) from None
        if filt[0] in "$!":
            raise ConfigError(f"{filt!r} begins with {filt[0]}", "own, or @SITE/...", key=key)
    return tuple(sorted(found))


def _address(row: Mapping[str, Any], key: str) -> tuple[str, int] | None:
    text = values.text(row, key)
    return values.address(text, key) if text else None


def _once(names: tuple[str, ...], key: str) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ConfigError("a label is named twice", "name each once", key=key)
    return names


# "LABEL" or "LABEL:SUITE": the suite is the label's at its own site.
def _imports(
    row: Mapping[str, Any], key: str, peer: str, labels: dict[str, Label]
) -> tuple[str, ...]:
    key = f"{key}.import"
    out = []
    for text in values.names(row, key, ()):
        name, _, suite = text.partition(":")
        values.check_name(name, key)
        number = SUITES.get(suite or "ccm")
        if number is None:
            raise ConfigError(f"{suite!r} is no suite", near(suite, SUITES), key=key)
        out.append(name)
        labels[f"{name}@{peer}"] = Label(f"{name}@{peer}", (), number)
    return _once(tuple(out), key)


def check(
    peers: Mapping[str, Peer], labels: Mapping[str, Label], below: Mapping[str, frozenset[str]]
) -> None:
    """What is exported must be there, and must not bring along what is not. ConfigError."""
    for peer in peers.values():
        key = f"peers.{peer.name}.export"
        for name in peer.exports:
            if name in BUILT_IN:
                raise ConfigError(
                    f"{name} is built in, and is no label to export", "take it out", key=key
                )
            values.check_label(name, labels, key)
            if "@" in name:
                raise ConfigError(
                    f"{name} is another site's: only that site exports it",
                    "let the two sites add each other (`sealmq peer add --far`)",
                    key=key,
                )
            more = sorted(below[name] - {BOTTOM} - set(peer.exports))
            if more:
                raise ConfigError(
                    f"who has the keys of {name} can derive those of {', '.join(more)}, below it",
                    "export these as well, or a label that is above none",
                    key=key,
                )


def clients(
    peers: Mapping[str, Peer], labels: Mapping[str, Label], there: Mapping[str, Client]
) -> dict[str, Client]:
    """The clients of the bridges. ConfigError: an operator's client is called so."""
    out: dict[str, Client] = {}
    for peer in peers.values():
        made = [(peer.client_out(label), label) for label in peer.exports]
        made += [(peer.client_in(label), peer.label_in(label)) for label in peer.imports]
        for name, label in made:
            if name in there or name in out or not values.is_name(name):
                raise ConfigError(
                    f"the bridge's client would be called {name}, which cannot be",
                    "give the label, the peer or the other client another name",
                    key=f"peers.{peer.name}",
                )
            out[name] = Client(name, label, GATEWAY, CHACHA)
    return out
