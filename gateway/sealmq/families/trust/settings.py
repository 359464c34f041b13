"""[families.trust] of sealmq.toml, checked: one wrong word, and none of it is taken over.

way = "path"            # what accepts a token of another site: path, neighbour or spki (decide.py)
measure = "average"     # of a path: average, or weakest (its weakest edge)
sign = 0.6              # π: at least that is signed
accept = 0.5            # θ: at least that is accepted; not above π
signers = 1             # k: so many have to be enough
bad = 5                 # μ: what a bad message counts, a good one counts 1
base = 0.5              # δ: what a site is rated of which nothing is known
half_life = "24h"       # of evidence
cap = 50                # the most evidence that is held of a neighbour
block = 0.25            # below it a neighbour is blocked
free = 0.4              # and from here on it is not any more
by_issuer = true        # bad messages close the way of their issuer, over that neighbour alone

assessors = ["checker"] # clients whose word alone makes a message bad

[families.trust.tokens.thermometer]     # of an own client; who has none publishes and reads nothing
publish = ["hall/temperature"]          # F_p
subscribe = ["settings/thermometer/#"]  # F_s
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sealmq.near import near
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter

from ..api import FamilyConfigError, Policy
from .decide import RULES, Rules
from .ratings import HOUR_MS, SCALE, WEIGHTS, Weights, part
from .tokens import MOST_FILTERS

NAME = "trust"
WAYS, MEASURES = ("path", "neighbour", "spki"), ("average", "weakest")
_SPAN = re.compile(r"([1-9][0-9]{0,4})([mhd])\Z")
_UNIT_MS = {"m": HOUR_MS // 60, "h": HOUR_MS, "d": 24 * HOUR_MS}
_KEYS = (
    "way", "measure", "sign", "accept", "signers", "bad", "base", "half_life", "cap", "block",
    "free", "by_issuer", "assessors", "tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LocalToken:
    """F_p and F_s of an own client."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it."""

    rules: Rules = RULES
    weights: Weights = WEIGHTS
    tokens: Mapping[str, LocalToken] = field(default_factory=dict)
    assessors: frozenset[str] = frozenset()


def read(config: Policy) -> Settings:
    """What the file says. FamilyConfigError: the first thing that is wrong."""
    found = config.families.get(NAME, {})
    for key in found:
        if key not in _KEYS:
            raise FamilyConfigError(key, f"unknown key {key!r}", near(key, _KEYS))
    rules, weights = RULES, WEIGHTS
    way, measure = _word(found, "way", WAYS), _word(found, "measure", MEASURES)
    sign, accept = _part(found, "sign", rules.sign), _part(found, "accept", rules.accept)
    if accept > sign:
        hint = "who signs a token has accepted it: accept (θ) is not above sign (π)"
        raise FamilyConfigError("accept", f"{accept / SCALE:g} is above sign", hint)
    signers = _whole(found, "signers", rules.signers, 1, 64)
    block, free = _part(found, "block", weights.block), _part(found, "free", weights.free)
    if block > free:
        hint = "a neighbour that is blocked comes back at free, which is not below block"
        raise FamilyConfigError("free", f"{free / SCALE:g} is below block", hint)
    bad, cap = (
        _whole(found, "bad", weights.bad, 2, 1000),
        _whole(found, "cap", weights.cap, 2, 10**6),
    )
    if cap < bad:
        hint = "one bad message would count more than all that is held of a neighbour"
        raise FamilyConfigError("cap", f"{cap} is below bad", hint)
    return Settings(
        Rules(way, measure, sign, accept, signers),  # type: ignore[arg-type]
        replace(
            weights,
            bad=bad, cap=cap, block=block, free=free, by_issuer=_bool(found, "by_issuer"),
            base=_part(found, "base", weights.base),
            half_life_ms=_span(found, "half_life", weights.half_life_ms),
        ),
        _tokens(found.get("tokens", {}), config),
        _assessors(found.get("assessors", []), config),
    )  # fmt: skip


