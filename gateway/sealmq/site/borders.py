"""[borders] of sealmq.toml: which messages are opened at this site's edge and sealed again, and for
whom (BRIDGE.md, Borders). Without such a table nothing is.

A border takes what is published under one label, on listed topics, and publishes it again under
another one. Either it lets out: `from` is a label of this site's that no peer has, `to` one that is
exported. Or it lets in: `from` is LABEL@PEER, `to` a label of this site's that no peer has.

Bell and LaPadula's rule ("no write down") decides what that means: information may flow from one
label to another only if the latter dominates the former, as all who can read there could read it
before. Whatever else lets new readers in, and is a declassification, which the operator has to say
by `declassify = true`. Since a label is exported with all that lies below it, no exported label
dominates one that is not: so whatever lets out is a declassification.

What a border lets in is exported no further, and no border takes what a border of its site has
made. So a message passes one border that lets out and one that lets in, at most, and borders at
however many sites form no loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sealmq.kinds import BORDER, MADE
from sealmq_spec.const import CHACHA
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter, is_reserved

from . import values
from .errors import ConfigError
from .model import BUILT_IN, Border, Client, Label, Peer

GUARD = "labels"
"""The policy family that keeps a border's clients to its table, and all others out of its place."""
_KEYS = ("from", "to", "topics", "declassify")
MOST = 16
"""Borders of a site: each is a process."""
MOST_TOPICS = 64
# Of client names there is room for so much.
_LONGEST = 24

Below = Mapping[str, frozenset[str]]


def read(
    t: Mapping[str, Any],
    peers: Mapping[str, Peer],
    labels: Mapping[str, Label],
    below: Below,
    order: Sequence[str],
) -> dict[str, Border]:
    """The borders. order: [policy] order. ConfigError: one of them must not be."""
    out = {name: _border(name, row, peers, labels, below) for name, row in t.items()}
    if len(out) > MOST:
        raise ConfigError(
            f"{len(out)} borders; a site may have {MOST}", "one lists 64 filters", key="borders"
        )
    if out and GUARD not in order:
        raise ConfigError(
            f"there are borders, and nothing keeps others from publishing in their place: {GUARD} "
            "is not in the order",
            f'order = ["{GUARD}"], with others after it',
            key="policy.order",
        )
    return out


def _border(
    name: str, row: Any, peers: Mapping[str, Peer], labels: Mapping[str, Label], below: Below
) -> Border:
    key = f"borders.{name}"
    values.check_name(name, key)
    if len(name) > _LONGEST:
        raise ConfigError(
            f"no border can be called {name!r}", f"at most {_LONGEST} characters", key=key
        )
    if not isinstance(row, dict):
        raise ConfigError("a border is a table", f"[{key}]", key=key)
    values.only(row, key, _KEYS)
    opened, sealed = (_label(row, f"{key}.{word}", labels) for word in ("from", "to"))
    peer = _crosses(opened, sealed, key, peers)
    declassify = row.get("declassify", False)
    if type(declassify) is not bool:
        raise ConfigError(f"{declassify!r} is neither true nor false", key=f"{key}.declassify")
    _flow(opened, sealed, declassify, key, below)
    return Border(name, opened, sealed, _topics(row, f"{key}.topics", peer), declassify)


def _label(row: Mapping[str, Any], key: str, labels: Mapping[str, Label]) -> str:
    name = values.text(row, key, required=True)
    if name in BUILT_IN:
        raise ConfigError(
            f"{name} is built in, and is no label of a border's", "one under [labels]", key=key
        )
    values.check_label(name, labels, key)
    return name


# The peer that messages come from; "": they go out.
def _crosses(opened: str, sealed: str, key: str, peers: Mapping[str, Peer]) -> str:
    if "@" in sealed:
        raise ConfigError(
            f"{sealed} is another site's: only that site publishes under it",
            "a label of this site's that is exported",
            key=f"{key}.to",
        )
    exported = {label: peer.name for peer in peers.values() for label in peer.exports}
    if opened in exported:
        raise ConfigError(
            f"{opened} is exported to {exported[opened]}: its messages cross as they are sealed",
            "a border is for a label that no peer has",
            key=f"{key}.from",
        )
    peer = opened.partition("@")[2]
    if peer and sealed in exported:
        raise ConfigError(
            f"{sealed} is exported to {exported[sealed]}: what {peer} has published would go there",
            "what comes in by a border stays here; to a label that no peer has",
            key=f"{key}.to",
        )
    if not peer and sealed not in exported:
        raise ConfigError(
            f"no other site is on either side of it: {sealed} is exported to none",
            f"sealmq peer add SITE PEER --export {sealed}, or from = LABEL@PEER; or take the "
            "border's table out first",
            key=f"{key}.to",
        )
    return peer


def _flow(opened: str, sealed: str, declassify: bool, key: str, below: Below) -> None:
    allowed = opened in below[sealed]
    if not allowed and not declassify:
        raise ConfigError(
            f"{sealed} does not dominate {opened}: who has {sealed} alone could not read it "
            "before, and could then",
            "declassify = true says that this is meant; what is let out always is",
            key=f"{key}.to",
        )
    if allowed and declassify:
        raise ConfigError(
            f"{sealed} dominates {opened}: nobody can read more than before",
            "take declassify out, so that it is not there when labels change",
            key=f"{key}.declassify",
        )


def _topics(row: Mapping[str, Any], key: str, peer: str) -> tuple[str, ...]:
    found = values.names(row, key, ())
    if not 0 < len(found) <= MOST_TOPICS:
        raise ConfigError(
            f"{len(found)} filters; a border lists 1 to {MOST_TOPICS}",
            'topics = ["machine/1/temperature"]',
            key=key,
        )
    if len(set(found)) != len(found):
        raise ConfigError("a filter stands there twice", "once will do", key=key)
    for filt in found:
        try:
            check_filter(filt)
        except (SealError, UnicodeEncodeError) as error:
            raise ConfigError(
                f"{filt!r} is no filter: {error}", "levels, + for one, # last for more", key=key
            ) from None
        home = filt
        if peer:
            mount = f"@{peer}/"
            home = filt.removeprefix(mount)
            if home == filt:
                raise ConfigError(f"{filt!r} is no topic of {peer}'s", f"{mount}TOPIC", key=key)
        if is_reserved(home):
            raise ConfigError(
                f"{filt!r} is of the protocol's own, or of another site",
                "a topic that a client publishes on",
                key=key,
            )
        first = home.partition("/")[0]
        if first in ("", "+", "#"):
            raise ConfigError(
                f"{filt!r} would let through what nobody has listed",
                "the first level is named; wildcards may follow",
                key=key,
            )
        if first == MADE[:-1] and not peer:
            raise ConfigError(
                f"{filt!r} is what borders of this site have made, and would go in circles",
                "a topic that a client publishes",
                key=key,
            )
    return found


def clients(borders: Mapping[str, Border], there: Mapping[str, Client]) -> dict[str, Client]:
    """The clients of the borders. ConfigError: another client is called so."""
    out: dict[str, Client] = {}
    for border in borders.values():
        made = ((border.client_in, border.label_in), (border.client_out, border.label_out))
        for name, label in made:
            if name in there or name in out:
                raise ConfigError(
                    f"the border's client would be called {name}, as another one is",
                    "give the border or the other client another name",
                    key=f"borders.{border.name}",
                )
            out[name] = Client(name, label, BORDER, CHACHA)
    return out