def _tokens(rows: object, config: Policy) -> dict[str, LocalToken]:
    if not isinstance(rows, Mapping):
        raise FamilyConfigError(
            "tokens", "tokens are tables by client", "[families.trust.tokens.c]"
        )
    found = {}
    for client, row in rows.items():
        key = f"tokens.{client}"
        if client not in config.clients:
            raise FamilyConfigError(
                key, f"there is no client {client!r}", near(client, config.clients)
            )
        if not isinstance(row, Mapping):
            raise FamilyConfigError(key, "a token is a table", 'publish = ["a/#"], subscribe = []')
        for word in row:
            if word not in ("publish", "subscribe"):
                hint = near(word, ("publish", "subscribe"))
                raise FamilyConfigError(f"{key}.{word}", f"unknown key {word!r}", hint)
        publish, subscribe = (_filters(row, key, word) for word in ("publish", "subscribe"))
        found[client] = LocalToken(publish, subscribe)
    return found


def _assessors(names: object, config: Policy) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FamilyConfigError("assessors", "assessors is a list of clients", 'assessors = ["c"]')
    for name in names:
        if name not in config.clients:
            hint = near(name, config.clients)
            raise FamilyConfigError("assessors", f"there is no client {name!r}", hint)
    return frozenset(names)


def _filters(row: Mapping[str, Any], key: str, word: str) -> tuple[str, ...]:
    key, value = f"{key}.{word}", row.get(word, [])
    if not isinstance(value, list) or not all(isinstance(filt, str) for filt in value):
        raise FamilyConfigError(key, f"{word} is a list of filters", f'{word} = ["a/+", "b/#"]')
    if len(value) > MOST_FILTERS:
        hint = "one filter with + or # stands for many"
        raise FamilyConfigError(key, f"{len(value)} filters, and {MOST_FILTERS} are the most", hint)
    for filt in value:
        try:
            check_filter(filt)
        except (SealError, UnicodeEncodeError) as error:
            raise FamilyConfigError(key, str(error), "a filter, as in a/+/#") from None
        own = "$!@" if word == "publish" else "$!"
        if filt[:1] in tuple(own):
            hint = "others' topics are read as @SITE/..., and nobody publishes them here"
            raise FamilyConfigError(key, f"{filt!r} begins with {filt[0]}", hint)
    return tuple(sorted(set(value)))


def _word(found: Mapping[str, Any], key: str, words: tuple[str, ...]) -> str:
    value = found.get(key, words[0])
    if value not in words:
        raise FamilyConfigError(
            key, f"{value!r} is none of {', '.join(words)}", f'{key} = "{words[0]}"'
        )
    return str(value)


def _part(found: Mapping[str, Any], key: str, otherwise: int) -> int:
    """1/10,000."""
    value = found.get(key)
    if value is None:
        return otherwise
    made = part(value)
    if made is not None:
        return made
    hint = f"a number from 0 to 1 of at most four digits: {key} = {otherwise / SCALE:g}"
    raise FamilyConfigError(key, f"{value!r} is no such number", hint)


def _whole(found: Mapping[str, Any], key: str, otherwise: int, least: int, most: int) -> int:
    value = found.get(key, otherwise)
    if type(value) is not int or not least <= value <= most:
        hint = f"a whole number from {least} to {most}: {key} = {otherwise}"
        raise FamilyConfigError(key, f"{value!r} is no such number", hint)
    return value


def _bool(found: Mapping[str, Any], key: str) -> bool:
    value = found.get(key, True)
    if not isinstance(value, bool):
        raise FamilyConfigError(key, f"{value!r} is neither true nor false", f"{key} = true")
    return value


def _span(found: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = found.get(key)
    if value is None:
        return otherwise
    match = _SPAN.match(value) if isinstance(value, str) else None
    if match is None:
        raise FamilyConfigError(key, f"{value!r} is no time", 'a number with m, h or d: "24h"')
    return int(match[1]) * _UNIT_MS[match[2]]
